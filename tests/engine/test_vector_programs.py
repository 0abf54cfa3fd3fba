"""The vector engine itself: functions over the float range, and descriptions that are no programs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torch_neuronx import _C

F32 = torch.float32
Row = tuple[str, int, int, int, float]


def one_input(*rows: Row, extent: str = "full", inner: int = 1, dims: int = 1) -> _C._VectorKernel:
    return _C._VectorKernel("test", [(F32, False)], [(F32, extent, -1, False)], list(rows), list(range(dims)), inner)


def unary(name: str) -> _C._VectorKernel:
    return one_input(("input", 0, -1, -1, 0.0), (name, 0, -1, -1, 0.0), ("store", 1, 1, 0, 0.0))


# Units in the last place from the exact result; PyTorch's own vector functions are within 1.
BOUNDS = {
    "exp": 1.1, "log": 1.0, "tanh": 1.5, "erf": 1.5, "rsqrt": 1.5, "sqrt": 0.6, "reciprocal": 0.6, "floor": 0.0,
    "ceil": 0.0, "round": 0.0, "trunc": 0.0, "sign": 0.0, "abs": 0.0, "neg": 0.0, "relu": 0.0, "square": 0.6,
}  # fmt: skip


@pytest.mark.parametrize("name", BOUNDS)
def test_over_the_float_range(name: str) -> None:
    # Every 4099th bit pattern: all exponents, both signs, denormals, infinities, NaN.
    x = torch.from_numpy(np.arange(0, 2**32, 4099, dtype=np.uint32).view(np.float32).copy())
    got = unary(name).run([x.to("neuron")])[0].cpu()
    exact = getattr(torch, name)(x.double())
    rounded = exact.float()
    same = (got == rounded) | (got.isnan() & rounded.isnan())
    unit = torch.from_numpy(np.spacing(np.abs(rounded[~same].numpy()))).double()
    error = ((got[~same].double() - exact[~same]).abs() / unit).nan_to_num(nan=float("inf"))
    assert error.numel() == 0 or error.max().item() <= BOUNDS[name], x[~same][error.argmax()]


def test_sigmoid() -> None:
    x = torch.linspace(-87, 87, 100001)
    got = unary("sigmoid").run([x.to("neuron")])[0].cpu()
    torch.testing.assert_close(got.double(), torch.sigmoid(x.double()), rtol=3e-7, atol=0)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 127, 1000])
@pytest.mark.parametrize("name", ["sum", "largest", "smallest"])
def test_reductions_of_rows(name: str, length: int) -> None:
    x = torch.randn(9, length)
    kernel = one_input(("input", 0, -1, -1, 0.0), (name, 0, -1, -1, 0.0), ("store", 1, 1, 0, 0.0), extent="row", dims=2)
    want = {"sum": x.sum(-1), "largest": x.amax(-1), "smallest": x.amin(-1)}[name]
    torch.testing.assert_close(kernel.run([x.to("neuron")])[0].cpu(), want)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_do_not_depend_on_threads(threads: int) -> None:
    kernel = one_input(("input", 0, -1, -1, 0.0), ("column", 0, 1, -1, 0.0), extent="column", dims=2)
    x = torch.randn(5000, 33)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        got = kernel.run([x.to("neuron")])[0].cpu()
        torch.set_num_threads(1)
        assert torch.equal(got, kernel.run([x.to("neuron")])[0].cpu())
    finally:
        torch.set_num_threads(before)
    torch.testing.assert_close(got, x.sum(0), rtol=1e-4, atol=1e-4)


MISTAKES: dict[str, tuple[list[Row], str]] = {
    "unknown": ([("cosh", 0, -1, -1, 0.0)], "no operation 'cosh'"),
    "undefined": ([("input", 0, -1, -1, 0.0), ("exp", 3, -1, -1, 0.0)], "operand 3 is not defined before it"),
    "operand": ([("input", 4, -1, -1, 0.0)], "no operand 4"),
    "reduces nothing": (
        [("constant", -1, -1, -1, 1.0), ("sum", 0, -1, -1, 0.0)],
        "reduces a value that has no elements",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    rows, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message):
        one_input(*rows)


def test_inputs_are_checked() -> None:
    kernel = unary("exp")
    with pytest.raises(ValueError, match="0 inputs, not 1"):
        kernel.run([])
    with pytest.raises(ValueError, match="input 0 is BFloat16 on neuron:0, not Float"):
        kernel.run([torch.ones(4, dtype=torch.bfloat16, device="neuron")])
    with pytest.raises(ValueError, match="on cpu"):
        kernel.run([torch.ones(4)])


def test_empty_tensors() -> None:
    assert unary("exp").run([torch.empty(0, device="neuron")])[0].shape == (0,)
    kernel = one_input(("input", 0, -1, -1, 0.0), ("column", 0, 1, -1, 0.0), extent="column", dims=2)
    assert torch.equal(kernel.run([torch.empty(0, 5, device="neuron")])[0].cpu(), torch.zeros(5))
