"""Runs random programs on the device and on the CPU, and prints those that differ as small scripts.

python tests/programs/run.py --seed 1 --count 1000                  eager execution
python tests/programs/run.py --seed 1 --count 100 --mode compile    under torch.compile, fullgraph=True

Program number i of a run has seed SEED + i: `--seed N --count 1` replays one. Exit status 1 if any differs.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import os
import pathlib
import sys
import time
import warnings

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch is imported
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch

from programs.compiled import execute_compiled
from programs.generate import generate
from programs.judge import Difference, judge, reference
from programs.minimise import minimise, script
from programs.program import DEVICE, Outcome, Program, execute


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


def run(seed: int, count: int, mode: str, stop_after: int = 10) -> Report:
    """Runs `count` programs; every failure is minimised. Ends early after `stop_after` failures."""
    report = Report()
    for number in range(seed, seed + count):
        program, expected = generate(number, mode)
        report.programs += 1
        report.statements += len(program.statements)
        report.exceptions += len(expected.errors)
        found, excuse = check(program, expected)
        report.refused[excuse] += bool(excuse)
        if found:
            report.failures.append(shrunk(program, found))
            if len(report.failures) >= stop_after:
                break
    return report


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
    set_up()
    began = time.perf_counter()
    report = run(args.seed, args.count, args.mode, args.stop_after)
    seconds = time.perf_counter() - began
    for failure in report.failures:
        print(f"{'-' * 100}\n{failure.script}")
    print(
        f"programs: {report.programs} {args.mode} from seed {args.seed}, {report.statements} statements, "
        f"{report.exceptions} exceptions on both sides, {len(report.failures)} programs that differ; "
        f"{report.programs / seconds:.0f} programs/s"
    )
    for kind, times in (+report.refused).most_common():
        print(f"  left out: {times} because {kind}")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
