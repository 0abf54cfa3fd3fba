"""Tensors that are made from nothing."""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value, accumulate_dtype


def _filled(cx: Any, value: Any) -> Value:
    if isinstance(value, Value):
        return cx.as_value(cx.reshape(value, ()), cx.dtype, cx.shape)
    return cx.constant(value, cx.dtype, cx.shape)


@lowers("full", "new_full")
def full(cx: Any, *args: Any, **_: Any) -> Value:
    return _filled(cx, args[-1])


@lowers("full_like", "fill.Scalar", "fill.Tensor")
def full_like(cx: Any, x: Value, value: Any, **_: Any) -> Value:
    return _filled(cx, value)


@lowers("scalar_tensor")
def scalar_tensor(cx: Any, value: Any, **_: Any) -> Value:
    return _filled(cx, value)


@lowers(
    "zeros", "zeros_like", "new_zeros", "empty.memory_format", "empty_like", "empty_permuted", "empty_strided",
    "new_empty", "new_empty_strided", note="uninitialised memory is zeros",
)  # fmt: skip
def zeros(cx: Any, *_: Any, **__: Any) -> Value:
    return _filled(cx, 0)


@lowers("ones", "ones_like", "new_ones")
def ones(cx: Any, *_: Any, **__: Any) -> Value:
    return _filled(cx, 1)


def _sequence(cx: Any, start: Any, step: Any) -> Value:
    """start + i * step, computed as PyTorch does: integers exactly, floating point in float32."""
    exact = not cx.dtype.is_floating_point and float(start).is_integer() and float(step).is_integer()
    dtype = (torch.int64 if exact else torch.float32) if not cx.dtype.is_floating_point else accumulate_dtype(cx.dtype)
    made = cx.iota(cx.shape, 0, dtype)
    if step != 1:
        made = cx.multiply(made, cx.constant(step, dtype))
    if start != 0:
        made = cx.add(made, cx.constant(start, dtype))
    return cx.convert(made, cx.dtype)


@lowers("arange", "arange.start", "arange.start_step")
def arange(cx: Any, *args: Any, **_: Any) -> Value:
    start, step = (0, 1) if len(args) == 1 else (args[0], args[2] if len(args) > 2 else 1)
    return _sequence(cx, start, step)


@lowers("prims::iota")
def iota(cx: Any, length: int, *, start: int, step: int, **_: Any) -> Value:
    return _sequence(cx, start, step)


@lowers("linspace")
def linspace(cx: Any, start: Any, end: Any, steps: int, **_: Any) -> Value:
    """From both ends towards the middle, as PyTorch computes it; integers are cut off towards zero at the end."""
    wide = torch.float32
    if steps <= 1:
        return cx.as_value(start, cx.dtype, cx.shape)
    if not cx.dtype.is_floating_point and isinstance(start, (int, float)) and isinstance(end, (int, float)):
        return cx.dense(torch.linspace(start, end, steps, dtype=cx.dtype))
    index = cx.iota((steps,), 0, torch.int32)
    step = (end - start) / (steps - 1)
    up = cx.add(cx.scale(cx.convert(index, wide), step), cx.constant(start, wide))
    back = cx.convert(cx.subtract(cx.constant(steps - 1, torch.int32), index), wide)
    down = cx.subtract(cx.constant(end, wide), cx.scale(back, step))
    return cx.convert(cx.select(cx.compare_with("LT", index, steps // 2), up, down), cx.dtype)


@lowers("eye", "eye.m")
def eye(cx: Any, *_: Any, **__: Any) -> Value:
    same = cx.compare("EQ", cx.iota(cx.shape, 0), cx.iota(cx.shape, 1))
    return cx.convert(same, cx.dtype)
