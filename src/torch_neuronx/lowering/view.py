"""Views: in a module they are values like any other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value


def normal(dim: int, rank: int) -> int:
    return dim % rank if rank else 0


@lowers("view", "view_copy", "reshape", "_unsafe_view", "_reshape_alias", "_reshape_copy", "squeeze", "squeeze_copy",
        "squeeze.dim", "squeeze_copy.dim", "squeeze.dims", "squeeze_copy.dims", "unsqueeze", "unsqueeze_copy",
        "flatten.using_ints", "resize")  # fmt: skip
def reshaped(cx: Any, x: Value, *_: Any, **__: Any) -> Value:
    count = math.prod(cx.shape)
    if count != x.numel:  # resize: what is beyond the old elements is not defined
        flat = cx.reshape(x, (x.numel,))
        return cx.reshape(cx.pad(flat, 0, [0], [count - x.numel]), cx.shape)
    return cx.reshape(x, cx.shape)


@lowers("view.dtype", "view_copy.dtype")
def view_dtype(cx: Any, x: Value, dtype: torch.dtype) -> Value:
    if x.dtype == dtype:
        return x
    if torch.int64 in (x.dtype, dtype) or torch.bool in (x.dtype, dtype):
        raise cx.unsupported(f"the bits of {x.dtype} seen as {dtype} are not those that the module holds")
    if x.dtype.itemsize != dtype.itemsize:
        raise cx.unsupported(f"{x.dtype} seen as {dtype}, which has another size")
    return cx.bitcast(x, dtype)


@lowers("permute", "permute_copy")
def permute(cx: Any, x: Value, dims: Sequence[int]) -> Value:
    return cx.transpose(x, [normal(d, x.rank) for d in dims])


@lowers("t", "t_copy", "numpy_T")
def t(cx: Any, x: Value) -> Value:
    return cx.transpose(x, list(range(x.rank))[::-1])


@lowers("transpose.int", "transpose_copy.int")
def transpose(cx: Any, x: Value, a: int, b: int) -> Value:
    order = list(range(x.rank))
    if order:
        a, b = normal(a, x.rank), normal(b, x.rank)
        order[a], order[b] = order[b], order[a]
    return cx.transpose(x, order)


@lowers("expand", "expand_copy")
def expand(cx: Any, x: Value, size: Sequence[int], implicit: bool = False) -> Value:
    return cx.expand(x, cx.shape)


@lowers("prims::broadcast_in_dim")
def broadcast_in_dim(cx: Any, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
    return cx.broadcast_dims(x, shape, dims)


@lowers("slice.Tensor", "slice_copy.Tensor")
def slice_tensor(cx: Any, x: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    dim = normal(dim, x.rank)
    first, last, _ = slice(start, end, step).indices(x.shape[dim])
    return cx.slice_dim(x, dim, first, max(first, last), step)


@lowers("narrow", "narrow_copy")
def narrow(cx: Any, x: Value, dim: int, start: int, length: int) -> Value:
    dim = normal(dim, x.rank)
    start = start + x.shape[dim] if start < 0 else start
    return cx.slice_dim(x, dim, start, start + length)


@lowers("select.int", "select_copy.int")
def select_int(cx: Any, x: Value, dim: int, index: int) -> Value:
    dim = normal(dim, x.rank)
    index %= x.shape[dim]
    return cx.reshape(cx.slice_dim(x, dim, index, index + 1), cx.shape)


@lowers("split.Tensor", "split_copy.Tensor", "split_with_sizes", "split_with_sizes_copy", "unsafe_split.Tensor",
        "unsafe_split_with_sizes", "unsafe_chunk", "chunk", "unbind.int", "unbind_copy.int")  # fmt: skip
def split(cx: Any, x: Value, *args: Any, **kwargs: Any) -> list[Value]:
    """One piece for each fake result, in order along the dimension that the call names."""
    position = 0 if cx.name.startswith("aten.unbind") else 1
    dim = normal(args[position] if len(args) > position else kwargs.get("dim", 0), x.rank)
    parts, at = [], 0
    for piece in cx.out:
        shape = tuple(piece.shape)
        length = shape[dim] if len(shape) == x.rank else 1
        parts.append(cx.reshape(cx.slice_dim(x, dim, at, at + length), shape))
        at += length
    return parts


@lowers("diagonal", "diagonal_copy")
def diagonal(cx: Any, x: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """The two dimensions last; then a pad and reshape that put the diagonal into one column."""
    a, b = normal(dim1, x.rank), normal(dim2, x.rank)
    others = [d for d in range(x.rank) if d not in (a, b)]
    x = cx.transpose(x, [*others, a, b])
    length = cx.shape[-1]
    rows, columns = x.shape[-2:]
    if length == 0:
        return cx.constant(0, x.dtype, cx.shape)
    r, c = max(0, -offset), max(0, offset)
    lead = len(others)
    square = cx.slice(x, [0] * lead + [r, c], [*x.shape[:lead], r + length, c + length])
    same = cx.compare("EQ", cx.iota(square.shape, lead), cx.iota(square.shape, lead + 1))
    if x.dtype == torch.bool:
        return cx.reduce("any", cx.binary("and_", square, same), [lead + 1])
    kept = cx.select(same, square, cx.constant(0, x.dtype, square.shape))
    return cx.reduce("sum", kept, [lead + 1])


@lowers("as_strided", "as_strided_copy", note="of dense inputs")
def as_strided(cx: Any, x: Value, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Value:
    """A gather of the elements by their place in memory."""
    fake = cx.fakes[0]
    flat = cx.reshape(cx.transpose(x, memory_order(cx, fake)), (x.numel,))
    places = torch.tensor(strided_places(size, stride, offset or 0), dtype=torch.int32).reshape(tuple(size))
    return take_flat(cx, flat, cx.dense(places))


def memory_order(cx: Any, fake: torch.Tensor) -> list[int]:
    """Dimensions from the one that moves slowest through memory to the fastest; an error unless x is dense."""
    order = sorted(range(fake.dim()), key=lambda d: (-fake.stride(d), d) if fake.shape[d] != 1 else (0, d))  # type: ignore[operator]
    expected = 1
    for d in reversed(order):
        if fake.shape[d] != 1 and fake.stride(d) != expected and fake.numel():
            raise cx.unsupported("its input is itself a view with gaps or overlaps in memory")
        expected *= fake.shape[d]
    return order


def strided_places(size: Sequence[int], stride: Sequence[int], offset: int) -> list[int]:
    return [offset + sum(i * s for i, s in zip(at, stride, strict=True)) for at in itertools.product(*map(range, size))]


def take_flat(cx: Any, flat: Value, index: Value) -> Value:
    """flat[index] for a one-dimensional tensor and non-negative indices."""
    column = cx.reshape(index, (*index.shape, 1))
    return cx.gather(flat, column, [], [0], [0], [1], index.shape)


@lowers("unfold", "unfold_copy")
def unfold(cx: Any, x: Value, dim: int, size: int, step: int) -> Value:
    if x.rank == 0:
        return cx.reshape(x, cx.shape)
    dim = normal(dim, x.rank)
    count = cx.shape[dim]
    places = torch.arange(count, dtype=torch.int32)[:, None] * step + torch.arange(size, dtype=torch.int32)
    column = cx.dense(places.unsqueeze(-1))
    shape = (*x.shape[:dim], count, size, *x.shape[dim + 1 :])
    offset = [d for d in range(len(shape)) if d not in (dim, dim + 1)]
    sizes = [1 if d == dim else s for d, s in enumerate(x.shape)]
    made = cx.gather(x, column, offset, [dim], [dim], sizes, shape)
    return cx.move_dim(made, dim + 1, made.rank - 1)
