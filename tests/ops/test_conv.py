"""Convolutions in 16 bits against the same ones in float64: a host library's own 16-bit kernels may be wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 4, 9, 9), (6, 4, 3, 3), {"padding": 1}),
    "dilated, in groups": ((2, 4, 8, 8), (2, 2, 3, 3), {"stride": (3, 2), "padding": 2, "groups": 2, "dilation": 4}),
    "even window, dilated": ((1, 4, 5, 5), (1, 4, 2, 3), {"stride": 2, "padding": 1, "dilation": (2, 3)}),
    "window wider than the image": ((1, 2, 4, 3), (4, 2, 3, 4), {"stride": 2, "padding": 1}),
    "one dimension": ((2, 4, 20), (3, 4, 4), {"padding": 2, "dilation": 2}),
}  # fmt: skip
# Twice the spacing of the dtype: results are rounded once, gradients are sums of rounded values.
TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("case", CASES)
def test_forward_and_backward(case: str, dtype: torch.dtype) -> None:
    shape, window, options = CASES[case]
    convolution = F.conv1d if len(shape) == 3 else F.conv2d
    generator = torch.Generator().manual_seed(5)
    x, w, b = (torch.randn(s, generator=generator).to(dtype) for s in (shape, window, window[:1]))
    results = []
    for device, kind in (("neuron", dtype), ("cpu", torch.float64)):
        leaves = [t.to(device, kind).requires_grad_() for t in (x, w, b)]
        y = convolution(*leaves, **options)
        seed = torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape).to(dtype)
        results.append([y, *torch.autograd.grad(y, leaves, seed.to(device, kind))])
    for mine, exact in zip(*results, strict=True):
        assert mine.dtype == dtype
        bound = TOLERANCE[dtype] * (1 + exact.abs().max().item())
        torch.testing.assert_close(mine.cpu().double(), exact, rtol=0, atol=bound)


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float16), (torch.float16, torch.float32)], ids=str)
def test_different_dtypes_are_an_error(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    x, w = torch.ones(1, 2, 4, 4, dtype=dtypes[0]), torch.ones(3, 2, 2, 2, dtype=dtypes[1])
    with pytest.raises(RuntimeError) as on_cpu:
        F.conv2d(x, w)
    with pytest.raises(RuntimeError) as caught:
        F.conv2d(x.to("neuron"), w.to("neuron"))
    assert str(caught.value) == str(on_cpu.value)
