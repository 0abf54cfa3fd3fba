"""Concatenation, padding, flips and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value
from torch_neuronx.lowering.view import as_strided, memory_order, normal, strided_places


@lowers("cat")
def cat(cx: Any, tensors: Sequence[Value], dim: int = 0) -> Value:
    parts = [cx.convert(t, cx.dtype) for t in tensors if t.shape != (0,)]
    if not parts:
        return cx.constant(0, cx.dtype, cx.shape)
    return cx.concatenate(parts, normal(dim, parts[0].rank))


@lowers("stack")
def stack(cx: Any, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim = normal(dim, tensors[0].rank + 1)
    shape = (*tensors[0].shape[:dim], 1, *tensors[0].shape[dim:])
    return cx.concatenate([cx.reshape(cx.convert(t, cx.dtype), shape) for t in tensors], dim)


@lowers("constant_pad_nd")
def constant_pad_nd(cx: Any, x: Value, pad: Sequence[int], value: Any = 0) -> Value:
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(pad) // 2):
        low[x.rank - 1 - i], high[x.rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return cx.pad(x, value, low, high)


@lowers("flip")
def flip(cx: Any, x: Value, dims: Sequence[int]) -> Value:
    return cx.reverse(x, sorted(normal(d, x.rank) for d in dims) if x.rank else [])


@lowers("roll")
def roll(cx: Any, x: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not x.numel:
        return x
    if not dims:
        return cx.reshape(_roll_one(cx, cx.reshape(x, (x.numel,)), shifts[0], 0), x.shape)
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll_one(cx, x, shift, normal(dim, x.rank))
    return x


def _roll_one(cx: Any, x: Value, shift: int, dim: int) -> Value:
    if x.rank == 0:
        return x
    cut = (-shift) % x.shape[dim]
    if cut == 0:
        return x
    return cx.concatenate([cx.slice_dim(x, dim, cut, x.shape[dim]), cx.slice_dim(x, dim, 0, cut)], dim)


@lowers("repeat")
def repeat(cx: Any, x: Value, repeats: Sequence[int]) -> Value:
    lead = len(repeats) - x.rank
    sizes = (1,) * lead + x.shape
    both = [n for r, s in zip(repeats, sizes, strict=True) for n in (r, s)]
    wide = cx.broadcast_dims(x, both, [2 * (lead + d) + 1 for d in range(x.rank)])
    return cx.reshape(wide, cx.shape)


def _triangle(cx: Any, x: Value, diagonal: int, lower: bool) -> Value:
    rows, columns = cx.iota(x.shape, x.rank - 2), cx.iota(x.shape, x.rank - 1)
    distance = cx.subtract(columns, rows)
    keep = cx.compare_with("LE" if lower else "GE", distance, diagonal)
    return cx.select(keep, x, cx.constant(0, x.dtype, x.shape))


@lowers("tril")
def tril(cx: Any, x: Value, diagonal: int = 0) -> Value:
    return _triangle(cx, x, diagonal, True)


@lowers("triu")
def triu(cx: Any, x: Value, diagonal: int = 0) -> Value:
    return _triangle(cx, x, diagonal, False)


@lowers("slice_scatter")
def slice_scatter(
    cx: Any, x: Value, source: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Value:
    """Padded to x's size with `step - 1` gaps, and chosen by a mask."""
    dim = normal(dim, x.rank)
    first, last, _ = slice(start, end, step).indices(x.shape[dim])
    length = max(0, -(-(last - first) // step))
    if length == 0:
        return x
    source = cx.as_value(source, x.dtype)
    low, high, interior = [0] * x.rank, [0] * x.rank, [0] * x.rank
    low[dim], interior[dim] = first, step - 1
    high[dim] = x.shape[dim] - first - ((length - 1) * step + 1)
    placed = cx.pad(source, 0, low, high, interior)
    mask = cx.pad(cx.constant(True, torch.bool, source.shape), False, low, high, interior)
    return cx.select(mask, placed, x)


@lowers("select_scatter")
def select_scatter(cx: Any, x: Value, source: Value, dim: int, index: int) -> Value:
    dim = normal(dim, x.rank)
    index %= x.shape[dim]
    source = cx.reshape(cx.as_value(source, x.dtype), (*x.shape[:dim], 1, *x.shape[dim + 1 :]))
    return slice_scatter(cx, x, source, dim, index, index + 1)


@lowers("diagonal_scatter")
def diagonal_scatter(cx: Any, x: Value, source: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """A mask of the diagonal, and the source broadcast along one of its dimensions."""
    a, b = normal(dim1, x.rank), normal(dim2, x.rank)
    others = [d for d in range(x.rank) if d not in (a, b)]
    order = [*others, a, b]
    moved = cx.transpose(x, order)
    lead = len(others)
    r, c = max(0, -offset), max(0, offset)
    length = source.shape[-1]
    column = cx.pad(cx.as_value(source, x.dtype), 0, [0] * lead + [r], [0] * lead + [moved.shape[-2] - r - length])
    wide = cx.broadcast_dims(column, moved.shape, [*range(lead), lead])
    rows, columns = cx.iota(moved.shape, lead), cx.iota(moved.shape, lead + 1)
    mask = cx.compare_with("EQ", cx.subtract(columns, rows), c - r)
    made = cx.select(mask, wide, moved)
    inverse = [order.index(d) for d in range(x.rank)]
    return cx.transpose(made, inverse)


@lowers("as_strided_scatter", note="of dense inputs")
def as_strided_scatter(
    cx: Any, x: Value, source: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None
) -> Value:
    order = memory_order(cx, cx.fakes[0])
    flat = cx.reshape(cx.transpose(x, order), (x.numel,))
    places = cx.dense(torch.tensor(strided_places(size, stride, offset or 0), dtype=torch.int32).reshape(-1, 1))
    updates = cx.reshape(cx.as_value(source, x.dtype), (source.numel,))
    made = cx.scatter(flat, places, updates, [], [0], [0], lambda old, new: new)
    back = cx.reshape(made, [x.shape[d] for d in order])
    return cx.transpose(back, [order.index(d) for d in range(x.rank)])


__all__ = ["as_strided", "cat"]
