"""Graphs of ATen operators: functional, decomposed, with fake tensors as shapes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.fx.experimental.proxy_tensor import make_fx

from torch_neuronx.lowering import registry
from torch_neuronx.lowering.errors import LoweringError, TraceError, UnsupportedOpError

_MAX_PASSES = 3


def trace(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> torch.fx.GraphModule:
    """The graph of `function(*tensors)`, without mutation except `copy_` into placeholders at the end.

    Every tensor is a placeholder, everything else a constant of the graph. The tensors' values are not used.
    """
    table = registry.decompositions()

    def traced(f: Any, inputs: Sequence[torch.Tensor], table: Any = None) -> torch.fx.GraphModule:
        return make_fx(
            f, decomposition_table=table, tracing_mode="fake", _allow_non_fake_inputs=True, record_stack_traces=True
        )(*inputs)

    plain = [t.detach() for t in tensors]
    graph: Any = function
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if any(t.requires_grad for t in tensors):
                # functionalize() hands over tensors without requires_grad: a backward has to become operators first.
                # Not decomposed yet: the decompositions are of functional operators.
                graph = traced(graph, [t.detach().requires_grad_(t.requires_grad) for t in tensors])
            for _ in range(_MAX_PASSES):
                graph = traced(torch.func.functionalize(graph, remove="mutations"), plain, table)
                if not any(_mutates(n) for n in graph.graph.nodes):
                    break
    except LoweringError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise data_dependent(error) from error
    except Exception as error:
        raise TraceError(describe(error, getattr(function, "__name__", "the function"))) from error
    for node in reversed(graph.graph.nodes):
        if getattr(node.target, "namespace", None) == "profiler":  # marks around Optimizer.step: they compute nothing
            graph.graph.erase_node(node)
    graph.graph.eliminate_dead_code()
    return graph


def _mutates(node: torch.fx.Node) -> bool:
    """Whether a node changes a tensor in place, other than a placeholder's final copy_."""
    target = node.target
    if node.op != "call_function" or not isinstance(target, torch._ops.OpOverload) or not target._schema.is_mutable:
        return False
    first = node.args[0] if node.args else None
    return not (
        target is torch.ops.aten.copy_.default and isinstance(first, torch.fx.Node) and first.op == "placeholder"
    )


def data_dependent(error: Any) -> UnsupportedOpError:
    op = getattr(error, "func", None)
    return UnsupportedOpError(
        f"{registry.key_of(op).removesuffix('.default').replace('::', '.')} cannot be lowered: "
        f"{registry.support(op).reason}."
    )


def describe(error: Exception, what: str) -> str:
    """One paragraph about a failed trace."""
    text = " ".join(str(error).split())
    return (
        f"{what} could not be traced into a graph: {type(error).__name__}: {text[:500]}. A graph needs tensors of fixed "  # noqa: E501
        "shapes and no Python decision on a tensor's values: use torch.where or torch.cond for those, and keep printing, "  # noqa: E501
        ".item() and .numpy() out of it. torch.export.draft_export(module, args) lists what stands in the way."
    )
