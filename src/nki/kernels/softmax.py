"""Softmax over the last dimension."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces


@jit
def softmax(x: NkiTensor) -> NkiTensor:
    """exp(x - max) / sum over the rows of x[N, D], computed in float32; the result has x's dtype.

    One pass of VectorE finds the negative maximum, one of ScalarE makes the powers and their sum, one scales.
    """
    need(x.ndim == 2, f"softmax takes two dimensions, not {x.shape}")
    need_float("x", x)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for rows in pieces(x.shape[0], nl.tile_size.pmax):
        tile = nl.load(x[rows])
        largest = nl.ndarray((length(rows), 1), nl.float32)
        nisa.tensor_reduce(largest, nl.maximum, tile, 1, negate=True)
        powers, total = nl.ndarray(tile.shape, nl.float32), nl.ndarray((length(rows), 1), nl.float32)
        nisa.activation_reduce(powers, nl.exp, tile, nl.add, total, bias=largest)
        nisa.reciprocal(total, total)
        result = nl.ndarray(tile.shape, x.dtype)
        nisa.tensor_scalar(result, powers, nl.multiply, total)
        nl.store(out[rows], result)
    return out
