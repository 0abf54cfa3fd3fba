"""Sorting: StableHLO's sort of values together with their places. NaN counts as the largest value."""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value
from torch_neuronx.lowering.view import normal


def sorted_with_places(cx: Any, x: Value, dim: int, descending: bool) -> tuple[Value, Value]:
    """(sorted values, their places as int64), equal elements in their order."""
    if x.rank == 0:
        return x, cx.constant(0, torch.int64)
    dim = normal(dim, x.rank)
    keys = cx.convert(x, torch.int32) if x.dtype == torch.bool else x

    def before(a: list[Value], b: list[Value]) -> Value:
        first, second = (b[0], a[0]) if descending else (a[0], b[0])
        less = cx.compare("LT", first, second)
        if keys.dtype.is_floating_point:
            only = cx.binary("and_", cx.is_nan(second), cx.logical_not(cx.is_nan(first)))
            less = cx.binary("or_", less, only)
        return less

    values, places = cx.sort([keys, cx.iota(x.shape, dim, torch.int32)], dim, before)
    return cx.convert(values, x.dtype), cx.convert(places, torch.int64)


@lowers("sort")
def sort(cx: Any, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, Value]:
    return sorted_with_places(cx, x, dim, descending)


@lowers("sort.stable")
def sort_stable(
    cx: Any, x: Value, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Value, Value]:
    return sorted_with_places(cx, x, dim, descending)


@lowers("argsort", "argsort.stable")
def argsort(cx: Any, x: Value, dim: int = -1, descending: bool = False, **_: Any) -> Value:
    return sorted_with_places(cx, x, dim, descending)[1]


@lowers("topk")
def topk(cx: Any, x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, Value]:
    values, places = sorted_with_places(cx, x, dim, largest)
    if x.rank == 0:
        return values, places
    dim = normal(dim, x.rank)
    return cx.slice_dim(values, dim, 0, k), cx.slice_dim(places, dim, 0, k)


def _one_of_sorted(cx: Any, x: Value, dim: int, at: int, keepdim: bool) -> tuple[Value, Value]:
    if x.rank == 0:
        return x, cx.constant(0, torch.int64)
    dim = normal(dim, x.rank)
    pair = sorted_with_places(cx, x, dim, False)
    shape = [1 if d == dim else s for d, s in enumerate(x.shape) if keepdim or d != dim]
    values, places = (cx.reshape(cx.slice_dim(v, dim, at, at + 1), shape) for v in pair)
    return values, places


@lowers("kthvalue")
def kthvalue(cx: Any, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    return _one_of_sorted(cx, x, dim, k - 1, keepdim)


def _nan_aware_median(cx: Any, x: Value, dim: int, keepdim: bool, skip_nan: bool) -> tuple[Value, Value]:
    """The lower median. With NaN in a row: the first NaN, or the median of the rest."""
    length = x.shape[dim]
    values, places = sorted_with_places(cx, x, dim, False)
    if not x.dtype.is_floating_point:
        return _one_of_sorted(cx, x, dim, (length - 1) // 2, keepdim)
    nans = cx.reduce("sum", cx.convert(cx.is_nan(x), torch.int32), [dim], True)
    real = cx.subtract(cx.constant(length, torch.int32), nans)
    two, one, zero = (cx.constant(n, torch.int32) for n in (2, 1, 0))
    middle = cx.divide(cx.binary("maximum", cx.subtract(real, one), zero), two)
    # Without skipping, the first NaN is the first one after the real numbers.
    at = middle if skip_nan else cx.select(cx.compare_with("GT", nans, 0), real, middle)
    hit = cx.compare("EQ", cx.iota(x.shape, dim, torch.int32), cx.expand(at, x.shape))
    place = cx.reduce("sum", cx.select(hit, places, cx.constant(0, torch.int64, x.shape)), [dim], keepdim)
    lowest = cx.constant(-math.inf, x.dtype, x.shape)
    value = cx.reduce("max", cx.select(hit, values, lowest), [dim], keepdim)
    return value, place


def _median(cx: Any, x: Value, skip_nan: bool, dim: int | None, keepdim: bool) -> tuple[Value, Value]:
    if x.rank == 0:
        return x, cx.constant(0, torch.int64)
    if dim is None:
        x, dim = cx.reshape(x, (x.numel,)), 0
    return _nan_aware_median(cx, x, normal(dim, x.rank), keepdim, skip_nan)


@lowers("median")
def median(cx: Any, x: Value) -> Value:
    return _median(cx, x, False, None, False)[0]


@lowers("nanmedian")
def nanmedian(cx: Any, x: Value) -> Value:
    return _median(cx, x, True, None, False)[0]


@lowers("median.dim")
def median_dim(cx: Any, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _median(cx, x, False, dim, keepdim)


@lowers("nanmedian.dim")
def nanmedian_dim(cx: Any, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return _median(cx, x, True, dim, keepdim)


@lowers("mode")
def mode(cx: Any, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent value (the smallest of equals) and its last place: all pairs are compared."""
    if x.rank == 0:
        return x, cx.constant(0, torch.int64)
    dim = normal(dim, x.rank)
    values, places = sorted_with_places(cx, x, dim, False)
    length = x.shape[dim]
    pairs = (*x.shape[: dim + 1], length, *x.shape[dim + 1 :])
    kept = [d for d in range(len(pairs)) if d != dim + 1]
    other = [d for d in range(len(pairs)) if d != dim]
    same = cx.compare("EQ", cx.broadcast_dims(values, pairs, kept), cx.broadcast_dims(values, pairs, other))
    times = cx.reduce("sum", cx.convert(same, torch.int32), [dim + 1])
    from torch_neuronx.lowering.reduce import extreme_with_index

    _, first = extreme_with_index(cx, times, dim, True, True)
    hit = cx.compare("EQ", cx.iota(x.shape, dim, torch.int64), cx.expand(first, x.shape))
    numbers = cx.convert(values, torch.int32) if x.dtype == torch.bool else values
    value = cx.reduce("sum", cx.select(hit, numbers, cx.constant(0, numbers.dtype, x.shape)), [dim], True)
    value = cx.convert(value, x.dtype)
    equal = cx.compare("EQ", values, cx.expand(value, x.shape))
    place = cx.reduce("max", cx.select(equal, places, cx.constant(-1, torch.int64, x.shape)), [dim], True)
    shape = [1 if d == dim else s for d, s in enumerate(x.shape) if keepdim or d != dim]
    return cx.reshape(value, shape), cx.reshape(place, shape)


@lowers("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    cx: Any, edges: Value, x: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Value | None = None,
) -> Value:  # fmt: skip
    """How many edges are before x: all pairs are compared."""
    if sorter is not None:
        from torch_neuronx.lowering.index import gather

        edges = gather(cx, edges, -1, sorter)
    return _count_before(cx, edges, x, right or side == "right")


@lowers("bucketize.Tensor", "bucketize.Scalar")
def bucketize(cx: Any, x: Any, edges: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    return _count_before(cx, edges, x, right)


def _count_before(cx: Any, edges: Value, x: Any, right: bool) -> Value:
    from torch_neuronx.lowering.elementwise import _promote

    dtype = _promote((edges, x))
    edges, x = cx.as_value(edges, dtype), cx.as_value(x, dtype)
    edges, x = (cx.convert(v, torch.int32) if dtype == torch.bool else cx.widen(v) for v in (edges, x))
    pairs = (*x.shape, edges.shape[-1])
    wide_x = cx.broadcast_dims(x, pairs, range(x.rank))
    if edges.rank == 1:
        wide_edges = cx.broadcast_dims(edges, pairs, [x.rank])
    else:
        wide_edges = cx.broadcast_dims(edges, pairs, [*range(x.rank - 1), x.rank])
    before = cx.compare("LE" if right else "LT", wide_edges, wide_x)
    if x.dtype.is_floating_point:  # NaN is above every edge
        before = cx.binary("or_", before, cx.is_nan(wide_x))
    made = cx.reduce("sum", cx.convert(before, torch.int32), [x.rank])
    return cx.convert(cx.reshape(made, cx.shape), cx.dtype)
