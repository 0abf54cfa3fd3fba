"""Errors of kernels. Each names the instruction, the operand, the value, the limit, and the line of the kernel.

`NkiError` is the base class; each subclass is also the built-in exception that fits, so that `except ValueError` works.
"""

from __future__ import annotations

from typing import NamedTuple


class Location(NamedTuple):
    """A line of a kernel's source."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class NkiError(Exception):
    """A kernel is not valid, or failed while it ran.

    `instruction` and `operand` are names or None; `location` is the line of the kernel, or None outside of one.
    """

    def __init__(
        self,
        problem: str,
        *,
        instruction: str | None = None,
        operand: str | None = None,
        location: Location | None = None,
    ) -> None:
        self.problem, self.instruction, self.operand, self.location = problem, instruction, operand, location
        text = f"{instruction}: {problem}" if instruction else problem
        super().__init__(f"{text} ({location})" if location else text)


class NkiValueError(NkiError, ValueError):
    """A size, a start, a value, a buffer or an option is outside of what the instruction takes."""


class NkiTypeError(NkiError, TypeError):
    """A dtype, or the kind of an argument, is not one that the instruction takes."""


class NkiTargetError(NkiError, ValueError):
    """The instruction, engine or operation does not exist on the chip generation that the kernel is traced for."""


class NkiCapacityError(NkiError, MemoryError):
    """SBUF or PSUM is too small for the tensors that are alive at the same time."""


class NkiIndexError(NkiError, IndexError):
    """An access lies outside of its tensor."""


class NkiNotImplementedError(NkiError, NotImplementedError):
    """A part of the interface that this package does not have yet."""


class NkiWarning(UserWarning):
    """A kernel does something that is legal and most likely wrong."""
