"""Random numbers. Each device has one default generator with a 16-byte state: seed and Philox offset."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from torch_neuronx import _C
from torch_neuronx.neuron._utils import Device, _get_device_index
from torch_neuronx.neuron.devices import _is_in_bad_fork, device_count

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

_FORKED = (
    "Cannot re-initialize the neuron device in a forked subprocess. To use it with multiprocessing, start the "
    "processes with the 'spawn' method."
)


def _generator(device: Device = "neuron") -> torch.Generator:
    if _is_in_bad_fork():
        raise RuntimeError(_FORKED)
    return _C._default_generator(_get_device_index(device, optional=True))


def _get_generator(device: torch.device) -> torch.Generator:
    """The default generator of a device."""
    return _generator(device)


def generators() -> tuple[torch.Generator, ...]:
    """The default generators of all devices, by index; `torch.neuron.default_generators`."""
    return tuple(_generator(index) for index in range(device_count()))


def get_rng_state(device: Device = "neuron") -> torch.Tensor:
    """State of a device's default generator: a CPU uint8 tensor of 16 bytes, seed then offset, both 64-bit."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """States of all devices' default generators, by index."""
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = "neuron") -> None:
    """Set the state of a device's default generator to what `get_rng_state` returned."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the states of all devices' default generators, by index."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the default generator of the current device. Starts no device."""
    _generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices. `torch.manual_seed` calls it. Starts no device."""
    for generator in generators():
        generator.manual_seed(int(seed))


def seed() -> None:
    """Seed the default generator of the current device with a number that differs from run to run."""
    _generator().seed()


def seed_all() -> None:
    """Seed the default generators of all devices with one number that differs from run to run."""
    first, *rest = generators()
    value = first.seed()
    for generator in rest:
        generator.manual_seed(value)


def initial_seed() -> int:
    """Seed of the current device's default generator."""
    return _generator().initial_seed()


def _set_rng_state_offset(offset: int, device: Device = "neuron") -> None:
    """Set the Philox offset of a device's default generator: how many numbers have been drawn, in groups of four."""
    _generator(device).set_offset(offset)


def _get_rng_state_offset(device: Device = "neuron") -> int:
    """Philox offset of a device's default generator."""
    return _generator(device).get_offset()
