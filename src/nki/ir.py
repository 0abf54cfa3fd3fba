"""The instruction program of a traced kernel: nothing but data, so that any engine can run, time or store it.

A program has tensors, and for each physical core a list of instructions. Operands are access patterns over the storage
of a tensor. Loops whose length is known only at run time hold their body as a nested list. `to_json` and `from_json`
are exact inverses.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .errors import Location

FORMAT = 1  # of the JSON form; goes up when its meaning changes

Buffer = Literal["sbuf", "psum", "private_hbm", "shared_hbm"]
ON_CHIP = ("sbuf", "psum")


@dataclasses.dataclass(frozen=True)
class Register:
    """A 32-bit register of the sequencer, by number. Each core has its own."""

    number: int


@dataclasses.dataclass(frozen=True)
class Dynamic:
    """A part of an access's start that is known only at run time: value * scale elements of the access's dtype."""

    source: Register | Access  # an access reads one int32 or uint32 element
    scale: int
    limit: int  # the value must be below it, or the access is out of bounds


@dataclasses.dataclass(frozen=True)
class Access:
    """Elements of a tensor: element (i0, i1, ...) is at offset + sum(stride * i) of its storage, in units of `dtype`.

    On chip, storage runs partition by partition: the first entry of the pattern is the partition, and its stride is
    the size of the tensor in one partition. `rows` holds a start for each index of the first entry (indirect DMA): the
    row of partition p begins at rows[p] * rows_scale, and the stride of the first entry means nothing.
    """

    tensor: int
    dtype: str
    offset: int
    pattern: tuple[tuple[int, int], ...]  # (stride, count)
    dynamic: tuple[Dynamic, ...] = ()
    rows: Access | None = None
    rows_scale: int = 0
    rows_limit: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Counts of the pattern."""
        return tuple(count for _, count in self.pattern)


Operand = Access | Register


@dataclasses.dataclass
class Tensor:
    """A tensor of a program. `partition` and `address` (bytes in a partition) are set by the layout, on chip only."""

    number: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    buffer: Buffer
    kind: Literal["input", "temporary", "constant"]
    core: int | None  # None: both cores see it (shared HBM)
    partition: int = 0
    address: int | None = None
    fill: bool = True  # its allocation makes the memory read as uninitialised
    location: Location | None = None
    data: NDArray[Any] | None = None  # constants: stored elements

    @property
    def on_chip(self) -> bool:
        """In SBUF or PSUM."""
        return self.buffer in ON_CHIP

    @property
    def elements(self) -> int:
        """Elements of the tensor."""
        return math.prod(self.shape)

    @property
    def free_elements(self) -> int:
        """Elements in one partition of an on-chip tensor."""
        return math.prod(self.shape[1:])


@dataclasses.dataclass
class Instruction:
    """One instruction. `operands` are tensors and registers by parameter name; `attributes` are plain values.

    `after` holds numbers of instructions that the author ordered before this one. A loop has its instructions in
    `body`. `fixed` says that the author froze the order here.
    """

    number: int
    opcode: str
    engine: str
    operands: dict[str, Operand]
    attributes: dict[str, Any]
    location: Location | None = None
    name: str = ""
    after: list[int] = dataclasses.field(default_factory=list)
    body: list[Instruction] | None = None
    fixed: bool = False

    def walk(self) -> Iterator[Instruction]:
        """This instruction and those of its body."""
        yield self
        for inner in self.body or ():
            yield from inner.walk()


@dataclasses.dataclass
class Program:
    """A kernel for one signature. `outputs` are tensors in the order in which the kernel returned them."""

    name: str
    target: str
    precise: bool  # False: 16-bit and 8-bit floating point is kept as float32 (NKI_PRECISE_FP=0)
    tensors: list[Tensor]
    cores: list[list[Instruction]]
    inputs: list[int]
    outputs: list[int]
    registers: int = 0
    sbuf_peak: int = 0  # bytes of one partition, the larger of the cores
    psum_peak: int = 0

    def instructions(self) -> Iterator[Instruction]:
        """All instructions of all cores, loop bodies once."""
        for core in self.cores:
            for instruction in core:
                yield from instruction.walk()

    def to_json(self) -> str:
        """The program as JSON text."""
        return json.dumps({"format": FORMAT, **_pack(self, Program)}, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Program:
        """The program of `to_json`. ValueError for another format."""
        data = json.loads(text)
        if data.pop("format", None) != FORMAT:
            raise ValueError(f"not a program of format {FORMAT}")
        program: Program = _unpack(data)
        return program


_CLASSES = {cls.__name__: cls for cls in (Register, Dynamic, Access, Tensor, Instruction, Program)}


def _pack(value: Any, cls: type | None = None) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: _pack(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {"": type(value).__name__, **fields}
    if isinstance(value, Location):
        return {"": "Location", "file": value.file, "line": value.line}
    if isinstance(value, np.ndarray):
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"": "array", "dtype": value.dtype.str, "shape": list(value.shape), "data": data}
    if isinstance(value, dict):
        return {key: _pack(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {"": "tuple", "items": [_pack(item) for item in value]}
    if isinstance(value, list):
        return [_pack(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be part of a program")


def _unpack(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpack(item) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.pop("", None)
    if kind == "tuple":
        return tuple(_unpack(item) for item in value["items"])
    if kind == "array":
        flat = np.frombuffer(base64.b64decode(value["data"]), np.dtype(value["dtype"]))
        return flat.reshape(value["shape"]).copy()
    fields = {key: _unpack(item) for key, item in value.items()}
    if kind is None:
        return fields
    return Location(**fields) if kind == "Location" else _CLASSES[kind](**fields)
