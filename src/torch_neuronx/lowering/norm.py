"""Softmax and normalisation: reductions in float32 around one pass of arithmetic."""

from __future__ import annotations

import math
from typing import Any

from torch_neuronx.lowering.reduce import moments
from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value
from torch_neuronx.lowering.view import normal


def shifted(cx: Any, x: Value, dim: int) -> tuple[Value, Value, int]:
    """(x - max, max, dimension) in the type of computation."""
    wide = cx.convert(x, cx.wide)
    dim = normal(dim, x.rank)
    top = cx.reduce("max", wide, [dim] if x.rank else [], True)
    return cx.subtract(wide, top), top, dim


@lowers("_softmax", "softmax.int")
def softmax(cx: Any, x: Value, dim: int, *_: Any) -> Value:
    moved, _top, dim = shifted(cx, x, dim)
    weights = cx.unary("exponential", moved)
    total = cx.reduce("sum", weights, [dim] if x.rank else [], True)
    return cx.convert(cx.divide(weights, total), cx.dtype)


@lowers("_safe_softmax")
def safe_softmax(cx: Any, x: Value, dim: int, dtype: Any = None) -> Value:
    """Rows that are all -inf give zeros."""
    wide = cx.convert(x, cx.wide)
    dim = normal(dim, x.rank)
    masked = cx.compare_with("EQ", cx.reduce("max", wide, [dim], True), -math.inf)
    made = softmax(cx, x, dim)
    return cx.select(masked, cx.constant(0, made.dtype, made.shape), made)


@lowers("_log_softmax", "log_softmax.int")
def log_softmax(cx: Any, x: Value, dim: int, *_: Any) -> Value:
    moved, _top, dim = shifted(cx, x, dim)
    total = cx.reduce("sum", cx.unary("exponential", moved), [dim] if x.rank else [], True)
    return cx.convert(cx.subtract(moved, cx.unary("log", total)), cx.dtype)


@lowers("native_layer_norm")
def native_layer_norm(
    cx: Any, x: Value, shape: Any, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value]:
    dims = list(range(x.rank - len(shape), x.rank))
    variance, average = moments(cx, x, dims, 0)
    inverse = cx.unary("rsqrt", cx.shift(variance, eps))
    wide = cx.wide
    made = cx.multiply(cx.subtract(cx.convert(x, wide), average), inverse)
    if weight is not None:
        made = cx.multiply(made, cx.as_value(weight, wide))
    if bias is not None:
        made = cx.add(made, cx.as_value(bias, wide))
    outs = cx.out
    return (
        cx.convert(made, outs[0].dtype),
        cx.convert(cx.reshape(average, outs[1].shape), outs[1].dtype),
        cx.convert(cx.reshape(inverse, outs[2].shape), outs[2].dtype),
    )
