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
    gc.collect()
    torch.neuron.init()
    torch.neuron.empty_cache()
    # A test that fails keeps its tensors until pytest ends; the next one then uses another device.
    free = [i for i in (3, 2, 1) if torch.neuron.memory_reserved(i) == 0]
    assert free, "earlier tests left tensors on all devices"
    device = torch.device("neuron", free[0])
    torch.neuron.reset_peak_memory_stats(device)
    torch.neuron.reset_accumulated_memory_stats(device)
    yield device
    torch.neuron.set_per_process_memory_fraction(1.0, device)


@pytest.fixture
def small(device: torch.device) -> torch.device:
    """The same, limited to 96 MiB, so that running out is quick."""
    limit(device, 96 * MIB)
    return device
