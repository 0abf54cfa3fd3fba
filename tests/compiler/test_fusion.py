"""Groups of operators that run as vector programs: results and gradients are the CPU's up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor

import torch_neuronx

DEVICE = "neuron"
# float32: a few roundings of another order. 16 bits: what goes from one graph to the other is rounded, and sums of
# columns add that up.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def flat(x: Any) -> list[Tensor]:
    return list(x) if isinstance(x, tuple | list) else [x]


def check(
    f: Callable[..., Any],
    *shapes: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    grad: bool = False,
    **options: Any,
) -> list[torch_neuronx.GraphMetrics]:
    """Runs f on the device, compares with the CPU's float32 results of the same values, gives the compiled graphs."""
    generator = torch.Generator().manual_seed(7)
    given = [torch.randn(*s, generator=generator).to(dtype) for s in shapes]
    host = [x.float().requires_grad_(grad) for x in given]
    device = [x.detach().to(DEVICE).requires_grad_(grad) for x in given]
    got = flat(torch.compile(f, backend=DEVICE, fullgraph=True, **options)(*device))
    want = flat(f(*host))
    if grad:
        seeds = [torch.randn(t.shape, generator=generator).to(dtype) for t in want]
        torch.autograd.backward(got, [s.to(DEVICE) for s in seeds])
        torch.autograd.backward(want, [s.float() for s in seeds])
        got += [x.grad for x in device]
        want += [x.grad for x in host]
    for mine, theirs in zip(got, want, strict=True):
        expected = dtype if theirs.is_floating_point() else theirs.dtype
        assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), expected)
    for mine, theirs in zip([*got, *device], [*want, *host], strict=True):
        bound = TOLERANCE[dtype]
        mine = mine.detach().cpu().to(theirs.dtype)
        torch.testing.assert_close(mine, theirs.detach(), rtol=bound, atol=bound, equal_nan=True)
    return torch_neuronx.get_dynamo_metrics()


def chain(x: Tensor, y: Tensor) -> Tensor:
    for _ in range(10):
        x = (x * 1.1 + y).tanh() - 0.5 * x
    return x


@pytest.mark.parametrize("shape", [(7,), (64,), (65,), (1000,), (33, 77), (2, 3, 130)])
def test_a_chain_is_one_program(shape: tuple[int, ...]) -> None:
    (row,) = check(chain, shape, shape)
    assert (row.nodes, row.vector_programs) == (1, 1)


def test_single_elements_are_left_to_the_operators() -> None:
    (row,) = check(chain, (1,), (1,))
    assert row.vector_programs == 0


@pytest.mark.parametrize("second", [(77,), (33, 1), (1,), (1, 77)])
def test_broadcast_operands(second: tuple[int, ...]) -> None:
    (row,) = check(chain, (33, 77), second)
    assert row.vector_programs == 1


MODULES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gelu": (lambda x: F.gelu(x) * 2, ((100, 65),)),
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh") * 2, ((100, 65),)),
    "swiglu": (lambda x, y: F.silu(x) * y, ((100, 65), (100, 65))),
    "softmax": (lambda x: F.softmax(x * 0.5, -1), ((10, 65),)),
    "log_softmax": (lambda x, y: F.log_softmax(x + y, -1), ((10, 165), (165,))),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (65,), w, b), ((4, 10, 65), (65,), (65,))),
    "layer_norm over two": (lambda x: F.layer_norm(x * 2, (10, 65)), ((4, 10, 65),)),
    "rms_norm": (lambda x, y, w: F.rms_norm(x + y, (65,), w), ((4, 10, 65), (4, 10, 65), (65,))),
    "relu of a slice": (lambda x: F.relu(x[:, 1:]) * 2, ((20, 32),)),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", MODULES)
def test_forward_and_backward(name: str, dtype: torch.dtype) -> None:
    f, shapes = MODULES[name]
    rows = check(f, *shapes, dtype=dtype, grad=True)
    assert all(row.vector_programs >= 1 for row in rows)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], int]] = {
    "transposed": (lambda x: (x.t() * 2 + 1).exp(), ((30, 70),), 1),
    "two orders": (lambda x, y: (x.t() * 2 + y).exp(), ((30, 70), (70, 30)), 1),
    "where": (lambda x: torch.where(x > 0, x * 2, -x) + x.abs(), ((30, 70),), 1),
    "masked_fill": (lambda x: (x * 2).masked_fill(x > 0, float("-inf")).exp(), ((30, 70),), 1),
    "a sum without its dimension": (lambda x: x + x.sum(-1), ((20, 20),), 0),
    "sums of rows": (lambda x: (x * 2).sum(-1), ((20, 20),), 1),
    "variance": (lambda x: (x * x).var(-1, keepdim=True) * x, ((20, 20),), 1),
    "minimum and maximum": (lambda x: (x * 3).amax(-1, True) - (x * 2).amin(-1, True), ((20, 20),), 1),
    "sums of columns": (lambda x: ((x * 2).sum(0), x + 1), ((20, 32),), 1),
    "sums of columns, kept": (lambda x: ((x * 2).sum(0, keepdim=True), x + 1), ((300, 32),), 1),
    "compared": (lambda x: (x > 0) & ~(x < 1) | x.isnan(), ((20, 33),), 1),
    "rounded": (lambda x: (x * 3).floor() + (x * 2).ceil() + (x * 5).round() + (x * 7).trunc(), ((20, 33),), 1),
    "powers": (lambda x: x.abs() ** 0.5 + x**2 + x**3 + x.abs() ** -0.5, ((20, 33),), 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    f, shapes, programs = FUNCTIONS[name]
    (row,) = check(f, *shapes)
    assert row.vector_programs == programs


def test_nan_and_infinity() -> None:
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), 1e-40, -1e-40, 3e38])
    x = special.repeat(20)

    def f(x: Tensor) -> list[Tensor]:
        y = x * 1.0
        return [y.exp(), y.log(), y.tanh(), y.sigmoid(), y.erf(), y.relu(), y.clamp(-2, 2), y.sqrt(), y.sign(), y.abs(),
                torch.maximum(y, -y), torch.minimum(y, y * 0.5), y.eq(y), y.lt(0.0), 1 / y]  # fmt: skip

    got = torch.compile(f, backend=DEVICE, fullgraph=True)(x.to(DEVICE))
    for mine, theirs in zip(got, f(x), strict=True):
        torch.testing.assert_close(mine.cpu(), theirs, equal_nan=True)


def test_written_inputs_are_written_by_the_program() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        x.mul_(2).add_(y)
        return y + 1

    (row,) = check(f, (20, 33), (20, 33))
    assert (row.nodes, row.vector_programs) == (1, 1)


def test_a_written_input_that_is_read_elsewhere() -> None:
    def f(x: Tensor, y: Tensor) -> Tensor:
        before = x[1:] * 1.0 + x[:-1]
        x.mul_(2).add_(y)
        return before @ before.t()

    check(f, (20, 33), (20, 33))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.int64], ids=str)
def test_scalars_have_no_rows(dtype: torch.dtype) -> None:
    x = torch.tensor(3).to(dtype)

    def f(x: Tensor) -> list[Tensor]:
        y = x.float()
        return [x.sum(-1, dtype=torch.float32), y.amax(0), y.mean(-1), F.softmax(y, 0), F.log_softmax(y, -1)]

    for mine, theirs in zip(torch.compile(f, backend=DEVICE, fullgraph=True)(x.to(DEVICE)), f(x), strict=True):
        assert torch.equal(mine.cpu(), theirs)


def test_no_value_depends_on_its_own_group() -> None:
    # The second sum needs the product, which needs the first: they cannot be one program.
    check(lambda x, w: x * 2 + 1 + ((x * 2 + 1) @ w).exp() * (x * 2 + 1), (32, 32), (32, 32))


def test_without_fusion_the_numbers_are_eagers() -> None:
    x = torch.randn(10, 65, device=DEVICE)
    f = lambda x: F.softmax(x * 0.5, -1)  # noqa: E731
    compiled = torch.compile(f, backend=DEVICE, options={"fusion": False})
    assert torch.equal(compiled(x), f(x))
    (row,) = torch_neuronx.get_dynamo_metrics()
    assert row.vector_programs == 0


def test_one_program_for_a_range_of_shapes() -> None:
    f = torch.compile(lambda x: F.softmax(x * 2 + 1, -1), backend=DEVICE, dynamic=True)
    for rows, length in ((3, 70), (5, 65), (40, 129)):
        x = torch.randn(rows, length)
        torch.testing.assert_close(f(x.to(DEVICE)).cpu(), F.softmax(x * 2 + 1, -1))
    (row,) = torch_neuronx.get_dynamo_metrics()
    assert (row.vector_programs, row.calls) == (1, 3)


def test_less_memory_moves() -> None:
    """Fifty operators in a program read two tensors and write one."""
    x, y = torch.randn(1 << 16, device=DEVICE), torch.randn(1 << 16, device=DEVICE)
    f = torch.compile(chain, backend=DEVICE)
    f(x, y)
    torch.neuron.synchronize()
    torch.neuron.reset_peak_memory_stats()
    before = torch.neuron.memory_allocated()
    z = f(x, y)
    assert torch.neuron.max_memory_allocated() - before == z.nbytes
