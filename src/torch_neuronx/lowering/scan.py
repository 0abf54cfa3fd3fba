"""Running sums and the like, in log2(n) steps: each adds what is 1, 2, 4, ... places before."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value, highest, lowest
from torch_neuronx.lowering.view import normal

Combine = Callable[[list[Value], list[Value]], list[Value]]


def inclusive(cx: Any, values: Sequence[Value], dim: int, combine: Combine, identities: Sequence[Any]) -> list[Value]:
    """The inclusive scan along `dim` of an associative `combine(earlier, later)`."""
    found = list(values)
    length = found[0].shape[dim]
    distance = 1
    while distance < length:
        low, high = [0] * found[0].rank, [0] * found[0].rank
        low[dim], high[dim] = distance, -distance
        before = [cx.pad(v, i, low, high) for v, i in zip(found, identities, strict=True)]
        found = combine(before, found)
        distance *= 2
    return found


@lowers("cumsum")
def cumsum(cx: Any, x: Value, dim: int, *, dtype: Any = None) -> Value:
    wide = cx.convert(x, cx.wide)
    if x.rank:
        wide = inclusive(cx, [wide], normal(dim, x.rank), lambda a, b: [cx.add(a[0], b[0])], [0])[0]
    return cx.convert(wide, cx.dtype)


@lowers("cumprod")
def cumprod(cx: Any, x: Value, dim: int, *, dtype: Any = None) -> Value:
    wide = cx.convert(x, cx.wide)
    if x.rank:
        wide = inclusive(cx, [wide], normal(dim, x.rank), lambda a, b: [cx.multiply(a[0], b[0])], [1])[0]
    return cx.convert(wide, cx.dtype)


def _running_extreme(cx: Any, x: Value, dim: int, largest: bool) -> tuple[Value, Value]:
    """The later of equal elements counts, and a NaN wins over all."""
    if x.rank == 0:
        return x, cx.constant(0, torch.int64)
    dim = normal(dim, x.rank)
    wide = cx.convert(x, torch.int32) if x.dtype == torch.bool else x

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        later = cx.compare("GE" if largest else "LE", b[0], a[0])
        if wide.dtype.is_floating_point:
            later = cx.select(cx.is_nan(a[0]), cx.is_nan(b[0]), cx.binary("or_", later, cx.is_nan(b[0])))
        return [cx.select(later, b[0], a[0]), cx.select(later, b[1], a[1])]

    start = lowest(wide.dtype) if largest else highest(wide.dtype)
    values, where = inclusive(cx, [wide, cx.iota(x.shape, dim, torch.int64)], dim, combine, [start, 0])
    return cx.convert(values, x.dtype), where


@lowers("cummax")
def cummax(cx: Any, x: Value, dim: int) -> tuple[Value, Value]:
    return _running_extreme(cx, x, dim, True)


@lowers("cummin")
def cummin(cx: Any, x: Value, dim: int) -> tuple[Value, Value]:
    return _running_extreme(cx, x, dim, False)


@lowers("logcumsumexp")
def logcumsumexp(cx: Any, x: Value, dim: int) -> Value:
    if x.rank == 0:
        return x
    wide = cx.convert(x, cx.wide)

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        high, low = cx.binary("maximum", a[0], b[0]), cx.binary("minimum", a[0], b[0])
        infinite = cx.compare_with("EQ", cx.unary("abs", high), math.inf)
        rest = cx.unary("log_plus_one", cx.unary("exponential", cx.subtract(low, high)))
        same = cx.compare("EQ", high, low)
        return [
            cx.select(
                cx.binary("and_", infinite, same),
                high,
                cx.add(high, cx.select(infinite, cx.constant(0, high.dtype, high.shape), rest)),
            )
        ]

    return cx.convert(inclusive(cx, [wide], normal(dim, x.rank), combine, [-math.inf])[0], cx.dtype)
