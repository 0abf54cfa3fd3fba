"""Gathers and scatters. Indices that are out of range are an error in PyTorch; here they are clamped or dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value, highest, lowest
from torch_neuronx.lowering.view import normal, take_flat

Combine = Callable[[Value, Value], Value]


def wrapped(cx: Any, index: Value, size: int) -> Value:
    """Negative indices count from the end."""
    index = cx.convert(index, torch.int32)
    return cx.select(cx.compare_with("LT", index, 0), cx.shift(index, size), index)


def gather_rows(cx: Any, x: Value, dim: int, index: Value, wrap: bool = True) -> Value:
    """x[:, ..., index, ...]: the dimensions of `index` take the place of `dim`."""
    index = wrapped(cx, index, x.shape[dim]) if wrap else cx.convert(index, torch.int32)
    shape = (*x.shape[:dim], *index.shape, *x.shape[dim + 1 :])
    offset = [d for d in range(len(shape)) if not dim <= d < dim + index.rank]
    sizes = [1 if d == dim else s for d, s in enumerate(x.shape)]
    return cx.gather(x, cx.reshape(index, (*index.shape, 1)), offset, [dim], [dim], sizes, shape)


def scatter_rows(cx: Any, x: Value, dim: int, index: Value, updates: Value, combine: Combine) -> Value:
    """The counterpart of gather_rows for a one-dimensional index."""
    index = wrapped(cx, cx.reshape(index, (index.numel,)), x.shape[dim])
    window = [d for d in range(x.rank) if d != dim]
    column = cx.reshape(index, (*index.shape, 1))
    return cx.scatter(x, column, updates, window, [dim], [dim], combine)


@lowers("index_select", "index_select_backward")
def index_select(cx: Any, x: Value, dim: int, index: Value) -> Value:
    if x.rank == 0:
        return cx.reshape(x, cx.shape)
    return gather_rows(cx, x, normal(dim, x.rank), cx.reshape(index, (index.numel,)))


def _index_plan(
    cx: Any, x: Value, indices: Sequence[Value | None]
) -> tuple[Value, list[int], list[int], tuple[int, ...]]:
    """(index vectors, indexed dimensions, dimensions of the result that are windows, shape of the result)"""
    indexed = [d for d, i in enumerate(indices) if i is not None]
    given = [i for i in indices if i is not None]
    if any(i.dtype == torch.bool for i in given):
        raise cx.unsupported("a mask as index makes a result whose size depends on the data; use torch.where")
    vectors = cx.same_shape(*(wrapped(cx, i, x.shape[d]) for i, d in zip(given, indexed, strict=True)))
    index_shape = vectors[0].shape
    stacked = cx.concatenate([cx.reshape(v, (*index_shape, 1)) for v in vectors], len(index_shape))
    others = [d for d in range(x.rank) if d not in indexed]
    adjacent = indexed == list(range(indexed[0], indexed[0] + len(indexed)))
    at = indexed[0] if adjacent else 0
    shape = (*(x.shape[d] for d in others[:at]), *index_shape, *(x.shape[d] for d in others[at:]))
    windows = [d for d in range(len(shape)) if not at <= d < at + len(index_shape)]
    return stacked, indexed, windows, shape


@lowers("index.Tensor", "_unsafe_index.Tensor")
def index(cx: Any, x: Value, indices: Sequence[Value | None]) -> Value:
    if not any(i is not None for i in indices):
        return x
    stacked, indexed, windows, shape = _index_plan(cx, x, indices)
    sizes = [1 if d in indexed else s for d, s in enumerate(x.shape)]
    return cx.gather(x, stacked, windows, indexed, indexed, sizes, shape)


@lowers("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(
    cx: Any, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False, *_: Any
) -> Value:
    if not any(i is not None for i in indices):
        made = cx.as_value(values, x.dtype, x.shape)
        return cx.add(x, made) if accumulate else made
    given = [i for i in indices if i is not None]
    if any(i.dtype == torch.bool for i in given):
        return _masked_put(cx, x, indices, values, accumulate)
    stacked, indexed, windows, shape = _index_plan(cx, x, indices)
    updates = cx.as_value(values, x.dtype, shape)
    return combine_scatter(cx, x, stacked, updates, windows, indexed, "sum" if accumulate else "set")


def _masked_put(cx: Any, x: Value, indices: Sequence[Any], values: Value, accumulate: bool) -> Value:
    """x[mask] = value, for a single value: a select."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if len(given) != 1 or values.numel != 1:
        raise cx.unsupported("a mask as index with several values depends on the data; use torch.where")
    start, mask = given[0]
    wide = cx.broadcast_dims(mask, x.shape, range(start, start + mask.rank))
    new = cx.as_value(cx.reshape(values, ()), x.dtype, x.shape)
    return cx.select(wide, cx.add(x, new) if accumulate else new, x)


def combine_scatter(
    cx: Any, x: Value, index: Value, updates: Value, windows: Sequence[int], indexed: Sequence[int], how: str
) -> Value:
    """A scatter with "set", "sum", "prod", "amax" or "amin"; sums of narrow types are kept in float32."""
    ops = {"sum": cx.add, "prod": cx.multiply, "amax": lambda a, b: cx.binary("maximum", a, b),
           "amin": lambda a, b: cx.binary("minimum", a, b), "set": lambda old, new: new}  # fmt: skip
    dtype = x.dtype
    if how in ("sum", "prod"):
        x, updates = cx.widen(x), cx.widen(updates)
    made = cx.scatter(x, index, updates, windows, indexed, indexed, ops[how])
    return cx.convert(made, dtype)


def _coordinates(cx: Any, index: Value, dim: int, size: int) -> Value:
    """For each element of `index` the place that it names: its own place, but `index` along `dim`."""
    index = wrapped(cx, index, size)
    column = (*index.shape, 1)
    parts = [cx.reshape(index if d == dim else cx.iota(index.shape, d, torch.int32), column) for d in range(index.rank)]
    return cx.concatenate(parts, index.rank)


@lowers("gather")
def gather(cx: Any, x: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    if x.rank == 0 or index.rank == 0:
        return (
            cx.reshape(cx.expand(cx.reshape(x, (x.numel,)), (x.numel,)), cx.shape)
            if x.numel == 1
            else take_flat(cx, x, index)
        )
    dim = normal(dim, x.rank)
    places = _coordinates(cx, index, dim, x.shape[dim])
    every = list(range(x.rank))
    return cx.gather(x, places, [], every, every, [1] * x.rank, index.shape)


def _scatter(cx: Any, x: Value, dim: int, index: Value, source: Any, how: str) -> Value:
    if index.numel == 0:
        return x
    if x.rank == 0:
        flat = cx.reshape(x, (1,))
        given = cx.reshape(source, (1,)) if isinstance(source, Value) else source
        return cx.reshape(_scatter(cx, flat, 0, cx.reshape(index, (1,)), given, how), ())
    dim = normal(dim, x.rank)
    if index.rank == 0:
        index = cx.reshape(index, (1,))
    if isinstance(source, Value) and source.rank == 0 and source.shape != index.shape:
        source = cx.expand(source, index.shape)
    if isinstance(source, Value):
        updates = cx.convert(cx.slice(source, [0] * source.rank, index.shape), x.dtype)
    else:
        updates = cx.constant(source, x.dtype, index.shape)
    places = _coordinates(cx, index, dim, x.shape[dim])
    return combine_scatter(cx, x, places, updates, [], list(range(x.rank)), how)


@lowers("scatter.src", "scatter.value")
def scatter(cx: Any, x: Value, dim: int, index: Value, source: Any) -> Value:
    return _scatter(cx, x, dim, index, source, "set")


@lowers("scatter.reduce", "scatter.value_reduce")
def scatter_with(cx: Any, x: Value, dim: int, index: Value, source: Any, *, reduce: str) -> Value:
    return _scatter(cx, x, dim, index, source, {"add": "sum", "multiply": "prod"}[reduce])


@lowers("scatter_add")
def scatter_add(cx: Any, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter(cx, x, dim, index, source, "sum")


@lowers("scatter_reduce.two")
def scatter_reduce(
    cx: Any, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    def run(base: Value, how: str, updates: Value) -> Value:
        return _scatter(cx, base, dim, index, updates, how)

    return _reduce_scatter(cx, x, source, reduce, include_self, run)


def _reduce_scatter(
    cx: Any, x: Value, source: Value, reduce: str, include_self: bool, run: Callable[[Value, str, Value], Value]
) -> Value:
    """A scatter with a reduction; without `include_self`, places that are written start from the identity."""
    wide, source = cx.widen(x), cx.as_value(source, cx.widen(x).dtype)
    how = "sum" if reduce == "mean" else reduce
    identity = {"sum": 0, "prod": 1, "amax": lowest(wide.dtype), "amin": highest(wide.dtype)}[how]
    start = wide
    if not include_self:
        start = run(wide, "set", cx.constant(identity, wide.dtype, source.shape))
    made = run(start, how, source)
    if reduce == "mean":
        ones = cx.constant(1, wide.dtype, x.shape)
        base = ones if include_self else run(ones, "set", cx.constant(0, wide.dtype, source.shape))
        number = run(base, "sum", cx.constant(1, wide.dtype, source.shape))
        if wide.dtype.is_floating_point:
            made = cx.divide(made, cx.binary("maximum", number, cx.constant(1, wide.dtype)))
        else:
            from torch_neuronx.lowering.elementwise import floor_divide_values

            made = floor_divide_values(cx, made, cx.binary("maximum", number, cx.constant(1, wide.dtype)))
    return cx.convert(made, x.dtype)


@lowers("index_reduce")
def index_reduce(
    cx: Any, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    def run(base: Value, how: str, updates: Value) -> Value:
        return _scatter_slices(cx, base, dim, index, updates, how)

    return _reduce_scatter(cx, x, source, reduce, include_self, run)


def _scatter_slices(cx: Any, x: Value, dim: int, index: Value, source: Value, how: str) -> Value:
    """Slices of `source` into slices of x along `dim`."""
    if x.rank == 0:
        flat = _scatter_slices(cx, cx.reshape(x, (1,)), 0, index, cx.reshape(source, (1,)), how)
        return cx.reshape(flat, ())
    dim = normal(dim, x.rank)
    flat = wrapped(cx, cx.reshape(index, (index.numel,)), x.shape[dim])
    window = [d for d in range(x.rank) if d != dim]
    shape = tuple(index.numel if d == dim else s for d, s in enumerate(x.shape))
    updates = (
        cx.expand(source, shape)
        if source.numel != index.numel * (x.numel // x.shape[dim])
        else cx.reshape(source, shape)
    )
    column = cx.reshape(flat, (*flat.shape, 1))
    return combine_scatter(cx, x, column, updates, window, [dim], how)


@lowers("index_add")
def index_add(cx: Any, x: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    wide = cx.as_value(source, cx.widen(x).dtype)
    if alpha != 1:
        wide = cx.multiply(wide, cx.constant(alpha, wide.dtype))
    return cx.convert(_scatter_slices(cx, cx.widen(x), dim, index, wide, "sum"), x.dtype)


@lowers("index_copy")
def index_copy(cx: Any, x: Value, dim: int, index: Value, source: Value) -> Value:
    return _scatter_slices(cx, x, dim, index, cx.as_value(source, x.dtype), "set")


@lowers("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(cx: Any, x: Value, dim: int, index: Value, value: Any) -> Value:
    new = cx.as_value(value if not isinstance(value, Value) else cx.reshape(value, ()), x.dtype)
    if x.rank == 0:
        return cx.reshape(new, ()) if index.numel else x
    dim = normal(dim, x.rank)
    shape = tuple(index.numel if d == dim else s for d, s in enumerate(x.shape))
    return _scatter_slices(cx, x, dim, index, cx.expand(new, shape), "set")


@lowers("take")
def take(cx: Any, x: Value, index: Value) -> Value:
    return take_flat(cx, cx.reshape(x, (x.numel,)), wrapped(cx, index, x.numel))


@lowers("put")
def put(cx: Any, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    flat = cx.reshape(x, (x.numel,))
    column = cx.reshape(wrapped(cx, index, x.numel), (index.numel, 1))
    updates = cx.reshape(cx.as_value(source, x.dtype), (index.numel,))
    made = combine_scatter(cx, flat, column, updates, [], [0], "sum" if accumulate else "set")
    return cx.reshape(made, x.shape)


def running_count(cx: Any, mask: Value) -> Value:
    """For a flat mask: how many elements up to and with each are set (int32)."""
    from torch_neuronx.lowering.scan import inclusive

    return inclusive(cx, [cx.convert(mask, torch.int32)], 0, lambda a, b: [cx.add(a[0], b[0])], [0])[0]


@lowers("masked_scatter")
def masked_scatter(cx: Any, x: Value, mask: Value, source: Value) -> Value:
    """The i-th set place takes element i of the source: its number is a running count."""
    mask = cx.reshape(cx.expand(mask, cx.shape), (cx.out.numel(),))
    old = cx.reshape(cx.expand(x, cx.shape), mask.shape)
    if not mask.numel:
        return cx.reshape(old, cx.shape)
    place = cx.binary("maximum", cx.shift(running_count(cx, mask), -1), cx.constant(0, torch.int32))
    new = take_flat(cx, cx.reshape(source, (source.numel,)), place)
    return cx.reshape(cx.select(mask, new, old), cx.shape)


@lowers("nonzero_static", note="the bounded form of nonzero")
def nonzero_static(cx: Any, x: Value, *, size: int, fill_value: int = -1) -> Value:
    """Places of set elements, in order: each is written to the row that its running count names."""
    flat = cx.reshape(cx.convert(x, torch.bool), (x.numel,))
    rows, rank = size, x.rank
    start = cx.constant(fill_value, torch.int64, (rows, rank))
    if not x.numel or not rank or not rows:
        return start
    row = cx.shift(running_count(cx, flat), -1)
    row = cx.select(flat, row, cx.constant(rows, torch.int32))  # beyond the end: dropped
    places = [cx.reshape(cx.iota(x.shape, d, torch.int32), (x.numel, 1)) for d in range(rank)]
    updates = cx.convert(cx.concatenate(places, 1), torch.int64)
    return cx.scatter(start, cx.reshape(row, (x.numel, 1)), updates, [1], [0], [0], lambda old, new: new)
