"""Faults found when other backends were examined, not reported in public."""

from __future__ import annotations

import copy
import io
import re

import pytest
import torch
from torch import nn

from regressions.helpers import DEVICE, Dispatched


def test_module_to_keeps_parameters_and_ties():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    before = list(model.parameters())
    model.to(DEVICE)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert model[0].weight is model[1].weight
    old = model[0].weight.detach().clone()
    model(torch.ones(1, 3, device=DEVICE)).sum().backward()
    optimizer.step()
    assert not torch.equal(model[0].weight.cpu(), old.cpu()), "the optimizer trains other tensors"


def test_conj_and_neg_views_come_back():
    x = torch.tensor([1 + 2j, 3 - 4j])
    y = x.to(DEVICE)
    for view in (
        lambda t: t.conj(), lambda t: t.conj().imag, lambda t: torch._neg_view(t), lambda t: t.conj()[1:],
        lambda t: torch._neg_view(t.conj()), lambda t: t.repeat(2, 1).t().conj(),
    ):  # fmt: skip
        assert torch.equal(view(y).cpu(), view(x).resolve_conj().resolve_neg())
        assert torch.equal(view(y).clone().cpu(), view(x).clone().resolve_conj().resolve_neg())
    target = torch.zeros(2, dtype=torch.complex64, device=DEVICE)
    target.conj().copy_(y)
    assert torch.equal(target.cpu(), x.conj().resolve_conj())


def test_printing_is_one_copy():
    x = torch.rand(64, 64, device=DEVICE)
    with Dispatched() as log:
        text = repr(x)
    assert "device='neuron:0'" in text
    on_device = [n for n in log.names if "_to_copy" not in n and "detach" not in n and "copy_" not in n]
    assert sum("_to_copy" in n or "aten.copy_" in n for n in log.names) <= 1, log.names
    assert re.sub(r",\s*device='neuron:0'", "", text) == repr(x.cpu()), on_device


def test_deepcopy_and_save_keep_views_of_one_storage():
    base = torch.arange(6.0, device=DEVICE)
    pair = copy.deepcopy([base[1:], base[:3]])
    pair[0][0] = 9.0
    assert pair[1][1].item() == 9.0
    buffer = io.BytesIO()
    torch.save([base[1:], base[:3]], buffer)
    buffer.seek(0)
    loaded = torch.load(buffer)
    loaded[0][0] = 8.0
    assert loaded[1][1].item() == 8.0


def test_a_lazy_conjugate_left_in_out_comes_home() -> None:
    """linalg.lu_solve on a complex system from the right leaves its result conjugated in the out= tensor."""

    def solve(device: str) -> torch.Tensor:
        torch.manual_seed(0)
        a, b = torch.randn(3, 3, dtype=torch.complex64), torch.randn(4, 3, dtype=torch.complex64)
        lu, pivots = torch.linalg.lu_factor(a.to(device))
        out = torch.zeros(4, 3, dtype=torch.complex64, device=device)
        torch.linalg.lu_solve(lu, pivots, b.to(device), left=False, out=out)
        return out.cpu().resolve_conj()

    torch.testing.assert_close(solve("neuron"), solve("cpu"))


def test_complex32_with_both_signs_turned_leaves_the_device() -> None:
    x = torch.randn(5, dtype=torch.complex64).to(torch.complex32)
    turned = torch._neg_view(x.to("neuron")).conj()
    assert torch.equal(turned.cpu().to(torch.complex64), -x.to(torch.complex64).conj().resolve_conj())


def test_normal_gives_both_parts_of_a_complex_tensor_the_mean() -> None:
    parts = torch.view_as_real(torch.empty(100_000, dtype=torch.complex64, device="neuron").normal_(-2.0, 0.5)).cpu()
    assert parts.mean(0) == pytest.approx([-2.0, -2.0], abs=0.01)
    assert parts.std(0) == pytest.approx([0.5 / 2**0.5] * 2, abs=0.01)
