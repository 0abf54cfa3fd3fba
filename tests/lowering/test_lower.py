"""`torch_neuronx.lower`: what XLA computes from the module is what PyTorch computes on the CPU, gradients included."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import torch_neuronx

pytest.importorskip("jax")  # the extra [stablehlo] needs Python 3.11


def close(mine: Any, theirs: Any) -> None:
    torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-6)


def run_whole(lowered: Any, x: Tensor) -> dict[tuple[str, str], Tensor]:
    """All results by kind and name: of a module with one input, and the state that it was lowered with."""
    start = zip(lowered.arguments, lowered.initial_arguments(), strict=True)
    values = lowered.run_flat([x if a.kind == "input" else t.clone() for a, t in start])
    return {(r.kind, r.name): v for r, v in zip(lowered.results, values, strict=True)}


def gradients_of_a_product(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad((x @ w).tanh().sum(), (x, w))


def gradients_of_a_written_value(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    y[:, 1:].mul_(w.sum())
    return torch.autograd.grad(y.square().sum(), (x, w))


def second_derivatives(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
    (first,) = torch.autograd.grad((x @ w).exp().sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), (x, w))


@pytest.mark.parametrize("f", [gradients_of_a_product, gradients_of_a_written_value, second_derivatives])
def test_gradients_within_a_function(f: Callable[..., Any]) -> None:
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 2, requires_grad=True)
    for mine, theirs in zip(torch_neuronx.lower(f, (x, w)).run(x, w), f(x, w), strict=True):
        close(mine, theirs)


def test_forward_and_backward_of_a_module() -> None:
    class Loss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.body(x).square().mean()

    model, x = Loss(), torch.randn(4, 8)
    lowered = torch_neuronx.lower(model, (x,), backward=True)
    found = run_whole(lowered, x)
    loss = model(x)
    loss.backward()
    for name, parameter in model.named_parameters():
        close(found["gradient", name], parameter.grad)
    close(found["output", "output0"], loss.detach())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adam, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.AdamW, {}),
        (torch.optim.RMSprop, {}),
    ],
)
def test_a_whole_training_step(kind: Any, options: dict[str, Any]) -> None:
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)), torch.randn(4, 8)
    optimizer = kind(model.parameters(), lr=0.05, **options)

    def step(x: Tensor) -> Tensor:
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    step(x)  # the state of an optimizer exists after its first step
    before = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    lowered = torch_neuronx.lower(step, (x,), state=[model, optimizer])
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict()), before, rtol=0, atol=0)
    found = run_whole(lowered, x)
    loss = step(x)
    close(found.pop(("output", "output0")), loss.detach())
    for name, parameter in model.named_parameters():
        close(found.pop(("state", name)), parameter.detach())
        for key, value in optimizer.state[parameter].items():
            close(found.pop(("state", f"{name}.{key}")), value)
    assert not found


def test_a_scalar_by_its_place_in_memory() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    lowered = torch_neuronx.lower(lambda x: torch.as_strided_copy(x, (), (), 4), (x,))
    assert lowered.run(x).item() == 4.0
