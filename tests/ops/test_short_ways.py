"""Kernels that leave the common way: small products, copies and sums, and results larger than the host's caches."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("op", [torch.add, torch.mul, torch.exp, torch.relu, torch.lt], ids=lambda op: op.__name__)
def test_results_larger_than_the_caches_are_the_cpus(op, dtype: torch.dtype) -> None:
    """They are computed in pieces and stored past the cache; the size is no multiple of a piece."""
    n = (16 << 20) // dtype.itemsize + 12_345 if op is not torch.lt else (16 << 20) + 12_345
    torch.manual_seed(0)
    x, y = (torch.randint(-9, 9, (n,)).to(dtype) for _ in range(2))
    args = (x,) if op in (torch.exp, torch.relu) else (x, y)
    assert torch.equal(op(*(a.to("neuron") for a in args)).cpu(), op(*args))
    if len(args) == 2:
        assert torch.equal(op(x.to("neuron"), 3).cpu(), op(x, 3))


@pytest.mark.parametrize("shape", [(4, 4, 4), (1, 5, 3), (7, 1, 2), (3, 0, 2), (0, 3, 2), (17, 33, 9)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "gaps"])
def test_small_products(shape: tuple[int, int, int], layout: str) -> None:
    m, k, n = shape
    torch.manual_seed(0)
    a = torch.randn(k, m).t() if layout[0] == "t" else torch.randn(m, k)
    b = torch.randn(n, k).t() if layout[1] == "t" else torch.randn(k, n)
    if layout == "gaps":
        a, b = torch.randn(m, 2 * k)[:, ::2], torch.randn(2 * k, n)[::2]
    torch.testing.assert_close((a.to("neuron") @ b.to("neuron")).cpu(), a @ b)


def test_small_copies() -> None:
    source = torch.randn(5, 6, device="neuron")
    target = torch.zeros(5, 6, device="neuron")
    version = target._version
    assert target.copy_(source) is target and target._version == version + 1
    assert torch.equal(target.cpu(), source.cpu())
    target[:, 1:].copy_(source[:, :-1])
    assert torch.equal(target.cpu()[:, 1:], source.cpu()[:, :-1])
    target[1:].copy_(target[:1])  # broadcast, from the tensor's own memory
    assert torch.equal(target.cpu(), target.cpu()[:1].expand(5, 6))
    assert torch.equal(torch.zeros(5, 6, device="neuron", dtype=torch.int64).copy_(source).cpu(), source.cpu().long())


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
def test_small_arithmetic_is_exact(op: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(3, 7), torch.randn(3, 7)
    y[0, 0], x[0, 1], y[0, 1], x[0, 2], y[0, 2] = 0.0, float("inf"), float("inf"), float("nan"), 1e-42
    ours = getattr(x.to("neuron"), op)(y.to("neuron")).cpu()
    assert torch.equal(ours.view(torch.int32), getattr(x, op)(y).view(torch.int32))


def test_launches_of_short_ways_are_timed() -> None:
    """The same launch takes the same device time whichever way the host computes it."""

    def time(x: torch.Tensor, y: torch.Tensor) -> float:
        start, end = torch.Event("neuron", enable_timing=True), torch.Event("neuron", enable_timing=True)
        start.record()
        x + y
        end.record()
        torch.neuron.synchronize()
        return start.elapsed_time(end)

    x = torch.ones(32, 32, device="neuron")
    time(x, x)  # from the second on, launches follow each other alike
    assert time(x, x) == time(x, x.t())  # the second is not contiguous and goes the common way
    assert time(x, x) > 0
