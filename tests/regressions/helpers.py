"""What the regression tests share."""

from __future__ import annotations

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_neuronx

DEVICE = "neuron"


def both(function, *tensors):
    """`function` of the tensors on the CPU and on the device, results moved to the CPU."""
    expected = function(*[t.clone() for t in tensors])
    got = function(*[t.to(DEVICE) for t in tensors])
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.cpu(), got), expected


def assert_same(function, *tensors):
    got, expected = both(function, *tensors)
    torch.testing.assert_close(got, expected)


class Dispatched(TorchDispatchMode):
    """Names of the operators on tensors of the device that reach the dispatcher below autograd."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        tensors = torch.utils._pytree.tree_leaves((args, kwargs, result))
        if any(isinstance(t, torch.Tensor) and t.device.type == DEVICE for t in tensors):
            self.names.append(str(func))
        return result


def assert_fell_back(name):
    assert any(name in row.op for row in torch_neuronx.fallbacks()), f"{name} did not take the fallback"
