"""One call of an operator, as plain values: what Trainium would compile a program for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch._ops import OpOverload

LACKING = (torch.float64, torch.complex32, torch.complex64, torch.complex128)


class TensorLike(NamedTuple):
    """A tensor without its data."""

    dtype: torch.dtype
    shape: tuple[int, ...]


class Number(NamedTuple):
    """A number as text: 1, 1.0 and True are equal as numbers, and make different programs."""

    kind: str
    text: str


class Leaf(NamedTuple):
    """One operator as the device gets it."""

    op: OpOverload
    dtypes: tuple[torch.dtype, ...]
    data_sized: bool = False  # the size of its result depends on data
    error: str = ""  # what it raised, where it is not implemented for these arguments


class Program(NamedTuple):
    """What Trainium compiles for one operator: one program for each set of shapes, types and other arguments."""

    leaf: Leaf
    arguments: Any  # (args, kwargs) from `signature`; None: a copy from or to the host, for which nothing is compiled


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested sequences and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def dtypes_of(tensors: Sequence[torch.Tensor]) -> tuple[torch.dtype, ...]:
    """The types of a call, in order of appearance. A float64 or complex number without dimensions is the host's."""
    seen = dict.fromkeys(t.dtype for t in tensors if t.dim() > 0 or t.dtype not in LACKING)
    return tuple(seen)


def signature(value: Any) -> Any:
    """A hashable form of an argument: equal for arguments that the same program takes."""
    if isinstance(value, torch.Tensor):
        return TensorLike(value.dtype, tuple(value.shape))
    if isinstance(value, (tuple, list)):
        return tuple(signature(item) for item in value)
    if isinstance(value, (bool, int, float, complex)):
        return Number(type(value).__name__, repr(value))
    if isinstance(value, torch.Generator):
        return None  # random numbers come from the device's generator whatever its state
    return value


_NUMBERS: dict[str, Callable[[str], Any]] = {
    "bool": lambda text: text == "True",
    "int": int,
    "float": float,
    "complex": complex,
}


def example(value: Any) -> Any:
    """An argument with the given signature: tensors have its types and shapes, on the CPU, and arbitrary data."""
    if isinstance(value, TensorLike):
        if not value.shape and value.dtype in LACKING:
            return 1.0  # a number of the host
        return torch.empty(value.shape, dtype=value.dtype)
    if isinstance(value, Number):
        return _NUMBERS.get(value.kind, int)(value.text)
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, tuple):
        return [example(item) for item in value]
    return value
