"""Arguments and results of kernels: NumPy arrays, CPU tensors and neuron tensors, to and from stored elements.

A neuron tensor goes through a copy on the host, and its results come back to its device by another copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .dtypes import DType, as_dtype, decode
from .errors import NkiTypeError

Array = NDArray[Any]
_STORED_AS = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # torch has these on every device


def is_tensor(value: Any) -> bool:
    """True for what becomes a tensor of the kernel; all else is a constant of its trace."""
    return isinstance(value, np.ndarray | torch.Tensor)


def dtype_of(value: Any) -> DType:
    """Element type of an argument. NkiTypeError for one that the chip does not have."""
    return as_dtype(value.dtype)


def sizes_of(value: Any) -> tuple[int, ...]:
    """The shape of an argument in integers: a kernel is for one shape, also where PyTorch traces with symbols."""
    return tuple(int(size) for size in value.shape)


def stored(value: Any) -> Array:
    """Stored elements of an argument, flat, in memory of their own."""
    dtype = dtype_of(value)
    if isinstance(value, np.ndarray):
        return np.array(value, order="C").reshape(-1).view(dtype.storage)
    host = value.detach().resolve_conj().resolve_neg().contiguous().cpu()
    bits = host.reshape(-1).view(_STORED_AS[host.element_size()])
    return np.array(bits.numpy()).view(dtype.storage)


class Kind:
    """What the arguments of a call are, and so its results: "numpy", or PyTorch on one device."""

    def __init__(self, values: list[tuple[str, Any]]) -> None:
        self.where: str | torch.device = "numpy"
        first = ""
        for name, value in values:
            where = "numpy" if isinstance(value, np.ndarray) else value.device
            if not first:
                self.where, first = where, name
            elif where != self.where:
                raise NkiTypeError(
                    f"{name} is {_say(where)} and {first} is {_say(self.where)}: all tensors of a call must be of one "
                    "kind and on one device"
                )
        if isinstance(self.where, torch.device) and self.where.type not in ("cpu", "neuron", "meta"):
            raise NkiTypeError(f"{first} is on {self.where}: kernels take NumPy arrays, CPU tensors and neuron tensors")

    def result(self, elements: Array, shape: tuple[int, ...], dtype: DType) -> Any:
        """A result of this kind from stored elements."""
        if self.where == "numpy":
            return _numpy(elements, dtype).reshape(shape)
        return _torch(elements, dtype).reshape(shape).to(self.where)

    def put_back(self, value: Any, elements: Array) -> None:
        """Writes an argument that the kernel has changed, in place."""
        if isinstance(value, np.ndarray):
            value[...] = elements.view(value.dtype).reshape(value.shape)
        else:
            with torch.no_grad():
                value.copy_(_torch(elements, dtype_of(value)).reshape(value.shape))


def _say(where: Any) -> str:
    return "a NumPy array" if where == "numpy" else f"a tensor on {where}"


def _numpy(elements: Array, dtype: DType) -> Array:
    """A NumPy array. Types that NumPy lacks come as those of ml_dtypes when that is installed, else as float32."""
    if dtype.name == "bool_":
        return elements.astype(bool)
    if dtype.kind == "packed" or dtype.storage.kind == "f" or dtype.is_integer:
        return elements.copy()
    try:
        import ml_dtypes
    except ImportError:
        return decode(elements, dtype)
    return elements.copy().view(getattr(ml_dtypes, dtype.name))


def torch_dtype(dtype: DType) -> torch.dtype:
    """The PyTorch type of results."""
    return _torch(np.zeros(1, dtype.storage), dtype).dtype


def _torch(elements: Array, dtype: DType) -> torch.Tensor:
    name = {
        "bool_": "uint8",
        "tfloat32": "float32",
        "float8_e5m2_x4": "uint32",
        "float8_e4m3fn_x4": "uint32",
        "float4_e2m1fn_x4": "uint16",
    }.get(dtype.name, dtype.name)
    to = getattr(torch, name, None)
    if to is None:  # legacy float8_e4m3: PyTorch has no such type
        return torch.from_numpy(decode(elements, dtype))
    bits = torch.from_numpy(elements.view({1: np.uint8, 2: np.int16, 4: np.int32}[dtype.itemsize]).copy())
    result = bits.view(to)
    return result.bool() if dtype.name == "bool_" else result


__all__ = ["Kind", "dtype_of", "is_tensor", "sizes_of", "stored", "torch_dtype"]
