"""Why something cannot be lowered: each a RuntimeError whose one paragraph names the cause and the remedy."""

from __future__ import annotations


class LoweringError(RuntimeError):
    """A function, module or operator cannot be given to Trainium's compiler."""


class MissingExtraError(LoweringError):
    """The MLIR binding that lowering is built on is not installed."""


class UnsupportedOpError(LoweringError):
    """An operator has neither a lowering nor a decomposition into operators that have one."""


class UnsupportedDtypeError(LoweringError):
    """A tensor has a type that Trainium lacks and that no rule replaces."""


class IntegerRangeError(LoweringError):
    """An int64 value does not fit into the int32 that it runs as."""


class TraceError(LoweringError):
    """A function or module could not be turned into a graph."""
