"""From an FX graph of ATen operators to a StableHLO module."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.fx

from torch_neuronx.lowering import registry
from torch_neuronx.lowering.complex import Complex
from torch_neuronx.lowering.errors import LoweringError, UnsupportedOpError
from torch_neuronx.lowering.stablehlo import (
    Builder,
    Value,
    accumulate_dtype,
    context,
    func,
    ir,
    is_lowerable,
    legalize,
    tensor_type,
    unsupported_dtype,
)

ArgumentKind = Literal["parameter", "buffer", "input", "state", "philox"]
ResultKind = Literal["output", "gradient", "state", "buffer"]


@dataclasses.dataclass(frozen=True)
class Argument:
    """An argument of a module. `dtype` is PyTorch's; int64 is passed as int32, complex64 as two float32 in a row."""

    name: str
    kind: ArgumentKind
    shape: tuple[int, ...]
    dtype: torch.dtype
    donated_to: int | None = None  # index of the result that may take over its memory


@dataclasses.dataclass(frozen=True)
class Result:
    """A result of a module. None for `dtype` never occurs: results that are Python numbers are not in the module."""

    name: str
    kind: ResultKind
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclasses.dataclass
class Emitted:
    """A verified module."""

    module: Any
    arguments: list[Argument]
    results: list[Result]
    operators: dict[str, int]  # calls by ATen operator
    random_launches: int  # each takes 4 of the generator's offsets


def reason_of(op: Any) -> str:
    return registry.support(op).reason


class Lowerer(Builder):
    """What lowering functions are handed as `cx`: the builder, and the graph around the operator at hand."""

    def __init__(self) -> None:
        self.out: Any = None  # fake tensors of the operator's results
        self.fakes: tuple[Any, ...] = ()  # and of its arguments
        self.name = ""
        self.philox: Value | None = None
        self.random_launches = 0
        self.operators: dict[str, int] = {}

    # --- arguments ----------------------------------------------------------------------------------------------------
    def as_value(self, x: Any, dtype: torch.dtype, shape: Sequence[int] | None = None) -> Value:
        """A tensor or Python number of an argument list, converted to `dtype` and broadcast to `shape`."""
        value = self.convert(x, dtype) if isinstance(x, Value) else self.constant(x, dtype)
        return value if shape is None else self.expand(value, shape)

    @property
    def dtype(self) -> torch.dtype:
        """Of the (first) result."""
        return (self.out[0] if isinstance(self.out, (tuple, list)) else self.out).dtype

    @property
    def shape(self) -> tuple[int, ...]:
        first = self.out[0] if isinstance(self.out, (tuple, list)) else self.out
        return tuple(int(s) for s in first.shape)

    @property
    def wide(self) -> torch.dtype:
        """The type in which the result is computed."""
        return accumulate_dtype(self.dtype)

    def widen(self, x: Value) -> Value:
        return self.convert(x, accumulate_dtype(x.dtype))

    def unsupported(self, why: str) -> UnsupportedOpError:
        return UnsupportedOpError(
            f"{self.name} cannot be lowered: {why}. Rewrite this part of the model, or keep it on the CPU."
        )

    # --- the graph ----------------------------------------------------------------------------------------------------
    def run(self, graph_module: torch.fx.GraphModule, arguments: Sequence[Any]) -> Any:
        """Emits the graph's operators; returns what its output node holds, as Values."""
        values: dict[torch.fx.Node, Any] = {}
        given = iter(arguments)
        for node in graph_module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = self._attribute(graph_module, str(node.target))
            elif node.op == "output":
                return torch.fx.map_arg(node.args[0], lambda n: values[n])
            else:
                with location_of(node):
                    values[node] = self._call(node, values)
        raise AssertionError("a graph without output")

    def _attribute(self, owner: torch.fx.GraphModule, path: str) -> Any:
        found: Any = owner
        for part in path.split("."):
            found = getattr(found, part)
        if isinstance(found, torch.Tensor):
            if found.dtype.is_complex:
                return Complex(self.dense(found.real.contiguous()), self.dense(found.imag.contiguous()))
            return self.dense(found.to(torch.float32) if found.dtype == torch.float64 and found.dim() == 0 else found)
        return found  # the graph of a branch or loop body

    def _call(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
        args = torch.fx.map_arg(node.args, lambda n: values[n])
        kwargs = torch.fx.map_arg(node.kwargs, lambda n: values[n])
        if node.target is operator.getitem:
            return args[0][args[1]]  # type: ignore[index]
        if node.target in _PYTHON:
            return None
        return self.call(node.target, args, kwargs, node.meta.get("val"), fakes_of(node))

    def call(self, op: Any, args: Any, kwargs: Any, out: Any, fakes: Any = ()) -> Any:
        """Emits one operator. `out` are fake tensors of its results."""
        key = registry.key_of(op)
        is_complex = _has_complex(args) or _has_complex(kwargs) or any(f.dtype.is_complex for f in _tensors(out))
        entry = registry.find_complex(op) if is_complex else registry.find(op)
        self.name = key.removesuffix(".default").replace("::", ".")
        if entry is None:
            reason = "it has no form for pairs of real tensors" if is_complex and registry.find(op) else reason_of(op)
            raise UnsupportedOpError(
                f"{self.name} cannot be lowered: {reason}. Rewrite this part of the model, or keep it on the CPU."
            )
        for fake in _tensors(out):
            if not is_lowerable(fake.dtype) and fake.dtype != torch.complex64:
                raise unsupported_dtype(fake.dtype, f"the result of {self.name}")
        self.operators[key] = self.operators.get(key, 0) + 1
        outer = self.out, self.fakes
        self.out, self.fakes = out, fakes
        try:
            return entry.function(self, *args, **kwargs)
        finally:
            self.out, self.fakes = outer

    def complain(self, what: str) -> LoweringError:
        return LoweringError(f"{self.name}: {what}.")


def _has_complex(value: Any) -> bool:
    if isinstance(value, (Complex, complex)):
        return True
    if isinstance(value, Mapping):
        return any(_has_complex(v) for v in value.values())
    return isinstance(value, (list, tuple)) and not isinstance(value, Complex) and any(map(_has_complex, value))


def _tensors(out: Any) -> Iterator[torch.Tensor]:
    if isinstance(out, torch.Tensor):
        yield out
    elif isinstance(out, (tuple, list)):
        for item in out:
            yield from _tensors(item)


def fakes_of(node: torch.fx.Node) -> Any:
    return torch.fx.map_arg(node.args, lambda n: n.meta.get("val"))


# Bookkeeping calls without a value.
_PYTHON: set[Any] = {torch.ops.aten._assert_async.msg, torch.ops.aten._assert_scalar.default,
                     torch.ops.aten._assert_tensor_metadata.default, torch.ops.aten.sym_constrain_range_for_size.default}  # fmt: skip  # noqa: E501

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


def location_of(node: torch.fx.Node) -> Any:
    """MLIR location: the operator's name, and the innermost line of the user's program that called it."""
    name = (
        registry.key_of(node.target).removesuffix(".default").replace("::", ".") if node.op == "call_function" else ""
    )
    module_path = ""
    stack = node.meta.get("nn_module_stack")
    if stack:
        module_path = list(stack.values())[-1][0] if not isinstance(stack, str) else stack
        module_path = str(module_path).removeprefix("L['self'].")
    frames = [f for f in _FRAME.findall(node.meta.get("stack_trace") or node.stack_trace or "") if _of_user(f[0])]
    where = ir.Location.unknown(context())
    if frames:
        path, line, _ = frames[-1]
        where = ir.Location.file(path, int(line), 0, context())
    return ir.Location.name(f"{module_path}/{name}" if module_path else name, where, context())


def _of_user(path: str) -> bool:
    return not any(part in path for part in ("/torch/", "/torch_neuronx/lowering/", "<frozen", "<eval_with_key>"))


def emit(
    graph_module: torch.fx.GraphModule,
    arguments: Sequence[Argument],
    results_of: Callable[[Any], tuple[list[Any], list[Result]]],
    name: str = "main",
) -> Emitted:
    """The module of a graph.

    `arguments` describe its placeholders in order; placeholders that are no tensors are None there and left out.
    `results_of(value of the graph's output)` chooses the values that the module returns, and describes them.
    """
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    draws = any(_is_random(n) for n in _all_nodes(graph_module))
    given = list(arguments)
    if draws:
        given.append(Argument("philox", "philox", (4,), torch.uint32))
    lowerer = Lowerer()
    with context(), ir.Location.name(name):
        module = ir.Module.create()
        module.operation.attributes["sym_name"] = ir.StringAttr.get(_symbol(name))
        with ir.InsertionPoint(module.body):
            types = [t for a in given for t in argument_types(a)]
            function = func.FuncOp("main", (types, []))
            function.attributes["sym_visibility"] = ir.StringAttr.get("public")
            block = function.add_entry_block(
                arg_locs=[ir.Location.name(a.name) for a in given for _ in argument_types(a)]
            )
            with ir.InsertionPoint(block):
                raw = iter(block.arguments)
                values = [_bind(a, raw) for a in given]
                if draws:
                    lowerer.philox = values.pop()
                output = lowerer.run(graph_module, values[: len(placeholders)])
                chosen, results = results_of(output)
                flat = [v for c, r in zip(chosen, results, strict=True) for v in _parts(lowerer, c, r)]
                func.ReturnOp([v.ir for v in flat])
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [v.ir.type for v in flat]))
        given = [_donate(a, results) for a in given]
        _describe(function, given, results)
    legalize(module)
    return Emitted(module, given, results, lowerer.operators, lowerer.random_launches)


def argument_types(argument: Argument) -> list[Any]:
    if argument.dtype == torch.complex64:
        return [tensor_type(argument.shape, torch.float32)] * 2
    return [tensor_type(argument.shape, argument.dtype)]


def _bind(argument: Argument, raw: Iterator[Any]) -> Any:
    if argument.dtype == torch.complex64:
        real = Value(next(raw), argument.shape, torch.float32)
        return Complex(real, Value(next(raw), argument.shape, torch.float32))
    return Value(next(raw), argument.shape, argument.dtype)


def _parts(cx: Lowerer, value: Any, result: Result) -> list[Value]:
    if isinstance(value, Complex):
        return [value.real, value.imag]
    if not isinstance(value, Value):
        return [cx.constant(value, result.dtype)]
    if value.dtype != result.dtype or value.shape != result.shape:
        raise AssertionError(f"result {result.name}: {value.dtype}{value.shape}, PyTorch: {result.dtype}{result.shape}")
    return [value]


def _donate(argument: Argument, results: Sequence[Result]) -> Argument:
    """An argument that a result of the same name and kind replaces gives its memory to that result."""
    for index, result in enumerate(results):
        same = result.shape == argument.shape and result.dtype == argument.dtype and result.dtype != torch.complex64
        if same and result.kind in ("state", "buffer") and result.name == argument.name:
            return dataclasses.replace(argument, donated_to=index)
    return argument


def _describe(function: Any, arguments: Sequence[Argument], results: Sequence[Result]) -> None:
    """Names, kinds and donation as attributes of the function's arguments and results."""

    def attributes(name: str, kind: str, dtype: torch.dtype) -> dict[str, Any]:
        made = {"neuron.name": ir.StringAttr.get(name), "neuron.kind": ir.StringAttr.get(kind)}
        if dtype == torch.int64:
            made["neuron.dtype"] = ir.StringAttr.get("int64")
        return made

    flat: list[Any] = []
    starts: list[int] = []
    for result in results:
        starts.append(sum(2 if r.dtype == torch.complex64 else 1 for r in results[: len(starts)]))
        own = ir.DictAttr.get(attributes(result.name, result.kind, result.dtype))
        flat += [own] * (2 if result.dtype == torch.complex64 else 1)
    function.attributes["res_attrs"] = ir.ArrayAttr.get(flat)
    flat = []
    for argument in arguments:
        made = attributes(argument.name, argument.kind, argument.dtype)
        if argument.donated_to is not None:
            made["tf.aliasing_output"] = ir.IntegerAttr.get(
                ir.IntegerType.get_signless(32), starts[argument.donated_to]
            )
        flat += [ir.DictAttr.get(made)] * len(argument_types(argument))
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(flat)


def _symbol(name: str) -> str:
    return re.sub(r"\W", "_", name) or "main"


def _all_nodes(graph_module: torch.fx.GraphModule) -> Iterator[torch.fx.Node]:
    for owner in graph_module.modules():
        if isinstance(owner, torch.fx.GraphModule):
            yield from owner.graph.nodes


def _is_random(node: torch.fx.Node) -> bool:
    entry = registry.find(node.target) if node.op == "call_function" else None
    return entry is not None and entry.family == "random"
