"""A device of their own for the memory tests, with statistics that start from zero."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch

from .helpers import MIB, limit


@pytest.fixture
def device() -> Iterator[torch.device]:
    """A device that nothing else uses, empty and with fresh statistics; its memory fraction is restored."""
    device = torch.device("neuron:3")
    gc.collect()
    torch.neuron.init()
    torch.neuron.empty_cache()
    assert torch.neuron.memory_allocated(device) == 0, "an earlier test left tensors on the device of these tests"
    torch.neuron.reset_peak_memory_stats(device)
    torch.neuron.reset_accumulated_memory_stats(device)
    yield device
    torch.neuron.set_per_process_memory_fraction(1.0, device)


@pytest.fixture
def small(device: torch.device) -> torch.device:
    """The same, limited to 96 MiB, so that running out is quick."""
    limit(device, 96 * MIB)
    return device
