"""What was compiled in this process: one row a graph."""

from __future__ import annotations

import dataclasses
import threading


@dataclasses.dataclass
class GraphMetrics:
    """One compiled graph. Seconds are the host's."""

    name: str
    kind: str  # "forward", "backward" or "inference"
    nodes: int  # operators in the graph that runs
    captured_nodes: int  # operators before the passes
    vector_programs: int  # of the nodes: groups of operators that run as one
    lowering_seconds: float
    calls: int = 0
    shapes: int = 1  # distinct shapes of its inputs so far; more than one only for a graph made for a range of shapes


_lock = threading.Lock()
_rows: list[GraphMetrics] = []
_names: dict[str, int] = {}


def add(row: GraphMetrics) -> GraphMetrics:
    with _lock:
        _rows.append(row)
    return row


def unique_name(stem: str) -> str:
    """'graph_0', 'graph_1', …"""
    with _lock:
        count = _names.get(stem, 0)
        _names[stem] = count + 1
    return f"{stem}_{count}"


def get_dynamo_metrics() -> list[GraphMetrics]:
    """The graphs that `torch.compile(backend="neuron")` has compiled in this process, oldest first (a copy)."""
    with _lock:
        return [dataclasses.replace(row) for row in _rows]


def reset_dynamo_metrics() -> None:
    """Forget the rows so far."""
    with _lock:
        _rows.clear()
