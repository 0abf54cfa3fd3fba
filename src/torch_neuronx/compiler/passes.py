"""Graph to graph: what is done to a graph of ATen operators before it runs."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch.compile_utils import fx_graph_cse
from torch.fx import Graph, GraphModule, Node

DEVICE = "neuron"


def simplify(graph: Graph) -> Graph:
    """Computes what is the same once, and drops what nobody uses."""
    graph.eliminate_dead_code()
    merged: Graph = fx_graph_cse(graph)
    merged.eliminate_dead_code()
    return merged


def operators(module: GraphModule) -> Iterator[Node]:
    """The nodes that call an ATen or custom operator."""
    for node in module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            yield node


def without_kernel(module: GraphModule) -> Iterator[Node]:
    """Operators that the device can only run by the CPU fallback."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    composite = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional")
    for node in operators(module):
        assert isinstance(node.target, torch._ops.OpOverload)
        name = node.target.name()  # type: ignore[no-untyped-call]
        if not any(has(name, key) for key in ("PrivateUse1", "BackendSelect", *composite)):
            yield node


def on_device(module: GraphModule) -> None:
    """Makes the factories of a graph captured for the CPU create their tensors on the device."""
    for node in module.graph.nodes:
        if node.op == "call_function" and _is_cpu(node.kwargs.get("device")):
            node.kwargs = {**node.kwargs, "device": torch.device(DEVICE)}
        if node.target is torch.ops.prims.device_put.default:
            node.args = (node.args[0], torch.device(DEVICE), *node.args[2:])


def _is_cpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


def user_line(node: Node) -> str:
    """The last line of the user's program that led to this node, as 'file:line, in function: code'."""
    frames = [line.strip() for line in (node.stack_trace or "").splitlines() if line.strip()]
    places = [i for i, line in enumerate(frames) if line.startswith("File ")]
    if not places:
        return "an unknown line"
    code = frames[places[-1] + 1] if places[-1] + 1 < len(frames) else ""
    return frames[places[-1]] + (f": {code}" if code else "")


def is_dynamic(graph: Graph) -> bool:
    """Whether the graph was captured for a range of shapes: its inputs then include the sizes."""
    return any(isinstance(node.meta.get("val"), torch.SymInt) for node in graph.find_nodes(op="placeholder"))


def count(graph: Graph) -> int:
    """Operators in a graph; unpacking a tuple is not one."""
    return sum(node.op == "call_function" and node.target is not operator.getitem for node in graph.nodes)
