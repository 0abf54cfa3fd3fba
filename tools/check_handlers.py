"""Checks in the machine code of a library that handlers of the vector engine pass on and keep nothing on the stack.

python tools/check_handlers.py src/torch_neuronx/_C*.so 'engine::vector::.*\\bop_' --returns '\\bop_end\\b'

A handler gets its registers as arguments and must leave by an indirect jump to the next handler. A compiler that gives
it a stack frame (a spill, a call, a protector) breaks no result, only the speed: this is what notices. Prints each
function that matches the pattern and breaks a rule; exit status 1 if there are any, 2 if no function matches.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Machine:
    """How an instruction set says what a handler must and must not do, as expressions on `mnemonic operands`."""

    passes_on: str
    returns: str
    forbidden: dict[str, str]


MACHINES = {
    "x86-64": Machine(
        passes_on=r"(bnd |notrack )?jmp +\*",
        returns=r"(bnd |repz )?ret",
        forbidden={
            "pushes or pops": r"(push|pop)",
            "calls": r"(bnd )?call",
            "uses the stack": r".*%[er]sp\b",
            "has a frame pointer": r".*\(%rbp|.*,%rbp$",
        },
    ),
    "aarch64": Machine(
        passes_on=r"br\s+x\d+",
        returns=r"ret",
        forbidden={"calls": r"blr?\s", "uses the stack": r".*\bsp\b"},
    ),
}
FORMATS = {"elf64-x86-64": "x86-64", "elf64-littleaarch64": "aarch64"}


@dataclasses.dataclass(frozen=True)
class Function:
    name: str
    instructions: list[str]


def disassemble(path: Path) -> tuple[str, list[Function]]:
    """The machine (a key of MACHINES) and all functions of a library or object file."""
    command = ["objdump", "--disassemble", "--demangle", "--no-show-raw-insn", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(
            "check_handlers: objdump is not there; it comes with the compiler (package binutils)"
        ) from None
    if done.returncode:
        raise SystemExit(f"check_handlers: {done.stderr.strip()}")
    found = re.search(r"file format (\S+)", done.stdout)
    machine = FORMATS.get(found.group(1)) if found else None
    if machine is None:
        raise SystemExit(f"check_handlers: {path} is not for one of {', '.join(FORMATS)}")
    return machine, list(functions(done.stdout.splitlines()))


def functions(lines: Iterable[str]) -> Iterator[Function]:
    """The functions of objdump's output; padding behind the last instruction is left out."""
    current: Function | None = None
    for line in lines:
        if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
            if current is not None:
                yield current
            current = Function(head.group(1), [])
        elif current is not None and (body := re.match(r"\s+[0-9a-f]+:\s+(.+)$", line)):
            text = " ".join(body.group(1).split())
            if not re.match(r"(data16 |cs )*(nop|xchg %ax,%ax)", text):
                current.instructions.append(text)
    if current is not None:
        yield current


def faults(function: Function, machine: Machine, may_return: bool) -> list[str]:
    """What is wrong with one handler, with the instruction that shows it."""
    found = []
    for what, pattern in machine.forbidden.items():
        seen = [i for i in function.instructions if re.match(pattern, i)]
        if seen:
            found.append(f"{what} ({len(seen)} times): {seen[0]}")
    returns = any(re.match(machine.returns, i) for i in function.instructions)
    if may_return:
        return found
    if returns:
        found.append("returns instead of passing on")
    if not any(re.match(machine.passes_on, i) for i in function.instructions):
        found.append("does not end in an indirect jump")
    return found


def check(path: Path, pattern: str, returning: str | None = None) -> tuple[int, list[str]]:
    """(handlers whose name matches `pattern`, faults as text). `returning` matches those that end a program."""
    machine, every = disassemble(path)
    handlers = [f for f in every if re.search(pattern, f.name)]
    problems = []
    for handler in handlers:
        may_return = returning is not None and re.search(returning, handler.name) is not None
        problems += [f"{handler.name}: {fault}" for fault in faults(handler, MACHINES[machine], may_return)]
    return len(handlers), problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path)
    parser.add_argument("pattern", help="regular expression on a function's name, as objdump demangles it")
    parser.add_argument("--returns", help="the same, for handlers that end a program and may return")
    args = parser.parse_args()
    count, problems = check(args.library, args.pattern, args.returns)
    for problem in problems:
        print(problem)
    print(f"check_handlers: {count} handlers, {len(problems)} faults")
    if not count:
        print(f"check_handlers: no function of {args.library} matches {args.pattern!r}", file=sys.stderr)
        return 2
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
