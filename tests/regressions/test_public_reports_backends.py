"""Faults of other out-of-tree backends, reported in public: one test each, numbered on from test_public_reports.py."""

from __future__ import annotations

import sys
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_neuronx
from regressions.helpers import DEVICE, Dispatched, assert_fell_back, assert_same


def test_18_torch_spyre_447_current_accelerator_right_after_import(run_python):
    code = "import torch; print(torch.accelerator.current_accelerator(), torch._C._get_accelerator().type)"
    assert run_python(code).stdout.split() == ["neuron", "neuron"]


def test_19_torch_spyre_3018_storage_offset_of_views():
    x = torch.arange(24.0).reshape(4, 6)
    assert_same(lambda x: x[1:], x)
    assert_same(lambda x: x[:, 1:].t().contiguous(), x)
    assert_same(lambda x: x[1:, 2:].t()[1:].unfold(0, 2, 1).diagonal(0, 1, 2), x)
    assert_same(lambda x: x.view(-1)[5:].as_strided((2, 3), (7, 2), 3), x)

    def write(x):
        view = x[1:, 2:].t()[::2]
        view.mul_(10)
        view[1:].copy_(torch.full_like(view[1:], -1))
        return x

    assert_same(write, x)


def test_20_pytorch_193057_offset_of_a_cpu_scalar():
    vector = torch.arange(5.0)
    x = torch.ones(3, device=DEVICE)
    assert (x + vector[3]).tolist() == [4.0] * 3
    assert torch.where(x > 0, vector[4], vector[2]).tolist() == [4.0] * 3
    assert (x * vector.flip(0)[1]).tolist() == [3.0] * 3
    assert x.clone().add_(vector[2]).tolist() == [3.0] * 3


def test_21_directml_431_out_that_has_to_grow(library):
    assert torch.equal(torch.eye(3, device=DEVICE).cpu(), torch.eye(3))
    x = torch.rand(3, 4, device=DEVICE)
    for call in (torch.sin, torch.cumsum, torch.sum, torch.lgamma, torch.linalg.qr, torch.sort):
        arguments = {torch.cumsum: (0,), torch.sum: (1,)}.get(call, ())
        expected = call(x.cpu(), *arguments)
        if isinstance(expected, torch.Tensor):
            out = torch.empty(0, device=DEVICE)
            result = call(x, *arguments, out=out)
        else:
            out = tuple(torch.empty(0, dtype=e.dtype, device=DEVICE) for e in expected)
            result = call(x, *arguments, out=out)
        torch.testing.assert_close(torch.utils._pytree.tree_map(lambda t: t.cpu(), tuple(result)), tuple(expected))
        torch.testing.assert_close(torch.utils._pytree.tree_map(lambda t: t.cpu(), tuple(out)), tuple(expected))
    out = torch.empty(0, device=DEVICE)
    library.twice(x, out=out)
    assert_fell_back("public_reports::twice")
    torch.testing.assert_close(out.cpu(), x.cpu() * 2)


def test_22_directml_408_softplus_out_and_604_optimizers_stay_on_the_device():
    x = torch.linspace(-3, 3, 7)
    out = torch.empty(7, device=DEVICE)
    torch.ops.aten.softplus.out(x.to(DEVICE), 2, 1, out=out)
    torch.testing.assert_close(out.cpu(), F.softplus(x, 2, 1))
    for optimizer in (torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop):
        w = torch.ones(4, device=DEVICE, requires_grad=True)
        w.grad = torch.ones_like(w)
        step = optimizer([w], lr=0.1).step
        step()
        torch_neuronx.reset_fallbacks()
        with Dispatched() as log:
            step()
        assert not torch_neuronx.fallbacks(), f"{optimizer.__name__}: {torch_neuronx.fallbacks()}"
        copies = [n for n in log.names if "_local_scalar_dense" in n or "_to_copy" in n]
        assert not copies, f"{optimizer.__name__} waits for the device: {copies}"


def test_23_torch_mojo_401_an_error_inside_backward_is_an_exception(run_python):
    code = """
import torch

class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ torch.ones(7, 7, device=gradient.device)  # a shape error from C++

stream = torch.neuron.Stream()
x = torch.ones(3, 3, device="neuron", requires_grad=True)
with torch.neuron.stream(stream):
    y = Broken.apply(x).sum()
    for call in (y.backward, y.backward):
        try:
            call()
        except RuntimeError as error:
            assert "cannot be multiplied" in str(error) or "second time" in str(error), error
        else:
            raise SystemExit("no exception")
assert torch.neuron.current_stream() != stream
print((x.detach() + 1).sum().item())
"""
    assert run_python(code).stdout.split() == ["18.0"]


def test_24_torch_mojo_and_tinygrad_11496_operands_on_two_devices():
    x, y = torch.ones(3, device=DEVICE), torch.ones(3)
    for call in (torch.sub, torch.mul, torch.dot, torch.maximum, torch.atan2, lambda a, b: torch.cat([a, b])):
        for a, b in ((x, y), (y, x)):
            with pytest.raises(RuntimeError, match="same device") as caught:
                call(a, b)
            assert "neuron:0" in str(caught.value) and "cpu" in str(caught.value)


def test_25_tinygrad_10464_setitem_and_9371_in_place_on_views():
    def items(x):
        x[0] = 1.0
        x[1, 2] = torch.tensor(5.0, device=x.device)
        x[2, 0] = torch.tensor(6.0)
        x[:, 1] = torch.arange(3.0, device=x.device)
        x[x > 5.5] = -1
        return x

    def views(x):
        x[::2].add_(1)
        x[:, ::2].mul_(2)
        x.t()[1].zero_()
        return x

    x = torch.arange(12.0).reshape(3, 4)
    assert_same(items, x)
    assert_same(views, x)


def test_26_xla_1718_gradient_after_writing_a_slice():
    def gradients(x, z):
        x, z = x.requires_grad_(), z.requires_grad_()
        y = x.clone()
        y[0] = z
        y[1:, 0].mul_(3)
        (y * torch.arange(y.numel(), device=y.device).reshape(y.shape)).sum().backward()
        return x.grad, z.grad

    assert_same(gradients, torch.ones(3, 2), torch.ones(2))


def test_27_dlprim_58_backward_without_hooks_and_26_invalid_device():
    nn.Linear(2, 2).to(DEVICE)(torch.ones(1, 2, device=DEVICE)).sum().backward()
    count = torch.neuron.device_count()
    for make in (torch.empty, torch.ones, torch.rand):
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            make(2, device=f"{DEVICE}:{count}")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(2).to(f"{DEVICE}:{count}")


def test_28_rbln_85_out_variants_under_fallback(library):
    x = torch.arange(6.0).reshape(2, 3)
    whole = torch.zeros(2, 8, device=DEVICE)
    out = whole[:, 1:7:2]
    result = library.twice(x.to(DEVICE), out=out)
    assert result is out or result.data_ptr() == out.data_ptr()
    assert_fell_back("public_reports::twice")
    assert torch.equal(out.cpu(), x * 2)
    assert torch.equal(whole.cpu()[:, ::2], torch.zeros(2, 4)), "wrote beside the view"
    y = torch.ones(3, device=DEVICE)
    assert library.half_(y[1:]).tolist() == [0.5, 0.5]
    assert y.tolist() == [1.0, 0.5, 0.5]
    for other in (None, torch.ones(2)):
        got = library.maybe(x.to(DEVICE), None if other is None else other.to(DEVICE))
        torch.testing.assert_close([t.cpu() for t in got], list(library.maybe(x, other)))


def test_29_rbln_62_overlapping_memory_is_refused():
    def cat(x):
        torch.cat([x[:2], x[2:4]], out=x[:4])

    def index_copy(x):
        x[0].expand(3, 6).index_copy_(0, torch.tensor([0], device=x.device), torch.ones(1, 6, device=x.device))

    def add(x):
        torch.add(x[:4], 1, out=x[1:5])

    def in_place(x):
        x[:1].expand(3, 6).add_(1)

    for call in (cat, index_copy, add, in_place):
        with pytest.raises(RuntimeError) as cpu:
            call(torch.ones(6, 6))
        with pytest.raises(RuntimeError) as ours:
            call(torch.ones(6, 6, device=DEVICE))
        assert str(ours.value).splitlines()[0] == str(cpu.value).splitlines()[0]


def test_30_rbln_58_fill_zero_and_copy_are_native_and_quick():
    calls = {
        "fill_": lambda x, y: x.fill_(1.0),
        "zero_": lambda x, y: x.zero_(),
        "copy_": lambda x, y: x.copy_(y),
    }
    for name, call in calls.items():
        pairs = {d: (torch.ones(16, device=d), torch.ones(16, device=d)) for d in ("cpu", DEVICE)}
        best = dict.fromkeys(pairs, float("inf"))
        torch_neuronx.reset_fallbacks()
        for _ in range(15):  # interleaved, so that a busy moment of the machine hits both
            for device, (x, y) in pairs.items():
                start = time.perf_counter()
                for _ in range(200):
                    call(x, y)
                best[device] = min(best[device], time.perf_counter() - start)
        assert not torch_neuronx.fallbacks(), f"{name}: {torch_neuronx.fallbacks()}"
        # The report saw a factor of 30. The benchmarks hold the exact figure; this gate is for a loaded machine.
        assert best[DEVICE] < 5 * best["cpu"], f"{name}: {best[DEVICE] / best['cpu']:.1f} times the CPU's time"


def test_31_triton_ascend_472_shift_of_scalars_and_flaggems_5743_empty_tensors():
    assert (torch.tensor(8, device=DEVICE) >> torch.tensor(1)).item() == 4
    assert (torch.tensor(8, device=DEVICE) << torch.tensor(1, device=DEVICE)).item() == 16
    # The conformance runs cover empty inputs of every operator of the database (variant `empty`).
    for call in (
        lambda x: x + 1, lambda x: x.sum(), lambda x: x.sum(0), lambda x: x.softmax(1), lambda x: x @ x.t(),
        lambda x: x.t() @ x, lambda x: torch.cat([x, x]), lambda x: x.sort(1), lambda x: F.gelu(x),
        lambda x: x.cumsum(0),
        lambda x: F.layer_norm(x, (4,)), lambda x: x[:, [1, 2]], lambda x: x.nonzero(), lambda x: F.dropout(x),
        lambda x: F.linear(x, torch.ones_like(x)), lambda x: torch.unique(x), lambda x: x.topk(2),
        lambda x: F.embedding(x.long(), torch.ones(3, 2).to(x)),
    ):  # fmt: skip
        assert_same(call, torch.empty(0, 4))


def test_32_dipu_607_torch_cuda_is_left_alone():
    assert not torch.cuda.is_available()
    assert torch.neuron is not torch.cuda
    foreign = [
        n for n in dir(torch.cuda)
        if (getattr(getattr(torch.cuda, n), "__module__", "") or "").startswith("torch_neuronx")
    ]  # fmt: skip
    assert not foreign, f"torch.cuda was patched: {foreign}"
    assert sys.modules["torch.cuda"] is torch.cuda
