"""Recurrent layers and cells against the CPU, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import torch_neuronx

LAYERS = {
    "lstm": lambda: nn.LSTM(6, 8, num_layers=2, batch_first=True),
    "lstm without bias": lambda: nn.LSTM(6, 8, bias=False),
    "lstm, both directions": lambda: nn.LSTM(6, 8, bidirectional=True),
    "lstm, projected": lambda: nn.LSTM(6, 8, proj_size=3),
    "gru": lambda: nn.GRU(6, 8, num_layers=2),
    "gru without bias": lambda: nn.GRU(6, 8, bias=False),
    "gru, both directions": lambda: nn.GRU(6, 8, bidirectional=True, batch_first=True),
    "rnn": lambda: nn.RNN(6, 8, num_layers=2, bidirectional=True),
    "rnn with relu": lambda: nn.RNN(6, 8, nonlinearity="relu"),
}
CELLS = {"lstm": nn.LSTMCell, "gru": nn.GRUCell, "rnn": nn.RNNCell}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.05}


def flat(outputs: object) -> list[torch.Tensor]:
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    return [t for part in outputs for t in flat(part)]


def run(module: nn.Module, call, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, then the gradients of the input and of all parameters."""
    x = x.clone().requires_grad_()
    outputs = flat(call(module, x))
    sum(o.double().square().sum() for o in outputs).backward()
    return [t.detach().cpu().double() for t in [*outputs, x.grad, *(p.grad for p in module.parameters())]]


def compare(module: nn.Module, call, x: torch.Tensor, dtype: torch.dtype = torch.float32) -> None:
    module, x = module.to(dtype), x.to(dtype)
    twin = copy.deepcopy(module).to("neuron")
    limit = TOLERANCE[dtype]
    for expected, actual in zip(run(module, call, x), run(twin, call, x.to("neuron")), strict=True):
        torch.testing.assert_close(actual, expected, rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name: str, dtype: torch.dtype) -> None:
    compare(LAYERS[name](), lambda m, x: m(x), torch.randn(4, 5, 6), dtype)


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("bias", [True, False])
def test_cells(name: str, bias: bool) -> None:
    def two_steps(cell: nn.Module, x: torch.Tensor):
        state = cell(x)
        return cell(x * 0.5, state)

    compare(CELLS[name](6, 8, bias=bias), two_steps, torch.randn(4, 6))


@pytest.mark.parametrize("name", ["lstm, both directions", "gru", "rnn"])
def test_packed_sequences(name: str) -> None:
    def call(module: nn.Module, x: torch.Tensor):
        packed = pack_padded_sequence(x, torch.tensor([5, 3, 1]), batch_first=False)
        output, state = module(packed)
        return pad_packed_sequence(output)[0], state

    compare(LAYERS[name](), call, torch.randn(5, 3, 6))


def test_only_the_cell_state_may_have_a_gradient() -> None:
    results = []
    for device in ("cpu", "neuron"):
        torch.manual_seed(0)
        cell = nn.LSTMCell(3, 4)
        x = torch.randn(2, 3).to(device).requires_grad_()
        cell.to(device)(x)[1].sum().backward()
        results.append(x.grad.cpu())
    torch.testing.assert_close(*results)


def test_dropout_between_layers_is_seeded() -> None:
    module = nn.LSTM(6, 8, num_layers=3, dropout=0.5).to("neuron")
    x = torch.randn(4, 5, 6, device="neuron")
    torch.manual_seed(1)
    first = module(x)[0]
    assert not torch.equal(module(x)[0], first)
    torch.manual_seed(1)
    assert torch.equal(module(x)[0], first)
    module.eval()
    assert torch.equal(module(x)[0], module(x)[0])


def test_without_a_fallback() -> None:
    torch_neuronx.set_fallback_policy("raise")
    for make in (nn.LSTM, nn.GRU, nn.RNN):
        module = make(6, 8, num_layers=2, bidirectional=True).to("neuron")
        module(torch.randn(4, 5, 6, device="neuron"))[0].sum().backward()
