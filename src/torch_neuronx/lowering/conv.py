"""Convolution in any number of spatial dimensions, its transpose, and both gradients: StableHLO's convolution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value


def _spatial(rank: int) -> str:
    return "".join(str(i) for i in range(rank))


def _each(values: Sequence[int], count: int) -> list[int]:
    """A list of one number stands for all dimensions."""
    return list(values) * count if len(values) == 1 else list(values)


def forward(cx: Any, x: Value, w: Value, stride: Any, pad: Any, dilation: Any, groups: int, dtype: Any) -> Value:
    rank = x.rank - 2
    n = _spatial(rank)
    sizes = [
        (x.shape[2 + i] + 2 * pad[i] - dilation[i] * (w.shape[2 + i] - 1) - 1) // stride[i] + 1 for i in range(rank)
    ]
    shape = (x.shape[0], w.shape[0], *sizes)
    return cx.convolution(
        x, w, (f"bf{n}", f"oi{n}", f"bf{n}"), stride, [(p, p) for p in pad], [1] * rank, dilation, shape, dtype,
        feature_groups=groups,
    )  # fmt: skip


def transposed(
    cx: Any, x: Value, w: Value, stride: Any, pad: Any, dilation: Any, groups: int, sizes: Sequence[int], dtype: Any
) -> Value:
    """The gradient of `forward` with kernel w ([in, out / groups, ...]): x spread by the stride, the kernel mirrored."""  # noqa: E501
    rank = x.rank - 2
    n = _spatial(rank)
    inputs, outputs = w.shape[0], w.shape[1] * groups
    kernel = cx.reverse(w, list(range(2, w.rank)))
    if groups > 1:
        kernel = cx.reshape(kernel, (groups, inputs // groups, w.shape[1], *w.shape[2:]))
        kernel = cx.transpose(kernel, [0, 2, 1, *range(3, kernel.rank)])
        kernel = cx.reshape(kernel, (outputs, inputs // groups, *w.shape[2:]))
    else:
        kernel = cx.transpose(kernel, [1, 0, *range(2, w.rank)])
    padding = []
    for i in range(rank):
        reach = dilation[i] * (w.shape[2 + i] - 1)
        spread = (x.shape[2 + i] - 1) * stride[i] + 1
        low = reach - pad[i]
        padding.append((low, sizes[i] - (spread + low - reach)))
    return cx.convolution(
        x, kernel, (f"bf{n}", f"oi{n}", f"bf{n}"), [1] * rank, padding, stride, dilation,
        (x.shape[0], outputs, *sizes), dtype, feature_groups=groups,
    )  # fmt: skip


def weight_gradient(
    cx: Any,
    x: Value,
    gradient: Value,
    stride: Any,
    pad: Any,
    dilation: Any,
    groups: int,
    shape: Sequence[int],
    dtype: Any,
) -> Value:
    """A convolution of x with the gradient as kernel: batch and channels change places, stride and dilation too."""
    rank = x.rank - 2
    n = _spatial(rank)
    padding = []
    for i in range(rank):
        reach = (gradient.shape[2 + i] - 1) * stride[i] + 1
        low = pad[i]
        padding.append((low, (shape[2 + i] - 1) * dilation[i] + reach - x.shape[2 + i] - low))
    return cx.convolution(
        x, gradient, (f"fb{n}", f"io{n}", f"fb{n}"), dilation, padding, [1] * rank, stride, shape, dtype,
        batch_groups=groups,
    )  # fmt: skip


def _settings(stride: Any, pad: Any, dilation: Any, rank: int) -> tuple[list[int], list[int], list[int]]:
    return _each(stride, rank), _each(pad, rank), _each(dilation, rank)


@lowers("convolution")
def convolution(
    cx: Any, x: Value, w: Value, bias: Value | None, stride: Any, pad: Any, dilation: Any, transpose: bool,
    output_padding: Any, groups: int,
) -> Value:  # fmt: skip
    rank = w.rank - 2
    stride, pad, dilation = _settings(stride, pad, dilation, rank)
    batched = x.rank == w.rank
    if not batched:
        x = cx.reshape(x, (1, *x.shape))
    if transpose:
        sizes = cx.shape[-rank:]
        made = transposed(cx, x, w, stride, pad, dilation, groups, sizes, cx.wide)
    else:
        made = forward(cx, x, w, stride, pad, dilation, groups, cx.wide)
    if bias is not None:
        made = cx.add(made, cx.broadcast_dims(cx.convert(bias, cx.wide), made.shape, [1]))
    return cx.convert(cx.reshape(made, cx.shape), cx.dtype)


@lowers("convolution_backward")
def convolution_backward(
    cx: Any, gradient: Value, x: Value, w: Value, bias_sizes: Any, stride: Any, pad: Any, dilation: Any,
    transpose: bool, output_padding: Any, groups: int, mask: Sequence[bool],
) -> list[Value | None]:  # fmt: skip
    rank = w.rank - 2
    stride, pad, dilation = _settings(stride, pad, dilation, rank)
    results: list[Value | None] = [None, None, None]
    if mask[0]:
        if transpose:
            results[0] = forward(cx, gradient, w, stride, pad, dilation, groups, x.dtype)
        else:
            results[0] = transposed(cx, gradient, w, stride, pad, dilation, groups, x.shape[2:], x.dtype)
    if mask[1]:
        source, kernel = (gradient, x) if transpose else (x, gradient)
        results[1] = weight_gradient(cx, source, kernel, stride, pad, dilation, groups, w.shape, w.dtype)
    if mask[2]:
        total = cx.reduce("sum", cx.widen(gradient), [0, *range(2, gradient.rank)])
        results[2] = cx.convert(total, gradient.dtype)
    return results
