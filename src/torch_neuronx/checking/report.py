"""What `check` found, in a form for programs (`to_dict`) and for people (`str`)."""

from __future__ import annotations

import dataclasses
from typing import Any

NAMES = 4  # operators that the verdict's sentence names
SCHEMA = 1  # of to_dict(); raised when a field is taken away or changes its meaning


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator in one combination of types, over the whole run."""

    name: str  # "aten::addmm"
    dtypes: tuple[str, ...]  # of its tensors, in order of appearance
    calls: int
    native: bool
    reason: str  # why it is not native; empty when it is
    places: tuple[str, ...]  # the lines of the program that call it most, most calls first; filled when not native


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypeUse:
    """A 64-bit or complex type at one line of the program."""

    dtype: str
    place: str
    calls: int
    operators: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Shapes:
    """Something that has more than one shape, or a shape that is known only once data is."""

    what: str
    place: str
    count: int  # distinct shapes, or calls where the shape depends on data
    examples: tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Graph:
    """One graph that torch.compile captured."""

    name: str
    kind: str  # "forward", "backward" or "inference"
    operators: int
    shapes: int  # distinct input shapes that it ran with: Trainium compiles once for each


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compilations:
    """How many programs Trainium's compiler would be asked for."""

    eager: int  # distinct (operator, shapes, types, other arguments) outside of compiled graphs
    graphs: tuple[Graph, ...]
    graph_breaks: tuple[str, ...]  # reasons
    recompilations: tuple[str, ...]  # reasons
    not_captured: str = ""  # why torch.compile could not capture the model; empty: it could, or was not asked

    @property
    def compiled(self) -> int:
        """Programs for the graphs: one for each graph and each set of input shapes."""
        return sum(max(graph.shapes, 1) for graph in self.graphs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Memory:
    """Device memory of one logical core, in bytes."""

    core: int
    peak_allocated: int
    peak_reserved: int
    total: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a run did on the device, and what of it would not run on Trainium."""

    chip: str
    rule: str  # what "native" means here: "lowering" or "engine"
    operators: tuple[Operator, ...]  # those that are not native first, then most calls first
    types: tuple[TypeUse, ...]
    shapes: tuple[Shapes, ...]
    compilations: Compilations
    memory: tuple[Memory, ...]  # cores that were used
    out_of_memory: str  # the allocator's message; empty when the run fitted
    elsewhere: dict[str, int]  # operators that ran on other devices, by device

    @property
    def ran(self) -> bool:
        """Whether anything ran on the device."""
        return bool(self.operators)

    @property
    def not_native(self) -> tuple[Operator, ...]:
        return tuple(operator for operator in self.operators if not operator.native)

    @property
    def ok(self) -> bool:
        """Whether all that ran would run on Trainium. False when nothing ran on the device."""
        return self.ran and not self.not_native and not self.out_of_memory

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        if self.out_of_memory:
            return f"does not run on {self.chip}: out of device memory"
        if not self.ran:
            others = ", ".join(f"{count:,} operators on {device}" for device, count in self.elsewhere.items())
            return f"nothing ran on the neuron device ({others or 'no operator at all'}), so there is nothing to judge"
        calls = sum(operator.calls for operator in self.operators)
        if self.ok:
            return f"runs on {self.chip}: all {calls:,} operator calls are native"
        bad = sum(operator.calls for operator in self.not_native)
        names = list(dict.fromkeys(operator.name for operator in self.not_native))
        more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
        listed = ", ".join(names[:NAMES]) + more
        return f"does not run on {self.chip}: {bad:,} of {calls:,} operator calls are not native ({listed})"

    def to_dict(self) -> dict[str, Any]:
        """The whole report as plain values, ready for JSON. Bytes and counts are integers."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {name: _plain(value) for name, value in fields.items()}
        plain["compilations"]["compiled"] = self.compilations.compiled
        return {"schema": SCHEMA, "ok": self.ok, "verdict": self.verdict, **plain}

    def __str__(self) -> str:
        """The verdict, and a line for each operator that is not native."""
        lines = [self.verdict]
        lines += [
            f"  {operator.name} [{', '.join(operator.dtypes)}] x {operator.calls:,}: {operator.reason}"
            + (f", at {', '.join(operator.places)}" if operator.places else "")
            for operator in self.not_native
        ]
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value
