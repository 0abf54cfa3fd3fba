"""Streams and events under the names of torch.cuda and of torch.Stream."""

from __future__ import annotations

import pytest
import torch

LARGE = 4096  # rows and columns: the product takes about a millisecond of device time


def work() -> torch.Tensor:
    a = torch.ones(LARGE, 64, device="neuron")
    return a @ a.T


def test_stream_is_a_torch_stream() -> None:
    stream = torch.neuron.Stream()
    assert type(stream) is torch.Stream and isinstance(stream, torch.neuron.Stream)
    assert issubclass(torch.neuron.Stream, torch.Stream)
    assert stream.device == torch.device("neuron:0") and stream.device_index == 0
    assert stream == torch.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert stream != torch.neuron.Stream()
    assert len({stream, stream}) == 1
    assert not isinstance(torch.Stream("cpu"), torch.neuron.Stream)
    assert isinstance(torch.accelerator.current_stream(), torch.neuron.Stream)


def test_classes_can_be_derived_from() -> None:
    class MyStream(torch.neuron.Stream):
        pass

    class MyEvent(torch.neuron.Event):
        pass

    assert type(MyStream(device=1)) is MyStream and MyStream(device=1).device.index == 1
    assert type(MyEvent()) is MyEvent and isinstance(MyEvent(), torch.Event)
    assert not isinstance(torch.neuron.Stream(), MyStream)


@pytest.mark.parametrize("device", [1, "neuron:1", torch.device("neuron:1")])
def test_stream_on_a_device(device: object) -> None:
    assert torch.neuron.Stream(device).device == torch.device("neuron:1")
    assert torch.neuron.Stream(device=device, priority=-1).device == torch.device("neuron:1")
    assert torch.neuron.current_device() == 0
    assert torch.neuron.Stream(torch.device("neuron")).device == torch.device("neuron:0")


def test_priorities() -> None:
    assert torch.neuron.priority_range() == (0, -1)
    for priority in (-1, 0, 5, -99):  # outside values are clamped, as in CUDA
        assert torch.neuron.Stream(priority=priority).query()


def test_context_restores_stream_and_device() -> None:
    main = torch.neuron.current_stream()
    assert main == torch.neuron.default_stream()
    there = torch.neuron.Stream(device=1)
    with torch.neuron.stream(there):
        assert torch.neuron.current_device() == 1
        assert torch.neuron.current_stream() == there
        assert torch.accelerator.current_stream() == there
        with torch.neuron.stream(None):
            assert torch.neuron.current_stream() == there
        inner = torch.neuron.Stream(device=1)
        with torch.neuron.stream(inner):
            assert torch.neuron.current_stream() == inner
        assert torch.neuron.current_stream() == there
    assert torch.neuron.current_device() == 0
    assert torch.neuron.current_stream() == main
    assert torch.neuron.current_stream(1) == torch.neuron.default_stream(1)


def test_context_restores_after_an_error() -> None:
    with pytest.raises(KeyError), torch.neuron.stream(torch.neuron.Stream()):
        raise KeyError
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_stream_objects_are_contexts_themselves() -> None:
    stream = torch.neuron.Stream()
    with stream:
        assert torch.neuron.current_stream() == stream
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_set_stream_none_does_nothing() -> None:
    torch.neuron.set_stream(None)
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_set_stream_by_id() -> None:
    stream = torch.neuron.Stream()
    torch.neuron._set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)
    assert torch.neuron.current_stream() == stream
    torch.neuron.set_stream(torch.neuron.default_stream())


def test_unknown_stream_is_refused() -> None:
    ghost = torch.neuron.Stream(stream_id=987654, device_index=0, device_type=torch.neuron.default_stream().device_type)
    with pytest.raises(RuntimeError, match="987654"):
        torch.neuron.set_stream(ghost)
    assert torch.neuron.current_stream() == torch.neuron.default_stream()


def test_event_measures_device_time() -> None:
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    end.synchronize()
    first = start.elapsed_time(end)  # milliseconds
    assert 0.01 < first < 100
    assert end.query()
    times = []
    for _ in range(2):
        torch.neuron.synchronize()  # from the same state: the host runs ahead of the device
        start.record()
        work()
        end.record()
        torch.neuron.synchronize()
        times.append(start.elapsed_time(end))
    assert times[0] == times[1], "device time depends on the program, not on the host's clock"


def test_event_errors() -> None:
    start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
    with pytest.raises((RuntimeError, ValueError), match="recorded"):
        start.elapsed_time(end)
    start.record()
    torch.neuron.synchronize()
    torch.ones(1 << 24, device="neuron")
    end.record()
    with pytest.raises(RuntimeError, match="completed"):  # as in CUDA, the host has to wait first
        start.elapsed_time(end)
    plain = torch.neuron.Event()
    plain.record()
    end.record()
    with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
        plain.elapsed_time(end)
    with pytest.raises(RuntimeError, match=r"Event\(interprocess=True\)"):
        torch.neuron.Event(interprocess=True)


def test_event_signatures() -> None:
    event = torch.neuron.Event(True, False)  # torch.cuda.Event: enable_timing, blocking
    assert type(event) is torch.Event and isinstance(event, torch.neuron.Event)
    with torch.neuron.device(1):
        event.record()
    assert event.device == torch.device("neuron:1")
    assert torch.neuron.Event(device="neuron:1", enable_timing=True).device.type == "neuron"
    with pytest.raises(TypeError, match="first argument is enable_timing"):
        torch.neuron.Event("neuron:1")
    with pytest.raises(ValueError, match="Expected a neuron device, but got: cpu"):
        torch.neuron.Event(device="cpu")


def test_events_work_with_pytorchs_own_classes() -> None:
    ours, theirs = torch.neuron.Event(enable_timing=True), torch.Event("neuron", enable_timing=True)
    stream = torch.accelerator.current_stream()
    ours.record(stream)
    work()
    stream.record_event(theirs)
    stream.wait_event(ours)
    torch.neuron.Stream().wait_event(theirs)
    torch.Stream("neuron").wait_stream(torch.neuron.Stream())
    torch.accelerator.synchronize()
    assert ours.elapsed_time(theirs) == -theirs.elapsed_time(ours) > 0


def test_streams_wait_for_each_other() -> None:
    side = torch.neuron.Stream()
    with torch.neuron.stream(side):
        produced = work()
        event = side.record_event()
    assert isinstance(event, torch.neuron.Event)
    main = torch.neuron.current_stream()
    main.wait_event(event)
    main.wait_stream(side)
    event.wait(main)
    event.wait()
    assert produced[0, 0].item() == 64
    side.synchronize()
    assert side.query() and event.query()


def test_a_copy_overlaps_with_computation_on_the_device_clock() -> None:
    host = torch.empty(1 << 24).pin_memory()
    there, x = torch.empty(1 << 24, device="neuron"), torch.empty(1 << 24, device="neuron")

    def span(copies: torch.Stream, computes: torch.Stream) -> float:
        torch.neuron.synchronize()
        start, end = torch.neuron.Event(enable_timing=True), torch.neuron.Event(enable_timing=True)
        main = torch.neuron.current_stream()
        start.record()
        for stream in (copies, computes):
            stream.wait_event(start)
        with torch.neuron.stream(copies):
            there.copy_(host, non_blocking=True)
        with torch.neuron.stream(computes):
            for _ in range(12):  # about as long as the copy
                x.add_(1)
        main.wait_stream(copies)
        main.wait_stream(computes)
        end.record()
        end.synchronize()
        return start.elapsed_time(end)

    one, two = torch.neuron.Stream(), torch.neuron.Stream()
    assert span(one, two) < 0.8 * span(one, one)


def test_synchronize_moves_every_stream_forward() -> None:
    streams = [torch.neuron.Stream() for _ in range(3)]
    for stream in streams:
        with torch.neuron.stream(stream):
            work()
    torch.neuron.synchronize()
    assert all(stream.query() for stream in streams)


def test_generic_classes() -> None:
    stream = torch.Stream("neuron:1")
    event = torch.Event("neuron", enable_timing=True)
    assert stream.device == torch.device("neuron:1")
    with stream:
        assert torch.accelerator.current_device_index() == 1
        event.record(stream)
    event.synchronize()
    assert event.query()
    assert torch.accelerator.current_device_index() == 0
