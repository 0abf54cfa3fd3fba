"""Which of PyTorch's decompositions are used for operators that have no lowering of their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import core_aten_decompositions, decomposition_table

# Decompositions outside the core set whose results are exact enough to be used.
_MORE: tuple[str, ...] = ()


@functools.cache
def candidates() -> dict[Any, Callable[..., Any]]:
    """Operator -> decomposition, the core set first, then the other ones that PyTorch has."""
    found = dict(decomposition_table)
    found.update(core_aten_decompositions())
    # In-place forms are left to functionalisation, which makes them functional first.
    return {op: f for op, f in found.items() if isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable}
