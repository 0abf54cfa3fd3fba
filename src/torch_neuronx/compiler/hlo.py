"""From StableHLO to the file that neuronx-cc reads: an XLA `HloModuleProto`, with ids that fit 32 bits.

XLA numbers instructions with 64 bits (computation in the upper half) since openxla/xla 5bba026; the Neuron compiler
stops at an id above 2**31 (pytorch/xla issue 9685). `with_small_ids` numbers them anew. It works on protocol-buffer
wire format, because the binding offers no message classes; field numbers are those of xla/service/hlo.proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

# hlo.proto: field numbers of what holds ids, and of what says where in the program something comes from.
MODULE_COMPUTATIONS, MODULE_ID, MODULE_STACK_FRAMES = 3, 5, 17
COMPUTATION_INSTRUCTIONS, COMPUTATION_ROOT_ID = 2, 6
INSTRUCTION_ID, INSTRUCTION_OPERANDS, INSTRUCTION_CONTROL_PREDECESSORS = 35, 36, 37
INSTRUCTION_METADATA = 7

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class MissingExtraError(RuntimeError):
    """jaxlib, the MLIR binding of the extra `stablehlo`, is not installed."""


class Field(NamedTuple):
    """One field of a message: `value` is an integer (varint) or the bytes as they are."""

    number: int
    wire: int
    value: int | bytes


def from_stablehlo(stablehlo: str | bytes) -> bytes:
    """The serialized HloModuleProto of a StableHLO module, given as text or as MLIR bytecode.

    MissingExtraError without jaxlib; ValueError when XLA does not take the module.
    """
    try:
        from jaxlib import _jax
    except ImportError:
        raise MissingExtraError(
            "Writing HLO for neuronx-cc needs jaxlib, which is not installed. It is the extra 'stablehlo' of this "
            "package: pip install 'torch-neuronx[stablehlo]', or pip install jaxlib."
        ) from None
    binding: Any = _jax
    try:
        computation = binding.mlir.mlir_module_to_xla_computation(stablehlo, use_tuple_args=False, return_tuple=True)
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"this is not a StableHLO module that XLA takes: {first}") from error
    return with_small_ids(computation.as_serialized_hlo_module_proto())


def with_small_ids(module: bytes) -> bytes:
    """The same module with its instructions numbered 1, 2, 3, ... over all computations.

    The module's own id goes: it counts the modules of the process, and equal modules shall be equal files.
    """
    numbers: dict[int, int] = {}
    for computation in _messages(module, MODULE_COMPUTATIONS):
        for instruction in _messages(computation, COMPUTATION_INSTRUCTIONS):
            for field in fields(instruction):
                if field.number == INSTRUCTION_ID and isinstance(field.value, int):
                    numbers[field.value] = len(numbers) + 1
    return _rewrite(module, {MODULE_COMPUTATIONS: lambda value: _computation(value, numbers)}, dropped=(MODULE_ID,))


def without_locations(module: bytes) -> bytes:
    """The same module without names of operators, files and lines: equal for equal computations."""
    bare = {COMPUTATION_INSTRUCTIONS: lambda value: _rewrite(value, {}, dropped=(INSTRUCTION_METADATA,))}
    return _rewrite(module, {MODULE_COMPUTATIONS: lambda value: _rewrite(value, bare)}, dropped=(MODULE_STACK_FRAMES,))


def _computation(message: bytes, numbers: dict[int, int]) -> bytes:
    return _rewrite(
        message,
        {COMPUTATION_INSTRUCTIONS: lambda value: _instruction(value, numbers)},
        {COMPUTATION_ROOT_ID: numbers},
    )


def _instruction(message: bytes, numbers: dict[int, int]) -> bytes:
    lists = (INSTRUCTION_OPERANDS, INSTRUCTION_CONTROL_PREDECESSORS)
    return _rewrite(
        message,
        {number: lambda value: b"".join(_varint(numbers[old]) for old in _packed(value)) for number in lists},
        dict.fromkeys((INSTRUCTION_ID, *lists), numbers),
    )


def _rewrite(
    message: bytes,
    of_bytes: dict[int, Any],
    of_integers: dict[int, dict[int, int]] | None = None,
    dropped: tuple[int, ...] = (),
) -> bytes:
    """A message with some of its fields changed or dropped, and the others as they were, in their order."""
    out = bytearray()
    for number, wire, value in fields(message):
        if number in dropped:
            continue
        out += _varint(number << 3 | wire)
        if isinstance(value, int):
            renumbered = (of_integers or {}).get(number)
            out += _varint(value if renumbered is None else renumbered[value])
        elif wire == _BYTES:
            value = of_bytes[number](value) if number in of_bytes else value
            out += _varint(len(value)) + value
        else:
            out += value
    return bytes(out)


def fields(message: bytes) -> Iterator[Field]:
    """The fields of a message on the wire. ValueError when it is cut short or is no message."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, position = _read_varint(message, position)
            yield Field(number, wire, value)
            continue
        if wire == _BYTES:
            length, position = _read_varint(message, position)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise ValueError(f"not a protocol-buffer message: wire type {wire} at byte {position}")
        if position + length > len(message):
            raise ValueError(f"the protocol-buffer message ends inside field {number}, at byte {len(message)}")
        yield Field(number, wire, message[position : position + length])
        position += length


def _messages(message: bytes, number: int) -> Iterator[bytes]:
    for field in fields(message):
        if field.number == number and isinstance(field.value, bytes):
            yield field.value


def _packed(value: bytes) -> Iterator[int]:
    position = 0
    while position < len(value):
        number, position = _read_varint(value, position)
        yield number


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError(f"the protocol-buffer message is cut short at byte {position}")
        byte = data[position]
        result |= (byte & 0x7F) << shift
        position += 1
        if byte < 0x80:
            return result, position
        shift += 7


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
