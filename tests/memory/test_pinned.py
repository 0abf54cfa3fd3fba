"""Pinned host memory: at::HostAllocator."""

from __future__ import annotations

import pytest
import torch

from .helpers import MIB, busy


@pytest.fixture(autouse=True)
def _fresh(device: torch.device) -> None:
    torch.accelerator.empty_host_cache()
    torch.neuron.reset_peak_host_memory_stats()
    torch.neuron.reset_accumulated_host_memory_stats()


def test_pinned_or_not() -> None:
    plain = torch.ones(1000)
    pinned = plain.pin_memory()
    assert pinned.is_pinned() and not plain.is_pinned()
    assert pinned.device.type == "cpu" and torch.equal(pinned, plain)
    assert pinned[10:].is_pinned(), "views are inside the block"
    assert torch.empty(10, pin_memory=True).is_pinned()
    assert pinned.pin_memory() is pinned or pinned.pin_memory().data_ptr() == pinned.data_ptr()
    with pytest.raises(RuntimeError, match="cannot pin"):
        torch.ones(3, device="neuron").pin_memory()


def test_blocks_are_cached_and_counted() -> None:
    pinned = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
    address = pinned.data_ptr()
    stats = torch.neuron.host_memory_stats()
    assert stats["active_bytes.current"] == 4 * MIB, "rounded up to a power of two"
    assert stats["active_requests.current"] == stats["allocations.current"] == stats["num_host_alloc"] == 1
    assert stats["host_alloc_time.count"] == 1
    del pinned
    stats = torch.neuron.host_memory_stats()
    assert stats["active_bytes.current"] == 0 and stats["allocated_bytes.current"] == 4 * MIB
    assert torch.empty(4 * MIB, dtype=torch.uint8, pin_memory=True).data_ptr() == address
    assert torch.neuron.host_memory_stats()["num_host_alloc"] == 1
    torch.accelerator.empty_host_cache()
    stats = torch.neuron.host_memory_stats()
    assert stats["allocated_bytes.current"] == 0 and stats["num_host_free"] == 1
    assert stats["allocated_bytes.peak"] == 4 * MIB
    torch.neuron.reset_peak_host_memory_stats()
    torch.neuron.reset_accumulated_host_memory_stats()
    stats = torch.neuron.host_memory_stats()
    assert stats["allocated_bytes.peak"] == stats["num_host_alloc"] == stats["host_alloc_time.count"] == 0


def test_a_block_in_flight_is_not_reused(device: torch.device) -> None:
    """A non-blocking copy reads the block on the device clock; until then another tensor must not get it."""
    side = torch.neuron.Stream(device)
    pinned = torch.ones(MIB, pin_memory=True)
    address = pinned.data_ptr()
    with torch.neuron.device(device), torch.neuron.stream(side):
        busy(device)
        there = pinned.to(device, non_blocking=True)
    del pinned
    assert torch.empty(MIB, pin_memory=True).data_ptr() != address
    side.synchronize()
    assert torch.empty(MIB, pin_memory=True).data_ptr() == address
    assert there.sum().item() == MIB


def test_loader_pins() -> None:
    data = torch.utils.data.TensorDataset(torch.arange(32.0))
    loader = torch.utils.data.DataLoader(data, batch_size=8, pin_memory=True)
    batches = [batch[0] for batch in loader]
    assert all(b.is_pinned() for b in batches) and torch.cat(batches).sum() == 496
