"""Groups of a graph's operators become vector programs.

A group has one domain: the shape of its full values. Pointwise operators of that shape join it, operators over the last
dimensions of tensors of that shape (and then values with one element for each row), and sums over all other dimensions.
What leaves a group is written to memory once; what stays inside never is.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, Node

from torch_neuronx.compiler.vector_rules import POINTWISE, POWERS, ROWS, aten

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
SHORTEST_ROW = 16  # elements; below, a chunk of the engine is mostly padding
LONGEST_SUM = 1 << 16  # elements of a reduced row: one thread works on a row

Key = Any  # a size: an int, or the expression of a symbolic one
Shape = tuple[Key, ...]


def key(size: Any) -> Key:
    return size.node.expr if isinstance(size, torch.SymInt) else size


def hint(size: Any) -> int:
    return int(size.node.hint) if isinstance(size, torch.SymInt) else size


def shape_of(t: torch.Tensor) -> Shape:
    return tuple(key(s) for s in t.shape)


def value(node: Any) -> Any:
    return node.meta.get("val") if isinstance(node, Node) else None


def dense_in(t: torch.Tensor, order: Sequence[int]) -> bool:
    """Whether the tensor is packed with its dimensions in this order, slowest first."""
    expected: Any = 1
    for d in reversed(order):
        size, stride = key(t.shape[d]), key(t.stride(d))
        if size != 1 and stride != expected:
            return False
        expected = expected * size
    return True


def order_of(t: torch.Tensor) -> tuple[int, ...] | None:
    order = tuple(sorted(range(t.dim()), key=lambda d: -hint(t.stride(d)) if hint(t.shape[d]) != 1 else 0))
    natural = tuple(range(t.dim()))
    for candidate in (natural, order):
        if dense_in(t, candidate):
            return candidate
    return None


@dataclass
class Place:
    """Where a node can be computed: over this domain, in rows of `inner` dimensions (0: any), or as a column sum."""

    domain: Shape
    inner: int = 0
    column: bool = False


def place_of(node: Node) -> Place | None:
    """None: the node has to stay an operator."""
    if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
        return None
    tensors = [value(n) for n in node.all_input_nodes]
    if not tensors or any(not isinstance(t, torch.Tensor) or t.is_sparse or t.is_conj() or t.is_neg() for t in tensors):
        return None
    integers = (torch.int32, torch.int64) if node.target is aten._to_copy.default else ()
    for t in tensors:
        if t.dtype not in (*FLOATS, torch.bool, *integers) or t.device != tensors[0].device:
            return None
    if node.target in POINTWISE:
        return _pointwise_place(node)
    return _row_place(node) if node.target in ROWS else None


def _pointwise_place(node: Node) -> Place | None:
    out = value(node)
    if not isinstance(out, torch.Tensor) or out.dtype not in (*FLOATS, torch.bool) or out.dim() == 0:
        return None
    if node.target is aten.pow.Tensor_Scalar and float(node.args[1]) not in POWERS:  # type: ignore[arg-type]
        return None
    if node.target in (aten.bitwise_and.Tensor, aten.bitwise_or.Tensor, aten.bitwise_not.default) and (
        out.dtype != torch.bool
    ):
        return None
    if node.target is aten.div.Tensor and node.kwargs:
        return None
    if node.target is aten._to_copy.default:
        source = value(node.args[0])
        if source.device != out.device or source.stride() != out.stride():
            return None
    if any(isinstance(a, complex) for a in node.args):
        return None
    return Place(shape_of(out))


def _row_place(node: Node) -> Place | None:
    x = value(node.args[0])
    results = value(node)
    if any(
        r.dtype not in FLOATS for r in (results if isinstance(results, tuple | list) else [results]) if r is not None
    ):
        return None
    dims = _reduced(node, x)
    if dims is None or x.dim() == 0:
        return None
    shape = shape_of(x)
    first = x.dim() - len(dims)
    if list(dims) == list(range(first, x.dim())) and dims:
        length = 1
        for d in dims:
            length *= hint(x.shape[d])
        return Place(shape, len(dims)) if SHORTEST_ROW <= length <= LONGEST_SUM else None
    is_sum = node.target is aten.sum.dim_IntList
    static = all(isinstance(size, int) for size in results.shape) if is_sum else False
    if static and list(dims) == list(range(len(dims))) and len(dims) < x.dim() and results.dtype == torch.float32:
        return Place(shape, x.dim() - len(dims), column=True)
    return None


def _reduced(node: Node, x: torch.Tensor) -> list[int] | None:
    """The dimensions that an operator of ROWS works over, from the first to the last."""
    target, args = node.target, node.args
    if x.dim() == 0:  # -1 and 0 name a dimension of a scalar too, but there are no rows in it
        return None
    if target in (aten.native_layer_norm.default, aten.native_layer_norm_backward.default):
        normalized: Any = args[1] if target is aten.native_layer_norm.default else args[2]
        return list(range(x.dim() - len(normalized), x.dim()))
    given: Any = args[1] if len(args) > 1 else node.kwargs.get("dim")
    if target is aten._softmax_backward_data.default or target is aten._log_softmax_backward_data.default:
        given = args[2]
    if given is None or given == []:
        return None
    return sorted(d % x.dim() for d in ([given] if isinstance(given, int) else given))


@dataclass(eq=False)
class Group:
    domain: Shape
    order: tuple[int, ...]
    inner: int = 0
    nodes: list[Node] = field(default_factory=list)
    columns: set[Node] = field(default_factory=set)  # sums over all but the inner dimensions

    def row_shape(self) -> Shape:
        return self.domain[: len(self.domain) - self.inner] + (1,) * self.inner

    def is_full(self, node: Node) -> bool:
        return node not in self.columns and shape_of(value(node)) == self.domain

    def is_operand(self, node: Node) -> bool:
        """Whether operators of the group can use this value: full, or one element a row with its dimensions kept."""
        if node in self.columns or not isinstance(value(node), torch.Tensor):
            return False
        shape = shape_of(value(node))
        return shape == self.domain or shape == self.row_shape()


class Grouping:
    """Assigns nodes to groups, so that no value of a group depends on one that is computed outside from another."""

    def __init__(self, graph: Graph) -> None:
        self.groups: list[Group] = []
        self.group_of: dict[Node, Group] = {}
        self._above: dict[Any, int] = {}  # unit (node or group id) -> bits of the units that it depends on
        self._bit: dict[Any, int] = {}
        for node in graph.nodes:
            self._place(node)
        self._merge_neighbours()

    def _unit(self, node: Node) -> Any:
        group = self.group_of.get(node)
        return node if group is None else id(group)

    def _place(self, node: Node) -> None:
        place = place_of(node)
        source = node.args[0] if node.args else None
        if node.target is operator.getitem and source in self.group_of:
            assert isinstance(source, Node)
            group = self.group_of[source]
            self._join(group, node)
            if source.target is aten.native_layer_norm_backward.default and node.args[1] != 0:
                group.columns.add(node)
            return
        if place is None:
            self._note(node, [self._unit(n) for n in node.all_input_nodes])
            return
        candidates = []
        for source in node.all_input_nodes:
            group = self.group_of.get(source)  # type: ignore[assignment]
            if group is not None and group not in candidates and self._admits(group, node, place):
                candidates.append(group)
        for group in reversed(candidates):
            if self._acyclic(group, node):
                self._join(group, node, place)
                for other in candidates:
                    if other is not group:
                        self._merge(group, other)
                return
        order = order_of(value(node)) if node.target in POINTWISE else tuple(range(len(place.domain)))
        if order is None:
            self._note(node, [self._unit(n) for n in node.all_input_nodes])
            return
        group = Group(place.domain, order, place.inner)
        self.groups.append(group)
        self._note(id(group), [])
        self._join(group, node, place)

    def _admits(self, group: Group, node: Node, place: Place) -> bool:
        inside = [n for n in node.all_input_nodes if self.group_of.get(n) is group]
        if not all(group.is_operand(n) for n in inside):
            return False
        if node.target in ROWS:
            natural = group.order == tuple(range(len(group.order)))
            return place.domain == group.domain and group.inner in (0, place.inner) and natural
        if place.domain == group.domain:
            return dense_in(value(node), group.order)
        return bool(group.inner) and place.domain == group.row_shape() and not any(group.is_full(n) for n in inside)

    def depends(self, node: Node, group: Group) -> bool:
        return bool(self._above[self._unit(node)] & self._bit[id(group)])

    def _acyclic(self, group: Group, node: Node) -> bool:
        bit = self._bit[id(group)]
        units = {self._unit(n) for n in node.all_input_nodes} - {id(group)}
        return all(not self._above[u] & bit for u in units)

    def _note(self, unit: Any, sources: list[Any]) -> None:
        self._bit[unit] = 1 << len(self._bit)
        above = 0
        for source in sources:
            above |= self._above[source] | self._bit[source]
        self._above[unit] = above

    def _join(self, group: Group, node: Node, place: Place | None = None) -> None:
        added = 0
        for source in node.all_input_nodes:
            unit = self._unit(source)
            if unit != id(group):
                added |= self._above[unit] | self._bit[unit]
        self._spread(id(group), added)
        group.nodes.append(node)
        self.group_of[node] = group
        if place is not None and place.inner:
            group.inner = place.inner
            if place.column:
                group.columns.add(node)

    def _spread(self, unit: Any, added: int) -> None:
        bit = self._bit[unit]
        if added & ~self._above[unit]:
            self._above[unit] |= added
            for other, above in self._above.items():
                if above & bit:
                    self._above[other] = above | self._above[unit]

    def _merge_neighbours(self) -> None:
        """Groups of one domain that read the same value read it once."""
        latest: dict[tuple[Node, Shape], Group] = {}
        for group in list(self.groups):
            for node in list(group.nodes):
                for source in node.all_input_nodes:
                    if self.group_of.get(source) is group or not isinstance(value(source), torch.Tensor):
                        continue
                    earlier = latest.get((source, group.domain))
                    if earlier in self.groups and earlier is not group and shape_of(value(source)) == group.domain:
                        self._merge(group, earlier)
                    latest[(source, group.domain)] = group

    def _merge(self, group: Group, other: Group) -> None:
        """Two groups of one kind that feed the same node, if neither lies on a way from one to the other."""
        same = other.domain == group.domain and other.order == group.order
        if not same or (group.inner and other.inner and group.inner != other.inner):
            return
        joined = Group(group.domain, group.order, group.inner or other.inner, [], group.columns | other.columns)
        for mine, theirs in ((group, other), (other, group)):
            for node in mine.nodes:
                across = [n for n in node.all_input_nodes if self.group_of.get(n) is theirs]
                if not all(joined.is_operand(n) for n in across):
                    return
        a, b = id(group), id(other)
        for unit, above in self._above.items():
            if unit in (a, b):
                continue
            bit = self._bit[unit]
            between_ab = above & self._bit[a] and self._above[b] & bit
            between_ba = above & self._bit[b] and self._above[a] & bit
            if between_ab or between_ba:
                return
        for node in other.nodes:
            self.group_of[node] = group
        group.nodes = other.nodes + group.nodes
        group.columns |= other.columns
        group.inner = group.inner or other.inner
        both = (self._above[a] | self._above[b]) & ~(self._bit[a] | self._bit[b])
        old = self._bit[b]
        self._bit[a] |= old
        self._above[a] = both
        del self._above[b], self._bit[b]
        for unit, above in self._above.items():
            if unit != a and above & self._bit[a]:
                self._above[unit] = above | both | self._bit[a]
        self.groups.remove(other)
