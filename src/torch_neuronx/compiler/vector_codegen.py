"""Vector programs for the groups of a graph, and the graph that calls them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from torch_neuronx import _C
from torch_neuronx.compiler.fuse import (
    FLOATS,
    SHORTEST_ROW,
    Group,
    Grouping,
    dense_in,
    hint,
    key,
    shape_of,
    value,
)
from torch_neuronx.compiler.vector_rules import POINTWISE, ROWS, Emitter, aten

FILLS = {aten.full.default: 1, aten.scalar_tensor.default: 0}  # operator -> position of the number


class VectorCall:
    """One vector program as a function of its inputs, with a name for generated code."""

    def __init__(self, name: str, kernel: Any) -> None:
        self.__name__ = name
        self.__module__ = "torch_neuronx.vector"
        self.run: Callable[[list[torch.Tensor]], list[torch.Tensor]] = kernel.run

    def __call__(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return self.run(inputs)


@dataclass(eq=False)
class Unit:
    """What is run in one piece: a node, or a group as a vector program."""

    first: int  # position of its first node
    nodes: list[Node]
    sources: list[Node]  # must run before
    call: VectorCall | None = None
    inputs: tuple[Node, ...] = ()
    results: tuple[Node, ...] = ()
    written: tuple[tuple[Node, Node], ...] = ()  # copy_ nodes and the inputs that the program writes


class _Program:
    """A group as a vector program."""

    def __init__(self, group: Group, position: dict[Node, int], copies: dict[Node, list[Node]], name: str) -> None:
        self.group = group
        self.nodes = sorted(group.nodes, key=position.__getitem__)
        self.emit = Emitter()
        self.inputs: list[Node] = []
        self.values: dict[Node, Any] = {}
        members = set(group.nodes)
        self.copies = copies
        for node in self.nodes:
            self.values[node] = self._value(node)
        self.results = [
            n
            for n in self.nodes
            if isinstance(value(n), torch.Tensor) and any(u not in members and u not in copies for u in n.users)
        ]
        in_place = [(copy, copy.args[0], copy.args[1]) for copy in copies]
        for _, target, _ in in_place:
            self._operand(target)  # type: ignore[arg-type]
        first_output = len(self.inputs)
        outputs = []
        for i, node in enumerate(self.results):
            outputs.append(self._output(node, first_output + i))
        for i, (_, target, source) in enumerate(in_place, len(outputs)):
            place = self.inputs.index(target)  # type: ignore[arg-type]
            self.emit.row("store", self.values[source], first_output + i, 1)  # type: ignore[index]
            outputs.append((value(target).dtype, "full", place, False))
        self.written = tuple((copy, target) for copy, target, _ in in_place)
        inner = group.inner or self._dense_inner()
        inputs = [(value(n).dtype, self._is_row(n, inner)) for n in self.inputs]
        kernel = _C._VectorKernel(name, inputs, outputs, self.emit.rows, list(group.order), inner)
        self.call = VectorCall(name, kernel)
        self.inner = inner

    def operations(self) -> int:
        return sum(row[0] not in ("input", "constant", "count", "store") for row in self.emit.rows)

    def _operand(self, node: Node) -> int:
        if node not in self.inputs:
            self.inputs.append(node)
        return self.inputs.index(node)

    def _argument(self, arg: Any) -> Any:
        if not isinstance(arg, Node):
            return arg
        if arg in self.values:
            return self.values[arg]
        if arg.target in FILLS:
            number = arg.args[FILLS[arg.target]]
            if isinstance(number, int | float) and value(arg).dtype in (*FLOATS, torch.bool):
                return number
        # Numbered when all are known; the emitter's rows hold positions, which never change.
        return self.emit.input(self._operand(arg))

    def _value(self, node: Node) -> Any:
        if node.target is operator.getitem:
            return self.values[node.args[0]][node.args[1]]  # type: ignore[index]
        rule = POINTWISE.get(node.target) or ROWS[node.target]
        if node in self.group.columns:
            return self._argument(node.args[0])
        result = rule(self.emit, *map(self._argument, node.args), **node.kwargs)
        return self.emit.value(result) if isinstance(result, float | int) else result

    def _output(self, node: Node, operand: int) -> tuple[torch.dtype, str, int, bool]:
        t = value(node)
        if node in self.group.columns:
            self.emit.row("column", self.values[node], operand)
            return t.dtype, "column", -1, False
        self.emit.row("store", self.values[node], operand, 0)
        full = shape_of(t) == self.group.domain
        return t.dtype, "full" if full else "row", -1, t.dim() == len(self.group.domain)

    def _padded(self, node: Node) -> list[Any]:
        shape = list(shape_of(value(node)))
        shape = [1] * (len(self.group.domain) - len(shape)) + shape
        return [shape[d] for d in self.group.order]

    def _is_row(self, node: Node, inner: int) -> bool:
        shape = self._padded(node)
        return all(size == 1 for size in shape[len(shape) - inner :])

    def _dense_inner(self) -> int:
        """The most dimensions over which every input either has all elements or one."""
        sizes = [self.group.domain[d] for d in self.group.order]
        shapes = [self._padded(n) for n in self.inputs]
        inner = 1
        for k in range(1, len(sizes) + 1):
            tails = [(shape[-k:], sizes[-k:]) for shape in shapes]
            if not all(mine == whole or all(s == 1 for s in mine) for mine, whole in tails):
                break
            inner = k
        return inner


def fuse(graph: Graph, name: str) -> tuple[Graph, int]:
    """The same graph with its groups as calls of vector programs, and how many there are."""
    grouping = Grouping(graph)
    position = {node: i for i, node in enumerate(graph.nodes)}
    units: dict[Node, Unit] = {}
    found = 0
    copies = _copies(graph, grouping)
    for group in grouping.groups:
        mine = copies.get(group, {})
        try:
            program = _Program(group, position, mine, f"{name}_vector{found}")
        except (ValueError, KeyError):
            continue  # the rules do not cover it: its operators run one by one
        if program.operations() < 2 and not mine or _too_narrow(group, program.inner):
            continue  # nothing is gained
        found += 1
        readers = [r for copy in mine for r in mine[copy]]
        unit = Unit(
            position[program.nodes[0]],
            program.nodes + list(mine),
            program.inputs + readers,
            program.call,
            tuple(program.inputs),
            tuple(program.results),
            program.written,  # type: ignore[arg-type]
        )
        for node in unit.nodes:
            units[node] = unit
    if not found:
        return graph, 0
    for node in graph.nodes:
        if node not in units:
            units[node] = Unit(position[node], [node], list(node.all_input_nodes))
    _keep_order_of_effects(graph, units)
    return _rebuild(graph, units), found


def _too_narrow(group: Group, inner: int) -> bool:
    sizes = [_hint_of(group, d) for d in group.order]
    row = outer = 1
    for size in sizes[len(sizes) - inner :]:
        row *= size
    for size in sizes[: len(sizes) - inner]:
        outer *= size
    return row < SHORTEST_ROW and outer > 1


def _hint_of(group: Group, dim: int) -> int:
    for node in group.nodes:
        t = value(node)
        if isinstance(t, torch.Tensor) and t.dim() == len(group.domain) and key(t.shape[dim]) == group.domain[dim]:
            return hint(t.shape[dim])
    size = group.domain[dim]
    return size if isinstance(size, int) else SHORTEST_ROW


def _aliases(node: Node) -> Iterable[Node]:
    """Nodes whose results may be views of this one's."""
    for user in node.users:
        if not isinstance(user.target, torch._ops.OpOverload) or user.target._schema.is_mutable:
            continue
        if any(r.alias_info is not None for r in user.target._schema.returns):
            yield user
            yield from _aliases(user)


def _copies(graph: Graph, grouping: Grouping) -> dict[Group, dict[Node, list[Node]]]:
    """copy_ of a group's value into an input of the graph, which the program can write, and who reads that input."""
    found: dict[Group, dict[Node, list[Node]]] = {}
    for copy in graph.nodes:
        if copy.target is not aten.copy_.default or copy.users:
            continue
        target, source = copy.args[:2]
        group = grouping.group_of.get(source)
        if group is None or not isinstance(source, Node) or source.target is operator.getitem:
            continue
        there, here = value(target), value(source)
        if target.op != "placeholder" or there.dtype != here.dtype or there.device != here.device:
            continue
        if shape_of(there) != group.domain or not group.is_full(source) or not dense_in(there, group.order):
            continue
        views = list(_aliases(target))
        readers = [u for n in (target, *views) for u in n.users if u is not copy]
        if views and any(grouping.group_of.get(r) is group for r in readers):
            continue  # a view of the input has its elements elsewhere
        outside = [r for r in readers if grouping.group_of.get(r) is not group]
        if any(r.op == "output" and n is not target for n in (target, *views) for r in n.users):
            continue
        outside = [r for r in outside if r.op != "output"]
        if any(grouping.depends(r, group) for r in outside):
            continue
        if group.inner and any(grouping.group_of.get(r) is group for r in readers):
            continue  # a later pass over the row would read what an earlier one wrote
        found.setdefault(group, {})[copy] = outside
    return found


def _has_effects(node: Node) -> bool:
    if node.op != "call_function":
        return False
    if isinstance(node.target, torch._ops.OpOverload):
        return node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags
    return isinstance(node.target, torch._ops.HigherOrderOperator)


def _keep_order_of_effects(graph: Graph, units: dict[Node, Unit]) -> None:
    """Random numbers and writes stay in order; an input is written after everything that reads it."""
    previous: Node | None = None
    for node in graph.nodes:
        if not _has_effects(node) or units[node].call is not None:
            continue
        if previous is not None:
            units[node].sources.append(previous)
        if isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable:
            for target in node.all_input_nodes:
                for reader in (*target.users, *(u for v in _aliases(target) for u in v.users)):
                    if reader.op != "output" and units[reader] is not units[node] and reader < node:
                        units[node].sources.append(reader)
        previous = node


def _rebuild(graph: Graph, units: dict[Node, Unit]) -> Graph:
    new = Graph()
    made: dict[Node, Node] = {}
    done: set[Unit] = set()

    def make(unit: Unit) -> None:
        if unit.call is None:
            made[unit.nodes[0]] = new.node_copy(unit.nodes[0], made.__getitem__)
            return
        call = new.call_function(unit.call, ([made[n] for n in unit.inputs],))
        call.meta["stack_trace"] = unit.nodes[-1].stack_trace
        for i, node in enumerate(unit.results):
            result = new.call_function(operator.getitem, (call, i))
            result.meta.update(node.meta)
            t = value(node)
            keeps_dims = node.target is aten.sum.dim_IntList and len(node.args) > 2 and node.args[2]
            if keeps_dims and t.dim() and all(isinstance(s, int) for s in t.shape):
                result = new.call_function(aten.view.default, (result, list(t.shape)))
                result.meta.update(node.meta)
            made[node] = result
        for copy, target in unit.written:
            made[copy] = made[target]

    for first in graph.nodes:
        stack = [units[first]]
        while stack:
            unit = stack[-1]
            if unit in done:
                stack.pop()
                continue
            waiting = [units[s] for s in unit.sources if units[s] not in done and units[s] is not unit]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            make(unit)
            done.add(unit)
            stack.pop()
    return new
