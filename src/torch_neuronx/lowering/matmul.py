"""Matrix products: dot_general that accumulates 16-bit types in float32."""

from __future__ import annotations

from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value


def product(cx: Any, x: Value, y: Value, dtype: torch.dtype) -> Value:
    """x @ y for two matrices, or two batches of matrices, in the accumulation type of `dtype`, rounded to it."""
    n = x.rank - 2
    batch = list(range(n))
    return cx.dot(x, y, (batch, batch), ([n + 1], [n]), dtype)


@lowers("mm")
def mm(cx: Any, x: Value, y: Value) -> Value:
    return product(cx, x, y, cx.dtype)


@lowers("bmm")
def bmm(cx: Any, x: Value, y: Value) -> Value:
    return product(cx, x, y, cx.dtype)


@lowers("mv")
def mv(cx: Any, x: Value, y: Value) -> Value:
    return cx.dot(x, y, ([], []), ([1], [0]), cx.dtype)


@lowers("dot", "vdot")
def dot(cx: Any, x: Value, y: Value) -> Value:
    return cx.dot(x, y, ([], []), ([0], [0]), cx.dtype)


def _scaled(cx: Any, x: Value, factor: Any) -> Value:
    return x if factor == 1 else cx.multiply(x, cx.constant(factor, x.dtype))


def _with_addend(cx: Any, addend: Value, made: Value, beta: Any, alpha: Any) -> Value:
    """beta * addend + alpha * product; beta 0 ignores what the addend holds, even NaN."""
    made = _scaled(cx, made, alpha)
    if beta != 0:
        made = cx.add(_scaled(cx, cx.as_value(addend, made.dtype), beta), made)
    return cx.convert(cx.expand(made, cx.shape), cx.dtype)


@lowers("addmm", "baddbmm")
def addmm(cx: Any, addend: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _with_addend(cx, addend, product(cx, x, y, cx.wide), beta, alpha)


@lowers("addmv")
def addmv(cx: Any, addend: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _with_addend(cx, addend, cx.dot(x, y, ([], []), ([1], [0]), cx.wide), beta, alpha)


@lowers("addbmm")
def addbmm(cx: Any, addend: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _with_addend(cx, addend, cx.dot(x, y, ([], []), ([0, 2], [0, 1]), cx.wide), beta, alpha)


@lowers("linear")
def linear(cx: Any, x: Value, weight: Value, bias: Value | None = None) -> Value:
    made = cx.dot(x, weight, ([], []), ([x.rank - 1], [weight.rank - 1]), cx.wide)
    if bias is not None:
        made = cx.add(made, cx.as_value(bias, cx.wide))
    return cx.convert(made, cx.dtype)
