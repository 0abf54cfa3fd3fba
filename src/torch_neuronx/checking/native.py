"""Whether Trainium would run an operator itself.

Everything that asks this question asks a `Judge`. There are two: `LOWERING` is the one that counts, "it can be given to
Trainium's compiler"; `ENGINE` is what the emulated device does, and needs nothing installed.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch._ops import OpOverload

from torch_neuronx import _C
from torch_neuronx.checking.calls import LACKING, Leaf, Number, Program, TensorLike, example
from torch_neuronx.chips import cost

Rule = Literal["lowering", "engine"]
_COMPOSITE = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")


class Verdict(NamedTuple):
    """`native`: Trainium runs the operator itself. `reason`: why not, in one phrase; empty when it does."""

    native: bool
    reason: str = ""


class Judge(NamedTuple):
    """`decide` answers for one call; `knows` says whether it answers for an operator without looking into it."""

    rule: Rule
    decide: Callable[[Program], Verdict]
    knows: Callable[[OpOverload], bool]


def judge(rule: Rule | None = None) -> Judge:
    """The judge of a rule; by default "lowering" where its extra is installed. ValueError for another word."""
    if rule is None:
        rule = "lowering" if importlib.util.find_spec("jaxlib") is not None else "engine"
    judges: dict[str, Judge] = {"lowering": LOWERING, "engine": ENGINE}
    if rule not in judges:
        raise ValueError(f"rule {rule!r} is not one of {', '.join(judges)}")
    return judges[rule]


def op_name(op: OpOverload) -> str:
    """'aten::add.Tensor', as the dispatcher and the device's tables name it."""
    return op.name()  # type: ignore[no-any-return, no-untyped-call]


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# --- what holds under both rules --------------------------------------------------------------------------------------
def _common(program: Program) -> Verdict | None:
    """None: the rule decides."""
    leaf = program.leaf
    if leaf.error:
        return Verdict(False, f"raises on the device: {leaf.error}")
    if leaf.data_sized:
        return Verdict(False, "the size of its result depends on data, and Trainium's programs have fixed shapes")
    if program.arguments is None or not computes(leaf.op):
        return Verdict(True)
    return None


@functools.cache
def computes(op: OpOverload) -> bool:
    """Whether an operator asks the chip for work: not allocations, questions, or reading a value on the host."""
    tensors = any("Tensor" in str(returned.type) for returned in op._schema.returns)
    if not tensors and not op._schema.is_mutable:
        return False
    return op.is_view or kinds().get(op_name(op), "vector") not in ("none", "host_copy")


def is_compiled(op: OpOverload) -> bool:
    """Whether Trainium compiles a program for an eager call: a view only says how to read what is there."""
    return computes(op) and not op.is_view


# --- the emulated device's own rule -----------------------------------------------------------------------------------
def _by_engine(program: Program) -> Verdict:
    """It has a kernel, and computes in no type that the chip lacks. Data of any type may be moved."""
    common = _common(program)
    if common is not None:
        return common
    op, name = program.leaf.op, op_name(program.leaf.op)
    if op.is_view:
        return Verdict(True)
    if not has_kernel(name):
        return Verdict(False, "no native kernel: it runs on the CPU")
    lacking = [dtype for dtype in program.leaf.dtypes if dtype in LACKING]
    if lacking and kinds().get(name, "vector") != "move":
        return Verdict(False, f"computes in {type_name(lacking[0])}, which Trainium lacks")
    return Verdict(True)


@functools.cache
def has_kernel(name: str) -> bool:
    """Whether the device has a kernel of its own for the operator."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(name, "PrivateUse1") or has(name, "BackendSelect")


@functools.cache
def composite(name: str) -> torch._C.DispatchKey | None:
    """The kernel that composes an operator of others, where the device has none for it; None where there is none."""
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


ENGINE = Judge("engine", _by_engine, lambda op: False)


# --- the rule that counts ---------------------------------------------------------------------------------------------
_decided: dict[Leaf, Verdict] = {}


def _by_lowering(program: Program) -> Verdict:
    """It has a lowering to StableHLO, or a decomposition that was lowered as a trial, for the types of the call."""
    common = _common(program)
    if common is not None:
        return common
    if program.leaf not in _decided:
        _decided[program.leaf] = _lowers(program)
    return _decided[program.leaf]


def _lowers(program: Program) -> Verdict:
    from torch_neuronx.lowering import errors, registry

    leaf = program.leaf
    lacking = [dtype for dtype in leaf.dtypes if dtype in LACKING and dtype != torch.complex64]
    if lacking:
        return Verdict(False, f"{type_name(lacking[0])}, which Trainium lacks")
    form = graph_form(leaf.op)
    support = registry.support(leaf.op)
    if not support.native and form is leaf.op:
        return Verdict(False, support.reason)
    try:
        _try(form, program)
    except errors.TraceError as error:
        # An operator that cannot be traced alone has its entry in the table, or nothing.
        return Verdict(True) if support.kind == "lowering" else Verdict(False, _first_sentence(str(error)))
    except errors.LoweringError as error:
        return Verdict(False, _first_sentence(str(error)))
    return Verdict(True)


def _try(form: Callable[..., Any], program: Program) -> None:
    """Lowers the one call, with its types and shapes."""
    from torch_neuronx.lowering import api

    args, kwargs = program.arguments
    tensors: list[torch.Tensor] = []

    def build(value: Any) -> Any:
        """The argument, or for a tensor its place among the inputs of the traced function."""
        if isinstance(value, tuple) and not isinstance(value, (TensorLike, Number)):
            return [build(item) for item in value]
        made = example(value)
        if not isinstance(made, torch.Tensor):
            return made
        tensors.append(made)
        return _Place(len(tensors) - 1)

    given = [build(value) for value in args], {name: build(value) for name, value in kwargs}

    def fill(value: Any, inputs: tuple[torch.Tensor, ...]) -> Any:
        if isinstance(value, _Place):
            return inputs[value.index]
        return [fill(item, inputs) for item in value] if isinstance(value, list) else value

    def call(*inputs: torch.Tensor) -> Any:
        return form(
            *(fill(value, inputs) for value in given[0]),
            **{name: fill(value, inputs) for name, value in given[1].items()},
        )

    api.lower(call, tensors, name=op_name(program.leaf.op))


class _Place(NamedTuple):
    index: int  # type: ignore[assignment]


# --- operators that only a device has: what a graph has in their place ------------------------------------------------
def graph_form(op: OpOverload) -> Callable[..., Any]:
    """The function to lower for an operator as the device gets it: mostly the operator itself."""
    return _GRAPH_FORMS.get(op_name(op), op)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None = None,
    dropout: float = 0.0,
    causal: bool = False,
    debug: bool = False,
    *,
    scale: float | None = None,
) -> torch.Tensor:
    grouped = query.shape[-3] != key.shape[-3]
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, bias, dropout, causal, scale=scale, enable_gqa=grouped
    )


def _attention_backward(
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    *rest: Any,
    scale: float | None = None,
) -> tuple[torch.Tensor, ...]:
    dropout, causal = rest[7], rest[8]
    _, backward = torch.func.vjp(  # type: ignore[misc]
        lambda q, k, v: _attention(q, k, v, bias, dropout, causal, scale=scale), query, key, value
    )
    return backward(grad)  # type: ignore[no-any-return]


_GRAPH_FORMS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_fused_attention_overrideable": _attention,
    "aten::_scaled_dot_product_fused_attention_overrideable_backward": _attention_backward,
    "aten::convolution_overrideable": torch.ops.aten.convolution.default,
    "aten::convolution_backward_overrideable": lambda grad, x, w, *rest: torch.ops.aten.convolution_backward.default(
        grad, x, w, [w.shape[0]], *rest
    ),
}


def _knows_lowering(op: OpOverload) -> bool:
    from torch_neuronx.lowering import registry

    return registry.support(op).kind in ("lowering", "decomposition")


def _first_sentence(text: str) -> str:
    """Without the list of types that could be used instead."""
    return text.partition(". ")[0].partition(": use one of")[0].rstrip(".")


LOWERING = Judge("lowering", _by_lowering, functools.cache(_knows_lowering))
