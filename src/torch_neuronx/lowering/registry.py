"""The table of lowerings: which operator becomes which StableHLO, and what becomes of the others.

Each family module registers functions of `(cx, *args, **kwargs)`: `cx` is the `Lowerer` of the graph at hand
(graph.py), tensors among the arguments are `Value`s, everything else is as in the graph; `cx.out` is what PyTorch says
of the result (fake tensors). The result is a Value, or a tuple of them for several results.

An operator without an entry is decomposed by PyTorch's own table into operators that have one; see `support`.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import torch

Function = Callable[..., Any]
Kind = Literal["lowering", "decomposition", "composite", "data-dependent", "missing"]

# One module per family of csrc/aten/ops that has operators of its own to lower.
FAMILIES = (
    "attention", "complex_ops", "control_flow", "conv", "copy", "elementwise", "embedding", "factory", "fft", "index", "linalg",  # noqa: E501
    "loss", "matmul", "norm", "pool", "random", "reduce", "scan", "shape", "sort", "special", "upsample", "view",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Lowering:
    """One operator overload's lowering. `dtypes` None: every type that a module can hold."""

    name: str  # "add.Tensor"
    function: Function
    family: str
    dtypes: frozenset[torch.dtype] | None = None
    note: str = ""


class Support(NamedTuple):
    """Whether an operator can be given to Trainium's compiler, and how or why not."""

    kind: Kind
    reason: str  # one sentence, for people
    family: str = ""

    @property
    def native(self) -> bool:
        return self.kind in ("lowering", "decomposition", "composite")


_TABLE: dict[str, Lowering] = {}
_COMPLEX: dict[str, Lowering] = {}  # forms for complex tensors, as pairs of real ones

# Operators whose result's size depends on the values: no fixed-shape program computes them. operator -> what to use.
DATA_DEPENDENT = {
    "nonzero": "torch.nonzero_static(x, size=n), which returns n rows",
    "nonzero_numpy": "torch.nonzero_static(x, size=n), which returns n rows",
    "argwhere": "torch.nonzero_static(x, size=n), which returns n rows",
    "masked_select": "torch.where(mask, x, 0), or x.flatten()[torch.nonzero_static(mask.flatten(), size=n)]",
    "_unique2": "torch.sort with a comparison of neighbours",
    "_unique": "torch.sort with a comparison of neighbours",
    "unique_dim": "torch.sort with a comparison of neighbours",
    "unique_consecutive": "a comparison of neighbours",
    "unique_dim_consecutive": "a comparison of neighbours",
    "repeat_interleave.Tensor": "repeat_interleave with output_size=n in a graph that fixes n, or a gather",
    "bincount": "torch.zeros(n).scatter_add(0, x, ones)",
    "_local_scalar_dense": "the tensor itself: a Python number stops the program and waits for the device",
    "item": "the tensor itself: a Python number stops the program and waits for the device",
    "is_nonzero": "torch.where or torch.cond, instead of a Python `if` on a tensor",
    "equal": "(a == b).all(), which stays a tensor",
    "_to_sparse": "dense tensors",
    "_linalg_check_errors": "the _ex form, which returns `info` instead of raising",
}


def lowers(*names: str, dtypes: Iterable[torch.dtype] | None = None, note: str = "") -> Callable[[Function], Function]:
    """Registers a lowering for these overloads of aten (others: "prims::iota"); a name without a dot is .default."""

    def register(function: Function) -> Function:
        family = function.__module__.rpartition(".")[2]
        add(names, function, family, dtypes, note)
        return function

    return register


def add(
    names: Iterable[str], function: Function, family: str, dtypes: Iterable[torch.dtype] | None = None, note: str = ""
) -> None:
    """`lowers` for table-driven families."""
    for name in names:
        key = qualified(name)
        if key in _TABLE:
            raise ValueError(f"{key} is registered twice: in {_TABLE[key].family} and in {family}")
        _TABLE[key] = Lowering(key, function, family, frozenset(dtypes) if dtypes is not None else None, note)


def lowers_complex(*names: str) -> Callable[[Function], Function]:
    """Registers the form of an operator for complex operands or results, which are `complex.Complex` pairs."""

    def register(function: Function) -> Function:
        add_complex(names, function)
        return function

    return register


def add_complex(names: Iterable[str], function: Function) -> None:
    for name in names:
        key = qualified(name)
        if key in _COMPLEX:
            raise ValueError(f"{key} is registered twice for complex tensors")
        _COMPLEX[key] = Lowering(key, function, "complex_ops", frozenset({torch.complex64}))


def qualified(name: str) -> str:
    """'relu' -> 'aten::relu.default'"""
    name = name if "::" in name else f"aten::{name}"
    return name if "." in name.partition("::")[2] else f"{name}.default"


def key_of(op: Any) -> str:
    """'aten::add.Tensor' of an OpOverload; the name of a higher-order operator."""
    if isinstance(op, torch._ops.OpOverload):
        namespace, _, name = op.name().partition("::")  # type: ignore[no-untyped-call]
        return f"{namespace}::{name}" if "." in name else f"{namespace}::{name}.default"
    if isinstance(op, torch._ops.HigherOrderOperator):
        return f"higher_order::{op.name()}.default"  # type: ignore[no-untyped-call]
    return f"python::{getattr(op, '__module__', '')}.{getattr(op, '__name__', op)}"


@functools.cache
def _load() -> None:
    for family in FAMILIES:
        importlib.import_module(f"torch_neuronx.lowering.{family}")


def table() -> dict[str, Lowering]:
    """All lowerings by qualified name. MissingExtraError without the extra `stablehlo`."""
    _load()
    return _TABLE


def find(op: Any) -> Lowering | None:
    return table().get(key_of(op))


def find_complex(op: Any) -> Lowering | None:
    _load()
    return _COMPLEX.get(key_of(op))


def overload(key: str) -> Any:
    """The OpOverload of a qualified name; None when this PyTorch has no such operator."""
    namespace, _, rest = key.partition("::")
    name, _, which = rest.partition(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), which)
    except AttributeError:
        return None


@functools.cache
def decompositions() -> dict[Any, Function]:
    """PyTorch's decompositions of the operators that have no lowering here."""
    from torch_neuronx.lowering import decompose

    own = table().keys() | _COMPLEX.keys()
    return {op: f for op, f in decompose.candidates().items() if key_of(op) not in own}


def _is_composite(op: Any) -> bool:
    implicit = torch._C.DispatchKey.CompositeImplicitAutograd  # type: ignore[attr-defined]
    return isinstance(op, torch._ops.OpOverload) and op.has_kernel_for_dispatch_key(implicit)


def _data_dependent(op: Any) -> str | None:
    if not isinstance(op, torch._ops.OpOverload) or op.namespace != "aten":
        return None
    name = key_of(op).partition("::")[2]
    return DATA_DEPENDENT.get(name) or DATA_DEPENDENT.get(name.partition(".")[0] if name.endswith(".default") else name)


def functional(op: Any) -> Any:
    """The form of an in-place or out= overload that returns its result: add_.Tensor -> add.Tensor. Itself if none."""
    if not isinstance(op, torch._ops.OpOverload) or not op._schema.is_mutable:
        return op
    name = op._schema.name.partition("::")[2]
    packet = getattr(torch.ops.aten, name.rstrip("_") if not name.startswith("_") else name.removesuffix("_"), None)
    if packet is None:
        return op
    wanted = op._overloadname
    tails = [wanted, wanted.removesuffix("_out"), "default", *packet.overloads()]
    for tail in [t for t in tails if t and t != "out"]:
        found = getattr(packet, tail, None)
        if isinstance(found, torch._ops.OpOverload) and not found._schema.is_mutable:
            return found
    return op


def support(op: Any, dtypes: Iterable[torch.dtype] = ()) -> Support:
    """What becomes of an operator (an OpOverload, or a name such as "aten::relu.default") with tensors of `dtypes`.

    In-place and out= overloads are judged by their functional form, into which graphs are brought. A decomposition
    counts without looking into it: what is certain about a given call is only what `lower` does with it.
    """
    from torch_neuronx.lowering.stablehlo import is_lowerable, unsupported_dtype

    if isinstance(op, str):
        found = overload(qualified(op))
        if found is None:
            return Support("missing", f"{op} is not an operator of this PyTorch")
        op = found
    op = functional(op)
    for dtype in dtypes:
        if not is_lowerable(dtype) and dtype != torch.complex64:
            return Support("missing", str(unsupported_dtype(dtype, "an operand")))
    remedy = _data_dependent(op)
    if remedy is not None:
        return Support("data-dependent", f"the size of its result depends on the data; use {remedy}")
    entry = find(op) or find_complex(op)
    if entry is not None:
        bad = [d for d in dtypes if entry.dtypes is not None and d not in entry.dtypes]
        if bad:
            return Support("missing", f"its lowering does not take {bad[0]}", entry.family)
        return Support("lowering", entry.note or f"StableHLO, lowering/{entry.family}.py", entry.family)
    if op in decompositions():
        return Support("decomposition", "PyTorch's decomposition into operators that have a lowering")
    if _is_composite(op):
        return Support("composite", "made of other operators by PyTorch itself")
    return Support("missing", "neither a lowering nor a decomposition")


def entries() -> Iterator[Lowering]:
    yield from table().values()
