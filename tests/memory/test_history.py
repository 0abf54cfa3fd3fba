"""Memory history and snapshots: what PyTorch's memory viewer reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

from .helpers import MIB, consistent, take

memory = torch.neuron.memory


@pytest.fixture(autouse=True)
def _stop_recording() -> Iterator[None]:
    yield
    memory._record_memory_history(None)


def trace(device: torch.device) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = memory._snapshot()["device_traces"][device.index]
    return events


def actions(device: torch.device) -> list[str]:
    return [event["action"] for event in trace(device)]


def make_tensor(device: torch.device) -> torch.Tensor:
    return torch.zeros(3 * MIB, dtype=torch.uint8, device=device)


def names(frames: list[dict[str, Any]]) -> list[str]:
    return [frame["name"] for frame in frames]


def test_history_tells_who_allocated(device: torch.device) -> None:
    memory._record_memory_history(stacks="python")
    tensor = make_tensor(device)
    address = tensor.untyped_storage().data_ptr()
    del tensor
    events = trace(device)
    assert [e["action"] for e in events] == ["segment_map", "alloc", "free_requested", "free_completed", "snapshot"]
    alloc = events[1]
    assert (alloc["addr"], alloc["size"], alloc["stream"], alloc["pool_id"]) == (address, 3 * MIB, 0, (0, 0))
    assert "make_tensor" in names(alloc["frames"])
    frame = alloc["frames"][names(alloc["frames"]).index("make_tensor")]
    assert frame["filename"].endswith("test_history.py") and frame["line"] > 0
    times = [e["time_us"] for e in events]
    assert times == sorted(times) and times[0] > 1_600_000_000_000_000, "microseconds since 1970"


def test_live_blocks_carry_their_stack(device: torch.device) -> None:
    memory._record_memory_history("state", stacks="python")
    tensor = make_tensor(device)
    address = tensor.untyped_storage().data_ptr()
    blocks = [b for s in torch.neuron.memory_snapshot() for b in s["blocks"] if b["address"] == address]
    assert len(blocks) == 1 and blocks[0]["state"] == "active_allocated"
    assert "make_tensor" in names(blocks[0]["frames"])
    assert actions(device) == [], "state keeps no history"
    assert "make_tensor" in names(memory._allocation_traceback(address) or [])
    assert memory._allocation_traceback(address + 512) is None
    assert memory._allocation_traceback(0) is None
    del tensor
    assert memory._allocation_traceback(address) is None


@pytest.mark.parametrize(
    ("context", "on_alloc", "on_free", "on_block"),
    [
        (None, False, False, False),
        ("state", False, False, True),
        ("alloc", True, True, True),
        ("all", True, True, True),
    ],
)
def test_context(device: torch.device, context: Any, on_alloc: bool, on_free: bool, on_block: bool) -> None:
    memory._record_memory_history("all", context=context, stacks="python")
    tensor = make_tensor(device)
    address = tensor.untyped_storage().data_ptr()
    assert (memory._allocation_traceback(address) is not None) == on_block

    def free() -> None:
        nonlocal tensor
        tensor = None  # type: ignore[assignment]

    free()
    events = {e["action"]: e for e in trace(device)}
    assert bool(events["alloc"]["frames"]) == on_alloc
    assert bool(events["free_requested"]["frames"]) == on_free
    # With "alloc" a free shows where the block came from, with "all" where it was freed.
    assert ("free" in names(events["free_requested"]["frames"])) == (context == "all")


def test_cpp_frames(device: torch.device) -> None:
    memory._record_memory_history(stacks="all")
    tensor = take(MIB, device)
    frames = next(e for e in trace(device) if e["action"] == "alloc")["frames"]
    assert any("neuron::aten" in name or "at::" in name for name in names(frames))
    del tensor


def test_entries_are_bounded_and_stop(device: torch.device) -> None:
    memory._record_memory_history(max_entries=4, stacks="python")
    for _ in range(5):
        take(1000, device)
    events = trace(device)
    assert len(events) == 4 and events[-1]["action"] == "snapshot" and events[-2]["action"] == "free_completed"
    memory._record_memory_history(clear_history=True, stacks="python")
    assert actions(device) == ["snapshot"]
    memory._record_memory_history(False)
    take(1000, device)
    assert actions(device) == []


def test_skip_actions(device: torch.device) -> None:
    memory._record_memory_history(skip_actions=["free_requested", "snapshot", "segment_map"], stacks="python")
    take(2 * MIB, device)
    assert actions(device) == ["alloc", "free_completed"]


def test_all_kinds_of_events(small: torch.device) -> None:
    memory._record_memory_history(stacks="python")
    tensors = [take(1000, small), take(60 * MIB, small)]
    tensors.clear()
    torch.neuron.empty_cache()
    with pytest.raises(torch.OutOfMemoryError):
        take(120 * MIB, small)
    seen = set(actions(small))
    expected = set(torch.neuron.memory._C._memory_actions)  # type: ignore[attr-defined]
    assert (
        seen
        == expected
        == {
            *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free"),
            *("segment_map", "segment_unmap", "snapshot", "oom"),
        }
    )
    oom = next(e for e in trace(small) if e["action"] == "oom")
    assert oom["size"] == 120 * MIB and oom["device_free"] == torch.neuron.mem_get_info(small)[0] and "addr" not in oom


@pytest.mark.parametrize(
    "arguments",
    [
        {"enabled": "everything"},
        {"context": "some"},
        {"stacks": "c"},
        {"skip_actions": ["malloc"]},
    ],
)
def test_wrong_words(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"expected {next(iter(arguments))} to be one of"):
        memory._record_memory_history(**arguments)


def test_what_is_not_supported_says_so() -> None:
    for name in ("compile_context", "global_record_annotations"):
        with pytest.raises(NotImplementedError, match=name):
            memory._record_memory_history(**{name: True})


def test_the_viewers_functions_read_it(device: torch.device, tmp_path: Path) -> None:
    memory._record_memory_history(stacks="python")
    kept = [make_tensor(device), take(1000, device)]
    before = memory._snapshot()
    gone = take(30 * MIB, device)
    side = torch.neuron.Stream(device)
    with torch.neuron.stream(side):
        kept.append(take(2 * MIB, device))
    del gone
    path = tmp_path / "snapshot.pickle"
    memory._dump_snapshot(str(path))
    snapshot = pickle.loads(path.read_bytes())
    assert set(snapshot) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}
    consistent(device)

    def flame(lines: str) -> str:
        return lines

    assert "make_tensor" in _memory_viz.segments(snapshot, format_flamegraph=flame)
    by_stream = _memory_viz.memory(snapshot, format_flamegraph=flame)
    assert f"stream_{side.stream_id};active_allocated;" in by_stream
    difference = _memory_viz.compare(before["segments"], snapshot["segments"], format_flamegraph=flame)
    assert "only_after" in difference
    text = _memory_viz.trace(snapshot)
    assert f"Device {device.index}" in text and ":30.0MiB]" in text and "del " in text
    assert "total_allocated" in _memory_viz.segsum(snapshot)
    for page in (
        _memory_viz.trace_plot(snapshot),
        _memory_viz.trace_plot(snapshot, plot_segments=True, filter_freed=True),
        _memory_viz.segment_plot(snapshot),
    ):
        assert "add_local_files" in page and len(page) > 1000
    del kept


def test_fx_traces_are_accepted(device: torch.device) -> None:
    memory._record_memory_history(stacks="python")
    tensor = make_tensor(device)
    assert memory._snapshot(augment_with_fx_traces=True)["segments"]
    del tensor


def test_snapshot_without_recording(device: torch.device) -> None:
    tensor = take(5000, device)
    snapshot = memory._snapshot()
    block = next(b for s in snapshot["segments"] for b in s["blocks"] if b["requested_size"] == 5000)
    assert block["size"] == 5120 and block["frames"] == []
    segment = next(s for s in snapshot["segments"] if block in s["blocks"])
    assert segment["segment_type"] == "small" and segment["segment_pool_id"] == (0, 0) and segment["stream"] == 0
    assert segment["active_size"] == segment["allocated_size"] == 5120 and segment["total_size"] == 2 * MIB
    assert memory.memory_snapshot((7, 7)) == []
    settings = snapshot["allocator_settings"]
    assert settings["expandable_segments"] is True and settings["max_split_size"] == -1
    del tensor
