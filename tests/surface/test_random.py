"""Random numbers: seeds, states and generators."""

from __future__ import annotations

import pytest
import torch


def draw(device: str = "neuron") -> torch.Tensor:
    return torch.rand(8, device=device).cpu()


def test_manual_seed_repeats() -> None:
    torch.neuron.manual_seed(5)
    first = draw()
    second = draw()
    torch.neuron.manual_seed(5)
    assert torch.equal(draw(), first)
    assert not torch.equal(first, second)
    assert torch.neuron.initial_seed() == 5


def test_manual_seed_is_for_the_current_device() -> None:
    torch.neuron.manual_seed_all(1)
    with torch.neuron.device(1):
        torch.neuron.manual_seed(9)
    assert torch.neuron.initial_seed() == 1
    assert [g.initial_seed() for g in torch.neuron.default_generators] == [1, 9, 1, 1]


def test_torch_manual_seed_seeds_all_devices() -> None:
    torch.manual_seed(77)
    assert [g.initial_seed() for g in torch.neuron.default_generators] == [77] * torch.neuron.device_count()


def test_seed_differs_and_seed_all_is_the_same_everywhere() -> None:
    torch.neuron.seed()
    one = torch.neuron.initial_seed()
    torch.neuron.seed()
    assert torch.neuron.initial_seed() != one
    torch.neuron.seed_all()
    assert len({g.initial_seed() for g in torch.neuron.default_generators}) == 1


def test_state_is_seed_then_offset() -> None:
    torch.neuron.manual_seed(0x1122334455667788)
    state = torch.neuron.get_rng_state()
    assert state.dtype == torch.uint8 and state.device.type == "cpu" and state.numel() == 16
    assert state[:8].view(torch.int64).item() == 0x1122334455667788
    assert state[8:].view(torch.int64).item() == torch.neuron._get_rng_state_offset() == 0
    draw()
    assert torch.neuron._get_rng_state_offset() == torch.neuron.get_rng_state()[8:].view(torch.int64).item() > 0


@pytest.mark.parametrize("device", ["neuron", "neuron:1", 2, torch.device("neuron:3")])
def test_state_round_trip(device: object) -> None:
    place = torch.device("neuron", device) if isinstance(device, int) else torch.device(device)
    state = torch.neuron.get_rng_state(device)
    first = torch.rand(8, device=place).cpu()
    torch.neuron.set_rng_state(state, device)
    assert torch.equal(torch.rand(8, device=place).cpu(), first)


def test_offset_round_trip() -> None:
    torch.neuron.manual_seed(3)
    draw()
    offset = torch.neuron._get_rng_state_offset()
    first = draw()
    torch.neuron._set_rng_state_offset(offset)
    assert torch.equal(draw(), first)


@pytest.mark.parametrize(
    "state", [torch.zeros(4, dtype=torch.uint8), torch.zeros(16), torch.zeros(17, dtype=torch.uint8)]
)
def test_wrong_state_is_refused(state: torch.Tensor) -> None:
    before = torch.neuron.get_rng_state()
    with pytest.raises((RuntimeError, TypeError)):
        torch.neuron.set_rng_state(state)
    assert torch.equal(torch.neuron.get_rng_state(), before)


def test_own_generator() -> None:
    generator = torch.Generator("neuron")
    assert generator.device == torch.device("neuron:0")
    generator.manual_seed(11)
    first = torch.randn(5, generator=generator, device="neuron")
    default = torch.neuron.get_rng_state()
    generator.manual_seed(11)
    assert torch.equal(torch.randn(5, generator=generator, device="neuron"), first)
    assert torch.equal(torch.neuron.get_rng_state(), default), "an own generator leaves the default one alone"


def test_numbers_do_not_depend_on_other_streams() -> None:
    torch.neuron.manual_seed(2)
    first = draw()
    torch.neuron.manual_seed(2)
    with torch.neuron.stream(torch.neuron.Stream()):
        torch.ones(64, device="neuron").sum()
    assert torch.equal(draw(), first)


def test_seeding_starts_no_device(run_python) -> None:
    program = """
import torch
torch.manual_seed(4)
torch.neuron.manual_seed_all(5)
state = torch.neuron.get_rng_state()
print(torch.neuron.is_initialized(), torch.neuron.initial_seed(), len(state))
"""
    assert run_python(program).stdout.strip() == "False 5 16"
