"""What the memory tests share."""

from __future__ import annotations

import torch

MIB = 1 << 20
GIB = 1 << 30


def limit(device: torch.device, size: int) -> None:
    torch.neuron.set_per_process_memory_fraction(size / torch.neuron.mem_get_info(device)[1], device)


def take(size: int, device: torch.device) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)


def busy(device: torch.device) -> None:
    """Work that keeps the current stream busy on the device clock well beyond the host."""
    tensor = take(16 * MIB, device)
    for _ in range(20):
        tensor.zero_()
    assert not torch.neuron.current_stream(device).query()


def consistent(device: torch.device) -> None:
    """Statistics and snapshot are two views of one state."""
    stats = torch.neuron.memory_stats(device)
    segments = [s for s in torch.neuron.memory_snapshot() if s["device"] == device.index]
    blocks = [b for s in segments for b in s["blocks"]]
    in_use = [b for b in blocks if b["state"] == "active_allocated"]
    active = [b for b in blocks if b["state"] != "inactive"]
    assert stats["segment.all.current"] == len(segments)
    assert (
        stats["reserved_bytes.all.current"] == sum(s["total_size"] for s in segments) == sum(b["size"] for b in blocks)
    )
    assert stats["allocation.all.current"] == len(in_use)
    assert stats["allocated_bytes.all.current"] == sum(b["size"] for b in in_use)
    assert stats["active.all.current"] == len(active)
    assert stats["active_bytes.all.current"] == sum(b["size"] for b in active)
    assert stats["requested_bytes.all.current"] == sum(b["requested_size"] for b in active)
    free, total = torch.neuron.mem_get_info(device)
    assert total - free == stats["reserved_bytes.all.current"]
    for what in ("allocation", "active", "segment", "reserved_bytes", "allocated_bytes", "requested_bytes"):
        for measure in ("current", "allocated", "freed"):
            parts = [stats[f"{what}.{pool}.{measure}"] for pool in ("small_pool", "large_pool")]
            assert stats[f"{what}.all.{measure}"] == sum(parts)
    reserved = sum(row.reserved for row in torch.neuron.segment_pool_report(device))
    assert reserved == stats["reserved_bytes.all.current"]
