"""A random program: statements in Python's own text, and running them on one device."""

from __future__ import annotations

import copy
import dataclasses
import functools
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

DEVICE = "neuron"
POOL = 1 << 17  # the longest tensor that `data` makes


@dataclasses.dataclass(slots=True)
class Statement:
    """One line of a program.

    `reference` is what the CPU runs where the line has no meaning there: streams, and random draws, which the device
    makes for the CPU too (its generator is another one by design). `noise`, in units of the last place of each result
    in `out`, is how far an exact-in-real-numbers kernel may be off; `scale` is an expression for the size of what was
    added up on the way, where the result itself can be smaller (cancellation). 0: the result has to be equal bit by
    bit. Lines of thread 1 run beside the lines of thread 0 among which they stand.
    `is_input`: makes a tensor from nothing; a compiled program gets it as an argument.
    """

    text: str
    out: tuple[str, ...] = ()
    noise: float = 0.0
    scale: str = ""
    reference: str | None = None
    thread: int = 0
    is_input: bool = False

    def code(self, device: str) -> types.CodeType:
        on_cpu = device == "cpu" and self.reference is not None
        return compiled(self.reference if on_cpu else self.text)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=4096)
def compiled(text: str) -> types.CodeType:
    return compile(text, "<program>", "exec")


@dataclasses.dataclass
class Program:
    seed: int
    mode: str  # "eager" or "compile"
    statements: list[Statement]

    def without(self, drop: set[int]) -> Program:
        kept = [s for i, s in enumerate(self.statements) if i not in drop]
        return Program(self.seed, self.mode, kept)


def values(dtype: torch.dtype, offset: int, count: int, special: bool = False) -> torch.Tensor:
    """Numbers of size up to 3 with full mantissas, the same everywhere; `special`: infinities, NaN, -0, extremes."""
    i = torch.arange(offset, offset + count, dtype=torch.float64)
    x = (i * 1.7).sin() * 3
    if special and dtype.is_floating_point:
        table = [float("inf"), float("-inf"), float("nan"), -0.0, 1e-41, 6e4, -1e-7, 1.0]
        x = torch.where(i % 3 == 0, torch.tensor(table, dtype=torch.float64)[(i // 3 % 8).long()], x)
    if dtype == torch.bool:
        return x > 0
    return x.to(dtype) if dtype.is_floating_point else (x * 3).round().to(dtype)


@functools.cache
def pool(device: str, dtype: torch.dtype, special: bool) -> torch.Tensor:
    return values(dtype, 0, POOL, special).to(device)


def data(device: str, dtype: torch.dtype, offset: int, shape: tuple[int, ...], special: bool = False) -> torch.Tensor:
    """`values` in a new tensor of the device."""
    count = 1
    for size in shape:
        count *= size
    return pool(device, dtype, special)[offset : offset + count].reshape(shape).clone()


@dataclasses.dataclass
class Outcome:
    """What a run left: variables, what was read on the way, and the type of each statement's exception."""

    device: str
    env: dict[str, Any]
    reads: dict[str, Any]
    errors: dict[int, str]
    messages: dict[int, str]

    def tensors(self) -> dict[str, torch.Tensor]:
        return {k: v for k, v in self.env.items() if isinstance(v, torch.Tensor)}


After = Callable[[Statement, dict[str, Any]], None]


def start(device: str) -> Outcome:
    """Before the first statement: nothing but the names that every program may use."""
    reads: dict[str, Any] = {}
    env: dict[str, Any] = {
        "torch": torch,
        "F": F,
        "copy": copy,
        "dev": device,
        "data": functools.partial(data, device),
        "read": reads.__setitem__,
    }
    return Outcome(device, env, reads, {}, {})


def step(statement: Statement, index: int, device: str, outcome: Outcome, after: After | None = None) -> None:
    """Runs one statement; an exception is part of the outcome."""
    try:
        exec(statement.code(device), outcome.env)
        if after is not None:
            after(statement, outcome.env)
    except Exception as error:
        outcome.errors[index] = type(error).__name__
        outcome.messages[index] = str(error).splitlines()[0][:200] if str(error) else ""


def seed_all(seed: int) -> None:
    """The device's generator alone draws: on the CPU, too, it makes the numbers (Statement.reference)."""
    torch.neuron.manual_seed(seed)


def restore() -> None:
    """A program may change the stream and the gradient mode."""
    torch.set_grad_enabled(True)
    torch.neuron.set_stream(torch.neuron.default_stream())


def execute(program: Program, device: str, after: After | None = None) -> Outcome:
    """Runs a program. On the device, lines of thread 1 run in a second thread; the CPU runs all in their order."""
    outcome = start(device)
    seed_all(program.seed)
    statements = program.statements
    second = [i for i, s in enumerate(statements) if s.thread]
    try:
        if not second or device == "cpu":
            for i, statement in enumerate(statements):
                step(statement, i, device, outcome, after)
        else:
            first, last = second[0], second[-1]
            for i in range(first):
                step(statements[i], i, device, outcome, after)
            worker = threading.Thread(target=run_lines, args=(statements, second, device, outcome))
            worker.start()
            run_lines(statements, [i for i in range(first, last) if not statements[i].thread], device, outcome)
            worker.join()
            for i in range(last + 1, len(statements)):
                step(statements[i], i, device, outcome, after)
    finally:
        restore()
    return outcome


def run_lines(statements: Sequence[Statement], lines: Sequence[int], device: str, outcome: Outcome) -> None:
    for i in lines:
        step(statements[i], i, device, outcome)
