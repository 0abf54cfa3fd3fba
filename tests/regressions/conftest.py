"""Fixtures of the regression tests."""

from __future__ import annotations

import pytest
import torch

import torch_neuronx


@pytest.fixture(scope="module")
def library():
    """Operators that exist on the CPU only, so that the device can run them through the boxed fallback alone."""
    made = torch.library.Library("public_reports", "DEF")
    made.define("index(Tensor x, Tensor?[] indices) -> Tensor")
    made.define("add_(Tensor(a!)[] xs, Scalar value) -> ()")
    made.define("join(Tensor[] xs) -> Tensor")
    made.define("twice.out(Tensor x, *, Tensor(a!) out) -> Tensor(a!)")
    made.define("half_(Tensor(a!) x) -> Tensor(a!)")
    made.define("maybe(Tensor x, Tensor? y) -> (Tensor, Tensor)")

    def add_(xs, value):
        for x in xs:
            x.add_(value)

    made.impl("index", lambda x, indices: torch.ops.aten.index(x, indices), "CPU")
    made.impl("add_", add_, "CPU")
    made.impl("join", lambda xs: torch.cat(xs), "CPU")
    made.impl("twice.out", lambda x, *, out: torch.mul(x, 2, out=out), "CPU")
    made.impl("half_", lambda x: x.mul_(0.5), "CPU")
    made.impl("maybe", lambda x, y: (x + 1, x.clone() if y is None else y * 2), "CPU")
    yield torch.ops.public_reports
    made._destroy()


@pytest.fixture(autouse=True)
def _quiet_fallbacks():
    torch_neuronx.set_fallback_policy("allow")
    torch_neuronx.reset_fallbacks()
