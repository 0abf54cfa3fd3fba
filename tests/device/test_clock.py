"""The device clock: order, overlap, events, the host's present, and the trace of launches.

Work is put on the clock without computing anything, so that every time can be worked out: a product that keeps TensorE
busy, an operator bound by VectorE, a copy bound by memory, a copy from the host.
"""

from __future__ import annotations

import pytest

from torch_neuronx import _C

CORE = 3
DISPATCH = 60_000  # ns of host time for each launch
POLL = 1_000  # ns of host time for a question whose answer is no

TENSOR = {"kind": "tensor", "element_bytes": 2, "macs": 10**12}  # 13.4 ms
VECTOR = {"kind": "vector", "elements": 10**9, "passes": 4}  # 16.3 ms
MOVE = {"kind": "move", "read_bytes": 10**9, "write_bytes": 10**9}  # 3.2 ms
HOST = {"kind": "host_copy", "read_bytes": 10**8}  # 7.1 ms
TINY = {"kind": "vector", "elements": 1}  # 2.4 us: shorter than its dispatch


def total(work: dict[str, object]) -> int:
    return int(_C.cost(work)["total"])


@pytest.fixture(autouse=True)
def idle() -> None:
    """All cores are idle and the trace is empty."""
    for core in range(_C._device_count()):
        _C._synchronize(core)
    _C.trace_clear()


def run(*launches: tuple[int, dict[str, object]], core: int = CORE) -> list[tuple[int, int]]:
    """Launch work on streams; start and end of each, relative to the host's present before the first."""
    zero = _C.host_now_ns()
    _C.trace_clear()
    for stream, work in launches:
        _C._launch(core, stream, work)
    return [(record["start"] - zero, record["end"] - zero) for record in _C.trace_snapshot()]


def streams(count: int) -> list[int]:
    return [_C._new_stream(CORE) for _ in range(count)]


def test_one_launch() -> None:
    before = _C.host_now_ns()
    assert run((0, TENSOR)) == [(DISPATCH, DISPATCH + total(TENSOR))]
    assert _C.host_now_ns() == before + DISPATCH, "the host does not wait"
    assert _C.stream_end_ns(CORE, 0) == before + DISPATCH + total(TENSOR)


def test_a_stream_is_in_order() -> None:
    first, second, third = run((0, TENSOR), (0, MOVE), (0, HOST))
    assert second[0] == first[1] and third[0] == second[1]
    assert third[1] == DISPATCH + total(TENSOR) + total(MOVE) + total(HOST)


def test_short_work_waits_for_the_host() -> None:
    times = run((0, TINY), (0, TINY), (0, TINY))
    assert times == [(DISPATCH * n, DISPATCH * n + total(TINY)) for n in (1, 2, 3)]


def test_streams_overlap_on_different_engines() -> None:
    a, b = streams(2)
    first, second = run((a, TENSOR), (b, VECTOR))
    assert first == (DISPATCH, DISPATCH + total(TENSOR))
    assert second == (2 * DISPATCH, 2 * DISPATCH + total(VECTOR))


def test_one_engine_serves_one_launch_at_a_time() -> None:
    a, b = streams(2)
    for work, engine in ((TENSOR, "tensor"), (VECTOR, "vector"), (HOST, "link")):
        first, second = run((a, work), (b, work))
        assert second[0] == first[0] + _C.cost(work)[engine]
        assert second[1] == second[0] + total(work)
        _C._synchronize(CORE)


def test_copies_share_the_dma_queues() -> None:
    a, b = streams(2)
    first, second = run((a, MOVE), (b, MOVE))
    assert second[0] == 2 * DISPATCH, "it starts at once"
    assert second[1] == first[0] + 2 * _C.cost(MOVE)["dma"], "and ends when the queues have moved the bytes of both"


def test_copies_from_the_host_hide_behind_compute() -> None:
    a, b = streams(2)
    compute, copy = run((a, TENSOR), (b, HOST))
    assert copy == (2 * DISPATCH, 2 * DISPATCH + total(HOST))
    assert copy[1] < compute[1]


def test_cores_are_independent() -> None:
    run((0, TENSOR), core=2)
    assert run((0, TENSOR), core=CORE) == [(DISPATCH, DISPATCH + total(TENSOR))]


def test_work_without_device_time() -> None:
    assert run((0, {"kind": "none"})) == [(DISPATCH, DISPATCH)]


def test_events_measure_and_order() -> None:
    a, b = streams(2)
    start, middle, end = _C._DeviceEvent(), _C._DeviceEvent(), _C._DeviceEvent()
    zero = _C.host_now_ns()
    start.record(CORE, a)
    assert start.time == zero, "an idle stream reaches the event when the host submits it"
    _C._launch(CORE, a, TENSOR)
    middle.record(CORE, a)
    middle.wait(CORE, b)
    _C._launch(CORE, b, VECTOR)
    end.record(CORE, b)
    assert start.elapsed_ms(middle) == (DISPATCH + total(TENSOR)) * 1e-6
    assert middle.elapsed_ms(end) == total(VECTOR) * 1e-6
    assert end.elapsed_ms(start) == -start.elapsed_ms(end)
    assert (end.core, end.stream) == (CORE, b)


def test_events_across_cores() -> None:
    event = _C._DeviceEvent()
    _C._launch(CORE, 0, TENSOR)
    event.record(CORE, 0)
    event.wait(1, 0)
    _C._launch(1, 0, TINY)
    assert _C.stream_end_ns(1, 0) == event.time + total(TINY)
    _C._synchronize(1)
    assert _C.host_now_ns() == event.time + total(TINY)


def test_recording_again_moves_the_event() -> None:
    event = _C._DeviceEvent()
    event.record(CORE, 0)
    first = event.time
    _C._launch(CORE, 0, TENSOR)
    event.record(CORE, 0)
    assert event.time == first + DISPATCH + total(TENSOR)


def test_an_event_that_was_not_recorded() -> None:
    event, recorded = _C._DeviceEvent(), _C._DeviceEvent()
    before = _C.host_now_ns(), _C.stream_end_ns(CORE, 0)
    assert event.query() and event.time == -1
    event.wait(CORE, 0)
    event.synchronize()
    assert (_C.host_now_ns(), _C.stream_end_ns(CORE, 0)) == before
    recorded.record(CORE, 0)
    for pair in ((event, recorded), (recorded, event)):
        with pytest.raises(ValueError, match="Both events must be recorded before calculating elapsed time"):
            pair[0].elapsed_ms(pair[1])


def test_polling_comes_to_an_end() -> None:
    event = _C._DeviceEvent()
    _C._launch(CORE, 0, MOVE)
    event.record(CORE, 0)
    wait = event.time - _C.host_now_ns()
    polls = 0
    while not event.query():
        polls += 1
    assert polls == (wait - 1) // POLL, "each question in vain takes the host one microsecond"
    now = _C.host_now_ns()
    assert event.query() and _C._query_stream(CORE, 0) and _C.host_now_ns() == now, "an answer of yes takes none"


def test_synchronize_moves_the_host() -> None:
    a, b = streams(2)
    event = _C._DeviceEvent()
    _C._launch(CORE, a, MOVE)
    event.record(CORE, a)
    _C._launch(CORE, a, MOVE)
    _C._launch(CORE, b, TENSOR)
    assert not _C._query_stream(CORE, b)
    event.synchronize()
    assert _C.host_now_ns() == event.time
    assert event.query() and not _C._query_stream(CORE, a)
    _C._synchronize_stream(CORE, a)
    assert _C.host_now_ns() == _C.stream_end_ns(CORE, a) < _C.stream_end_ns(CORE, b)
    _C._synchronize(CORE)
    assert _C.host_now_ns() == _C.stream_end_ns(CORE, b)
    _C._synchronize(CORE)
    assert _C.host_now_ns() == _C.stream_end_ns(CORE, b), "waiting for nothing takes no time"


def test_pool_and_priorities() -> None:
    normal = [_C._pooled_stream(CORE) for _ in range(64)]
    urgent = [_C._pooled_stream(CORE, True) for _ in range(33)]
    assert len(set(normal)) == 32 and normal[32:] == normal[:32]
    assert len(set(urgent)) == 32 and urgent[32] == urgent[0]
    assert not set(normal) & set(urgent) and 0 not in normal
    assert {_C._stream_priority(CORE, stream) for stream in normal} == {0}
    assert {_C._stream_priority(CORE, stream) for stream in urgent} == {-1}
    asked = {-99: -1, -1: -1, 0: 0, 7: 0}
    assert {p: _C._stream_priority(CORE, _C._new_stream(CORE, p)) for p in asked} == asked
    assert _C._stream_priority(CORE, 0) == 0


@pytest.mark.parametrize("core", [-1, 4, 1000])
def test_unknown_core(core: int) -> None:
    for call in (
        lambda: _C._launch(core, 0, TINY),
        lambda: _C._new_stream(core),
        lambda: _C.stream_end_ns(core, 0),
        lambda: _C.launch_count(core),
        lambda: _C._DeviceEvent().record(core, 0),
    ):
        with pytest.raises(ValueError, match=f"There is no neuron:{core}: this process sees 4 logical"):
            call()


@pytest.mark.parametrize("stream", [-1, 1 << 40])
def test_unknown_stream(stream: int) -> None:
    now, launches = _C.host_now_ns(), _C.launch_count(CORE)
    for call in (
        lambda: _C._launch(CORE, stream, TINY),
        lambda: _C._synchronize_stream(CORE, stream),
        lambda: _C._query_stream(CORE, stream),
        lambda: _C._DeviceEvent().wait(CORE, stream),
    ):
        with pytest.raises(ValueError, match=rf"There is no stream {stream} on neuron:{CORE}, which has streams 0 to "):
            call()
    assert (_C.host_now_ns(), _C.launch_count(CORE)) == (now, launches), "a refused launch leaves no trace"


def test_trace_records() -> None:
    (a,) = streams(1)
    count = _C.launch_count(CORE)
    run((0, TENSOR), (a, HOST))
    first, second = _C.trace_snapshot()
    assert second["sequence"] == first["sequence"] + 1
    assert (first["core"], first["stream"], second["stream"]) == (CORE, 0, a)
    assert first["cost"] == _C.cost(TENSOR) and second["cost"] == _C.cost(HOST)
    assert {name: first["work"][name] for name in TENSOR} == TENSOR
    assert first["name"] == "test"
    assert _C.launch_count(CORE) == count + 2
    _C.trace_clear()
    assert _C.trace_snapshot() == [] and _C.trace_dropped() == 0
    run((0, TINY))
    assert _C.trace_snapshot()[0]["sequence"] == second["sequence"] + 1, "sequence numbers go on after a clear"


def test_trace_is_bounded(fresh) -> None:
    code = """
from torch_neuronx import _C
for _ in range(10):
    _C._launch(0, 0, {"kind": "none"})
kept, dropped = [record["sequence"] for record in _C.trace_snapshot()], _C.trace_dropped()
_C.trace_clear()
_C._launch(0, 0, {"kind": "none"})
after = [record["sequence"] for record in _C.trace_snapshot()]
result = [_C.trace_capacity(), kept, dropped, after, _C.trace_dropped(), _C.launch_count(0)]
"""
    assert fresh(code, TORCH_NEURONX_TRACE_LENGTH="4") == [4, [6, 7, 8, 9], 6, [10], 0, 11]


PROGRAM = """
import torch
from torch_neuronx import _C
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to("neuron")
optimizer = torch.optim.AdamW(model.parameters())
side = torch.neuron.Stream()
for _ in range(3):
    with torch.neuron.stream(side):
        batch = torch.randn(32, 64).to("neuron")
    torch.neuron.current_stream().wait_stream(side)
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
torch.neuron.synchronize()
result = [[r["name"], r["stream"], r["start"], r["end"], r["cost"]["total"]] for r in _C.trace_snapshot()]
"""


def test_device_time_is_the_same_in_every_run(fresh) -> None:
    first, second = fresh(PROGRAM), fresh(PROGRAM)
    assert len(first) > 30
    assert first == second


def test_child_process_after_fork(fresh) -> None:
    """Threads launch without pause while the process forks: every child can still ask about the device."""
    code = """
import os, signal, threading
from torch_neuronx import _C
_C._launch(0, 0, {"kind": "none"})
stop = False
def launch():
    while not stop:
        _C._launch(0, 0, {"kind": "tensor", "macs": 1000})
threads = [threading.Thread(target=launch) for _ in range(2)]
for thread in threads: thread.start()
codes = []
for _ in range(30):
    child = os.fork()
    if child == 0:
        signal.alarm(20)  # a deadlock ends the child, and the test with it
        fresh = _C.host_now_ns() == 0 and _C.launch_count(0) == 0 and _C.trace_snapshot() == []
        os._exit(0 if fresh and _C.topology()["logical_cores"] == 4 and _C._device_count() == 4 else 1)
    codes.append(os.waitpid(child, 0)[1])
stop = True
for thread in threads: thread.join()
result = [codes, _C.launch_count(0) > 30]
"""
    assert fresh(code) == [[0] * 30, True]
