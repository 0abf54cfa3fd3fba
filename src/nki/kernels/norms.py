"""RMS norm and layer norm over the last dimension."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces


def _vector(name: str, vector: NkiTensor, columns: int) -> NkiTensor:
    """A vector of `columns` elements as a float32 tile with the same row in every partition."""
    need(vector.shape == (columns,), f"{name} has shape {vector.shape}, it takes ({columns},)")
    rows = vector.reshape(1, columns).broadcast(0, nl.tile_size.pmax)
    return nl.load(rows, nl.float32)


@jit
def rms_norm(x: NkiTensor, weight: NkiTensor, eps: float = 1e-6) -> NkiTensor:
    """x / sqrt(mean(x^2) + eps) * weight for x[N, D], weight[D]; computed in float32, the result has x's dtype."""
    need(x.ndim == 2, f"rms_norm takes two dimensions, not {x.shape}")
    need_float("x", x)
    columns = x.shape[1]
    weights = _vector("weight", weight, columns)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for rows in pieces(x.shape[0], nl.tile_size.pmax):
        tile = nl.load(x[rows])
        squares, scale = nl.ndarray(tile.shape, nl.float32), nl.ndarray((length(rows), 1), nl.float32)
        nisa.activation_reduce(squares, nl.square, tile, nl.add, scale)
        nisa.tensor_scalar(scale, scale, nl.multiply, 1.0 / columns, op1=nl.add, operand1=eps)
        nisa.activation(scale, nl.rsqrt, scale)
        result = nl.ndarray(tile.shape, x.dtype)
        nisa.scalar_tensor_tensor(result, tile, nl.multiply, scale, nl.multiply, weights[0 : length(rows)])
        nl.store(out[rows], result)
    return out


@jit
def layer_norm(x: NkiTensor, weight: NkiTensor, bias: NkiTensor, eps: float = 1e-5) -> NkiTensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias for x[N, D], weight[D], bias[D]; float32 inside.

    bn_stats takes up to 512 elements; bn_aggr puts the statistics of the pieces together.
    """
    need(x.ndim == 2, f"layer_norm takes two dimensions, not {x.shape}")
    need_float("x", x)
    columns = x.shape[1]
    weights, biases = _vector("weight", weight, columns), _vector("bias", bias, columns)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    parts = list(pieces(columns, nl.tile_size.bn_stats_fmax))
    for rows in pieces(x.shape[0], nl.tile_size.pmax):
        count = length(rows)
        tile = nl.load(x[rows])
        stats, moments = nl.ndarray((count, 6 * len(parts)), nl.float32), nl.ndarray((count, 2), nl.float32)
        for index, part in enumerate(parts):
            nisa.bn_stats(stats[:, 6 * index : 6 * index + 6], tile[:, part])
        nisa.bn_aggr(moments, stats)
        mean, scale = moments[:, 0:1], nl.ndarray((count, 1), nl.float32)
        nisa.activation(scale, nl.rsqrt, moments[:, 1:2], bias=eps)
        centred, result = nl.ndarray(tile.shape, nl.float32), nl.ndarray(tile.shape, x.dtype)
        nisa.tensor_scalar(centred, tile, nl.subtract, mean, op1=nl.multiply, operand1=scale)
        nisa.tensor_tensor(centred, centred, weights[0:count], nl.multiply)
        nisa.tensor_tensor(result, centred, biases[0:count], nl.add)
        nl.store(out[rows], result)
    return out
