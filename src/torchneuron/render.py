"""Reports as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    from torch_neuronx.checking import Compilations, Operator, Report

ROWS = 12  # of each table, unless all are asked for
_NUMBERS = ("calls", "count", "programs", "PID")


def check(console: Console, report: Report, every_row: bool = False) -> None:
    """Everything that was found, and last the verdict."""
    limit = None if every_row else ROWS
    operators = [_operator_row(operator) for operator in report.operators]
    kept = None if limit is None else max(limit, len(report.not_native))
    _table(console, "Operators", ("operator", "types", "calls", "on Trainium", "where"), operators, kept)
    types = [
        (use.dtype, use.place, f"{use.calls:,}", ", ".join(map(_short, use.operators[:3]))) for use in report.types
    ]
    _table(console, "64-bit and complex types", ("type", "where", "calls", "operators"), types, limit)
    shapes = [(row.what, row.place, f"{row.count:,}", "; ".join(map(_short, row.examples))) for row in report.shapes]
    _table(console, "Shapes that vary, values that are read", ("what", "where", "count", "examples"), shapes, limit)
    memory = [
        (
            f"neuron:{row.core}",
            size(row.peak_allocated),
            size(row.peak_reserved),
            f"{size(row.total)} ({100 * row.peak_reserved / row.total:.1f} % used)",
        )
        for row in report.memory
    ]
    _table(console, "Device memory", ("device", "peak of tensors", "peak reserved", "HBM of the core"), memory, None)
    _compilations(console, report.compilations)
    if report.out_of_memory:
        console.print(escape(report.out_of_memory), style="red", soft_wrap=True)
    for device, count in report.elsewhere.items():
        console.print(f"{count:,} operators ran on {device}: their tensors are there.", style="dim", highlight=False)
    rule = "has a lowering to StableHLO" if report.rule == "lowering" else "has a kernel of the emulated device"
    console.print(f"Native means: {rule}.", style="dim", highlight=False)
    style = "bold green" if report.ok else "bold red"
    console.print(escape(f"Verdict: {report.verdict}."), style=style, soft_wrap=True, highlight=False)


def _operator_row(operator: Operator) -> tuple[str, ...]:
    verdict = "native" if operator.native else f"[red]{escape(operator.reason)}[/red]"
    types = ", ".join(operator.dtypes)
    return (_short(operator.name), types, f"{operator.calls:,}", verdict, "\n".join(map(escape, operator.places)))


def _compilations(console: Console, found: Compilations) -> None:
    rows = [("operators, one by one", f"{found.eager:,}", "")]
    if found.graphs:
        graphs = ", ".join(f"{g.name} {g.kind} ({g.operators} operators)" for g in found.graphs[:4])
        more = f", {len(found.graphs) - 4} more" if len(found.graphs) > 4 else ""
        rows.append(("compiled graphs", f"{found.compiled:,}", graphs + more))
    _table(console, "Compilations that Trainium would need", ("what", "programs", "graphs"), rows, None)
    notes = [("graph break", text) for text in found.graph_breaks]
    notes += [("captured again", text) for text in found.recompilations]
    notes += [("cannot be captured", found.not_captured)] if found.not_captured else []
    for kind, text in notes:
        console.print(escape(f"  {kind}: {text}"), soft_wrap=True, highlight=False)


def topology(console: Console, facts: dict[str, Any]) -> None:
    chip = f"{facts['physical_cores_per_chip']} physical cores and {size(facts['hbm_bytes_per_chip'])} of HBM each"
    console.print(
        f"{facts['instance']}: {facts['chips']} x {facts['chip']}, {chip}; "
        f"{facts['logical_cores']} logical cores of {facts['lnc']}",
        highlight=False,
        soft_wrap=True,
    )
    rows = [
        (
            row["device"],
            str(row["chip"]),
            str(row["logical_core"]),
            size(row["hbm_bytes"]),
            size(row["in_use_bytes"]),
        )
        for row in facts["devices"]
    ]
    _table(console, "Devices of this process", ("device", "chip", "logical core", "HBM", "in use"), rows, None)
    users = [(str(row["pid"]), row["command"], size(row["resident_bytes"])) for row in facts["processes"]]
    _table(console, "Other processes, each with a chip of its own", ("PID", "command", "resident"), users, None)


def environment(console: Console, facts: dict[str, dict[str, str]]) -> None:
    for section, values in facts.items():
        console.print(section, style="bold", highlight=False)
        for name, value in values.items():
            console.print(f"  {name}: {value}", soft_wrap=True, highlight=False, markup=False)
        if not values:
            console.print("  none is set", highlight=False)


def size(count: int) -> str:
    """Bytes as 1.5 MiB, 24 GiB, ..."""
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.4g} {unit}"
        number /= 1024
    raise AssertionError("not reached")


def _names(operators: Sequence[str]) -> str:
    more = ", ..." if len(operators) > 3 else ""
    return ", ".join(map(_short, operators[:3])) + more


def _short(name: str) -> str:
    return escape(name.removeprefix("aten::"))


def _table(
    console: Console, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], limit: int | None
) -> None:
    """Prints nothing for no rows, and says how many it leaves out."""
    rows = list(rows)
    if not rows:
        return
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in _NUMBERS else "left", overflow="fold")
    shown = rows if limit is None else rows[:limit]
    for row in shown:
        table.add_row(*row)
    if len(shown) < len(rows):
        table.caption = f"and {len(rows) - len(shown)} more rows: --all shows them"
        table.caption_justify = "left"
    console.print(table)
