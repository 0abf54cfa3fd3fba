"""Pooling in one to three dimensions: reduce_window, and select_and_scatter for max pooling's gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value, highest, lowest
from torch_neuronx.lowering.view import take_flat


def _each(values: Any, count: int) -> list[int]:
    values = [values] if isinstance(values, int) else list(values)
    return values * count if len(values) == 1 else values


def _padding(x: Value, out: Sequence[int], window: Any, stride: Any, pad: Any, dilation: Any) -> list[tuple[int, int]]:
    """(low, high) for every dimension; the high end reaches as far as the last window of the result (ceil_mode)."""
    lead = x.rank - len(window)
    pairs = [(0, 0)] * lead
    for i in range(len(window)):
        needed = (out[lead + i] - 1) * stride[i] + dilation[i] * (window[i] - 1) + 1
        pairs.append((pad[i], needed - x.shape[lead + i] - pad[i]))
    return pairs


def _cut(cx: Any, x: Value, pairs: list[tuple[int, int]]) -> tuple[Value, list[tuple[int, int]]]:
    """Elements that no window reaches are cut off: reduce_window wants no negative padding."""
    stop = [n + min(0, high) for n, (_, high) in zip(x.shape, pairs, strict=True)]
    return cx.slice(x, [0] * x.rank, stop), [(low, max(0, high)) for low, high in pairs]


def _max_pool(
    cx: Any, x: Value, window: Any, stride: Any = (), pad: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False
) -> tuple[Value, Value]:
    """(values, places): the first of equal elements, counted in the plane of the spatial dimensions."""
    rank = 3 if "3d" in cx.name else 2
    window = _each(window, rank)
    stride = (
        _each(stride, rank) if not isinstance(stride, int) and stride else window if not stride else _each(stride, rank)
    )
    pad, dilation = _each(pad, rank), _each(dilation, rank)
    lead = x.rank - rank
    pairs = _padding(x, cx.shape, window, stride, pad, dilation)
    place = cx.iota((x.numel // _product(x.shape[:lead]) if x.numel else 0,), 0, torch.int32)
    place = cx.broadcast_dims(cx.reshape(place, x.shape[lead:]), x.shape, range(lead, x.rank))
    full = lambda values: [1] * lead + list(values)  # noqa: E731
    values, places = windows_with_place(cx, x, place, full(window), full(stride), pairs, full(dilation))  # type: ignore[no-untyped-call]
    return values, cx.convert(places, torch.int64)


def _product(values: Sequence[int]) -> int:
    made = 1
    for value in values:
        made *= value
    return made


def windows_with_place(
    cx: Any, x: Value, place: Value, window: Any, stride: Any, pairs: Any, dilation: Any
) -> tuple[Value, Value]:
    """Extremes of windows together with their places."""
    x, cut = _cut(cx, x, pairs)
    place, _ = _cut(cx, place, pairs)

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        better = cx.compare("GT", a[0], b[0])
        if x.dtype.is_floating_point:
            better = cx.binary("or_", better, cx.is_nan(a[0]))
        equal = cx.binary("and_", cx.compare("EQ", a[0], b[0]), cx.compare("LT", a[1], b[1]))
        first = cx.binary("or_", better, equal)
        return [cx.select(first, a[0], b[0]), cx.select(first, a[1], b[1])]

    starts = [cx.constant(lowest(x.dtype), x.dtype), cx.constant(2**31 - 1, torch.int32)]
    values, places = cx.reduce_window_many([x, place], starts, window, stride, cut, dilation, combine)
    return values, places


@lowers("max_pool2d_with_indices", "max_pool3d_with_indices")
def max_pool_with_indices(cx: Any, x: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    return _max_pool(cx, x, *args, **kwargs)


@lowers("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward")
def max_pool_backward(
    cx: Any,
    gradient: Value,
    x: Value,
    window: Any,
    stride: Any,
    pad: Any,
    dilation: Any,
    ceil_mode: bool,
    places: Value,
) -> Value:
    rank = 3 if "3d" in cx.name else 2
    window, pad, dilation = _each(window, rank), _each(pad, rank), _each(dilation, rank)
    stride = _each(stride, rank) if stride else window
    lead = x.rank - rank
    pairs = _padding(x, gradient.shape, window, stride, pad, dilation)
    if all(d == 1 for d in dilation) and all(high >= 0 for _, high in pairs):
        full = lambda values: [1] * lead + list(values)  # noqa: E731
        made = cx.select_and_scatter(cx.widen(x), cx.widen(gradient), full(window), full(stride), pairs)  # type: ignore[no-untyped-call]
        return cx.convert(made, cx.dtype)
    return scatter_to_places(cx, gradient, places, x, lead)


def scatter_to_places(cx: Any, gradient: Value, places: Value, x: Value, lead: int) -> Value:
    """Adds each element of the gradient to the place of its plane that `places` names."""
    planes, area = _product(x.shape[:lead]), _product(x.shape[lead:])
    count = _product(gradient.shape[lead:])
    flat = cx.constant(0, cx.wide, (planes, area))
    plane = cx.reshape(cx.iota((planes, count), 0, torch.int32), (planes, count, 1))
    at = cx.reshape(cx.convert(places, torch.int32), (planes, count, 1))
    updates = cx.reshape(cx.convert(gradient, cx.wide), (planes, count))
    made = cx.scatter(flat, cx.concatenate([plane, at], 2), updates, [], [0, 1], [0, 1], cx.add)
    return cx.convert(cx.reshape(made, x.shape), cx.dtype)


@lowers("avg_pool2d", "avg_pool3d", "avg_pool1d")
def avg_pool(
    cx: Any, x: Value, window: Any, stride: Any = (), pad: Any = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Value:  # fmt: skip
    rank = int(cx.name[-2])
    window, pad = _each(window, rank), _each(pad, rank)
    stride = _each(stride, rank) if stride else window
    wide = cx.convert(x, cx.wide)
    total = _window_sum(cx, wide, cx.shape, window, stride, pad)
    divisor = _divisor(cx, x, window, stride, pad, count_include_pad, divisor_override)
    if not cx.wide.is_floating_point:
        return cx.convert(cx.divide(total, cx.convert(divisor, cx.wide)), cx.dtype)
    return cx.convert(cx.divide(total, divisor), cx.dtype)


def _window_sum(cx: Any, x: Value, out: Sequence[int], window: Any, stride: Any, pad: Any) -> Value:
    lead = x.rank - len(window)
    pairs = _padding(x, out, window, stride, pad, [1] * len(window))
    x, cut = _cut(cx, x, pairs)
    return cx.reduce_window("sum", x, [1] * lead + window, [1] * lead + stride, cut)


def window_counts(size: int, out: int, window: int, stride: int, pad: int, include_pad: bool) -> torch.Tensor:
    """Elements that each window of one dimension counts: real ones, or those up to the end of the padding."""
    start = torch.arange(out) * stride - pad
    stop = torch.minimum(start + window, torch.tensor(size + pad))
    if include_pad:
        return stop - start
    return torch.minimum(stop, torch.tensor(size)) - start.clamp_min(0)


def _divisor(cx: Any, x: Value, window: Any, stride: Any, pad: Any, include_pad: bool, override: int | None) -> Value:
    if override is not None:
        return cx.constant(override, cx.wide, cx.shape)
    rank = len(window)
    lead = x.rank - rank
    counts = torch.ones((), dtype=torch.int64)
    for i in range(rank):
        own = window_counts(x.shape[lead + i], cx.shape[lead + i], window[i], stride[i], pad[i], include_pad)
        counts = counts.unsqueeze(-1) * own
    made = cx.dense(counts.to(cx.wide))
    return cx.broadcast_dims(made, cx.shape, range(lead, x.rank))


@lowers("avg_pool2d_backward", "avg_pool3d_backward", "avg_pool1d_backward")
def avg_pool_backward(
    cx: Any, gradient: Value, x: Value, window: Any, stride: Any, pad: Any, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None,
) -> Value:  # fmt: skip
    """The transpose of a window sum: the gradient spread by the stride, and summed over windows in reverse."""
    rank = int(cx.name.removesuffix("_backward")[-2])
    window, pad = _each(window, rank), _each(pad, rank)
    stride = _each(stride, rank) if stride else window
    lead = x.rank - rank
    outer = cx.out
    cx.out = torch.empty(gradient.shape, dtype=gradient.dtype, device="meta")
    divisor = _divisor(cx, x, window, stride, pad, count_include_pad, divisor_override)
    cx.out = outer
    each = cx.divide(cx.convert(gradient, cx.wide), divisor)
    low, high, interior = [0] * x.rank, [0] * x.rank, [0] * x.rank
    for i in range(rank):
        d = lead + i
        low[d], interior[d] = window[i] - 1 - pad[i], stride[i] - 1
        spread = (gradient.shape[d] - 1) * stride[i] + 1
        high[d] = x.shape[d] + window[i] - 1 - spread - low[d]
    spread_out = cx.pad(each, 0, low, high, interior)
    made = cx.reduce_window("sum", spread_out, [1] * lead + window, [1] * x.rank, [(0, 0)] * x.rank)
    return cx.convert(made, cx.dtype)


def adaptive_matrix(size: int, out: int) -> torch.Tensor:
    """[out, size] of ones where an output counts an input: from floor(i * size / out) to ceil((i + 1) * size / out)."""
    i = torch.arange(out)
    start, stop = i * size // out, -(-(i + 1) * size // out)
    place = torch.arange(size)
    return (place >= start[:, None]) & (place < stop[:, None])


@lowers("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool1d")
def adaptive_avg_pool(cx: Any, x: Value, sizes: Any) -> Value:
    """One product with an averaging matrix for each spatial dimension."""
    rank = int(cx.name[-2])
    made = cx.convert(x, cx.wide)
    for d in range(x.rank - rank, x.rank):
        member = adaptive_matrix(x.shape[d], cx.shape[d]).to(torch.float32)
        made = _along(cx, made, d, cx.dense(member / member.sum(1, keepdim=True)))
    return cx.convert(made, cx.dtype)


def _along(cx: Any, x: Value, dim: int, matrix: Value) -> Value:
    """matrix [n, x.shape[dim]] times x along `dim`."""
    made = cx.dot(x, cx.convert(matrix, x.dtype), ([], []), ([dim], [1]), x.dtype)
    return cx.move_dim(made, made.rank - 1, dim)


@lowers("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward")
def adaptive_avg_pool_backward(cx: Any, gradient: Value, x: Value) -> Value:
    rank = int(cx.name.removesuffix("_backward")[-2])
    made = cx.convert(gradient, cx.wide)
    for d in range(x.rank - rank, x.rank):
        member = adaptive_matrix(x.shape[d], gradient.shape[d]).to(torch.float32)
        made = _along(cx, made, d, cx.dense((member / member.sum(1, keepdim=True)).t().contiguous()))
    return cx.convert(made, cx.dtype)


@lowers("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(cx: Any, x: Value, sizes: Any) -> tuple[Value, Value]:
    """Windows of several sizes: each is gathered to the size of the largest, with its first element repeated."""
    rank = int(cx.name[-2])
    lead = x.rank - rank
    places = _adaptive_places(x.shape[lead:], cx.shape[lead:])
    planes = _product(x.shape[:lead])
    flat = cx.reshape(x, (planes, _product(x.shape[lead:])))
    count, largest = places.shape
    picked = cx.gather(
        flat, cx.dense(places.to(torch.int32).unsqueeze(-1)), [0], [1], [1], [planes, 1], (planes, count, largest)
    )
    place = cx.broadcast_dims(cx.dense(places.to(torch.int32)), (planes, count, largest), [1, 2])

    def combine(a: list[Value], b: list[Value]) -> list[Value]:
        better = cx.binary("or_", cx.compare("GT", a[0], b[0]), cx.is_nan(a[0]))
        equal = cx.binary("and_", cx.compare("EQ", a[0], b[0]), cx.compare("LT", a[1], b[1]))
        first = cx.binary("or_", better, equal)
        return [cx.select(first, a[0], b[0]), cx.select(first, a[1], b[1])]

    starts = [cx.constant(lowest(x.dtype), x.dtype), cx.constant(highest(torch.int32), torch.int32)]
    values, where = cx.reduce_many([picked, place], starts, 2, combine)
    return cx.reshape(values, cx.shape), cx.convert(cx.reshape(where, cx.shape), torch.int64)


def _adaptive_places(sizes: Sequence[int], outs: Sequence[int]) -> torch.Tensor:
    """[outputs, largest window] of places in the flattened input plane."""
    rows: list[list[int]] = [[0]]
    for size, out in zip(sizes, outs, strict=True):
        windows = [torch.nonzero(row).flatten().tolist() for row in adaptive_matrix(size, out)]
        rows = [[base * size + i for base in row for i in window] for row in rows for window in windows]
    longest = max((len(r) for r in rows), default=1)
    return torch.tensor([r + [r[0]] * (longest - len(r)) for r in rows], dtype=torch.int64).reshape(len(rows), longest)


@lowers("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward")
def adaptive_max_pool_backward(cx: Any, gradient: Value, x: Value, places: Value) -> Value:
    rank = int(cx.name.removesuffix("_backward")[-2])
    return scatter_to_places(cx, gradient, places, x, x.rank - rank)


__all__ = ["take_flat"]
