"""Results on disk, the known failures they are held against, and the Markdown page made of them."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import platform
import re
from collections.abc import Iterable
from typing import Any

import yaml

from conformance.compare import NOT_APPLICABLE, STATES
from conformance.pool import Task

HERE = pathlib.Path(__file__).resolve().parent
KNOWN = HERE / "known_failures.yaml"
BAD = ("wrong", "error", "crash")
KINDS = {
    "op": "operators",
    "error": "error inputs",
    "module": "modules",
    "optimizer": "optimizers",
    "foreach": "foreach functions",
    "custom": "custom operators",
    "compile": "operators under torch.compile",
}
DATABASES = tuple(kind for kind in KINDS if kind != "compile")  # what docs/coverage.md is made of
DTYPE_ORDER = (
    ("float32", "f32"), ("bfloat16", "bf16"), ("float16", "f16"), ("int64", "i64"), ("bool", "bool"),
    ("float64", "f64"), ("int32", "i32"), ("int16", "i16"), ("int8", "i8"), ("uint8", "u8"), ("uint16", "u16"),
    ("uint32", "u32"), ("uint64", "u64"), ("complex64", "c64"), ("complex128", "c128"), ("complex32", "c32"),
    ("float8_e4m3fn", "e4m3"), ("float8_e5m2", "e5m2"), ("float8_e4m3fnuz", "e4m3z"), ("float8_e5m2fnuz", "e5m2z"),
    ("float8_e8m0fnu", "e8m0"), ("float4_e2m1fn_x2", "f4"),
)  # fmt: skip
LETTERS = {"native": "N", "fallback": "F", "wrong": "W", "error": "E", "crash": "C", NOT_APPLICABLE: "-"}


@dataclasses.dataclass(frozen=True, order=True)
class Key:
    kind: str
    name: str
    dtype: str
    variant: str


@dataclasses.dataclass
class Results:
    about: dict[str, Any]
    rows: list[dict[str, Any]]  # kind, name, dtype, seconds, variants: {variant: verdict}

    @classmethod
    def read(cls, path: pathlib.Path) -> Results:
        data = json.loads(path.read_text())
        return cls(data["about"], data["rows"])

    def write(self, path: pathlib.Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"about": self.about, "rows": self.rows}, indent=1))

    def add(self, task: Task, verdicts: dict[str, dict[str, Any]], seconds: float) -> None:
        self.rows.append({**task._asdict(), "seconds": round(seconds, 3), "variants": verdicts})

    def verdicts(self) -> Iterable[tuple[Key, dict[str, Any]]]:
        for row in self.rows:
            for variant, verdict in row["variants"].items():
                yield Key(row["kind"], row["name"], row["dtype"], variant), verdict

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [r for r in self.rows if r["kind"] == kind]


def state_of(row: dict[str, Any]) -> str:
    """The worst state of a row's variants."""
    states = [v["state"] for v in row["variants"].values() if v["state"] != NOT_APPLICABLE]
    return max(states, key=STATES.index) if states else NOT_APPLICABLE


def letter(row: dict[str, Any]) -> str:
    """N, F, W, E, C or -; D for a fallback where every operator ran on the device, but in a type the chip lacks."""
    state = state_of(row)
    if state == "fallback":
        names = [op for v in row["variants"].values() for op in v.get("fallbacks", {})]
        if names and all(n.endswith("[dtype]") for n in names):
            return "D"
    return LETTERS[state]


def native_share(results: Results, dtype: str) -> tuple[int, int]:
    """(native pairs, pairs) of the op database in one dtype; pairs that the CPU does not run are left out."""
    states = [state_of(r) for r in results.of("op") if r["dtype"] == dtype]
    states = [s for s in states if s != NOT_APPLICABLE]
    return states.count("native"), len(states)


# --- known failures ---------------------------------------------------------------------------------------------------
def known_failures(size: str) -> dict[Key, dict[str, Any]]:
    """Entries of known_failures.yaml that this size of run is expected to meet."""
    found = {}
    for row in yaml.safe_load(KNOWN.read_text()) or []:
        if not str(row.get("reason") or "").strip() or row["reason"] == "unreviewed":
            raise ValueError(f"known_failures.yaml: {row['name']} {row['variant']} has no reviewed reason")
        if size in row["sizes"]:
            for dtype in row["dtypes"]:
                found[Key(row["kind"], row["name"], dtype, row["variant"])] = row
    return found


def judge(results: Results, known: dict[Key, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """(failures that are not known, or known as another state; entries that pass now and have to be removed)."""
    unexpected, passing = [], []
    for key, verdict in results.verdicts():
        row = known.get(key)
        state = verdict["state"]
        text = f"{key.kind} {key.name} {key.dtype} {key.variant}: {state}: {verdict.get('detail', '')}"
        if state in BAD and (row is None or row["state"] != state):
            sample = verdict.get("sample", "")
            unexpected.append(f"{text}  [{sample}]" + (f" (known as {row['state']})" if row else ""))
        elif row is not None and state not in BAD:
            passing.append(f"{key.kind} {key.name} {key.dtype} {key.variant}: known as {row['state']}, now {state}")
    return unexpected, passing


def update_known(results: Results) -> int:
    """Rewrites known_failures.yaml from this run. Reasons stay; new entries say `unreviewed`, which tests refuse."""
    size = results.about["size"]
    old: dict[Key, dict[str, Any]] = {}
    for row in yaml.safe_load(KNOWN.read_text()) or [] if KNOWN.exists() else []:
        for dtype in row["dtypes"]:
            old[Key(row["kind"], row["name"], dtype, row["variant"])] = row
    merged: dict[Key, tuple[str, str, tuple[str, ...], str]] = {}
    seen = set()
    for key, verdict in results.verdicts():
        seen.add(key)
        previous = old.get(key)
        sizes = set(previous["sizes"]) if previous else set()
        if verdict["state"] in BAD:
            reason = previous["reason"] if previous else "unreviewed"
            error = shorten(verdict.get("detail", ""))
            merged[key] = (verdict["state"], error, tuple(sorted(sizes | {size})), reason)
        elif sizes - {size}:
            assert previous is not None
            merged[key] = (previous["state"], previous["error"], tuple(sorted(sizes - {size})), previous["reason"])
    for key, row in old.items():
        if key not in seen:
            merged[key] = (row["state"], row["error"], tuple(row["sizes"]), row["reason"])
    groups: dict[tuple[Any, ...], list[str]] = collections.defaultdict(list)
    for key, value in sorted(merged.items()):
        groups[(key.kind, key.name, key.variant) + value].append(key.dtype)
    out = [
        {
            "kind": kind, "name": name, "variant": variant, "dtypes": sorted(dtypes), "state": state,
            "error": error, "sizes": list(sizes), "reason": reason,
        }
        for (kind, name, variant, state, error, sizes, reason), dtypes in sorted(groups.items())
    ]  # fmt: skip
    head = (
        "# Written by `python tests/conformance/coverage.py --update-known`; the reasons are written by hand.\n"
        "# Strict: a failure that is not here fails the tests, and so does an entry that passes.\n"
    )
    KNOWN.write_text(head + yaml.safe_dump(out, sort_keys=False, width=120, allow_unicode=True))
    return len(out)


def shorten(detail: str) -> str:
    """An error text without the numbers that change from sample to sample."""
    return re.sub(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?", "#", detail)[:160]


# --- pages ------------------------------------------------------------------------------------------------------------
def cpu_name() -> str:
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def findings(results: Results) -> str:
    """Failures by cause, most frequent first, then fallbacks by operator."""
    causes: dict[tuple[str, str], list[tuple[Key, dict[str, Any]]]] = collections.defaultdict(list)
    left: dict[str, set[str]] = collections.defaultdict(set)
    for key, verdict in results.verdicts():
        if verdict["state"] in BAD:
            causes[verdict["state"], shorten(verdict.get("detail", ""))].append((key, verdict))
        for op in verdict.get("fallbacks", {}):
            left[op].add(f"{key.name}/{key.dtype}")
    lines = [summary(results), "", "## Failures by cause"]
    for (state, _), hits in sorted(causes.items(), key=lambda kv: (-STATES.index(kv[0][0]), -len(kv[1]))):
        key, verdict = hits[0]
        lines.append(f"\n### {state} x{len(hits)}: {verdict.get('detail', '')}")
        lines.append(f"repro: {key.name}({verdict.get('sample', '')})  [{key.dtype}, {key.variant}]")
        lines.append(f"run:   tests/conformance/coverage.py --show --kinds {key.kind} --only '^{key.name}$' "
                     + (f"--dtypes {key.dtype}" if key.dtype != "-" else ""))  # fmt: skip
        lines += [f"    {note}" for note in verdict.get("notes", [])]
        by_name: dict[str, set[str]] = collections.defaultdict(set)
        for k, _ in hits:
            by_name[k.name].add(f"{k.dtype}:{k.variant}")
        lines += [f"  - {name}: {' '.join(sorted(what))[:200]}" for name, what in list(by_name.items())[:25]]
        if len(by_name) > 25:
            lines.append(f"  - and {len(by_name) - 25} more: {' '.join(list(by_name)[25:])[:600]}")
    lines += ["", "## Equal within the tolerance, but not bit by bit"]
    inexact: dict[str, list[str]] = collections.defaultdict(list)
    for key, verdict in results.verdicts():
        if verdict.get("inexact"):
            inexact[key.name].append(f"{key.dtype}:{key.variant}")
    lines += [f"- {name}: {' '.join(found)[:200]}" for name, found in sorted(inexact.items())]
    lines += ["", "## Fallbacks by operator (pairs touched)"]
    for op, pairs in sorted(left.items(), key=lambda kv: -len(kv[1])):
        lines.append(f"- {op}: {len(pairs)}: {' '.join(sorted(pairs)[:8])}")
    return "\n".join(lines) + "\n"


def asking_for_other_types(results: Results) -> int:
    """Native pairs of the five dtypes with samples that ask for a type Trainium lacks (Verdict.other_types)."""
    five = {name for name, _ in DTYPE_ORDER[:5]}
    return sum(
        r["dtype"] in five and state_of(r) == "native" and any(v.get("other_types") for v in r["variants"].values())
        for r in results.of("op")
    )


def summary(results: Results) -> str:
    lines = []
    for kind, title in KINDS.items():
        rows = results.of(kind)
        if rows:
            counts = collections.Counter(state_of(r) for r in rows)
            lines.append(f"{title}: {len(rows)}: " + ", ".join(f"{counts[s]} {s}" for s in (*STATES, NOT_APPLICABLE)))
    for dtype, _ in DTYPE_ORDER[:5]:
        native, pairs = native_share(results, dtype)
        if pairs:
            lines.append(f"  {dtype}: {native} of {pairs} pairs native ({100 * native / pairs:.1f} %)")
    if other := asking_for_other_types(results):
        lines.append(f"  {other} of them have samples that ask for float64 or complex, which are compared, not counted")
    return "\n".join(lines)


def page(results: Results) -> str:
    """docs/coverage.md."""
    about = results.about
    lines = [
        "# Operator coverage",
        "",
        f"Written by `{about['command']}` ({about['size']} form, torch {about['torch']}, {about['cpu']}, "
        f"{about['seconds'] / 60:.0f} min on {about['workers']} processes). Do not edit.",
        "",
        "PyTorch's operator database runs on the `neuron` device and on the CPU with the same samples: as a function, "
        "a method, in place, with `out=` (right size, strided, empty, wrong size, wrong dtype, wrong device), with "
        "strided, conjugated, negated and empty inputs, and backward. A pair (operator, dtype) is as good as its worst "
        "variant:",
        "",
        "| letter | state | meaning |",
        "|---|---|---|",
        "| N | native | results equal the CPU's and nothing left the device |",
        "| D | fallback | results equal; computed on the device, in a type that Trainium lacks (float64, complex) |",
        "| F | fallback | results equal; at least one operator ran on the CPU through a copy |",
        "| W | wrong | a value, dtype, shape, alias or gradient differs |",
        "| E | error | raises where the CPU does not, or another type of exception |",
        "| C | crash | the process died or hung |",
        "| - | n/a | the CPU raises for every sample, and so does the device, with the same type |",
        "",
        "A sample that itself asks for a type Trainium lacks (`softmax(x, dtype=torch.float64)` in a float32 pair) is "
        "compared like any other, but does not make its pair a fallback: it computes in the type it asked for. "
        f"{asking_for_other_types(results)} of the native pairs of the first five dtypes have such samples.",
        "",
        "## Totals",
        "",
        "| dtype | pairs | " + " | ".join((*STATES, NOT_APPLICABLE)) + " | native share |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    present = [(n, s) for n, s in DTYPE_ORDER if any(r["dtype"] == n for r in results.of("op"))]
    for name, _ in present:
        lines.append(_total(name, [r for r in results.of("op") if r["dtype"] == name]))
    five = {n for n, _ in DTYPE_ORDER[:5]}
    lines.append(_total("**the first five**", [r for r in results.of("op") if r["dtype"] in five]))
    lines.append(_total("**all**", results.of("op")))
    lines += ["", "| variant | " + " | ".join((*STATES, NOT_APPLICABLE)) + " |", "|---" * 7 + "|"]
    by_variant: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for key, verdict in results.verdicts():
        if key.kind in ("op", "error"):
            by_variant[key.variant][verdict["state"]] += 1
    for variant, counts in by_variant.items():
        lines.append(f"| {variant} | " + " | ".join(str(counts[s]) for s in (*STATES, NOT_APPLICABLE)) + " |")
    lines += ["", "| database | entries | " + " | ".join((*STATES, NOT_APPLICABLE)) + " |", "|---" * 8 + "|"]
    for kind in ("module", "optimizer", "foreach", "custom"):
        rows = results.of(kind)
        counts = collections.Counter(state_of(r) for r in rows)
        names = len({r["name"] for r in rows})
        lines.append(
            f"| {KINDS[kind]} | {names} ({len(rows)} with dtypes) | "
            + " | ".join(str(counts[s]) for s in (*STATES, NOT_APPLICABLE))
            + " |"
        )
    lines += ["", "## Operators that leave the device", "", "| operator | pairs |", "|---|---|"]
    left: dict[str, set[tuple[str, str]]] = collections.defaultdict(set)
    for key, verdict in results.verdicts():
        for op in verdict.get("fallbacks", {}):
            if key.kind == "op" and not op.endswith("[dtype]"):
                left[op].add((key.name, key.dtype))
    lines += [f"| `{op}` | {len(pairs)} |" for op, pairs in sorted(left.items(), key=lambda kv: (-len(kv[1]), kv[0]))]
    lines += ["", "## By operator", "", "| operator | " + " | ".join(s for _, s in present) + " |"]
    lines.append("|---" * (len(present) + 1) + "|")
    table: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for row in results.of("op"):
        table[row["name"]][row["dtype"]] = letter(row)
    for name in sorted(table):
        lines.append(f"| {name} | " + " | ".join(table[name].get(n, "") for n, _ in present) + " |")
    bad = [(k, v) for k, v in sorted(results.verdicts(), key=lambda kv: kv[0]) if v["state"] in BAD]
    lines += ["", f"## Known failures ({len(bad)})", ""]
    lines += ["Reasons are in `tests/conformance/known_failures.yaml`.", ""] if bad else ["None."]
    for key, verdict in bad:
        detail = shorten(verdict.get("detail", "")).replace("|", "\\|")
        lines.append(f"- {key.kind} `{key.name}` {key.dtype} {key.variant}: {verdict['state']}: {detail}")
    return "\n".join(lines) + "\n"


def _total(title: str, rows: list[dict[str, Any]]) -> str:
    counts = collections.Counter(state_of(r) for r in rows)
    run = len(rows) - counts[NOT_APPLICABLE]
    share = f"{100 * counts['native'] / run:.1f} %" if run else ""
    cells = [str(counts[s]) for s in (*STATES, NOT_APPLICABLE)]
    return f"| {title} | {len(rows)} | " + " | ".join(cells) + f" | {share} |"
