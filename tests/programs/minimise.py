"""Makes a failing program small, and writes it down as a script."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from programs.compiled import source
from programs.judge import Difference
from programs.program import Program, values


def minimise(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Drops ever smaller runs of statements as long as `fails` holds (delta debugging), until no single one can go."""
    size = max(1, len(program.statements) // 2)
    while True:
        start, dropped = 0, False
        while start < len(program.statements):
            shorter = program.without(set(range(start, start + size)))
            if shorter.statements and fails(shorter):
                program, dropped = shorter, True
            else:
                start += size
        if size > 1:
            size //= 2
        elif not dropped:
            return program


HEADER = """import copy
import sys

import torch
import torch.nn.functional as F

dev = sys.argv[1] if len(sys.argv) > 1 else "neuron"
read = print

"""

DATA = """
def data(dtype, offset, shape, special=False):
    count = torch.Size(shape).numel()
    return values(dtype, offset, count, special).reshape(shape).to(dev)

"""


def script(program: Program, differences: Sequence[Difference], raising: set[int]) -> str:
    """A program that runs by itself: `python file.py neuron` and `python file.py cpu` should print the same."""
    lines = [f"# seed {program.seed}, {program.mode}", *(f"# {d}" for d in differences), HEADER]
    lines += [inspect.getsource(values).replace("-> torch.Tensor", ""), DATA]
    if any(s.reference not in (None, "pass") for s in program.statements):
        lines.append("# The CPU draws other random numbers: the test hands it the device's.")
        lines.append(f"torch.manual_seed({program.seed})")
    names = sorted({name for s in program.statements for name in s.out})
    if program.mode == "compile":
        inputs = [s for s in program.statements if s.is_input]
        arguments = [s.out[0] for s in inputs]
        results = [n for n in names if n not in arguments]
        lines += [*(s.text for s in inputs), source(program, results, "neuron")]
        lines.append('run = torch.compile(program, backend="neuron", fullgraph=True) if dev == "neuron" else program')
        lines += [f"{''.join(f'{r}, ' for r in results)}= run({', '.join(arguments)})"]
    else:
        for i, s in enumerate(program.statements):
            text = f'if dev == "neuron": {s.text}' if s.reference == "pass" else s.text
            text += "  # in a second thread" if s.thread else ""
            if i in raising:
                text = f"try:\n    {text}\nexcept Exception as error:\n    print(type(error).__name__, error)"
            lines.append(text)
    lines.append(f"for name in {names}:\n    print(name, globals().get(name))")
    return "\n".join(lines) + "\n"
