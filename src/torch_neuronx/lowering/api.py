"""`torch_neuronx.lower`: a function, module or exported program as one StableHLO module."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree

from torch_neuronx.lowering import registry, state, trace
from torch_neuronx.lowering.complex import Complex
from torch_neuronx.lowering.errors import LoweringError, TraceError
from torch_neuronx.lowering.graph import Argument, ArgumentKind, Emitted, Result, ResultKind, emit
from torch_neuronx.lowering.stablehlo import Value, hlo, is_lowerable, unsupported_dtype


@dataclasses.dataclass
class Lowered:
    """One StableHLO module, with what its arguments and results are. `torch_neuronx.lower` makes it."""

    name: str
    arguments: list[Argument]
    results: list[Result]
    operators: dict[str, int]  # calls of each ATen operator that the module came from
    random_launches: int  # launches of the device's generator: each moves its offset by 4
    seconds: float  # that lowering took, tracing included
    _module: Any = dataclasses.field(repr=False)
    _initial: list[torch.Tensor | None] = dataclasses.field(repr=False)
    _restore: Callable[[Sequence[Any]], Any] = dataclasses.field(repr=False)

    @property
    def text(self) -> str:
        """The module as MLIR text, without locations."""
        return str(self._module)

    def text_with_locations(self) -> str:
        """The module as MLIR text; each operation names its ATen operator and the user's line that called it."""
        return str(self._module.operation.get_asm(enable_debug_info=True, pretty_debug_info=False))

    def bytecode(self, version: str | None = None) -> bytes:
        """The module as portable StableHLO bytecode, which later (and, by `version`, earlier) releases can read."""
        wanted = version or hlo.get_minimum_version()
        return bytes(hlo.serialize_portable_artifact_str(self.text_with_locations(), wanted))

    def save(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes text (`.mlir`) or portable bytecode (`.mlirbc`); the file appears whole or not at all."""
        target = pathlib.Path(path)
        if target.suffix not in (".mlir", ".mlirbc"):
            raise ValueError(
                f"{str(target)!r} is not a name for a module: end it in .mlir for text or .mlirbc for bytecode"
            )
        data = self.bytecode() if target.suffix == ".mlirbc" else self.text_with_locations().encode()
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return target

    def operations(self) -> int:
        """StableHLO operations in the module, those in regions included."""
        return sum(line.lstrip().startswith(("%", "stablehlo.")) for line in self.text.splitlines())

    def run(self, *args: Any, seed: int | None = None, offset: int = 0, **kwargs: Any) -> Any:
        """Runs the module with XLA's CPU compiler, as a check: not on the device. Needs jax.

        `args` and `kwargs` as given to `lower`; parameters and other state have the values they had then. `seed` and
        `offset` are the generator's, for a module that draws. Returns what the function returned; results of other
        kinds (gradients, new state) are in `run_flat`.
        """
        given = iter(pytree.tree_leaves((args, kwargs)))
        tensors: list[torch.Tensor] = []
        inputs = [t for t in given if isinstance(t, torch.Tensor)]
        wanted = sum(a.kind == "input" for a in self.arguments)
        if len(inputs) != wanted:
            raise ValueError(f"{self.name} takes {wanted} input tensors, not {len(inputs)}")
        rest = iter(inputs)
        for argument, initial in zip(self.arguments, self._initial, strict=True):
            if argument.kind == "input":
                tensors.append(next(rest))
            elif argument.kind == "philox":
                tensors.append(philox_words(0 if seed is None else seed, offset))
            else:
                assert initial is not None
                tensors.append(initial)
        flat = self.run_flat(tensors)
        return self._restore([v for v, r in zip(flat, self.results, strict=True) if r.kind == "output"])

    def run_flat(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Runs the module with XLA's CPU compiler on tensors in the order of `arguments`; all results in order."""
        from torch_neuronx.lowering import xla

        return xla.run(self.text, self.arguments, self.results, tensors)

    def initial_arguments(self) -> list[torch.Tensor | None]:
        """For each argument the tensor that it had when lowered; None for the generator's state."""
        return list(self._initial)


def philox_words(seed: int, offset: int) -> torch.Tensor:
    """The generator's state as the module's argument: seed and offset, low half first."""
    words = [seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF, offset & 0xFFFFFFFF, (offset >> 32) & 0xFFFFFFFF]
    return torch.tensor(words, dtype=torch.int64).to(torch.uint32)


def lower(
    target: Any,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    backward: bool = False,
    state: Sequence[Any] = (),
    name: str | None = None,
) -> Lowered:
    """Lowers `target(*args, **kwargs)` to one verified StableHLO module, and returns it as a `Lowered`.

    `target`: an `nn.Module`, a `torch.export.ExportedProgram`, or a function. A module goes through torch.export; its
    parameters and buffers are arguments of the result. A function is traced; tensors among `args` are arguments,
    everything else is a constant. `args` give shapes and dtypes: their values are not used.

    `backward=True`: the forward and backward pass as one joint graph. The first tensor that the module returns is the
    loss, a scalar; the gradients of all parameters that require one are results of kind "gradient".

    `state`: modules and optimizers that a function uses and changes, as in a whole training step. Their tensors are
    arguments, and those that the function changes are results that may take over the argument's memory ("donated").

    Raises LoweringError (a RuntimeError) with the cause and the remedy: MissingExtraError without jaxlib, TraceError
    for what cannot be traced, UnsupportedOpError, UnsupportedDtypeError (float64), IntegerRangeError (an int64 constant
    beyond int32).
    """
    started = time.perf_counter()
    kwargs = dict(kwargs or {})
    if not isinstance(args, (tuple, list)):
        raise TypeError(
            f"lower: args is a tuple of the arguments, not {type(args).__name__}; write (x,) for a single one"
        )
    if isinstance(target, torch.export.ExportedProgram):
        plan = _from_export(target)
    elif isinstance(target, torch.nn.Module) and not backward:
        plan = _from_export(_export(target, tuple(args), kwargs))
    elif isinstance(target, torch.nn.Module):
        plan = _joint(target, tuple(args), kwargs)
    elif callable(target):
        if backward:
            raise ValueError("lower: backward=True is for an nn.Module; a function calls .backward() itself")
        plan = _from_function(target, tuple(args), kwargs, state)
    else:
        raise TypeError(f"lower takes a module, an exported program or a function, not {type(target).__name__}")
    for argument in plan.arguments:
        if not is_lowerable(argument.dtype) and argument.dtype != torch.complex64:
            raise unsupported_dtype(argument.dtype, f"argument {argument.name}")
    title = name or getattr(target, "__name__", type(target).__name__)
    made: Emitted = emit(plan.graph, plan.arguments, plan.results_of, title)  # type: ignore[arg-type]
    initial = [*plan.initial, *[None] * (len(made.arguments) - len(plan.initial))]
    return Lowered(
        title, made.arguments, made.results, made.operators, made.random_launches, time.perf_counter() - started,  # type: ignore[arg-type]
        made.module, initial, plan.restore,
    )  # fmt: skip


@dataclasses.dataclass
class _Plan:
    """A functional graph, and what its placeholders and outputs are."""

    graph: torch.fx.GraphModule
    arguments: list[Argument]
    initial: list[torch.Tensor | None]
    results_of: Callable[[Any], tuple[list[Any], list[Result]]]
    restore: Callable[[Sequence[Any]], Any]


def argument(name: str, kind: ArgumentKind, tensor: torch.Tensor) -> Argument:
    return Argument(name, kind, tuple(tensor.shape), tensor.dtype)


def result(name: str, kind: ResultKind, value: Value | Complex) -> Result:
    return Result(name, kind, value.shape, value.dtype)


# --- functions --------------------------------------------------------------------------------------------------------
def _from_function(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], owners: Sequence[Any]) -> _Plan:
    paths, spec = pytree.tree_flatten_with_path((args, kwargs))
    leaves = [leaf for _, leaf in paths]
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    names = [input_name(paths[i][0]) for i in where]
    held = state.collect(owners)
    outputs: dict[str, Any] = {}

    def run(*tensors: torch.Tensor) -> list[Any]:
        given = list(leaves)
        for place, tensor in zip(where, tensors[len(held) :], strict=True):
            given[place] = tensor
        call_args, call_kwargs = pytree.tree_unflatten(given, spec)
        with state.replaced(held, tensors[: len(held)]), state.compiling(owners):
            made = function(*call_args, **call_kwargs)
        flat, outputs["spec"] = pytree.tree_flatten(made)
        outputs["flat"] = flat
        return [t for t in flat if isinstance(t, torch.Tensor)]

    run.__name__ = getattr(function, "__name__", type(function).__name__)
    inputs = [leaves[i] for i in where]
    tensors = [h.tensor for h in held] + inputs
    graph = trace.trace(run, tensors)
    arguments = [argument(h.name, h.kind, h.tensor) for h in held]
    arguments += [argument(n, "input", t) for n, t in zip(names, inputs, strict=True)]
    return _Plan(graph, arguments, list(tensors), _with_mutations(graph, arguments), _restorer(outputs))


def input_name(path: Any) -> str:
    """'args[0].weight' -> a short name of an input's place in (args, kwargs)."""
    where, *rest = path
    text = pytree.keystr(tuple(rest))
    return ("input" if getattr(where, "idx", 0) == 0 else "kw") + text


def _restorer(outputs: dict[str, Any]) -> Callable[[Sequence[Any]], Any]:
    def restore(values: Sequence[Any]) -> Any:
        given = iter(values)
        flat = [next(given) if isinstance(v, torch.Tensor) else v for v in outputs["flat"]]
        return pytree.tree_unflatten(flat, outputs["spec"])

    return restore


def _with_mutations(
    graph: torch.fx.GraphModule, arguments: Sequence[Argument]
) -> Callable[[Any], tuple[list[Any], list[Result]]]:
    """Adds to the results the placeholders' new values: operands of the final copy_ nodes, moved to the output."""
    places = {n: i for i, n in enumerate(n for n in graph.graph.nodes if n.op == "placeholder")}
    changed: list[int] = []
    sources: list[torch.fx.Node] = []
    for node in list(graph.graph.nodes):
        if node.op == "call_function" and node.target is torch.ops.aten.copy_.default and node.args[0] in places:
            changed.append(places[node.args[0]])
            sources.append(node.args[1])
            node.replace_all_uses_with(node.args[1])
            graph.graph.erase_node(node)
    output = next(n for n in graph.graph.nodes if n.op == "output")
    output.args = ((list(output.args[0]), sources),)

    def results_of(value: Any) -> tuple[list[Any], list[Result]]:
        plain, new = value
        described = [result(f"output{i}", "output", v) for i, v in enumerate(plain)]
        for place, v in zip(changed, new, strict=True):
            owner = arguments[place]
            kind: ResultKind = "buffer" if owner.kind == "buffer" else "state"
            described.append(Result(owner.name, kind, v.shape, v.dtype))
        return [*plain, *new], described

    return results_of


# --- modules ----------------------------------------------------------------------------------------------------------
def _export(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(module, args, kwargs, strict=False)
    except Exception as error:
        raise TraceError(trace.describe(error, f"module {type(module).__name__}")) from error


def _from_export(program: torch.export.ExportedProgram) -> _Plan:
    try:
        program = program.run_decompositions(registry.decompositions())
    except Exception as error:
        raise TraceError(trace.describe(error, "the exported program")) from error
    kinds: dict[str, ArgumentKind] = {"PARAMETER": "parameter", "BUFFER": "buffer", "CONSTANT_TENSOR": "buffer"}
    signature = program.graph_signature
    values = {**program.state_dict, **program.constants}
    arguments: list[Argument] = []
    initial: list[torch.Tensor | None] = []
    placeholders = {n.name: n for n in program.graph.nodes if n.op == "placeholder"}
    for spec in signature.input_specs:
        node = placeholders[spec.arg.name]
        fake = node.meta.get("val")
        if not isinstance(fake, torch.Tensor):
            if isinstance(fake, (torch.SymInt, torch.SymFloat)):
                raise LoweringError(
                    f"argument {spec.arg.name} of the exported program is a symbolic number: a module has fixed shapes. "  # noqa: E501
                    "Export without dynamic_shapes, once for each shape."
                )
            if node.users:
                raise LoweringError(f"argument {spec.arg.name} of the exported program is {fake!r}, not a tensor")
            program.graph.erase_node(node)
            continue
        kind = kinds.get(spec.kind.name, "input")
        arguments.append(argument(spec.target or spec.arg.name, kind, fake))
        initial.append(values.get(spec.target) if spec.target else None)
    if any(isinstance(s, torch.SymInt) for a in arguments for s in a.shape):
        raise LoweringError(
            "the exported program has dynamic shapes, but a module has fixed ones. Export without dynamic_shapes, once "
            "for each shape."
        )
    numbers: dict[int, Any] = {}

    def results_of(value: Any) -> tuple[list[Any], list[Result]]:
        chosen: list[Any] = []
        described: list[Result] = []
        for index, (spec, v) in enumerate(zip(signature.output_specs, value, strict=True)):
            if not isinstance(v, (Value, Complex)):
                numbers[index] = v
                continue
            mutated = spec.kind.name in ("BUFFER_MUTATION", "USER_INPUT_MUTATION", "PARAMETER_MUTATION")
            kind: ResultKind = "output"
            if mutated:
                kind = "buffer" if spec.kind.name == "BUFFER_MUTATION" else "state"
            chosen.append(v)
            described.append(result(spec.target if mutated and spec.target else spec.arg.name, kind, v))
        return chosen, described

    out_spec = program.call_spec.out_spec
    mutations = sum("MUTATION" in s.kind.name for s in signature.output_specs)

    def restore(given: Sequence[Any]) -> Any:
        rest = iter(given)
        count = len(signature.output_specs) - mutations
        flat = [numbers[mutations + i] if mutations + i in numbers else next(rest) for i in range(count)]
        return pytree.tree_unflatten(flat, out_spec)

    return _Plan(program.graph_module, arguments, initial, results_of, restore)


def _joint(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Plan:
    """Forward and backward in one graph: the module's outputs, the gradients, and buffers that it changes."""
    held = state.collect([module])
    learn = [i for i, h in enumerate(held) if h.kind == "parameter" and h.tensor.requires_grad]
    counts: dict[str, int] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        made = module(*args, **kwargs)
        loss = next((t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)), None)
        if loss is None or loss.numel() != 1 or not loss.requires_grad:
            seen = "no tensor" if loss is None else f"{loss.dtype}{list(loss.shape)}"
            raise TraceError(
                f"backward=True wants a loss as the first tensor that {type(module).__name__} returns: one element that "  # noqa: E501
                f"depends on a parameter, not {seen}. Wrap the module so that it returns its loss first."
            )
        leaves = state.current(held, learn)
        found = torch.autograd.grad(loss, leaves, allow_unused=True)
        gradients = [torch.zeros_like(t) if g is None else g for t, g in zip(leaves, found, strict=True)]
        counts["gradients"] = len(gradients)
        return pytree.tree_map(lambda t: t.detach() if isinstance(t, torch.Tensor) else t, made), gradients

    run.__name__ = type(module).__name__
    plan = _from_function(run, args, kwargs, [module])
    names = [held[i].name for i in learn]

    def results_of(value: Any) -> tuple[list[Any], list[Result]]:
        chosen, described = plan.results_of(value)
        outputs = sum(r.kind == "output" for r in described)
        first = outputs - counts["gradients"]
        for i, gradient in enumerate(names):
            described[first + i] = dataclasses.replace(described[first + i], name=gradient, kind="gradient")
        return chosen, described

    def restore(values: Sequence[Any]) -> Any:
        return plan.restore([*values, *[torch.empty(0)] * counts["gradients"]])[0]

    return dataclasses.replace(plan, results_of=results_of, restore=restore)


def iterate_results(
    lowered: Lowered, values: Sequence[torch.Tensor], kind: ResultKind
) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, value) of the results of one kind, from what `run_flat` returned."""
    for described, value in zip(lowered.results, values, strict=True):
        if described.kind == kind:
            yield described.name, value
