"""Device memory: statistics, limits, history and snapshots. What the numbers mean: docs/memory.md.

All sizes are bytes of device memory (HBM). Reading statistics does not start the device: they are then zero.
"""

from __future__ import annotations

import collections
import dataclasses
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Literal, overload

import torch

from torch_neuronx import _C
from torch_neuronx.neuron._utils import Device, _get_device_index
from torch_neuronx.neuron.devices import _is_in_bad_fork, _lazy_init, is_initialized

__all__ = [
    "SegmentPool",
    "SegmentPoolReport",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "segment_pool_report",
    "set_per_process_memory_fraction",
]


# --- statistics -------------------------------------------------------------------------------------------------------
def _flatten(nested: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in nested.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def memory_stats(device: Device = None) -> dict[str, Any]:
    """Statistics of a device's caching allocator, by dotted name, as `torch.cuda.memory_stats`.

    `"<what>.<pool>.<measure>"`, where <what> is `allocation`, `segment`, `active`, `inactive_split` (counts),
    `allocated_bytes`, `reserved_bytes`, `active_bytes`, `inactive_split_bytes` or `requested_bytes` (bytes); <pool> is
    `all`, `small_pool` (requests below 1 MiB) or `large_pool`; <measure> is `current`, `peak`, or the sums `allocated`
    and `freed` since the start or `reset_accumulated_memory_stats`. Also `oversize_allocations` and
    `oversize_segments`, the counters `num_alloc_retries`, `num_ooms`, `num_sync_all_streams`, `num_device_alloc` and
    `num_device_free`, and `max_split_size`.
    """
    return collections.OrderedDict(sorted(_flatten(memory_stats_as_nested_dict(device))))


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The same as nested dictionaries. Empty in a process forked from one that used the device."""
    index = _get_device_index(device, optional=True)
    return {} if _is_in_bad_fork() else dict(_C._memory_stats(index))


def memory_allocated(device: Device = None) -> int:
    """Bytes held by tensors now. Each tensor counts rounded up to 512 bytes."""
    return int(memory_stats(device).get("allocated_bytes.all.current", 0))


def max_memory_allocated(device: Device = None) -> int:
    """Most bytes held by tensors since the start or `reset_peak_memory_stats`."""
    return int(memory_stats(device).get("allocated_bytes.all.peak", 0))


def memory_reserved(device: Device = None) -> int:
    """Bytes of HBM that the caching allocator has mapped now: tensors and free blocks kept for reuse."""
    return int(memory_stats(device).get("reserved_bytes.all.current", 0))


def max_memory_reserved(device: Device = None) -> int:
    """Most bytes of HBM mapped since the start or `reset_peak_memory_stats`."""
    return int(memory_stats(device).get("reserved_bytes.all.peak", 0))


def reset_peak_memory_stats(device: Device = None) -> None:
    """Make the present values the new peaks."""
    _C._reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Start the sums (`allocated`, `freed`) and event counters from zero."""
    _C._reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def _renamed(old: str, new: str) -> None:
    warnings.warn(f"torch.neuron.{old} has been renamed to torch.neuron.{new}", FutureWarning, stacklevel=3)


def memory_cached(device: Device = None) -> int:
    """Old name of `memory_reserved`."""
    _renamed("memory_cached", "memory_reserved")
    return memory_reserved(device)


def max_memory_cached(device: Device = None) -> int:
    """Old name of `max_memory_reserved`."""
    _renamed("max_memory_cached", "max_memory_reserved")
    return max_memory_reserved(device)


def _resets_all(name: str) -> None:
    warnings.warn(
        f"torch.neuron.{name} now calls torch.neuron.reset_peak_memory_stats, which resets /all/ peak memory stats.",
        FutureWarning,
        stacklevel=3,
    )


def reset_max_memory_allocated(device: Device = None) -> None:
    """Old name of `reset_peak_memory_stats`."""
    _resets_all("reset_max_memory_allocated")
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: Device = None) -> None:
    """Old name of `reset_peak_memory_stats`."""
    _resets_all("reset_max_memory_cached")
    reset_peak_memory_stats(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """(free, total) bytes of a device's HBM. Free blocks that the allocator keeps for reuse do not count as free."""
    free, total = _C._memory_info(_get_device_index(device, optional=True))
    return int(free), int(total)


# --- control ----------------------------------------------------------------------------------------------------------
def empty_cache() -> None:
    """Give the free memory of all devices back to the host, after waiting for streams that `record_stream` named.

    Tensors keep theirs, so no memory becomes available to PyTorch that was not before. Does nothing before the device
    has been used.
    """
    if is_initialized():
        _C._empty_cache()


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Let this process use no more than `fraction` (0 to 1) of a device's HBM.

    Beyond it allocations fail with `torch.OutOfMemoryError`. TypeError unless a float, ValueError outside 0 to 1.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    if not isinstance(fraction, float):
        raise TypeError(f"Invalid type for fraction argument, must be `float`, but got {type(fraction).__name__}")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _C._set_memory_fraction(index, fraction)


def get_per_process_memory_fraction(device: Device = None) -> float:
    """The share of a device's HBM that this process may use: 1.0 unless set."""
    return float(_C._memory_fraction(_get_device_index(device, optional=True)))


def caching_allocator_alloc(size: int, device: Device = None, stream: torch.Stream | int | None = None) -> int:
    """Allocate `size` bytes for another framework and return their address; `caching_allocator_delete` frees them.

    The block belongs to `stream`, by default the current one of the device. TypeError for another kind of stream.
    """
    index = _get_device_index(device, optional=True)
    _lazy_init()
    if stream is None:
        stream = torch._C._accelerator_getStream(index)
    if isinstance(stream, torch.Stream):
        stream = stream.stream_id
    if not isinstance(stream, int):
        raise TypeError(
            "Invalid type for stream argument, must be `torch.Stream` or `int` representing a stream id, "
            f"but got {type(stream).__name__}"
        )
    return int(_C._raw_allocate(index, size, stream))


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free what `caching_allocator_alloc` returned. RuntimeError for any other address."""
    _C._raw_free(mem_ptr)


# --- reports ----------------------------------------------------------------------------------------------------------
def _bytes(size: int, scale: int) -> str:
    unit = 0
    while scale >= 768 * 1024 and unit < 5:
        size, scale, unit = size // 1024, scale // 1024, unit + 1
    return f"{size:6d} {('B  ', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB')[unit]}"


def _count(count: int, scale: int) -> str:
    unit = 0
    while scale >= 750 * 1000 and unit < 2:
        count, scale, unit = count // 1000, scale // 1000, unit + 1
    return f"{count:7d} {' KM'[unit]} "


_SUMMARY = (
    ("allocated_bytes", "Allocated memory", _bytes),
    ("active_bytes", "Active memory", _bytes),
    ("requested_bytes", "Requested memory", _bytes),
    ("reserved_bytes", "HBM reserved memory", _bytes),
    ("inactive_split_bytes", "Non-releasable memory", _bytes),
    ("allocation", "Allocations", _count),
    ("active", "Active allocs", _count),
    ("segment", "HBM reserved segments", _count),
    ("inactive_split", "Non-releasable allocs", _count),
    ("oversize_allocations", "Oversize allocations", _count),
    ("oversize_segments", "Oversize HBM segments", _count),
)
_MEASURES = ("current", "peak", "allocated", "freed")


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The statistics of a device as a table. `abbreviated` leaves the pools out."""
    index = _get_device_index(device, optional=True)
    stats = _C._memory_stats(index)
    width = 75
    lines = [
        "=" * width,
        f"{'':18}PyTorch NEURON memory summary, device ID {index}".ljust(width),
        "-" * width,
        f"{'':11}NEURON OOMs: {stats['num_ooms']:<11d} | {'':8}HBM map retries: {stats['num_alloc_retries']:<8d}".ljust(
            width
        ),
        "=" * width,
        "        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ",
    ]
    for key, name, form in _SUMMARY:
        lines.append("-" * width)
        pools = {name: stats[key]}
        if "all" in stats[key]:
            pools = {name: stats[key]["all"]}
            if not abbreviated:
                pools["      from large pool"] = stats[key]["large_pool"]
                pools["      from small pool"] = stats[key]["small_pool"]
        scale = pools[name]
        for label, pool in pools.items():
            lines.append(f" {label:<21} " + "".join(f"| {form(pool[m], scale[m])} " for m in _MEASURES))
    lines.append("=" * width)
    return "".join(f"|{line}|\n" for line in lines)


@dataclasses.dataclass(frozen=True)
class SegmentPool:
    """One pool of one stream. Sizes are in bytes.

    Free memory is not lost to fragmentation here: the large pool grows in place and gives free pages back one by one,
    wherever they lie. Only `pinned` bytes, free ones on a page that a live block shares, can neither serve a large
    request nor be given back.
    """

    pool: Literal["small", "large"]
    stream: int
    segments: int  # runs of mapped pages
    reserved: int  # mapped: allocated + waiting + free
    allocated: int  # held by tensors
    waiting: int  # freed, but another stream may still use it
    free: int  # cached
    free_blocks: int
    largest_free: int  # largest request served without mapping more
    pinned: int  # free bytes that cannot be given back

    @property
    def fragmentation(self) -> float:
        """Share of the free bytes that lies outside the largest free block, 0 to 1."""
        return 1 - self.largest_free / self.free if self.free else 0.0


class SegmentPoolReport(Sequence[SegmentPool]):
    """A list of `SegmentPool` that prints as a table."""

    def __init__(self, rows: Sequence[SegmentPool]) -> None:
        self._rows = list(rows)

    @overload
    def __getitem__(self, index: int) -> SegmentPool: ...
    @overload
    def __getitem__(self, index: slice) -> SegmentPoolReport: ...
    def __getitem__(self, index: int | slice) -> SegmentPool | SegmentPoolReport:
        return SegmentPoolReport(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        head = ("reserved", "allocated", "waiting", "free", "largest free", "pinned")
        lines = [f"{'pool':<5} {'stream':>6} {'segments':>8} " + "".join(f"{h:>14}" for h in head) + "  fragmentation"]
        for row in self._rows:
            sizes = (row.reserved, row.allocated, row.waiting, row.free, row.largest_free, row.pinned)
            lines.append(
                f"{row.pool:<5} {row.stream:>6} {row.segments:>8} "
                + "".join(f"{size:>14,}" for size in sizes)
                + f"{row.fragmentation:>14.1%}"
            )
        return "\n".join(lines)


def segment_pool_report(device: Device = None) -> SegmentPoolReport:
    """How each segment pool of a device is used, and how fragmented its free memory is."""
    rows = _C._pool_report(_get_device_index(device, optional=True))
    return SegmentPoolReport([SegmentPool(**row) for row in rows])


# --- pinned host memory -----------------------------------------------------------------------------------------------
def host_memory_stats() -> dict[str, Any]:
    """Statistics of the pinned host allocator by dotted name, as `torch.cuda.host_memory_stats`.

    `allocations`, `allocated_bytes` (blocks it owns), `active_requests`, `active_bytes` (blocks in use), each with
    `.current`, `.peak`, `.allocated`, `.freed`; `num_host_alloc`, `num_host_free`; `host_alloc_time` and
    `host_free_time` in microseconds, each with `.total`, `.max`, `.min`, `.count`, `.avg`. Blocks are rounded up to a
    power of two.
    """
    return collections.OrderedDict(sorted(_flatten(host_memory_stats_as_nested_dict())))


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The same as nested dictionaries. Empty before the device has been used."""
    return dict(_C._host_memory_stats()) if is_initialized() else {}


def reset_accumulated_host_memory_stats() -> None:
    """Start the sums of the pinned host allocator from zero."""
    _C._reset_accumulated_host_memory_stats()


def reset_peak_host_memory_stats() -> None:
    """Make the present values of the pinned host allocator the new peaks."""
    _C._reset_peak_host_memory_stats()


# --- history and snapshots --------------------------------------------------------------------------------------------
_CONTEXTS = (None, "state", "alloc", "all")  # as c10::CachingDeviceAllocator::RecordContext


def _one_of(name: str, value: object, allowed: Sequence[object]) -> None:
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"expected {name} to be one of {words}, but got {value!r}")


def _record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Record who allocates and frees device memory, on all devices, for `_snapshot`; None stops and forgets.

    Args:
        enabled: "state" keeps the stacks of live tensors only, "all" also a history of allocations and frees.
        context: which of them get a stack: none, live tensors, also allocations in the history, also frees.
        stacks: "python" leaves C++ frames out, which is cheaper.
        max_entries: latest events kept for each device.
        device: accepted for `torch.cuda`'s signature; recording covers all devices.
        clear_history: forget what was recorded so far.
        skip_actions: names of events not to record: "alloc", "free_requested", "free_completed", "segment_alloc",
            "segment_free", "segment_map", "segment_unmap", "oom", "snapshot".

    ValueError for another word. NotImplementedError for `compile_context` and `global_record_annotations`.
    """
    if isinstance(enabled, bool):
        enabled = "all" if enabled else None
    _one_of("enabled", enabled, (None, "state", "all"))
    _one_of("context", context, _CONTEXTS)
    _one_of("stacks", stacks, ("python", "all"))
    if compile_context or global_record_annotations:
        name = "compile_context" if compile_context else "global_record_annotations"
        raise NotImplementedError(f"torch.neuron.memory._record_memory_history: {name} is not supported on neuron")
    skipped = 0
    for action in skip_actions or ():
        _one_of("skip_actions", action, _C._memory_actions)
        skipped |= 1 << _C._memory_actions.index(action)
    _lazy_init()
    level = 0 if enabled is None else _CONTEXTS.index(context)
    if enabled == "state":
        level = min(level, 1)
    clear = clear_history or enabled is None
    _C._record_memory_history(enabled == "all", level, stacks == "all", max_entries, clear, skipped)


def _snapshot(device: Device = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
    """What device memory looks like now, and its recorded history, on all devices.

    The dictionary that PyTorch's memory viewer (pytorch.org/memory_viz) and `torch.cuda._memory_viz` read.
    Keys: "segments" (each with its blocks), "device_traces" (events by device), "allocator_settings",
    "external_annotations".
    """
    _lazy_init()
    snapshot: dict[str, Any] = _C._memory_snapshot(True)
    if augment_with_fx_traces:
        from torch._utils import _augment_memory_snapshot_stack_traces

        snapshot = _augment_memory_snapshot_stack_traces(snapshot)  # type: ignore[assignment, arg-type]
    return snapshot


def _dump_snapshot(filename: str = "dump_snapshot.pickle", augment_with_fx_traces: bool = False) -> None:
    """Write `_snapshot()` to a file that pytorch.org/memory_viz opens."""
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(augment_with_fx_traces=augment_with_fx_traces), file)


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """The segments of all devices and their blocks: `_snapshot()["segments"]`.

    There is one pool of memory, (0, 0); another `mempool_id` has no segments.
    """
    if mempool_id not in (None, (0, 0)):
        return []
    segments: list[dict[str, Any]] = _C._memory_snapshot(False)["segments"] if is_initialized() else []
    return segments


def _allocation_traceback(data_ptr: int) -> list[dict[str, Any]] | None:
    """Stack of the live allocation that starts at `data_ptr`.

    None when there is none, or when it was not recorded (`_record_memory_history`).
    """
    frames: list[dict[str, Any]] | None = _C._allocation_traceback(data_ptr)
    return frames
