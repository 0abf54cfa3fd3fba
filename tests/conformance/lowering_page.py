"""docs/lowering-coverage.md: for each operator and dtype what the engine and the lowering make of it."""

from __future__ import annotations

import collections
import pathlib
import re
from typing import Any

from conformance.compare import NOT_APPLICABLE, STATES
from conformance.report import Results, state_of

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DTYPES = (
    ("float32", "f32"),
    ("bfloat16", "bf16"),
    ("float16", "f16"),
    ("int32", "i32"),
    ("int64", "i64"),
    ("bool", "bool"),
)
LETTERS = {"native": "L", "fallback": "x", "error": "E", "wrong": "W", "crash": "C", NOT_APPLICABLE: "-"}
WORDS = {"native": "agree", "fallback": "no lowering", "error": "error", "wrong": "wrong", "crash": "crash"}


def counts_of(results: Results, dtype: str) -> collections.Counter[str]:
    return collections.Counter(state_of(r) for r in results.rows if dtype in (r["dtype"], "all"))


def share(counts: collections.Counter[str]) -> tuple[int, int]:
    """(pairs that agree, pairs that the CPU runs)"""
    return counts["native"], sum(counts.values()) - counts[NOT_APPLICABLE]


def summary(results: Results) -> str:
    lines = []
    for dtype in [d for d, _ in DTYPES] + ["all"]:
        counts = collections.Counter(state_of(r) for r in results.rows if dtype in (r["dtype"], "all"))
        good, pairs = share(counts)
        if pairs:
            others = ", ".join(f"{counts[s]} {WORDS[s]}" for s in STATES[1:])
            lines.append(f"{dtype}: {good} of {pairs} pairs agree ({100 * good / pairs:.1f} %); {others}")
    return "\n".join(lines)


def engine_letters() -> dict[str, dict[str, str]]:
    """operator -> column -> letter, from the table at the end of docs/coverage.md."""
    found: dict[str, dict[str, str]] = {}
    columns: list[str] = []
    for line in (ROOT / "docs" / "coverage.md").read_text().splitlines():
        cells = [c.strip() for c in line.strip("|").split("|")] if line.startswith("|") else []
        if cells and cells[0] == "operator" and "f32" in cells:
            columns = cells[1:]
        elif columns and len(cells) == len(columns) + 1 and not set(line) <= {"|", "-"}:
            found[cells[0]] = dict(zip(columns, cells[1:], strict=True))
    return found


def reason(text: str) -> str:
    """A verdict's detail without numbers and advice."""
    text = re.sub(r"^\w+Error: ", "", text)
    text = text.replace(" Rewrite this part of the model, or keep it on the CPU.", "")
    return re.sub(r"\d+(\.\d+)?", "#", text).replace("|", "\\|")[:200]


def page(results: Results) -> str:
    about = results.about
    lines = [
        "# Lowering coverage",
        "",
        f"Written by `make coverage-lowering` (torch {about['torch']}, {about['cpu']}, {about['seconds'] / 60:.0f} min on "  # noqa: E501
        f"{about['workers']} processes). Do not edit.",
        "",
        "Samples of PyTorch's operator database are lowered to StableHLO, compiled by XLA for the CPU, run, and compared "  # noqa: E501
        "with PyTorch on the CPU: forward, and backward where the operator has one. Operators that draw random numbers "
        "are compared with the `neuron` device, whose random stream the modules share. A pair (operator, dtype) is as "
        "good as its worst sample. What the letters of the engine mean is in [coverage.md](coverage.md).",
        "",
        "| letter | meaning |",
        "|---|---|",
        "| L | lowered; the results are equal within the tolerances |",
        "| x | at least one sample cannot be lowered; the reasons are below |",
        "| W, E, C | wrong value, error, crash |",
        "| - | the CPU runs no sample of the pair |",
        "",
        "## Totals",
        "",
        "| dtype | pairs | agree | no lowering | error | wrong | crash | share |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for dtype, _ in DTYPES:
        lines.append(_total(dtype, [r for r in results.rows if r["dtype"] == dtype]))
    lines.append(_total("**all**", results.rows))
    engine = engine_letters()
    both = sum(_both(engine, r) for r in results.rows)
    lines += ["", f"{both} pairs are native on the engine (N) and agree through their lowering (L): both."]
    lines += ["", "## Why pairs have no lowering", "", "| reason | pairs | for example |", "|---|---|---|"]
    why: dict[str, list[str]] = collections.defaultdict(list)
    for row in results.rows:
        for verdict in row["variants"].values():
            if verdict["state"] == "fallback":
                why[reason(verdict.get("detail", ""))].append(f"{row['name']}/{row['dtype']}")
    for text, pairs in sorted(why.items(), key=lambda kv: (-len(set(kv[1])), kv[0])):
        unique = list(dict.fromkeys(pairs))
        lines.append(f"| {text} | {len(unique)} | {', '.join(unique[:4])} |")
    lines += ["", "## By operator", "", "A cell is engine / lowering.", ""]
    lines += ["| operator | " + " | ".join(s for _, s in DTYPES) + " |", "|---" * (len(DTYPES) + 1) + "|"]
    table: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for row in results.rows:
        short = dict(DTYPES)[row["dtype"]]
        table[row["name"]][short] = f"{engine.get(row['name'], {}).get(short, '?')} / {LETTERS[state_of(row)]}"
    for name in sorted(table):
        lines.append(f"| {name} | " + " | ".join(table[name].get(s, "") for _, s in DTYPES) + " |")
    return "\n".join(lines) + "\n"


def _both(engine: dict[str, dict[str, str]], row: dict[str, Any]) -> bool:
    return state_of(row) == "native" and engine.get(row["name"], {}).get(dict(DTYPES)[row["dtype"]]) == "N"


def _total(title: str, rows: list[dict[str, Any]]) -> str:
    counts = collections.Counter(state_of(r) for r in rows)
    good, pairs = share(counts)
    cells = " | ".join(str(counts[s]) for s in STATES)
    return (
        f"| {title} | {len(rows)} | {cells} | {100 * good / pairs:.1f} % |" if pairs else f"| {title} | 0 | {cells} | |"
    )
