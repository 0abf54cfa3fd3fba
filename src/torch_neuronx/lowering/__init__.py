"""ATen to StableHLO: what can be given to Trainium's compiler, and as what.

`torch_neuronx.lower(target, args)` lowers a function, module or exported program. `registry.support(op)` says whether
an operator has a lowering, and why not.
"""

from __future__ import annotations

from torch_neuronx.lowering.errors import (
    IntegerRangeError,
    LoweringError,
    MissingExtraError,
    TraceError,
    UnsupportedDtypeError,
    UnsupportedOpError,
)

__all__ = [
    "IntegerRangeError", "LoweringError", "MissingExtraError", "TraceError", "UnsupportedDtypeError",
    "UnsupportedOpError",
]  # fmt: skip
