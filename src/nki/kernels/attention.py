"""Flash attention, forward and backward: the matrix of scores exists one tile at a time.

q is [heads, S, D], k and v are [kv heads, T, D] with D up to 128; a batch is more heads. Where there are fewer kv heads
than heads, each serves a group of neighbours. With `causal`, query i sees keys 0 to i. Sums are float32.

Source of the method: Dao et al., FlashAttention (2022) and FlashAttention-2 (2023).
"""

from __future__ import annotations

import math

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces

LOWEST = -3.4028235e38  # the smallest float32: exp of it is 0, and no difference of two scores overflows to NaN


def _sizes(q: NkiTensor, k: NkiTensor, v: NkiTensor) -> tuple[int, int, int, int]:
    """(heads of q for one of k, S, T, D)."""
    need(q.ndim == 3 and k.ndim == 3, f"attention takes q[heads, S, D] and k[heads, T, D], not {q.shape} and {k.shape}")
    need(k.shape == v.shape, f"k has shape {k.shape}, v has {v.shape}")
    heads, rows, size = q.shape
    kv_heads, columns, kv_size = k.shape
    need(size == kv_size, f"q has D = {size}, k has D = {kv_size}")
    need(size <= nl.tile_size.pmax, f"D is {size}, attention takes up to {nl.tile_size.pmax}")
    need(heads % kv_heads == 0, f"q has {heads} heads, which is no multiple of the {kv_heads} of k")
    need_float("q", q)
    need(q.dtype == k.dtype == v.dtype, f"q is {q.dtype}, k is {k.dtype}, v is {v.dtype}: they must be the same")
    return heads // kv_heads, rows, columns, size


def _transposed(tile: NkiTensor) -> NkiTensor:
    return nl.copy(nl.transpose(tile))


def _columns_transposed(tensor: NkiTensor) -> NkiTensor:
    """All rows of tensor[N, D] in HBM as one tile [D, N]."""
    result = nl.ndarray((tensor.shape[1], tensor.shape[0]), tensor.dtype)
    for rows in pieces(tensor.shape[0], nl.tile_size.pmax):
        nisa.tensor_copy(result[:, rows], nl.transpose(nl.load(tensor[rows])))
    return result


def _column(rows: slice) -> NkiTensor:
    return nl.ndarray((length(rows), 1), nl.float32)


def _hide_later_keys(scores: NkiTensor, first_query: int, first_key: int, value: float) -> None:
    """`value` where the key comes after the query."""
    steps = [[-1, scores.shape[1]]]
    nisa.affine_select(scores, steps, 1, scores, value, cmp_op=nl.greater_equal, offset=first_query - first_key)


@jit
def flash_attention(
    q: NkiTensor, k: NkiTensor, v: NkiTensor, scale: float | None = None, causal: bool = False
) -> tuple[NkiTensor, NkiTensor]:
    """softmax(scale * q @ k^T) @ v, with q's shape and dtype, and the logarithm of the sums as float32 [heads, S].

    `scale` is 1 / sqrt(D) by default. SBUF holds one head's k and v.
    """
    group, rows, columns, size = _sizes(q, k, v)
    factor = 1.0 / math.sqrt(size) if scale is None else scale
    out = nl.ndarray(q.shape, q.dtype, buffer=nl.shared_hbm)
    sums = nl.ndarray((q.shape[0], rows), nl.float32, buffer=nl.shared_hbm)
    for kv_head in range(k.shape[0]):
        keys = _columns_transposed(k[kv_head])
        values = [nl.load(v[kv_head][part]) for part in pieces(columns, nl.tile_size.pmax)]
        for head in range(kv_head * group, (kv_head + 1) * group):
            for part in pieces(rows, nl.tile_size.pmax):
                queries = _transposed(nl.load(q[head][part]))
                result, log_sum = _forward_tile(queries, keys, values, part, factor, causal)
                nl.store(out[head][part], nl.copy(result, q.dtype))
                nl.store(sums[head, part], log_sum)
    return out, sums


def _forward_tile(
    queries: NkiTensor, keys: NkiTensor, values: list[NkiTensor], rows: slice, factor: float, causal: bool
) -> tuple[NkiTensor, NkiTensor]:
    """The result of up to 128 queries, and the logarithms of their sums, over blocks of 512 keys."""
    tile = nl.tile_size.pmax
    largest, total = _column(rows), _column(rows)
    result = nl.ndarray((length(rows), values[0].shape[1]), nl.float32)
    nisa.memset(largest, LOWEST)
    nisa.memset(total, 0.0)
    nisa.memset(result, 0.0)
    for block in pieces(keys.shape[1], nl.tile_size.gemm_moving_fmax):
        if causal and block.start >= rows.stop:
            break
        scores = nl.ndarray((length(rows), length(block)), nl.float32)
        product = nl.ndarray(scores.shape, nl.float32, buffer=nl.psum)
        nisa.nc_matmul(product, queries, keys[:, block])
        nisa.activation(scores, nl.copy, product, scale=factor)
        if causal and block.stop > rows.start:
            _hide_later_keys(scores, rows.start, block.start, LOWEST)
        before, negative = largest, _column(rows)
        largest, here = _column(rows), _column(rows)
        nisa.tensor_reduce(here, nl.maximum, scores, 1)
        nisa.tensor_tensor(largest, before, here, nl.maximum)
        nisa.tensor_scalar(negative, largest, nl.multiply, -1.0)
        powers, added, correction = nl.ndarray(scores.shape, values[0].dtype), _column(rows), _column(rows)
        nisa.activation_reduce(powers, nl.exp, scores, nl.add, added, bias=negative)
        nisa.activation(correction, nl.exp, before, bias=negative)
        nisa.scalar_tensor_tensor(total, total, nl.multiply, correction, nl.add, added)
        product = nl.ndarray(result.shape, nl.float32, buffer=nl.psum)
        for part in pieces(length(block), tile):
            nisa.nc_matmul(product, _transposed(powers[:, part]), values[(block.start + part.start) // tile])
        nisa.scalar_tensor_tensor(result, result, nl.multiply, correction, nl.add, product)
    inverse, log_sum = _column(rows), _column(rows)
    nisa.reciprocal(inverse, total)
    nisa.tensor_scalar(result, result, nl.multiply, inverse)
    nisa.activation(log_sum, nl.log, total)
    nisa.tensor_tensor(log_sum, log_sum, largest, nl.add)
    return result, log_sum


@jit
def flash_attention_backward(
    q: NkiTensor,
    k: NkiTensor,
    v: NkiTensor,
    out: NkiTensor,
    log_sums: NkiTensor,
    gradient: NkiTensor,
    scale: float | None = None,
    causal: bool = False,
) -> tuple[NkiTensor, NkiTensor, NkiTensor]:
    """Gradients of q, k and v, from what `flash_attention` took and gave and the gradient of its first result.

    SBUF holds the queries, results and gradients of one head.
    """
    group, rows, columns, size = _sizes(q, k, v)
    need(out.shape == q.shape and gradient.shape == q.shape, f"out and gradient take the shape {q.shape} of q")
    need(log_sums.shape == q.shape[:2], f"log_sums has shape {log_sums.shape}, it takes {q.shape[:2]}")
    factor = 1.0 / math.sqrt(size) if scale is None else scale
    results = [nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm) for tensor in (q, k, v)]
    key_parts = list(pieces(columns, nl.tile_size.pmax))
    for kv_head in range(k.shape[0]):
        totals = [[_zeros(length(part), size) for part in key_parts] for _ in range(2)]
        for head in range(kv_head * group, (kv_head + 1) * group):
            queries = _Queries(q[head], out[head], log_sums[head], gradient[head])
            for number, part in enumerate(key_parts):
                key, value = nl.load(k[kv_head][part]), nl.load(v[kv_head][part])
                sums = (totals[0][number], totals[1][number])
                _backward_tile(queries, key, value, part, sums, factor, causal)
            for index, query_rows in enumerate(queries.parts):
                scaled = nl.ndarray((length(query_rows), size), q.dtype)
                nisa.tensor_scalar(scaled, queries.totals[index], nl.multiply, factor)
                nl.store(results[0][head][query_rows], scaled)
        for number, part in enumerate(key_parts):
            scaled = nl.ndarray((length(part), size), k.dtype)
            nisa.tensor_scalar(scaled, totals[0][number], nl.multiply, factor)
            nl.store(results[1][kv_head][part], scaled)
            nl.store(results[2][kv_head][part], nl.copy(totals[1][number], v.dtype))
    return results[0], results[1], results[2]


def _zeros(rows: int, columns: int) -> NkiTensor:
    tile = nl.ndarray((rows, columns), nl.float32)
    nisa.memset(tile, 0.0)
    return tile


class _Queries:
    """What the backward needs of one head, in tiles of up to 128 queries."""

    def __init__(self, q: NkiTensor, out: NkiTensor, log_sums: NkiTensor, gradient: NkiTensor) -> None:
        self.parts = list(pieces(q.shape[0], nl.tile_size.pmax))
        self.rows = [nl.load(q[part]) for part in self.parts]
        self.gradients = [nl.load(gradient[part]) for part in self.parts]
        self.rows_transposed = [_transposed(tile) for tile in self.rows]
        self.gradients_transposed = [_transposed(tile) for tile in self.gradients]
        self.totals = [_zeros(length(part), q.shape[1]) for part in self.parts]
        self.negative_sums, self.deltas = [], []
        for part, tile in zip(self.parts, self.gradients, strict=True):
            negative, delta = _column(part), _column(part)
            column = log_sums.reshape(log_sums.shape[0], 1)
            nisa.tensor_scalar(negative, nl.load(column[part]), nl.multiply, -1.0)
            products = nl.ndarray(tile.shape, nl.float32)
            nisa.tensor_tensor(products, tile, nl.load(out[part]), nl.multiply)
            nisa.tensor_reduce(delta, nl.add, products, 1)
            self.negative_sums.append(negative)
            self.deltas.append(delta)


def _backward_tile(
    queries: _Queries,
    key: NkiTensor,
    value: NkiTensor,
    columns: slice,
    totals: tuple[NkiTensor, NkiTensor],
    factor: float,
    causal: bool,
) -> None:
    """Adds what up to 128 keys and all queries of a head give each other's gradients."""
    keys_transposed, values_transposed = _transposed(key), _transposed(value)
    size = key.shape[1]
    key_sum = nl.ndarray((length(columns), size), nl.float32, buffer=nl.psum)
    value_sum = nl.ndarray((length(columns), size), nl.float32, buffer=nl.psum)
    used = False
    for index, rows in enumerate(queries.parts):
        if causal and columns.start >= rows.stop:
            continue
        used = True
        shape = (length(rows), length(columns))
        scores = nl.ndarray(shape, nl.float32, buffer=nl.psum)
        nisa.nc_matmul(scores, queries.rows_transposed[index], keys_transposed)
        weights = nl.ndarray(shape, nl.float32)
        nisa.activation(weights, nl.exp, scores, bias=queries.negative_sums[index], scale=factor)
        if causal and columns.stop > rows.start:
            _hide_later_keys(weights, rows.start, columns.start, 0.0)
        nisa.nc_matmul(value_sum, _as(weights, key.dtype), queries.gradients[index])
        products = nl.ndarray(shape, nl.float32, buffer=nl.psum)
        nisa.nc_matmul(products, queries.gradients_transposed[index], values_transposed)
        slopes = nl.ndarray(shape, key.dtype)
        delta = queries.deltas[index]
        nisa.scalar_tensor_tensor(slopes, products, nl.subtract, delta, nl.multiply, weights)
        nisa.nc_matmul(key_sum, slopes, queries.rows[index])
        query_sum = nl.ndarray((length(rows), size), nl.float32, buffer=nl.psum)
        nisa.nc_matmul(query_sum, _transposed(slopes), key)
        nisa.tensor_tensor(queries.totals[index], queries.totals[index], query_sum, nl.add)
    if used:
        nisa.tensor_tensor(totals[0], totals[0], key_sum, nl.add)
        nisa.tensor_tensor(totals[1], totals[1], value_sum, nl.add)


def _as(tile: NkiTensor, dtype: object) -> NkiTensor:
    return tile if tile.dtype == dtype else nl.copy(tile, dtype)
