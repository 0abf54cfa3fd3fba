"""Whether Trainium would run an operator itself.

Everything that asks this question asks a `Judge`: one function of an operator and the types of its tensors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch._ops import OpOverload

from torch_neuronx import _C
from torch_neuronx.chips import cost

LACKING = (torch.float64, torch.complex32, torch.complex64, torch.complex128)
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


class Verdict(NamedTuple):
    """`native`: Trainium runs the operator itself. `reason`: why not, in one phrase; empty when it does."""

    native: bool
    reason: str = ""


Judge = Callable[[OpOverload, tuple[torch.dtype, ...]], Verdict]


def by_engine(op: OpOverload, dtypes: tuple[torch.dtype, ...]) -> Verdict:
    """The emulated device's own rule: it has a kernel, and computes in no type that the chip lacks.

    `dtypes` are those of the operator's tensors with dimensions, arguments and results: a number without dimensions
    is a scalar of the host. Data of any type may be moved.
    """
    name = op_name(op)
    if op.is_view:
        return Verdict(True)
    if not has_kernel(name):
        return Verdict(False, "no native kernel: it runs on the CPU")
    lacking = [dtype for dtype in dtypes if dtype in LACKING]
    if lacking and kinds().get(name, "vector") not in ("none", "move", "host_copy"):
        return Verdict(False, f"computes in {type_name(lacking[0])}, which Trainium lacks")
    return Verdict(True)


def op_name(op: OpOverload) -> str:
    """'aten::add.Tensor', as the dispatcher and the device's tables name it."""
    return op.name()  # type: ignore[no-any-return, no-untyped-call]


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.cache
def has_kernel(name: str) -> bool:
    """Whether the device has a kernel of its own for the operator."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "PrivateUse1") or has(name, "BackendSelect")


@functools.cache
def composite(name: str) -> torch._C.DispatchKey | None:
    """The kernel that composes the operator of others, for one that the device has no kernel for; None: there is none."""
    if has_kernel(name):
        return None
    for key in _COMPOSITE:
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            return getattr(torch._C.DispatchKey, key)  # type: ignore[no-any-return]
    return None


@functools.cache
def kinds() -> dict[str, cost.Kind]:
    """What kind of work each native operator is: which engine it keeps busy, or none."""
    return {name: cost.KINDS[kind] for name, _, kind in _C._native_ops()}


def is_compiled(op: OpOverload) -> bool:
    """Whether Trainium compiles a program for the operator: not for views and allocations, nor for copies to the host."""
    return not op.is_view and kinds().get(op_name(op), "vector") not in ("none", "host_copy")
