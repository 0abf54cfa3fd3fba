"""Running a kernel once to write down its instructions."""

from __future__ import annotations

import contextlib
import contextvars
import math
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from . import ir
from .dtypes import DType, as_dtype
from .errors import Location, NkiError, NkiTypeError, NkiValueError
from .source import here
from .target import Target, resolve
from .tensor import NkiTensor, Scalar

BUFFERS = {
    "sbuf": "sbuf",
    "psum": "psum",
    "hbm": "private_hbm",
    "private_hbm": "private_hbm",
    "shared_hbm": "shared_hbm",
}


class MemoryBuffer:
    """A memory of the chip: `nl.sbuf`, `nl.psum`, `nl.hbm` (private), `nl.private_hbm`, `nl.shared_hbm`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.memory = BUFFERS[name]

    def __repr__(self) -> str:
        return f"nl.{self.name}"

    def __eq__(self, other: object) -> bool:
        return self.memory == (other.memory if isinstance(other, MemoryBuffer) else BUFFERS.get(str(other)))

    def __hash__(self) -> int:
        return hash(self.memory)


class NkiInstruction:
    """What an instruction function returns: a handle to order it after others."""

    def __init__(self, record: ir.Instruction) -> None:
        self._record = record

    @property
    def name(self) -> str:
        """The label given with `name=`, or "" without one."""
        return self._record.name

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Orders this instruction after `producers`."""
        for producer in producers:
            if not isinstance(producer, NkiInstruction):
                raise NkiTypeError(f"depends_on takes instructions, not {producer!r}", location=here())
            self._record.after.append(producer._record.number)
        return self

    def __repr__(self) -> str:
        return f"instruction {self._record.number} {self._record.opcode}"


class Tracer:
    """Collects the instructions of one core. Tensors and numbers run on over the cores of a program."""

    def __init__(self, program: ir.Program, target: Target, core: int, cores: int) -> None:
        self.program, self.target, self.core, self.cores = program, target, core, cores
        self.instructions: list[ir.Instruction] = []
        self.current = self.instructions
        self.frozen = 0  # depth of nl.no_reorder
        self.loops: list[int] = []  # bodies that are open now, by number
        self.bodies = 0
        self.home: dict[int, int] = {}  # body in which a tensor was allocated
        self.broken_loop: Location | None = None  # a dynamic_range that was left by `break`
        self.shared: list[int] = []  # shared HBM tensors of this core in order of allocation
        self.other_shared: list[int] = []  # those of the core traced before
        self.count = sum(1 for _ in program.instructions())

    def emit(
        self,
        opcode: str,
        engine: str,
        operands: dict[str, ir.Operand],
        attributes: dict[str, Any],
        name: str | None = None,
        body: list[ir.Instruction] | None = None,
    ) -> NkiInstruction:
        """Appends an instruction at the current place."""
        record = ir.Instruction(
            number=self.count,
            opcode=opcode,
            engine=engine,
            operands=operands,
            attributes=attributes,
            location=here(),
            name=name or "",
            body=body,
            fixed=self.frozen > 0,
        )
        self.count += 1
        self.current.append(record)
        return NkiInstruction(record)

    @contextlib.contextmanager
    def nested(self) -> Iterator[list[ir.Instruction]]:
        """Instructions go into a new list: the body of a loop."""
        if self.frozen:
            raise NkiValueError("nl.no_reorder cannot hold a loop that runs on the device", location=here())
        outer, self.current = self.current, []
        self.bodies += 1
        self.loops.append(self.bodies)
        try:
            yield self.current
        finally:
            self.current = outer
            self.loops.pop()

    def visible(self, tensor: NkiTensor) -> bool:
        """False for a tensor of a loop body that has ended: it may never have been allocated."""
        home = self.home.get(tensor._storage.number)
        return home is None or home in self.loops

    def register(self) -> Scalar:
        """A new register."""
        self.program.registers += 1
        return Scalar(self.program.registers - 1)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: DType,
        buffer: str,
        name: str = "",
        kind: Any = "temporary",
        data: NDArray[Any] | None = None,
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        """A new tensor of the program. Shared HBM of the second core is that of the first, in order."""
        number = len(self.program.tensors)
        shared = buffer == "shared_hbm" and kind != "input"
        if shared and self.core > 0:
            at = len(self.shared)
            mine = (tuple(shape), dtype.name)
            twin = self.program.tensors[self.other_shared[at]] if at < len(self.other_shared) else None
            if twin is None or (twin.shape, twin.dtype) != mine:
                what = "nothing" if twin is None else f"{twin.name} {twin.shape} {twin.dtype}"
                raise NkiValueError(
                    f"both cores must allocate the same shared HBM: number {at + 1} of core {self.core} is {mine}, "
                    f"core 0 has {what}",
                    location=here(),
                )
            self.shared.append(twin.number)
            return NkiTensor.whole(twin)
        record = ir.Tensor(
            number=number,
            name=name or f"{kind if kind != 'temporary' else buffer}_{number}",
            shape=tuple(shape),
            dtype=dtype.name,
            buffer=buffer,  # type: ignore[arg-type]
            kind=kind,
            core=None if buffer == "shared_hbm" else self.core,
            location=here(),
            data=data,
        )
        if address is not None:
            record.partition, record.address = address
        self.program.tensors.append(record)
        if shared:
            self.shared.append(number)
        if self.loops and kind == "temporary":
            self.home[number] = self.loops[-1]
        if kind == "temporary":
            self.emit("alloc", "none", {}, {"tensor": number, "explicit": address is not None})
        return NkiTensor.whole(record)


_TRACER: contextvars.ContextVar[Tracer | None] = contextvars.ContextVar("nki_tracer", default=None)


def tracing() -> bool:
    """True inside a kernel that is being traced."""
    return _TRACER.get() is not None


def tracer() -> Tracer:
    """The tracer of the kernel that is being traced. NkiError outside of one."""
    found = _TRACER.get()
    if found is None:
        raise NkiError("this works only inside a kernel: call it through nki.jit or nki.simulate", location=here())
    return found


def current_target() -> Target:
    """The target of the kernel that is being traced, or of the next one."""
    found = _TRACER.get()
    return resolve() if found is None else found.target


@contextlib.contextmanager
def activate(new: Tracer) -> Iterator[None]:
    """Makes `new` the tracer of the code inside."""
    token = _TRACER.set(new)
    try:
        yield
    finally:
        _TRACER.reset(token)


def check_shape(shape: Any, what: str) -> tuple[int, ...]:
    """`shape` as a tuple of positive integers."""
    sizes = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    for size in sizes:
        if isinstance(size, bool) or not hasattr(size, "__index__") or size.__index__() < 1:
            raise NkiValueError(f"{what} has shape {shape}: sizes are integers of at least 1", location=here())
    return tuple(size.__index__() for size in sizes)


def allocate(shape: Any, dtype: Any, buffer: Any = None, name: str = "", address: Any = None) -> NkiTensor:
    """An uninitialised tensor. What `nl.ndarray` does."""
    trace = tracer()
    memory = buffer if isinstance(buffer, MemoryBuffer) else MemoryBuffer("sbuf") if buffer is None else None
    if memory is None:
        raise NkiTypeError(f"ndarray: buffer {buffer!r} is not nl.sbuf, nl.psum or an HBM buffer", location=here())
    sizes = check_shape(shape, f"ndarray {name!r}" if name else "ndarray")
    try:
        element = as_dtype(dtype)
    except NkiTypeError as error:
        raise NkiTypeError(error.problem, instruction="ndarray", operand="dtype", location=here()) from None
    where = memory.memory
    if where in ir.ON_CHIP:
        target = trace.target
        if len(sizes) < 2:
            raise NkiValueError(
                f"ndarray: shape {sizes} in {where} needs a partition and a free dimension", location=here()
            )
        if sizes[0] > target.partitions:
            raise NkiValueError(
                f"ndarray: partition dimension {sizes[0]} exceeds the maximum of {target.partitions} in {where}",
                location=here(),
            )
        size = math.prod(sizes[1:]) * element.itemsize
        limit = target.sbuf_bytes if where == "sbuf" else target.psum_bytes
        if size > limit:
            raise NkiValueError(
                f"ndarray: shape {sizes} of {element} takes {size} bytes of a partition, {where} has {limit}",
                location=here(),
            )
        if address is not None:
            address = _check_address(address, sizes, size, where, limit, target, element.itemsize)
    elif address is not None:
        raise NkiValueError("ndarray: address is for tensors in SBUF and PSUM", location=here())
    return trace.tensor(sizes, element, where, name, address=address)


def _check_address(
    address: Any, shape: tuple[int, ...], size: int, where: str, limit: int, target: Target, itemsize: int
) -> tuple[int, int]:
    if not isinstance(address, tuple | list) or len(address) != 2:
        raise NkiTypeError(f"ndarray: address {address!r} is not (partition, byte offset)", location=here())
    partition, offset = (int(part) for part in address)
    problem = None
    if partition < 0 or partition + shape[0] > target.partitions:
        problem = f"partitions {partition} to {partition + shape[0] - 1} of {target.partitions}"
    elif offset < 0 or offset + size > limit:
        problem = f"bytes {offset} to {offset + size - 1} of {limit} in {where}"
    elif where == "psum" and offset % target.psum_bank_bytes:
        problem = f"byte {offset}, which is no start of a PSUM bank ({target.psum_bank_bytes} bytes)"
    elif offset % itemsize:
        problem = f"byte {offset}, which is not a multiple of the {itemsize} bytes of an element"
    if problem:
        raise NkiValueError(f"ndarray: address {(partition, offset)} means {problem}", location=here())
    return partition, offset
