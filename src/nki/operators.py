"""Kernels as PyTorch operators: one for each traced signature, so that graphs hold a kernel call as one node.

An operator is called `nki::<kernel>_<hash of its program>`: the name is the same in every process that traces the same
kernel for the same signature. A plain call needs none; one is made when PyTorch has to see the call: inside
torch.compile, with fake tensors, and with arguments that require gradients.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch._C import DispatchKey

from . import ir
from .arguments import Kind, torch_dtype
from .dtypes import DTYPES
from .errors import NkiError, NkiTypeError
from .isa.table import INSTRUCTIONS

if TYPE_CHECKING:
    from .jit import Kernel

NAMESPACE = "nki"
Result = tuple[Literal["input", "output"], int]


@dataclasses.dataclass(frozen=True)
class Operator:
    """A kernel for one signature as a PyTorch operator.

    `inputs` names the tensors that `overload` takes in order, `mutated` those that the kernel writes. `results` says
    for each result of the kernel whether it is an argument or an output of the operator, and which.
    """

    name: str  # without the namespace
    kernel: str
    program: ir.Program
    definition: Any = dataclasses.field(repr=False)
    inputs: tuple[str, ...]
    mutated: tuple[str, ...]
    output_numbers: tuple[int, ...]  # tensors of the program that the operator returns
    outputs: tuple[torch.Tensor, ...]  # without data, for their shapes and dtypes
    results: tuple[Result, ...]
    single: bool

    @property
    def overload(self) -> Any:
        """The operator, as it is the target of a node."""
        return self.definition._opoverload

    @property
    def cores(self) -> int:
        """Cores that it runs on: 1 or 2."""
        return len(self.program.cores)


OPERATORS: dict[str, Operator] = {}  # by name of the overload


def needs_operator(tensors: Sequence[Any]) -> bool:
    """True when PyTorch has to see the call: shapes without data, functions over functions, or gradients."""
    found = [value for value in tensors if isinstance(value, torch.Tensor)]
    if not found:
        return False
    if any(type(value) not in (torch.Tensor, torch.nn.Parameter) or value.device.type == "meta" for value in found):
        return True
    if torch._C._dispatch_tls_is_dispatch_key_included(DispatchKey.Python):  # make_fx, FakeTensorMode and the like
        return True
    return torch.is_grad_enabled() and any(value.requires_grad for value in found)


def operator(kernel: Kernel, bound: inspect.BoundArguments, tensors: list[tuple[str, Any]]) -> Operator:
    """The operator for a call, made now or before. NkiTypeError when a constant cannot be told from others."""
    Kind([(name, value) for name, value in tensors])
    traced = kernel.cached(bound, tensors)
    if traced is None:
        raise NkiTypeError(
            f"{kernel!r} has a constant that cannot be compared, such as a PyTorch tensor in a record: "
            "such a kernel cannot be part of a graph or of autograd. Give it numbers, names, tuples or NKIObjects"
        )
    program, results = traced
    _check_gradients(kernel, program, [value for _, value in tensors])
    text = program.to_json()
    name = f"{NAMESPACE}::{_identifier(program.name)}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    if name not in OPERATORS:
        OPERATORS[name] = _define(name, kernel, program, results)
    return OPERATORS[name]


def written_inputs(program: ir.Program) -> set[int]:
    """Numbers of the inputs that a program writes."""
    written: set[int] = set()
    for item in program.instructions():
        operands = INSTRUCTIONS[item.opcode].operands if item.opcode in INSTRUCTIONS else {}
        for key, access in item.operands.items():
            if isinstance(access, ir.Access) and key in operands and operands[key].writes:
                written.add(access.tensor)
    return written & set(program.inputs)


def _check_gradients(kernel: Kernel, program: ir.Program, values: list[Any]) -> None:
    """A kernel that writes an argument has no backward: NkiError instead of wrong gradients."""
    if not torch.is_grad_enabled() or not any(value.requires_grad for value in values):
        return
    written = [program.tensors[n].name for n in program.inputs if n in written_inputs(program)]
    if written:
        raise NkiError(
            f"{kernel!r} writes its argument {written[0]!r}, and an argument requires gradients: there is no backward "
            "through what a kernel writes in place. Call it under torch.no_grad() or with detached tensors"
        )


def of_overload(overload: Any) -> Operator | None:
    """The kernel behind the target of a node, or None when it is another operator."""
    schema = getattr(overload, "_schema", None)
    return None if schema is None else OPERATORS.get(schema.name)


def _identifier(name: str) -> str:
    cleaned = re.sub(r"\W", "_", name)
    return cleaned if cleaned[:1].isalpha() else f"kernel_{cleaned}"


def _define(name: str, kernel: Kernel, program: ir.Program, results: Any) -> Operator:
    names = _argument_names(program)
    written = written_inputs(program)
    outputs = list(dict.fromkeys(number for number in program.outputs if number not in program.inputs))
    shapes = dict(zip(program.outputs, results.shapes, strict=True))
    arguments = [
        f"Tensor(a{index}!) {argument}" if number in written else f"Tensor {argument}"
        for index, (number, argument) in enumerate(zip(program.inputs, names, strict=True))
    ]
    returns = ", ".join(["Tensor"] * len(outputs))
    schema = f"({', '.join(arguments)}) -> {returns if len(outputs) == 1 else f'({returns})'}"

    def form(values: list[torch.Tensor]) -> Any:
        return values[0] if len(values) == 1 else tuple(values) if values else None

    def run(*tensors: torch.Tensor) -> Any:
        named = list(zip(names, tensors, strict=True))
        found = kernel.launch((program, results), Kind(named), named)
        return form([found[program.outputs.index(number)] for number in outputs])

    kinds = [torch_dtype(DTYPES[program.tensors[n].dtype]) for n in outputs]
    blank = tuple(torch.empty(shapes[n], dtype=kind, device="meta") for n, kind in zip(outputs, kinds, strict=True))

    def fake(*tensors: torch.Tensor) -> Any:
        return form([torch.empty(value.shape, dtype=value.dtype, device=tensors[0].device) for value in blank])

    mutated = tuple(argument for number, argument in zip(program.inputs, names, strict=True) if number in written)
    definition = torch.library.custom_op(name, run, mutates_args=mutated, schema=schema)
    definition.register_fake(fake)

    def backward(context: Any, *gradients: Any) -> Any:
        raise NkiError(
            f"{kernel!r} has no backward: wrap it with torch_neuronx.nki_op and give that one by register_autograd, or "
            "call it under torch.no_grad()"
        )

    if not mutated and outputs:  # PyTorch takes no formula for an operator that writes its arguments
        definition.register_autograd(backward)
    places: tuple[Result, ...] = tuple(
        ("input", program.inputs.index(number)) if number in program.inputs else ("output", outputs.index(number))
        for number in program.outputs
    )
    return Operator(
        name=name.removeprefix(NAMESPACE + "::"),
        kernel=kernel.function.__name__,
        program=program,
        definition=definition,
        inputs=names,
        mutated=mutated,
        output_numbers=tuple(outputs),
        outputs=blank,
        results=places,
        single=results.single,
    )


def _argument_names(program: ir.Program) -> tuple[str, ...]:
    names: list[str] = []
    for number in program.inputs:
        name = _identifier(program.tensors[number].name)
        names.append(name if name not in names else f"{name}_{number}")
    return tuple(names)


def call(found: Operator, tensors: Sequence[torch.Tensor]) -> Any:
    """Calls the operator and gives the kernel's results in their form."""
    returned = found.definition(*tensors)
    outputs = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())
    values = [tensors[index] if kind == "input" else outputs[index] for kind, index in found.results]
    return values[0] if found.single else tuple(values) if values else None


# --- inside torch.compile. Dynamo runs `call_in_graph` symbolically and `_in_graph_plan` for real.


def call_in_graph(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a kernel that Dynamo captures: one node of the graph. Constants are compared by identity or value."""
    tensors: list[torch.Tensor] = []
    constants: list[Any] = []
    form = tuple([("", _form(value, tensors, constants)) for value in args])
    form = form + tuple([(name, _form(value, tensors, constants)) for name, value in kwargs.items()])
    descriptions = tuple([(tuple([int(s) for s in t.shape]), t.dtype, t.device.type, t.requires_grad) for t in tensors])
    name, results, single = _in_graph_plan(kernel, form, descriptions, *constants)
    returned = getattr(torch.ops.nki, name).default(*tensors)
    outputs = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())
    values = [tensors[index] if kind == "input" else outputs[index] for kind, index in results]
    return values[0] if single else tuple(values) if values else None


def _form(value: Any, tensors: list[torch.Tensor], constants: list[Any]) -> Any:
    """The place of each tensor and constant of an argument, as nested tuples."""
    if isinstance(value, torch.Tensor):
        for index, other in enumerate(tensors):
            if other is value:
                return ("tensor", index)
        tensors.append(value)
        return ("tensor", len(tensors) - 1)
    if isinstance(value, list):
        return ("list", tuple([_form(item, tensors, constants) for item in value]))
    if type(value) is tuple:
        return ("tuple", tuple([_form(item, tensors, constants) for item in value]))
    if type(value) is dict:
        return ("dict", tuple([(key, _form(item, tensors, constants)) for key, item in value.items()]))
    # A number that Dynamo holds as a symbol becomes this number: a kernel is for its constants.
    if isinstance(value, int | float):
        value = torch.fx.experimental.symbolic_shapes.guard_scalar(value)
    constants.append(value)
    return ("constant", len(constants) - 1)


def _unform(form: Any, tensors: Sequence[Any], constants: Sequence[Any]) -> Any:
    kind, content = form
    if kind == "tensor":
        return tensors[content]
    if kind == "constant":
        return constants[content]
    if kind == "dict":
        return {key: _unform(item, tensors, constants) for key, item in content}
    items = [_unform(item, tensors, constants) for item in content]
    return items if kind == "list" else tuple(items)


@torch._dynamo.assume_constant_result  # type: ignore[no-untyped-call, untyped-decorator]
def _in_graph_plan(
    kernel: Kernel, form: Any, descriptions: Any, *constants: Any
) -> tuple[str, tuple[Result, ...], bool]:
    """Traces the kernel for tensors of these (shape, dtype, device type, whether gradients are needed).

    Gives the operator by name, and what the results of the kernel are.
    """
    tensors = [
        torch.empty(shape, dtype=dtype, device="meta", requires_grad=gradients)
        for shape, dtype, _, gradients in descriptions
    ]
    devices = {device for _, _, device, _ in descriptions}
    if len(devices) > 1:
        raise NkiTypeError(
            f"{kernel!r}: tensors on {' and '.join(sorted(devices))}: all tensors of a call must be on one device"
        )
    args = [_unform(item, tensors, constants) for name, item in form if not name]
    kwargs = {name: _unform(item, tensors, constants) for name, item in form if name}
    found = operator(kernel, *kernel.bind(args, kwargs))
    return found.name, found.results, found.single
