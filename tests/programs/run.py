"""Runs random programs on the device and on the CPU, and prints those that differ as small scripts.

python tests/programs/run.py --seed 1 --count 1000                  eager execution
python tests/programs/run.py --seed 1 --count 100 --mode compile    under torch.compile, fullgraph=True

Program number i of a run has seed SEED + i: `--seed N --count 1` replays one. Exit status 1 if any differs.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import multiprocessing
import os
import pathlib
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch

from programs.compiled import execute_compiled
from programs.generate import generate
from programs.judge import Difference, judge, reference
from programs.minimise import minimise, script
from programs.program import DEVICE, Outcome, Program, execute

REPORT_EVERY = 500  # programs; what a crash can take from the counts


@dataclasses.dataclass
class Failure:
    """A program that differs, made small."""

    program: Program
    differences: list[Difference]
    script: str


@dataclasses.dataclass
class Report:
    programs: int = 0
    statements: int = 0
    exceptions: int = 0  # statements that raised, on both sides
    refused: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    failures: list[Failure] = dataclasses.field(default_factory=list)
    crashes: dict[int, str] = dataclasses.field(default_factory=dict)  # seed -> how the process ended

    def add(self, other: Report) -> None:
        self.programs += other.programs
        self.statements += other.statements
        self.exceptions += other.exceptions
        self.refused += other.refused
        self.failures += other.failures


def on_device(program: Program) -> Outcome:
    return execute_compiled(program, DEVICE, "neuron") if program.mode == "compile" else execute(program, DEVICE)


def check(program: Program, expected: Outcome | None = None) -> tuple[list[Difference], str]:
    """The differences of a program, and why it says nothing (a limit of PyTorch itself), if so."""
    compiled = program.mode == "compile"
    if expected is None or compiled:
        expected = reference(program)
    if compiled and expected.errors:
        return [], "eager execution on the CPU raises in backward"
    got = on_device(program)
    found = judge(program, got, expected)
    if compiled and found:
        there = execute_compiled(program, "cpu", "aot_eager")
        if -1 in got.errors and there.errors.get(-1) == got.errors[-1]:
            return [], f"aot_eager on the CPU raises {there.errors[-1]}"
        if -1 not in got.errors and [d.name for d in judge(program, there, expected)] == [d.name for d in found]:
            return [], "aot_eager on the CPU differs from eager execution in the same variables"
    return found, ""


def run(program: int, mode: str) -> Report:
    """Runs the program of one seed; if it differs it is minimised."""
    written, expected = generate(program, mode)
    found, excuse = check(written, expected)
    report = Report(1, len(written.statements), len(expected.errors))
    report.refused[excuse] += bool(excuse)
    if found:
        report.failures.append(shrunk(written, found))
    return report


def child(seed: int, end: int, mode: str, stop_after: int, at: Any, pipe: Any) -> None:
    """Runs a range of seeds in a process of its own; `at` is the seed that it has come to."""
    set_up()
    total = Report()
    for number in range(seed, end):
        at.value = number
        total.add(run(number, mode))
        if len(total.failures) >= stop_after:
            break
        if number % REPORT_EVERY == REPORT_EVERY - 1:
            pipe.send(total)
            total = Report()
    pipe.send(total)
    pipe.close()


def run_all(seed: int, count: int, mode: str, stop_after: int = 10, worker: Callable[..., None] = child) -> Report:
    """Runs the programs of `count` seeds. A program that kills the process is noted, and the next one starts anew.

    Ends early after `stop_after` programs that differ or crash.
    """
    context = multiprocessing.get_context("spawn")
    total = Report()
    next_seed = seed
    while next_seed < seed + count and len(total.failures) + len(total.crashes) < stop_after:
        at = context.Value("q", next_seed, lock=False)
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=worker, args=(next_seed, seed + count, mode, stop_after, at, theirs))
        process.start()
        theirs.close()
        try:
            while True:
                total.add(ours.recv())
        except EOFError:
            process.join()
        if process.exitcode == 0:
            break
        code = process.exitcode or 0
        total.crashes[at.value] = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        next_seed = at.value + 1
    return total


def shrunk(program: Program, found: list[Difference]) -> Failure:
    small = minimise(program, lambda p: bool(check(p)[0]))
    differences = check(small)[0] or found
    raising = set(reference(small).errors) | set(on_device(small).errors)
    return Failure(small, differences, script(small, differences, raising))


def set_up() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    import torch_neuronx

    torch_neuronx.set_fallback_policy("allow")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--mode", choices=("eager", "compile"), default="eager")
    parser.add_argument("--stop-after", type=int, default=10, help="failures, each of which is minimised")
    args = parser.parse_args()
    began = time.perf_counter()
    report = run_all(args.seed, args.count, args.mode, args.stop_after)
    seconds = time.perf_counter() - began
    for failure in report.failures:
        print(f"{'-' * 100}\n{failure.script}")
    print(
        f"programs: {report.programs} {args.mode} from seed {args.seed}, {report.statements} statements, "
        f"{report.exceptions} exceptions on both sides, {len(report.failures)} programs that differ, "
        f"{len(report.crashes)} that crash; "
        f"{report.programs / seconds:.0f} programs/s"
    )
    for kind, times in (+report.refused).most_common():
        print(f"  left out: {times} because {kind}")
    for crashed, how in report.crashes.items():
        print(f"  seed {crashed} ends the process: {how}")
    return 1 if report.failures or report.crashes else 0


if __name__ == "__main__":
    sys.exit(main())
