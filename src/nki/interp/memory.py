"""Memory of the interpreter: HBM tensor by tensor, SBUF and PSUM of each core as bytes at their addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..dtypes import DTYPES, DType, decode, encode, uninitialised
from ..errors import NkiIndexError, NkiNotImplementedError
from ..target import Target

Array = NDArray[Any]
UNWRITTEN = 0xFF  # byte that reads as NaN in every floating point type


class Memory:
    """All memory of one run. `arguments` are the stored elements of the inputs, flat, and are written in place.

    With `precise` off, 16-bit and 8-bit floating point tensors are kept as float32: nothing is rounded to them.
    """

    def __init__(self, program: ir.Program, target: Target, arguments: dict[int, Array]) -> None:
        self.program, self.target = program, target
        self.widened = {t.number for t in program.tensors if not program.precise and _narrow(DTYPES[t.dtype])}
        self.hbm: dict[tuple[int, int], Array] = {}  # (tensor, core); shared tensors under core 0
        peaks = {"sbuf": program.sbuf_peak, "psum": target.psum_bytes if program.psum_peak else 0}
        self.row = {name: max(8, -(-size // 8) * 8) for name, size in peaks.items()}
        cores = range(len(program.cores))
        rows = target.partitions
        self.chip = {
            (name, core): np.full(rows * self.row[name], UNWRITTEN, np.uint8) for name in peaks for core in cores
        }
        # Which 2-byte pieces of a PSUM tensor a matrix product has written since its allocation. It belongs to the
        # tensor, not to the place: kernels allocate one tensor for each group of products at the same address.
        self.summed: dict[tuple[int, int], Array] = {}
        self.own: dict[tuple[int, int], Array] = {}  # widened tensors on chip
        for tensor in program.tensors:
            if tensor.on_chip:
                continue
            for core in cores if tensor.core is not None else (0,):
                if tensor.core in (None, core):
                    self.hbm[tensor.number, core] = self._hbm(tensor, arguments)

    def _hbm(self, tensor: ir.Tensor, arguments: dict[int, Array]) -> Array:
        dtype = DTYPES[tensor.dtype]
        if tensor.kind == "temporary":
            flat = np.full(tensor.elements, uninitialised(dtype), dtype.storage)
        else:
            given = arguments[tensor.number] if tensor.kind == "input" else tensor.data
            assert given is not None
            flat = given
        if tensor.number in self.widened:
            flat = decode(flat, dtype)
        return flat.reshape(-1) if tensor.kind == "input" else flat.reshape(-1).copy()

    def elements(self, number: int) -> Array:
        """Stored elements of an HBM tensor, flat, after the run."""
        tensor = self.program.tensors[number]
        flat = self.hbm[number, tensor.core or 0]
        return encode(flat, DTYPES[tensor.dtype]) if number in self.widened else flat

    def allocate(self, core: int, tensor: ir.Tensor) -> None:
        """The memory of a tensor becomes uninitialised, unless something else already lay at its explicit address."""
        dtype = DTYPES[tensor.dtype]
        if not tensor.on_chip:
            if tensor.core is not None:
                self.hbm[tensor.number, core][:] = (
                    np.float32(np.nan) if tensor.number in self.widened else uninitialised(dtype)
                )
            return
        if tensor.number in self.widened:
            self.own[tensor.number, core] = np.full(tensor.elements, np.nan, np.float32)
        assert tensor.address is not None
        size = tensor.free_elements * dtype.itemsize
        if tensor.buffer == "psum":
            self.summed[tensor.number, core] = np.zeros((tensor.shape[0], size // 2), bool)
        if tensor.fill:
            access = ir.Access(tensor.number, tensor.dtype, 0, tuple(_rows_of(tensor)))
            if tensor.number not in self.widened:
                self.view(core, access)[...] = uninitialised(dtype)

    def dtype(self, access: ir.Access) -> DType:
        """Element type that is stored: float32 for a widened tensor."""
        if access.tensor in self.widened:
            if access.dtype != self.program.tensors[access.tensor].dtype:
                raise NkiNotImplementedError("NKI_PRECISE_FP=0 keeps no bits: a view as another dtype is not possible")
            return DTYPES["float32"]
        return DTYPES[access.dtype]

    def view(self, core: int, access: ir.Access, shift: int = 0) -> Array:
        """Stored elements of an access without row offsets; `shift` is the value of its dynamic part, in elements."""
        tensor = self.program.tensors[access.tensor]
        dtype = self.dtype(access)
        offset = access.offset + shift
        item = dtype.itemsize
        if not tensor.on_chip or tensor.number in self.widened:
            if tensor.on_chip:
                flat = self.own[access.tensor, core]
            else:
                flat = self.hbm[access.tensor, core if tensor.core is not None else 0]
            flat = flat.view(dtype.storage)
            low = offset + sum(min(0, stride * (count - 1)) for stride, count in access.pattern)
            high = offset + sum(max(0, stride * (count - 1)) for stride, count in access.pattern)
            if low < 0 or high >= flat.size:
                raise NkiIndexError(f"reaches elements {low} to {high} of {tensor.name!r}, which has {flat.size}")
            strides = tuple(stride * item for stride, _ in access.pattern)
            return np.ndarray(access.shape, dtype.storage, flat, offset * item, strides)
        base, pitch = self.chip[tensor.buffer, core], self.row[tensor.buffer]
        row = tensor.free_elements * DTYPES[tensor.dtype].itemsize // item
        partition, column = divmod(offset, row)
        self._check_row(tensor, access, partition, column, row)
        assert tensor.address is not None
        start = (tensor.partition + partition) * pitch + tensor.address + column * item
        strides = (pitch, *(stride * item for stride, _ in access.pattern[1:]))
        return np.ndarray(access.shape, dtype.storage, base, start, strides)

    def _check_row(self, tensor: ir.Tensor, access: ir.Access, partition: int, column: int, row: int) -> None:
        low = column + sum(min(0, stride * (count - 1)) for stride, count in access.pattern[1:])
        high = column + sum(max(0, stride * (count - 1)) for stride, count in access.pattern[1:])
        if partition < 0 or partition + access.shape[0] > tensor.shape[0]:
            last = partition + access.shape[0] - 1
            raise NkiIndexError(
                f"reaches partitions {partition} to {last} of {tensor.name!r}, which has {tensor.shape[0]}"
            )
        if low < 0 or high >= row:
            raise NkiIndexError(f"reaches elements {low} to {high} of a partition of {tensor.name!r}, which has {row}")

    def summed_view(self, core: int, access: ir.Access, shift: int = 0) -> Array:
        """Flags of what matrix products have written, for an access to PSUM."""
        tensor = self.program.tensors[access.tensor]
        item = DTYPES[access.dtype].itemsize // 2
        row = tensor.free_elements * DTYPES[tensor.dtype].itemsize // (item * 2)
        partition, column = divmod(access.offset + shift, row)
        flags = self.summed[access.tensor, core]
        start = partition * flags.shape[1] + column * item
        strides = (flags.shape[1], *(stride * item for stride, _ in access.pattern[1:]))
        return np.ndarray(access.shape, bool, flags, start, strides)


def _narrow(dtype: DType) -> bool:
    return dtype.is_float and dtype.itemsize < 4 and dtype.name != "float8_e8m0fnu"


def _rows_of(tensor: ir.Tensor) -> list[tuple[int, int]]:
    return [(tensor.free_elements, tensor.shape[0]), (1, tensor.free_elements)]
