"""Statistics under the names of torch.cuda and torch.accelerator."""

from __future__ import annotations

from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
import torch

from .helpers import GIB, MIB, consistent, take

CUDA_KEYS = {
    f"{what}.{pool}.{measure}"
    for what in (
        "allocation",
        "segment",
        "active",
        "inactive_split",
        "allocated_bytes",
        "reserved_bytes",
        "active_bytes",
        "inactive_split_bytes",
        "requested_bytes",
    )
    for pool in ("all", "small_pool", "large_pool")
    for measure in ("current", "peak", "allocated", "freed")
} | {
    *(f"oversize_{w}.{m}" for w in ("allocations", "segments") for m in ("current", "peak", "allocated", "freed")),
    *("num_alloc_retries", "num_ooms", "num_sync_all_streams", "num_device_alloc", "num_device_free"),
    "max_split_size",
}


def test_keys_are_cudas(device: torch.device) -> None:
    stats = torch.neuron.memory_stats(device)
    assert set(stats) == CUDA_KEYS
    assert list(stats) == sorted(stats)
    assert all(isinstance(value, int) for value in stats.values())


def test_accelerator_says_the_same(device: torch.device) -> None:
    tensors = [take(1000, device), take(5 * MIB, device)]
    del tensors[0]
    ours, theirs = torch.neuron.memory_stats(device), torch.accelerator.memory_stats(device)
    assert {key: ours[key] for key in theirs if key in ours} == {key: theirs[key] for key in theirs if key in ours}
    assert len(set(theirs) & set(ours)) > 90
    assert torch.accelerator.memory_allocated(device) == torch.neuron.memory_allocated(device) == 5 * MIB
    assert torch.accelerator.memory_reserved(device) == torch.neuron.memory_reserved(device)
    assert torch.accelerator.max_memory_allocated(device) == torch.neuron.max_memory_allocated(device) == 5 * MIB + 1024
    assert torch.accelerator.max_memory_reserved(device) == torch.neuron.max_memory_reserved(device) == 8 * MIB
    assert torch.accelerator.get_memory_info(device) == torch.neuron.mem_get_info(device)


def test_peaks_and_sums(device: torch.device) -> None:
    for _ in range(3):
        tensor = take(2 * MIB, device)
        del tensor
    stats = torch.neuron.memory_stats(device)
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == 3
    assert stats["allocated_bytes.all.allocated"] == 6 * MIB
    assert stats["allocated_bytes.all.peak"] == 2 * MIB
    assert stats["num_device_alloc"] == 1
    kept = take(MIB, device)
    torch.neuron.reset_peak_memory_stats(device)
    assert torch.neuron.max_memory_allocated(device) == torch.neuron.memory_allocated(device) == MIB
    torch.neuron.reset_accumulated_memory_stats(device)
    stats = torch.neuron.memory_stats(device)
    assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] == stats["num_device_alloc"] == 0
    assert stats["allocation.all.current"] == 1
    del kept
    stats = torch.neuron.memory_stats(device)
    assert (stats["allocation.all.freed"], stats["allocated_bytes.all.freed"]) == (1, MIB)
    torch.accelerator.reset_peak_memory_stats(device)
    torch.accelerator.reset_accumulated_memory_stats(device)
    stats = torch.neuron.memory_stats(device)
    assert stats["allocation.all.freed"] == stats["allocated_bytes.all.peak"] == 0


def test_the_peak_over_both_pools_is_not_the_sum_of_their_peaks(device: torch.device) -> None:
    tensor = take(MIB // 2, device)
    del tensor
    tensor = take(2 * MIB, device)
    del tensor
    stats = torch.neuron.memory_stats(device)
    assert stats["allocated_bytes.small_pool.peak"] == MIB // 2
    assert stats["allocated_bytes.large_pool.peak"] == stats["allocated_bytes.all.peak"] == 2 * MIB


def test_memory_that_cannot_be_given_back(device: torch.device) -> None:
    """inactive_split: free pieces of a small segment that live blocks keep."""
    tensors = [take(100 * 1024, device) for _ in range(4)]
    del tensors[1]
    stats = torch.neuron.memory_stats(device)
    assert stats["inactive_split.small_pool.current"] == 2
    assert stats["inactive_split_bytes.small_pool.current"] == 2 * MIB - 300 * 1024
    reserved = torch.neuron.memory_reserved(device)
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved(device) == reserved
    tensors.clear()
    torch.neuron.empty_cache()
    stats = torch.neuron.memory_stats(device)
    assert torch.neuron.memory_reserved(device) == stats["inactive_split.all.current"] == 0
    assert stats["inactive_split_bytes.all.current"] == 0


def test_empty_cache(device: torch.device) -> None:
    kept = take(3 * MIB, device)
    gone = take(40 * MIB, device)
    free, total = torch.neuron.mem_get_info(device)
    assert total == 24 * GIB
    del gone
    assert torch.neuron.mem_get_info(device)[0] == free
    torch.neuron.empty_cache()
    assert torch.neuron.memory_reserved(device) == 3 * MIB
    assert torch.neuron.mem_get_info(device) == (24 * GIB - 3 * MIB, 24 * GIB)
    consistent(device)
    del kept
    torch.accelerator.empty_cache()
    assert torch.neuron.memory_reserved(device) == 0


def test_old_names_warn(device: torch.device) -> None:
    with pytest.warns(FutureWarning, match="renamed to torch.neuron.memory_reserved"):
        assert torch.neuron.memory_cached(device) == 0
    with pytest.warns(FutureWarning, match="renamed to torch.neuron.max_memory_reserved"):
        assert torch.neuron.max_memory_cached(device) == 0
    tensor = take(MIB, device)
    del tensor
    for name in ("reset_max_memory_allocated", "reset_max_memory_cached"):
        with pytest.warns(FutureWarning, match="resets /all/ peak memory stats"):
            getattr(torch.neuron, name)(device)
    assert torch.neuron.max_memory_allocated(device) == 0


def test_summary(device: torch.device) -> None:
    tensors = [take(3000, device), take(700 * MIB, device)]
    text = torch.neuron.memory_summary(device)
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1, "a table with straight edges"
    assert f"PyTorch NEURON memory summary, device ID {device.index}" in text
    assert "| Allocated memory      | 716803 KiB | 716803 KiB |" in text, text
    assert "|       from small pool |" in text
    short = torch.neuron.memory_summary(device, abbreviated=True)
    assert "from small pool" not in short and len(short) < len(text)
    del tensors


def test_segment_pool_report(device: torch.device) -> None:
    size = 3 * MIB + 512
    tensors = [take(size, device) for _ in range(4)] + [take(2000, device)]
    del tensors[0], tensors[1]
    report = torch.neuron.segment_pool_report(device)
    assert [row.pool for row in report] == ["small", "large"]
    large = report[1]
    # Four blocks, of which the first and the third are free, and what is left of the last 2 MiB that were mapped.
    rest = 2 * MIB - 4 * 512
    assert (large.allocated, large.free, large.largest_free) == (2 * size, 2 * size + rest, size)
    assert large.reserved == 14 * MIB and large.segments == 1 and large.stream == 0 and large.free_blocks == 3
    # Pages of 64 KiB: the first block shares its last one with its neighbour, the third two, the rest its first.
    assert large.pinned == 512 + (65536 - 1024) + 1536 + (65536 - 2048)
    assert large.fragmentation == pytest.approx(1 - size / large.free)
    assert "fragmentation" in repr(report) and f"{large.fragmentation:.1%}" in repr(report)
    assert report[0].fragmentation == 0.0


@pytest.mark.parametrize(
    "name", ["memory_stats", "memory_allocated", "mem_get_info", "memory_summary", "segment_pool_report"]
)
def test_device_arguments(device: torch.device, name: str) -> None:
    function = getattr(torch.neuron, name)
    tensor = take(MIB, device)
    assert str(function(device.index)) == str(function(str(device))) == str(function(device))
    with torch.neuron.device(device):
        assert str(function()) == str(function("neuron")) == str(function(device))
    with pytest.raises(ValueError, match="Expected a neuron device, but got: cpu"):
        function("cpu")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        function(99)
    del tensor


def test_profiler_sees_memory(device: torch.device) -> None:
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        tensor = torch.empty(5 * MIB, dtype=torch.uint8, device=device)
        del tensor
    sizes = [e.nbytes() for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    assert 5 * MIB in sizes and -5 * MIB in sizes


def test_nothing_starts_the_device(run_python: Callable[..., CompletedProcess[str]]) -> None:
    code = """
import torch
n = torch.neuron
assert n.memory_allocated() == n.max_memory_reserved() == 0
assert n.memory_stats()["num_ooms"] == 0 and n.host_memory_stats() == {} and n.memory_snapshot() == []
assert n.mem_get_info() == (24 << 30, 24 << 30)
n.empty_cache(); n.memory_summary(); n.reset_peak_memory_stats(); n.segment_pool_report()
torch.accelerator.empty_cache(); torch.accelerator.empty_host_cache(); torch.accelerator.memory_stats()
print(n.is_initialized())
"""
    assert run_python(code).stdout.strip() == "False"
