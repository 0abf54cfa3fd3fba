"""Reductions. Narrow floating point is summed in float32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value, highest, lowest
from torch_neuronx.lowering.view import normal


def dims_of(dims: Any, rank: int, empty_is_all: bool = True) -> list[int]:
    """Sorted, non-negative dimensions of a `dim` argument: None, a number or a list."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims and empty_is_all):
        return list(range(rank))
    given = [dims] if isinstance(dims, int) else list(dims)
    return sorted({normal(d, rank) for d in given}) if rank else []


def summed(cx: Any, x: Value, dims: Sequence[int], keepdim: bool = False) -> Value:
    return cx.reduce("sum", cx.widen(x), dims, keepdim)


@lowers("sum", "sum.dim_IntList")
def sum_(cx: Any, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    made = cx.reduce("sum", cx.convert(x, cx.wide), dims_of(dim, x.rank), keepdim)
    return cx.convert(made, cx.dtype)


def count(x: Value, dims: Sequence[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


@lowers("mean", "mean.dim")
def mean(cx: Any, x: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    dims = dims_of(dim, x.rank)
    total = cx.reduce("sum", cx.convert(x, cx.wide), dims, keepdim)
    return cx.convert(cx.divide(total, cx.constant(count(x, dims), cx.wide)), cx.dtype)


@lowers("prod", "prod.dim_int")
def prod(cx: Any, x: Value, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    made = cx.reduce("prod", cx.convert(x, cx.wide), dims_of(dim, x.rank), keepdim)
    return cx.convert(made, cx.dtype)


@lowers("any", "any.dim", "any.dims")
def any_(cx: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    made = cx.reduce("any", cx.convert(x, torch.bool), dims_of(dim, x.rank, dim is None), keepdim)
    return cx.convert(made, cx.dtype)


@lowers("all", "all.dim", "all.dims")
def all_(cx: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    made = cx.reduce("all", cx.convert(x, torch.bool), dims_of(dim, x.rank, dim is None), keepdim)
    return cx.convert(made, cx.dtype)


def _extreme(cx: Any, name: str, x: Value, dims: Sequence[int], keepdim: bool) -> Value:
    if x.dtype == torch.bool:
        name = "any" if name == "max" else "all"
    return cx.reduce(name, x, dims, keepdim)


@lowers("amax", "max")
def amax(cx: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _extreme(cx, "max", x, dims_of(dim, x.rank), keepdim)


@lowers("amin", "min")
def amin(cx: Any, x: Value, dim: Any = None, keepdim: bool = False) -> Value:
    return _extreme(cx, "min", x, dims_of(dim, x.rank), keepdim)


def extreme_with_index(cx: Any, x: Value, dim: int, largest: bool, keepdim: bool) -> tuple[Value, Value]:
    """(values, indices as int64) of the extreme elements along `dim`: the first of equals, and a NaN before all."""
    if x.rank == 0:
        return x, cx.constant(0, torch.int64)
    wide = cx.convert(x, torch.int32) if x.dtype == torch.bool else x
    index = cx.iota(x.shape, dim, torch.int32)
    start = cx.constant(lowest(wide.dtype) if largest else highest(wide.dtype), wide.dtype)

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        better = cx.compare("GT" if largest else "LT", a[0], b[0])
        equal = cx.compare("EQ", a[0], b[0])
        if wide.dtype.is_floating_point:
            a_nan, b_nan = cx.is_nan(a[0]), cx.is_nan(b[0])
            better = cx.binary("or_", better, cx.binary("and_", a_nan, cx.logical_not(b_nan)))
            equal = cx.binary("or_", equal, cx.binary("and_", a_nan, b_nan))
        earlier = cx.binary("and_", equal, cx.compare("LT", a[1], b[1]))
        first = cx.binary("or_", better, earlier)
        return [cx.select(first, a[0], b[0]), cx.select(first, a[1], b[1])]

    beyond = cx.constant(2**31 - 1, torch.int32)
    values, where = cx.reduce_many([wide, index], [start, beyond], dim, combine)
    shape = tuple(1 if d == dim else s for d, s in enumerate(x.shape)) if keepdim else values.shape
    values = cx.reshape(cx.convert(values, x.dtype), shape)
    return values, cx.convert(cx.reshape(where, shape), torch.int64)


@lowers("max.dim")
def max_dim(cx: Any, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return extreme_with_index(cx, x, normal(dim, x.rank), True, keepdim)


@lowers("min.dim")
def min_dim(cx: Any, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    return extreme_with_index(cx, x, normal(dim, x.rank), False, keepdim)


def _arg(cx: Any, x: Value, dim: int | None, keepdim: bool, largest: bool) -> Value:
    if dim is None:
        made = extreme_with_index(cx, cx.reshape(x, (x.numel,)), 0, largest, False)[1]
        return cx.reshape(made, cx.shape)
    return extreme_with_index(cx, x, normal(dim, x.rank), largest, keepdim)[1]


@lowers("argmax")
def argmax(cx: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(cx, x, dim, keepdim, True)


@lowers("argmin")
def argmin(cx: Any, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    return _arg(cx, x, dim, keepdim, False)


@lowers("aminmax")
def aminmax(cx: Any, x: Value, *, dim: int | None = None, keepdim: bool = False) -> tuple[Value, Value]:
    dims = dims_of(dim, x.rank)
    return _extreme(cx, "min", x, dims, keepdim), _extreme(cx, "max", x, dims, keepdim)


def moments(cx: Any, x: Value, dims: Sequence[int], correction: float) -> tuple[Value, Value]:
    """(variance, mean) with the dimensions kept, in the accumulation type: two passes, the second about the mean."""
    wide = cx.widen(x)
    n = count(x, dims)
    average = cx.divide(cx.reduce("sum", wide, dims, True), cx.constant(n, wide.dtype))
    centred = cx.subtract(wide, average)
    squares = cx.reduce("sum", cx.multiply(centred, centred), dims, True)
    return cx.divide(squares, cx.constant(max(n - correction, 0), wide.dtype)), average


@lowers("var_mean.correction")
def var_mean(cx: Any, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> tuple[Value, ...]:
    correction = 1 if correction is None else correction
    found = moments(cx, x, dims_of(dim, x.rank), correction)
    return tuple(cx.convert(cx.reshape(v, cx.shape), cx.dtype) for v in found)


@lowers("var.correction")
def var(cx: Any, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return var_mean(cx, x, dim, correction=correction, keepdim=keepdim)[0]


@lowers("std.correction")
def std(cx: Any, x: Value, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    variance, _ = moments(cx, x, dims_of(dim, x.rank), 1 if correction is None else correction)
    return cx.convert(cx.reshape(cx.unary("sqrt", variance), cx.shape), cx.dtype)


@lowers("linalg_vector_norm")
def vector_norm(cx: Any, x: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    dims = dims_of(dim, x.rank)
    size = cx.unary("abs", cx.convert(x, cx.wide))
    if ord in (math.inf, -math.inf):
        made = cx.reduce("max" if ord > 0 else "min", size, dims, keepdim)
    elif ord == 0:
        made = cx.reduce("sum", cx.convert(cx.compare_with("NE", size, 0), cx.wide), dims, keepdim)
    elif ord == 1:
        made = cx.reduce("sum", size, dims, keepdim)
    elif ord == 2:
        made = cx.unary("sqrt", cx.reduce("sum", cx.multiply(size, size), dims, keepdim))
    else:
        power = cx.constant(ord, cx.wide)
        total = cx.reduce("sum", cx.binary("power", size, power), dims, keepdim)
        made = cx.binary("power", total, cx.constant(1 / ord, cx.wide))
    return cx.convert(made, cx.dtype)


@lowers("logsumexp")
def logsumexp(cx: Any, x: Value, dim: Any, keepdim: bool = False) -> Value:
    dims = dims_of(dim, x.rank)
    wide = cx.convert(x, cx.wide)
    top = cx.reduce("max", wide, dims, True)
    top = cx.select(cx.compare_with("EQ", cx.unary("abs", top), math.inf), cx.constant(0, cx.wide, top.shape), top)
    total = cx.reduce("sum", cx.unary("exponential", cx.subtract(wide, top)), dims, True)
    made = cx.add(cx.unary("log", total), top)
    return cx.convert(cx.reshape(made, cx.shape), cx.dtype)


@lowers("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(cx: Any, x: Value, dim: Any = None) -> Value:
    ones = cx.convert(cx.convert(x, torch.bool), torch.int64)
    return cx.reduce("sum", ones, dims_of(dim, x.rank))
