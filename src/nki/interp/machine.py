"""One core of the interpreter: it executes a list of instructions, one after the other, in program order.

This is the plain and slow definition of what each instruction means; faster engines are tested against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..dtypes import DTYPES, DType, decode, encode
from ..errors import NkiError, NkiIndexError
from .memory import Memory
from .state import Accumulators, Generators

Array = NDArray[Any]
Semantics = Callable[["Core", ir.Instruction], Any]
SEMANTICS: dict[str, Semantics] = {}
LOOP_LIMIT = 1 << 24  # iterations of one loop, so that a condition that never ends is an error


def semantics(*opcodes: str) -> Callable[[Semantics], Semantics]:
    """Registers what an instruction does."""

    def register(function: Semantics) -> Semantics:
        for opcode in opcodes:
            SEMANTICS[opcode] = function
        return function

    return register


class Core:
    """Registers, accumulators and random generators of one physical core."""

    def __init__(self, program: ir.Program, memory: Memory, number: int, write: Callable[[str], None]) -> None:
        self.program, self.memory, self.number, self.print = program, memory, number, write
        self.registers = np.zeros(program.registers, np.int32)
        partitions = memory.target.partitions
        self.accumulators = Accumulators(partitions)
        self.generators = Generators(partitions)

    def run(self, instructions: list[ir.Instruction]) -> Iterator[ir.Instruction]:
        """Executes instructions; yields those at which the core must wait for the other one."""
        for instruction in instructions:
            if instruction.opcode == "for":
                yield from self._for(instruction)
            elif instruction.opcode == "while":
                yield from self._while(instruction)
            elif instruction.opcode in ("sendrecv", "core_barrier"):
                if len(self.program.cores) > 1:
                    yield instruction
            else:
                self.step(instruction)

    def step(self, instruction: ir.Instruction) -> None:
        """Executes one instruction. Errors name it and its line."""
        try:
            with np.errstate(all="ignore"):
                SEMANTICS[instruction.opcode](self, instruction)
        except NkiError as error:
            if error.location is not None:
                raise
            raise type(error)(
                error.problem, instruction=instruction.opcode, operand=error.operand, location=instruction.location
            ) from None

    def _for(self, loop: ir.Instruction) -> Iterator[ir.Instruction]:
        index = loop.operands["index"]
        assert isinstance(index, ir.Register) and loop.body is not None
        bounds = range(self.integer(loop, "lower"), self.integer(loop, "upper"), loop.attributes["step"])
        for value in bounds:
            self.registers[index.number] = value
            yield from self.run(loop.body)

    def _while(self, loop: ir.Instruction) -> Iterator[ir.Instruction]:
        assert loop.body is not None
        for _ in range(LOOP_LIMIT):
            if self.integer(loop, "condition") == 0:
                return
            yield from self.run(loop.body)
        raise NkiError(
            f"the loop did not end in {LOOP_LIMIT} iterations", instruction="while_loop", location=loop.location
        )

    # --- registers and addresses

    def integer(self, instruction: ir.Instruction, key: str) -> int:
        """An integer of an instruction: a register, or an attribute."""
        operand = instruction.operands.get(key)
        if isinstance(operand, ir.Register):
            return int(self.registers[operand.number])
        return int(instruction.attributes[key])

    def shift(self, access: ir.Access) -> int:
        """The dynamic part of an address, in elements. NkiIndexError when a value is out of bounds."""
        total = 0
        for part in access.dynamic:
            if isinstance(part.source, ir.Register):
                value = int(self.registers[part.source.number])
            else:
                value = int(self.view(part.source).reshape(-1)[0])
            if not 0 <= value < part.limit:
                raise NkiIndexError(
                    f"index {value} for {self.program.tensors[access.tensor].name!r} is not in 0 to {part.limit - 1}"
                )
            total += value * part.scale
        return total

    def view(self, access: ir.Access) -> Array:
        """Stored elements of an access, as a view."""
        return self.memory.view(self.number, access, self.shift(access) if access.dynamic else 0)

    # --- operands

    def access(self, instruction: ir.Instruction, key: str) -> ir.Access:
        """The access pattern of an operand."""
        operand = instruction.operands[key]
        assert isinstance(operand, ir.Access)
        return operand

    def has(self, instruction: ir.Instruction, key: str) -> bool:
        """True when an operand or attribute was given."""
        return key in instruction.operands or key in instruction.attributes

    def dtype(self, instruction: ir.Instruction, key: str) -> DType:
        """Stored element type of an operand."""
        return self.memory.dtype(self.access(instruction, key))

    def raw(self, instruction: ir.Instruction, key: str) -> Array:
        """Stored elements of an operand, as [partitions, elements]; a copy when the pattern needs one."""
        view = self.view(self.access(instruction, key))
        return view.reshape(view.shape[0], -1)

    def read(self, instruction: ir.Instruction, key: str) -> Array:
        """float32 values of an operand, as [partitions, elements]; a number gives [1, 1]."""
        if key in instruction.operands:
            return decode(self.raw(instruction, key), self.dtype(instruction, key))
        return np.full((1, 1), instruction.attributes[key], np.float32)

    def write(self, instruction: ir.Instruction, key: str, values: Array) -> None:
        """Writes float32 values, converted to the operand's dtype. Shapes that broadcast are fine."""
        view = self.view(self.access(instruction, key))
        flat = np.broadcast_to(np.asarray(values, np.float32), (view.shape[0], view.size // view.shape[0]))
        view[...] = encode(flat, self.dtype(instruction, key)).reshape(view.shape)

    def write_raw(self, instruction: ir.Instruction, key: str, elements: Array) -> None:
        """Writes stored elements as they are."""
        view = self.view(self.access(instruction, key))
        view[...] = elements.reshape(view.shape)

    def copy(self, instruction: ir.Instruction, dst: str, src: str, elements: Array | None = None) -> None:
        """dst = src (or `elements` of src's dtype): bit exact between equal dtypes, else through float32."""
        given = self.raw(instruction, src) if elements is None else elements
        source, target = self.dtype(instruction, src), self.dtype(instruction, dst)
        if source != target:
            given = encode(decode(given, source), target)
        self.write_raw(instruction, dst, given)


@semantics("alloc")
def alloc(core: Core, instruction: ir.Instruction) -> None:
    """Memory of a new tensor."""
    core.memory.allocate(core.number, core.program.tensors[instruction.attributes["tensor"]])


@semantics("register_move")
def register_move(core: Core, instruction: ir.Instruction) -> None:
    """dst = src."""
    _set(core, instruction, core.integer(instruction, "src"))


@semantics("register_alu")
def register_alu(core: Core, instruction: ir.Instruction) -> None:
    """dst = left op right, wrapping at 32 bits."""
    left, right = core.integer(instruction, "left"), core.integer(instruction, "right")
    op = instruction.attributes["op"]
    _set(core, instruction, left + right if op == "add" else left - right if op == "subtract" else left * right)


@semantics("register_load")
def register_load(core: Core, instruction: ir.Instruction) -> None:
    """dst = element."""
    _set(core, instruction, int(core.raw(instruction, "src")[0, 0]))


@semantics("register_store")
def register_store(core: Core, instruction: ir.Instruction) -> None:
    """element = src."""
    value = np.array([core.integer(instruction, "src")], np.int64)
    core.write_raw(instruction, "dst", value.astype(DTYPES[core.access(instruction, "dst").dtype].storage))


def _set(core: Core, instruction: ir.Instruction, value: int) -> None:
    register = instruction.operands["dst"]
    assert isinstance(register, ir.Register)
    core.registers[register.number] = np.array([value & 0xFFFFFFFF], np.uint32).view(np.int32)[0]


@semantics("device_print")
def device_print(core: Core, instruction: ir.Instruction) -> None:
    """Prints values: as float32, or as integers."""
    access = core.access(instruction, "tensor")
    dtype = core.memory.dtype(access)
    stored = core.view(access)
    values = stored if dtype.is_integer or dtype.kind == "packed" else decode(stored, dtype)
    prefix = instruction.attributes["prefix"]
    core.print(f"{prefix}: core {core.number}, {list(values.shape)} {access.dtype} ({instruction.location})\n{values}")
