"""Rotary position embedding."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces


@jit
def rope(x: NkiTensor, cos: NkiTensor, sin: NkiTensor) -> NkiTensor:
    """Rotates the halves a, b of the last dimension of x[T, H, D] by angles: (a cos - b sin, b cos + a sin).

    cos and sin are [T, D / 2], the same for all heads: an access pattern with stride 0 repeats them, nothing is copied.
    """
    need(x.ndim == 3 and x.shape[2] % 2 == 0, f"rope takes (tokens, heads, even size), not {x.shape}")
    need_float("x", x)
    tokens, heads, half = x.shape[0], x.shape[1], x.shape[2] // 2
    for name, table in (("cos", cos), ("sin", sin)):
        need(table.shape == (tokens, half), f"{name} has shape {table.shape}, it takes ({tokens}, {half})")
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for rows in pieces(tokens, nl.tile_size.pmax):
        tile = nl.load(x[rows])
        result = nl.ndarray(tile.shape, x.dtype)
        c, s = (nl.load(table[rows]).expand_dim(1).broadcast(1, heads) for table in (cos, sin))
        a, b = tile[:, :, 0:half], tile[:, :, half:]
        shape = (length(rows), heads, half)
        first, second = nl.ndarray(shape, nl.float32), nl.ndarray(shape, nl.float32)
        nisa.tensor_tensor(first, a, c, nl.multiply)
        nisa.tensor_tensor(second, b, s, nl.multiply)
        nisa.tensor_tensor(result[:, :, 0:half], first, second, nl.subtract)
        nisa.tensor_tensor(first, b, c, nl.multiply)
        nisa.tensor_tensor(second, a, s, nl.multiply)
        nisa.tensor_tensor(result[:, :, half:], first, second, nl.add)
        nl.store(out[rows], result)
    return out
