"""The SwiGLU feed-forward layer."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces


def _project(weights: list[NkiTensor], inputs: list[NkiTensor], columns: slice) -> NkiTensor:
    """weight[:, columns]^T @ input^T in PSUM: features on the partitions, tokens along the free dimension."""
    total = nl.ndarray((length(columns), inputs[0].shape[1]), nl.float32, buffer=nl.psum)
    for weight, transposed in zip(weights, inputs, strict=True):
        nisa.nc_matmul(total, weight[:, columns], transposed)
    return total


@jit
def swiglu_mlp(x: NkiTensor, w_gate: NkiTensor, w_up: NkiTensor, w_down: NkiTensor) -> NkiTensor:
    """(silu(x @ w_gate) * (x @ w_up)) @ w_down for x[T, H], w_gate[H, I], w_up[H, I], w_down[I, H], all of one dtype.

    x is transposed once. The hidden layer is then computed transposed, [I, T], which is how the last product needs it.
    """
    need(x.ndim == 2, f"swiglu_mlp takes x of two dimensions, not {x.shape}")
    need_float("x", x)
    (tokens, size), inner = x.shape, w_gate.shape[-1]
    wanted = (("w_gate", w_gate, (size, inner)), ("w_up", w_up, (size, inner)), ("w_down", w_down, (inner, size)))
    for name, weight, shape in wanted:
        need(weight.shape == shape, f"{name} has shape {weight.shape}, it takes {shape}")
        need(weight.dtype == x.dtype, f"{name} is {weight.dtype}, x is {x.dtype}")
    out = nl.ndarray((tokens, size), x.dtype, buffer=nl.shared_hbm)
    hs, features = list(pieces(size, nl.tile_size.pmax)), list(pieces(inner, nl.tile_size.pmax))
    gates, ups = [nl.load(w_gate[h]) for h in hs], [nl.load(w_up[h]) for h in hs]
    downs = [nl.load(w_down[i]) for i in features]
    for rows in pieces(tokens, nl.tile_size.pmax):
        tile = nl.load(x[rows])
        inputs = [nl.copy(nl.transpose(tile[:, h])) for h in hs]
        hidden = []
        for i in features:
            gate = nl.silu(_project(gates, inputs, i), nl.float32)
            product = nl.ndarray(gate.shape, x.dtype)
            nisa.tensor_tensor(product, gate, _project(ups, inputs, i), nl.multiply)
            hidden.append(product)
        for n in pieces(size, nl.tile_size.gemm_moving_fmax):
            total = nl.ndarray((length(rows), length(n)), nl.float32, buffer=nl.psum)
            for activated, weight in zip(hidden, downs, strict=True):
                nisa.nc_matmul(total, activated, weight[:, n])
            nl.store(out[rows, n], nl.copy(total, x.dtype))
    return out
