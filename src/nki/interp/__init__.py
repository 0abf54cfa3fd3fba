"""The interpreter: runs an instruction program with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..errors import NkiError, NkiValueError
from ..target import target
from . import compute, dma, matmul, search
from .machine import SEMANTICS, Core
from .memory import Memory

__all__ = ["SEMANTICS", "Core", "Memory", "compute", "dma", "execute", "matmul", "search"]


def execute(
    program: ir.Program, arguments: dict[int, NDArray[Any]], write: Callable[[str], None] = print
) -> dict[int, NDArray[Any]]:
    """Runs a program. `arguments` are the stored elements of the inputs by tensor number, flat.

    Returns the stored elements of the outputs and of all inputs (which kernels may write), by tensor number. `write`
    gets the text of device_print. NkiError when an access is out of bounds, or the cores wait for each other in vain.
    """
    memory = Memory(program, target(program.target), arguments)
    cores = [Core(program, memory, number, write) for number in range(len(program.cores))]
    streams = [core.run(items) for core, items in zip(cores, program.cores, strict=True)]
    # Cores take turns: each runs until it must wait for the other, then both meet.
    while streams:
        waiting = [next(stream, None) for stream in streams]
        if all(item is None for item in waiting):
            break
        if len(waiting) < 2 or any(item is None for item in waiting):
            item = next(item for item in waiting if item is not None)
            raise NkiError(
                "the other core has ended: this core waits in vain", instruction=item.opcode, location=item.location
            )
        _meet(cores, [item for item in waiting if item is not None])
    numbers = {*program.outputs, *program.inputs}
    return {number: memory.elements(number) for number in numbers}


def _meet(cores: list[Core], items: list[ir.Instruction]) -> None:
    first, second = items
    if first.opcode != second.opcode or first.attributes.get("pipe_id") != second.attributes.get("pipe_id"):
        raise NkiValueError(
            f"core 0 is at {first.opcode} ({first.location}), core 1 at {second.opcode} ({second.location}): both "
            "cores must run the same instructions"
        )
    if first.opcode == "core_barrier":
        return
    sent = [np.array(core.raw(item, "src")) for core, item in zip(cores, items, strict=True)]
    for core, item, data, sender in zip(cores, items, reversed(sent), reversed(items), strict=True):
        there, here = core.program.tensors[core.access(sender, "src").tensor], core.access(item, "dst")
        if core.access(sender, "src").dtype != here.dtype or data.size != int(np.prod(here.shape)):
            raise NkiValueError(
                f"receives {data.shape} from {there.name!r}, dst is {here.shape} {here.dtype}",
                instruction="sendrecv",
                operand="dst",
                location=item.location,
            )
        core.write_raw(item, "dst", data)
