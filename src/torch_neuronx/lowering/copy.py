"""Copies and casts."""

from __future__ import annotations

from typing import Any

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value


@lowers(
    "clone", "alias", "alias_copy", "detach", "detach_copy", "lift", "lift_fresh", "lift_fresh_copy", "contiguous",
    "positive", note="no operation: memory is the compiler's business",
)  # fmt: skip
def same(cx: Any, x: Value, **_: Any) -> Value:
    return x


@lowers("_to_copy", "prims::convert_element_type", "prims::device_put")
def to_copy(cx: Any, x: Value, *_: Any, **__: Any) -> Value:
    return cx.convert(x, cx.dtype)


@lowers("copy")
def copy(cx: Any, x: Value, source: Value, non_blocking: bool = False) -> Value:
    return cx.as_value(source, x.dtype, x.shape)
