"""From a call of an instruction function to an instruction of the program. Limits are checked here and in checks.py."""

from __future__ import annotations

import enum
import math
import reprlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from .. import ir
from ..errors import NkiError, NkiIndexError, NkiTargetError, NkiTypeError, NkiValueError
from ..ops import ALU, op_name
from ..source import here
from ..target import FREE_DIMS, FREE_ELEMENTS
from ..tensor import NkiTensor, Scalar, collapse
from ..trace import NkiInstruction, tracer
from . import enums
from .table import DTYPE_SETS, DTYPE_VERSION, HBM, INSTRUCTIONS, Operand

Check = Callable[["Call"], None]
CHECKS: dict[str, Check] = {}


def check(opcode: str) -> Callable[[Check], Check]:
    """Registers the rules of an instruction that the table does not hold."""

    def register(function: Check) -> Check:
        CHECKS[opcode] = function
        return function

    return register


def partitions(tensor: NkiTensor) -> int:
    """Partitions that a view covers."""
    return tensor.shape[0]


def free(tensor: NkiTensor) -> int:
    """Elements of a view in one partition."""
    return math.prod(tensor.shape[1:])


class Call:
    """One call: `tensors` and `values` by parameter name. Checks may change `values` and `engine`."""

    def __init__(self, opcode: str, arguments: dict[str, Any]) -> None:
        self.opcode = opcode
        self.trace = tracer()
        self.target = self.trace.target
        self.spec = INSTRUCTIONS[opcode]
        self.label = arguments.pop("name", None)
        self.asked: Any = arguments.pop("engine", enums.engine.unknown)
        self.engine = self.spec.engines[0]
        self.tensors: dict[str, NkiTensor] = {}
        self.values: dict[str, Any] = {}
        for key, value in arguments.items():
            if key in self.spec.operands:
                self._operand(key, self.spec.operands[key], value)
            else:
                self.values[key] = value

    def fail(self, problem: str, operand: str | None = None, kind: type[NkiError] = NkiValueError) -> NoReturn:
        """Raises an error that names the instruction, the operand and the line of the kernel."""
        text = f"{operand} {problem}" if operand else problem
        raise kind(text, instruction=self.opcode, operand=operand, location=here())

    def need(self, condition: bool, problem: str, operand: str | None = None) -> None:
        """NkiValueError unless `condition`."""
        if not condition:
            self.fail(problem, operand)

    def need_version(self, version: int, what: str) -> None:
        """NkiTargetError unless the target has at least this NeuronCore version."""
        if self.target.version < version:
            self.fail(
                f"{what} needs NeuronCore-v{version}, {self.target.name} has v{self.target.version}",
                kind=NkiTargetError,
            )

    def _operand(self, key: str, operand: Operand, value: Any) -> None:
        if value is None and operand.optional:
            return
        if isinstance(value, NkiTensor):
            self.tensors[key] = value
        elif operand.number and _is_number(value):
            self.values[key] = _plain_number(value)
        else:
            wanted = "a tensor or a number" if operand.number else "a tensor"
            self.fail(f"is {_describe(value)}, it takes {wanted}", key, NkiTypeError)

    # --- generic rules

    def run_checks(self) -> None:
        """All rules of the table and those of the instruction."""
        self.need_version(self.spec.version, "this instruction")
        for key, tensor in self.tensors.items():
            self._check_tensor(key, tensor, self.spec.operands[key])
        for key, tensor in self.tensors.items():
            self._check_relation(key, tensor, self.spec.operands[key])
        if self.opcode in CHECKS:
            CHECKS[self.opcode](self)
        self._check_engine()

    def _check_tensor(self, key: str, tensor: NkiTensor, operand: Operand) -> None:
        if not self.trace.visible(tensor):
            self.fail("was allocated in the body of a loop that has ended; allocate it before the loop", key)
        if tensor.buffer not in operand.memory:
            where = " or ".join(dict.fromkeys("HBM" if m in HBM else m.upper() for m in operand.memory))
            is_in = "HBM" if tensor.buffer in HBM else tensor.buffer.upper()
            self.fail(f"is in {is_in}, it must be in {where}", key)
        dtype = tensor.dtype.name
        if dtype not in DTYPE_SETS[operand.dtypes]:
            self.fail(f"is {dtype}, it takes {', '.join(DTYPE_SETS[operand.dtypes])}", key, NkiTypeError)
        since = DTYPE_VERSION.get(dtype, 2)
        if self.target.version < since:
            self.fail(
                f"is {dtype}, which needs NeuronCore-v{since}; {self.target.name} has v{self.target.version}",
                key,
                NkiTargetError,
            )
        self.need(tensor.size > 0, f"has shape {tensor.shape}: there is nothing in it", key)
        self.check_bounds(key, tensor)
        dma = self.spec.engines == ("dma",)
        if tensor._rows is not None and not dma:
            self.fail("has row offsets from a tensor, which only DMA instructions take", key)
        if not tensor.on_chip:
            return
        rows, elements = partitions(tensor), free(tensor)
        if rows > self.target.partitions:
            self.fail(f"has {rows} partitions, the limit is {self.target.partitions}", key)
        if dma:
            return
        if elements > FREE_ELEMENTS:
            self.fail(f"has {elements} elements in a partition, the limit is {FREE_ELEMENTS}", key)
        dims = len(collapse(tensor.get_pattern()[1:]))
        if dims > FREE_DIMS:
            self.fail(f"has {dims} free dimensions, the limit of an access pattern is {FREE_DIMS}", key)
        self._check_start(key, tensor, rows)

    def _check_start(self, key: str, tensor: NkiTensor, rows: int) -> None:
        if any(part.scale % tensor.storage_free == 0 for part in tensor._dynamic):
            return  # a partition that is chosen while the kernel runs
        start = tensor._storage.partition + tensor.offset // tensor.storage_free
        allowed = (0,) if rows > 64 else (0, 64) if rows > 32 else (0, 32, 64, 96)
        if start not in allowed:
            self.fail(
                f"starts at partition {start}; {rows} partitions may start at {', '.join(map(str, allowed))}", key
            )

    def check_bounds(self, key: str, tensor: NkiTensor) -> None:
        """NkiIndexError when the part of the address that is known now leads outside of the tensor."""
        if tensor._rows is not None:
            return
        limit = tensor.storage_elements
        low = tensor.offset + sum(min(0, stride * (count - 1)) for stride, count in tensor.get_pattern())
        high = tensor.offset + sum(max(0, stride * (count - 1)) for stride, count in tensor.get_pattern())
        if low < 0 or high >= limit:
            self.fail(f"reaches elements {low} to {high} of {tensor.name!r}, which has {limit}", key, NkiIndexError)
        if tensor.on_chip:
            row = tensor.storage_free
            at = tensor.offset % row
            inner = tensor.get_pattern()[1:]
            low = at + sum(min(0, stride * (count - 1)) for stride, count in inner)
            high = at + sum(max(0, stride * (count - 1)) for stride, count in inner)
            if low < 0 or high >= row:
                self.fail(
                    f"reaches elements {low} to {high} of a partition of {tensor.name!r}, which has {row}",
                    key,
                    NkiIndexError,
                )

    def _check_relation(self, key: str, tensor: NkiTensor, operand: Operand) -> None:
        other = self.tensors.get(operand.like)
        if other is None:
            return
        if partitions(tensor) != partitions(other):
            self.fail(f"has {partitions(tensor)} partitions, {operand.like} has {partitions(other)}", key)
        if operand.shape == "same" and free(tensor) != free(other):
            self.fail(f"has {free(tensor)} elements in a partition, {operand.like} has {free(other)}", key)
        if operand.shape == "column" and free(tensor) != 1:
            self.fail(f"has shape {tensor.shape}, it takes ({partitions(other)}, 1)", key)

    def _check_engine(self) -> None:
        asked = self.asked
        if not isinstance(asked, enums.engine):
            self.fail(f"is {_describe(asked)}, it takes a member of nisa.engine", "engine", NkiTypeError)
        if asked is not enums.engine.unknown:
            if asked.name not in self.spec.engines:
                self.fail(f"does not run on {asked.name}, it runs on {', '.join(self.spec.engines)}")
            self.engine = asked.name
        if self.engine == "gpsimd":
            for key, tensor in self.tensors.items():
                if tensor.buffer == "psum":
                    self.fail("is in PSUM, which GpSimdE cannot reach", key)

    # --- pieces that several checks use

    def alu(self, key: str, kinds: tuple[str, ...] = ("arithmetic", "bits"), reduce: bool = False) -> str:
        """The operator in `values[key]` by name, checked against the target; `values` then holds the name."""
        given = self.values[key]
        name = op_name(given)
        if name is None or name not in ALU:
            self.fail(f"is {_describe(given)}, it takes an operator of nki.language such as nl.add", key, NkiTypeError)
        spec = ALU[name]
        if spec.version is None:
            self.fail(f"is {name}, which no NeuronCore has; multiply by a reciprocal instead", key, NkiTargetError)
        self.need_version(spec.version, f"{key}={name}")
        if spec.kind not in kinds:
            self.fail(
                f"is {name}, a {'bit' if spec.kind == 'bits' else 'arithmetic'} operator, which does not fit here",
                key,
                NkiTypeError,
            )
        if reduce and spec.identity is None:
            legal = ", ".join(n for n, alu in ALU.items() if alu.identity is not None and alu.kind in kinds)
            self.fail(f"is {name}, which cannot reduce; {legal} can", key)
        self.values[key] = name
        return name

    def need_bits(self, *keys: str) -> None:
        """Integer dtypes for operands of bit operators."""
        for key in keys:
            if key in self.tensors and not self.tensors[key].dtype.is_integer:
                self.fail(f"is {self.tensors[key].dtype}, bit operators take integers", key, NkiTypeError)

    def not_both_psum(self, first: str, second: str) -> None:
        """Two inputs cannot both come from PSUM."""
        pair = [self.tensors.get(key) for key in (first, second)]
        if all(tensor is not None and tensor.buffer == "psum" for tensor in pair):
            self.fail(f"is in PSUM, and so is {first}: one of them must be in SBUF", second)

    def same_dtype(self, first: str, second: str) -> None:
        """Both operands have one dtype."""
        a, b = self.tensors[first].dtype, self.tensors[second].dtype
        if a != b:
            self.fail(f"is {a}, {second} is {b}: they must be the same", first, NkiTypeError)

    def member(self, key: str, cls: type[enum.Enum]) -> Any:
        """The option in `values[key]`; `values` then holds its name."""
        given = self.values[key]
        if cls is enums.dge_mode and type(given) is int and given in [mode.value for mode in enums.dge_mode]:
            given = enums.dge_mode(given)  # public kernels write this one as a number
        if not isinstance(given, cls):
            self.fail(f"is {_describe(given)}, it takes a member of nisa.{cls.__name__}", key, NkiTypeError)
        self.values[key] = given.name
        return given

    def number(self, key: str) -> float:
        """The number in `values[key]`."""
        given = self.values[key]
        if not _is_number(given):
            self.fail(f"is {_describe(given)}, it takes a number", key, NkiTypeError)
        self.values[key] = _plain_number(given)
        result: float = self.values[key]
        return result

    def emit(self) -> NkiInstruction:
        """Appends the instruction."""
        operands: dict[str, ir.Operand] = {key: tensor.access() for key, tensor in self.tensors.items()}
        attributes: dict[str, Any] = {}
        for key, value in self.values.items():
            if isinstance(value, Scalar):
                operands[key] = value.register
            elif value is not None:
                attributes[key] = _plain(value)
        return self.trace.emit(self.opcode, self.engine, operands, attributes, self.label)


def issue(opcode: str, arguments: dict[str, Any]) -> NkiInstruction:
    """Checks a call and appends its instruction. `arguments` is what the function was called with, by name."""
    call = Call(opcode, dict(arguments))
    call.run_checks()
    return call.emit()


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, NkiTensor)


def _plain_number(value: Any) -> int | float:
    return value.item() if isinstance(value, np.number) else value


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return op_name(value) or value


def _describe(value: Any) -> str:
    if isinstance(value, NkiTensor):
        return repr(value)
    if hasattr(value, "shape"):
        return f"{type(value).__name__} of shape {tuple(value.shape)}"
    return f"{type(value).__name__} {reprlib.repr(value)}"
