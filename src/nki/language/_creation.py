"""Creation of tensors, tile sizes, and control of the program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import isa
from ..dtypes import as_dtype
from ..errors import NkiNotImplementedError, NkiTypeError, NkiValueError
from ..source import here
from ..tensor import NkiTensor
from ..trace import MemoryBuffer, allocate, current_target, tracer

Tensor = NkiTensor
sbuf, psum = MemoryBuffer("sbuf"), MemoryBuffer("psum")
hbm, private_hbm, shared_hbm = MemoryBuffer("hbm"), MemoryBuffer("private_hbm"), MemoryBuffer("shared_hbm")


class _TileSize:
    """Sizes of the chip that the kernel is traced for (outside of a kernel: that the next one is). `nl.tile_size`."""

    @property
    def pmax(self) -> int:
        """Partitions of SBUF and PSUM."""
        return current_target().partitions

    @property
    def psum_num_banks(self) -> int:
        """Banks of a PSUM partition."""
        return current_target().psum_banks

    @property
    def psum_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank in one partition."""
        return current_target().psum_bank_bytes

    @property
    def psum_bank_fmax_bytes(self) -> int:
        """Bytes of a PSUM bank in one partition."""
        return current_target().psum_bank_bytes

    @property
    def psum_fmax(self) -> int:
        """float32 elements of a PSUM bank in one partition."""
        return current_target().psum_bank_bytes // 4

    @property
    def psum_bank_fmax(self) -> int:
        """float32 elements of a PSUM bank in one partition."""
        return current_target().psum_bank_bytes // 4

    @property
    def sbuf_size_bytes(self) -> int:
        """Usable bytes of SBUF, all partitions."""
        return current_target().sbuf_bytes * current_target().partitions

    @property
    def sbuf_fmax_bytes(self) -> int:
        """Usable bytes of an SBUF partition."""
        return current_target().sbuf_bytes

    @property
    def sbuf_fmax(self) -> int:
        """float32 elements of an SBUF partition."""
        return current_target().sbuf_bytes // 4

    @property
    def total_available_sbuf_size(self) -> int:
        """Usable bytes of an SBUF partition; older name of sbuf_fmax_bytes."""
        return current_target().sbuf_bytes

    @property
    def gemm_stationary_fmax(self) -> int:
        """Free elements of the stationary operand of a product."""
        return current_target().stationary_fmax

    @property
    def gemm_moving_fmax(self) -> int:
        """Free elements of the moving operand: one PSUM bank of float32."""
        return current_target().psum_bank_bytes // 4

    @property
    def bn_stats_fmax(self) -> int:
        """Free elements that bn_stats takes."""
        return 512

    @property
    def psum_min_align(self) -> int:
        """Bytes that an explicit PSUM address is a multiple of: a bank."""
        return current_target().psum_bank_bytes

    @property
    def sbuf_min_align(self) -> int:
        """Bytes that an explicit SBUF address is best a multiple of: elements of every type then lie well."""
        return 4


tile_size = _TileSize()


def ndarray(shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "", address: Any = None) -> Tensor:
    """An uninitialised tensor: floating point reads as NaN, integers as 4, until something is written.

    On chip the first dimension is the partition, up to 128. `address` = (partition, byte offset in the partition)
    places it by hand; in PSUM the offset is the start of a bank. Without it, tensors that are alive at the same time
    get disjoint places.
    """
    return allocate(shape, dtype, buffer, name, address)


def full(shape: Any, fill_value: float, dtype: Any, buffer: Any = sbuf, name: str = "") -> Tensor:
    """A tensor of one value. In HBM it is written by DMA from a constant."""
    out = allocate(shape, dtype, buffer, name)
    if out.on_chip:
        isa.memset(out, fill_value)
        return out
    one = _constant(np.array([fill_value]), as_dtype(dtype).name)
    isa.dma_copy(out, one.ap([[0, size] for size in out.shape]))
    return out


def zeros(shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "") -> Tensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "") -> Tensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def empty_like(x: Tensor, dtype: Any = None, buffer: Any = None, name: str = "") -> Tensor:
    """An uninitialised tensor with the shape of x, and its dtype and memory unless given."""
    return allocate(x.shape, x.dtype if dtype is None else dtype, _memory_of(x, buffer), name)


def zeros_like(x: Tensor, dtype: Any = None, buffer: Any = None, name: str = "") -> Tensor:
    """A tensor of zeros with the shape of x, and its dtype and memory unless given."""
    return full(x.shape, 0, x.dtype if dtype is None else dtype, _memory_of(x, buffer), name)


def _memory_of(x: Tensor, buffer: Any) -> Any:
    return MemoryBuffer(x.buffer) if buffer is None else buffer


def _constant(array: NDArray[Any], dtype: str | None = None) -> Tensor:
    from ..dtypes import encode, saturate

    element = as_dtype(array.dtype if dtype is None else dtype)
    if element.is_integer and array.dtype.kind in "iub":
        stored = saturate(array.astype(np.int64), element)
    elif array.dtype == element.storage and array.dtype.kind == "f":
        stored = array
    else:
        stored = encode(array.astype(np.float32), element)
    stored = np.ascontiguousarray(stored)
    return tracer().tensor(array.shape, element, "shared_hbm", kind="constant", data=stored)


def shared_constant(data: Any, dtype: Any = None) -> Tensor:
    """A constant in shared HBM: a NumPy array, or the path of a .npy file."""
    array = np.load(data) if isinstance(data, str | Path) else data
    if not isinstance(array, np.ndarray) or array.size == 0:
        raise NkiTypeError(
            f"shared_constant takes a NumPy array or the path of a .npy file, not {data!r}", location=here()
        )
    return _constant(array.reshape(array.shape or (1,)), None if dtype is None else as_dtype(dtype).name)


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: Tensor | None = None) -> Tensor:
    """An n x n identity matrix: a constant in shared HBM, loaded into `dst`, or into a new tile in SBUF, n <= 128."""
    matrix = _constant(np.eye(n, dtype=np.float32), as_dtype(dtype).name)
    tile = allocate((n, n), dtype, sbuf) if dst is None else dst
    isa.dma_copy(tile, matrix)
    return tile


def program_id(axis: int = 0) -> int:
    """Which of the cores of a kernel[2] launch this is: 0 or 1."""
    _axis(axis)
    return tracer().core


def num_programs(axes: int = 0) -> int:
    """Cores that the kernel runs on: 1 or 2."""
    _axis(axes)
    return tracer().cores


def program_ndim() -> int:
    """Dimensions of the launch grid: always 1, the cores of a logical core."""
    return 1


def _axis(axis: Any) -> None:
    if axis != 0:
        raise NkiValueError(f"axis {axis!r}: the launch grid has one dimension", location=here())


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions inside keep their order. No loop that runs on the device may be inside."""
    trace = tracer()
    trace.frozen += 1
    try:
        yield
    finally:
        trace.frozen -= 1


def device_print(print_prefix: str, tensor: Tensor) -> None:
    """Prints the values of a tensor in SBUF or HBM when the kernel runs and comes to this place."""
    if not isinstance(tensor, NkiTensor) or tensor.buffer == "psum":
        raise NkiTypeError(
            f"takes a tensor in SBUF or HBM, not {tensor!r}", instruction="device_print", location=here()
        )
    tracer().emit("device_print", "none", {"tensor": tensor.access()}, {"prefix": str(print_prefix)})


def _range(start: int, stop: int | None = None, step: int = 1) -> range:
    return range(start) if stop is None else range(start, stop, step)


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """`range`: the loop is unrolled. An older name."""
    return _range(start, stop, step)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """`range`: the loop is unrolled. An older name."""
    return _range(start, stop, step)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """`range`: the loop is unrolled. An older name."""
    return _range(start, stop, step)


def _where(x: Any) -> str:
    return x.memory if isinstance(x, MemoryBuffer) else str(getattr(x, "buffer", ""))


def is_hbm(x: Any) -> bool:
    """True for HBM: a buffer, or a tensor there."""
    return _where(x) in ("private_hbm", "shared_hbm")


def is_sbuf(x: Any) -> bool:
    """True for SBUF: the buffer, or a tensor there."""
    return _where(x) == "sbuf"


def is_psum(x: Any) -> bool:
    """True for PSUM: the buffer, or a tensor there."""
    return _where(x) == "psum"


def is_on_chip(x: Any) -> bool:
    """True for SBUF and PSUM."""
    return _where(x) in ("sbuf", "psum")


def _grid(name: str) -> Any:
    def function(*arguments: Any, **options: Any) -> Any:
        raise NkiNotImplementedError(
            f"nl.{name} (tile grids of NKI 0.7) is not implemented; slice the tensor", location=here()
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Tile grids of NKI 0.7: not implemented, raises NkiNotImplementedError."
    return function


tiles, blocks, alloc_tiles, alloc_blocks = map(_grid, ("tiles", "blocks", "alloc_tiles", "alloc_blocks"))
