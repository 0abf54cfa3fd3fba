"""Worker processes that take tasks from a queue. A worker that dies or hangs loses one variant, not the run.

The parent imports torch and the databases once and never touches the device; workers are forked from it, so that a
replacement starts in milliseconds. A worker announces in shared memory what it is about to run, which tells after a
crash which variant it was, and whether the CPU or the device was running.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import mmap
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

_CONTEXT = multiprocessing.get_context("fork")
_NOTE_BYTES = 512


class Task(NamedTuple):
    kind: str  # "op", "module", "optimizer", "foreach", "custom"
    name: str
    dtype: str


# Runs a task: `run(task, skip, announce)` yields (variant, None) before and (variant, verdict as a dict) after each
# variant. `skip` names variants to leave out; `announce(text)` is called before each call that may crash.
Runner = Callable[[Task, set[str], Callable[[str], None]], Iterable[tuple[str, dict[str, Any] | None]]]


class Note:
    """A short text in memory that outlives the process that wrote it: `variant|what is about to run|sample`."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _NOTE_BYTES)
        self.variant = ""

    def announce(self, text: str) -> None:
        self._memory[:] = f"{self.variant}|{text}".encode()[:_NOTE_BYTES].ljust(_NOTE_BYTES, b"\0")

    def read(self) -> str:
        return self._memory[:].rstrip(b"\0").decode(errors="replace")


def _worker(run: Runner, pipe: Any, note: Note, errors: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log = open(errors, "w")  # noqa: SIM115 - lives as long as the process
    os.dup2(log.fileno(), 2)  # what glibc, C++ and faulthandler say before the process dies
    faulthandler.enable(log)
    while (order := pipe.recv()) is not None:
        task, skip = order
        note.variant = ""
        for variant, verdict in run(task, skip, note.announce):
            if verdict is None:  # the runner says which variant comes next
                note.variant = variant
            else:
                note.variant = ""
                pipe.send(("verdict", variant, verdict))
            note.announce("between variants")
        pipe.send(("done", "", {}))


@dataclasses.dataclass
class _Slot:
    process: Any
    pipe: Any
    note: Note
    errors: pathlib.Path
    task: Task | None = None
    started: float = 0.0
    tasks_done: int = 0


@dataclasses.dataclass
class _State:
    """A task that is running or waits for its next attempt."""

    results: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    crashes: int = 0


class Pool:
    """Runs tasks on `workers` processes, `limit` seconds for a variant at most."""

    MAX_CRASHES = 8  # of one task; then the rest of it is given up and says so
    TASKS_A_WORKER = 400  # a fresh process now and then: what one task leaks must not add up

    def __init__(self, run: Runner, workers: int, limit: float) -> None:
        self._run, self._count, self._limit = run, workers, limit
        self._folder = tempfile.TemporaryDirectory(prefix="conformance-")
        self._started = 0

    def results(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, dict[str, dict[str, Any]], float]]:
        """Yields (task, verdicts by variant, seconds) as tasks finish."""
        queue = list(reversed(list(tasks)))
        states: dict[Task, _State] = {}
        slots = [self._start() for _ in range(min(self._count, max(1, len(queue))))]
        try:
            while queue or any(s.task for s in slots):
                for slot in slots:
                    if slot.task is None and queue:
                        self._give(slot, queue.pop(), states)
                ready = multiprocessing.connection.wait([s.pipe for s in slots if s.task], timeout=0.5)
                for slot in [s for s in slots if s.task]:
                    finished = self._read(slot, states) if slot.pipe in ready else self._check(slot, states)
                    if finished is None:
                        continue
                    task = slot.task
                    assert task is not None
                    slot.task = None
                    if not finished:
                        queue.append(task)
                    if not slot.process.is_alive() or slot.tasks_done >= self.TASKS_A_WORKER:
                        self._stop(slot)
                        slots[slots.index(slot)] = self._start()
                    if finished:
                        state = states.pop(task)
                        yield task, state.results, state.seconds
        finally:
            for slot in slots:
                self._stop(slot)

    def _start(self) -> _Slot:
        self._started += 1
        errors = pathlib.Path(self._folder.name) / f"worker-{self._started}.log"
        ours, theirs = _CONTEXT.Pipe()
        note = Note()
        process = _CONTEXT.Process(target=_worker, args=(self._run, theirs, note, str(errors)), daemon=True)
        process.start()
        theirs.close()
        return _Slot(process, ours, note, errors)

    def _stop(self, slot: _Slot) -> None:
        with contextlib.suppress(OSError, BrokenPipeError):
            slot.pipe.send(None)
        slot.process.join(2)
        if slot.process.is_alive():
            slot.process.kill()
            slot.process.join()
        slot.pipe.close()

    def _give(self, slot: _Slot, task: Task, states: dict[Task, _State]) -> None:
        state = states.setdefault(task, _State())
        slot.task, slot.started = task, time.monotonic()
        slot.note.announce("starting")
        with contextlib.suppress(OSError):  # a dead worker is found by _read
            slot.pipe.send((task, set(state.results)))

    def _read(self, slot: _Slot, states: dict[Task, _State]) -> bool | None:
        """True: the task is finished. False: it goes back to the queue. None: it is running."""
        assert slot.task is not None
        state = states[slot.task]
        try:
            kind, variant, verdict = slot.pipe.recv()
        except (EOFError, OSError):
            slot.process.join()
            code = slot.process.exitcode
            reason = signal.Signals(-code).name if code is not None and code < 0 else f"exit status {code}"
            return self._crashed(slot, state, reason)
        now = time.monotonic()
        state.seconds += now - slot.started
        slot.started = now
        if kind == "done":
            slot.tasks_done += 1
            return True
        state.results[variant] = verdict
        return None

    def _check(self, slot: _Slot, states: dict[Task, _State]) -> bool | None:
        assert slot.task is not None
        if time.monotonic() - slot.started < self._limit:
            return None
        slot.process.kill()
        slot.process.join()
        return self._crashed(slot, states[slot.task], f"no answer for {self._limit:.0f} s")

    def _crashed(self, slot: _Slot, state: _State, reason: str) -> bool:
        variant, phase, sample = [*slot.note.read().split("|", 2), "", ""][:3]
        tail = slot.errors.read_text(errors="replace").strip().splitlines()[-40:] if slot.errors.exists() else []
        state.crashes += 1
        state.seconds += time.monotonic() - slot.started
        state.results[variant or f"crash{state.crashes}"] = {
            "state": "crash",
            "samples": 1,
            "sample": sample,
            "detail": f"{reason} while {phase or 'starting'}",
            "notes": [line for line in tail if line.strip()][:12],
        }
        return state.crashes >= self.MAX_CRASHES
