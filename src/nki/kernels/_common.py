"""What the kernels share."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import NkiTypeError, NkiValueError
from ..tensor import NkiTensor


def pieces(total: int, size: int) -> Iterator[slice]:
    """Slices of up to `size` that cover `total`; the last one may be shorter."""
    for start in range(0, total, size):
        yield slice(start, min(start + size, total))


def length(piece: slice) -> int:
    """Elements of a slice with both ends."""
    return int(piece.stop - piece.start)


def need(condition: bool, problem: str) -> None:
    """NkiValueError unless `condition`."""
    if not condition:
        raise NkiValueError(problem)


def need_float(name: str, tensor: NkiTensor) -> None:
    """NkiTypeError unless the tensor is floating point."""
    if not tensor.dtype.is_float:
        raise NkiTypeError(f"{name} is {tensor.dtype}, it takes floating point")
