"""Runs PyTorch's databases on the device and writes what became of every (operator, dtype) pair.

python tests/conformance/coverage.py                       all pairs, every sample up to a cap, docs/coverage.md
python tests/conformance/coverage.py --kinds compile       compiled; docs/compile-coverage.md
python tests/conformance/coverage.py --size quick          what CI runs: 3 samples a variant, five dtypes
python tests/conformance/coverage.py --show --only '^add$' --dtypes float32     one operator, verdicts on the screen
python tests/conformance/coverage.py --update-known        rewrite known_failures.yaml from the run
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: waiting threads leave the cores to the workers
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch

from conformance import report, runner, tables
from conformance.pool import Pool, Task

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = {report.DATABASES: "coverage.md", ("compile",): "compile-coverage.md"}
FIVE = ",".join(runner.dtype_name(d) for d in tables.HARDWARE_DTYPES)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(runner.SIZES), default="full")
    parser.add_argument("--device", default="neuron", help="device under test (cpu checks the harness itself)")
    parser.add_argument("--kinds", default=",".join(report.DATABASES), help=f"of {','.join(report.KINDS)}")
    parser.add_argument("--dtypes", help=f"comma-separated; default: all, or {FIVE} in the quick form")
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=120, help="seconds that one variant may take")
    parser.add_argument("--json", type=pathlib.Path, help="default: build/conformance/SIZE.json")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file already has")
    parser.add_argument(
        "--page", type=pathlib.Path, help="Markdown page; default: docs/coverage.md after a whole full run"
    )
    parser.add_argument("--findings", type=pathlib.Path, help="failures grouped by cause")
    parser.add_argument("--update-known", action="store_true")
    parser.add_argument("--show", action="store_true", help="print every verdict that is not native")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    kinds = {("op" if k == "error" else k) for k in args.kinds.split(",")}
    wanted = args.dtypes or (FIVE if args.size == "quick" else None)
    chosen = runner.tasks(kinds, set(wanted.split(",")) if wanted else None, args.size)
    chosen = [t for t in chosen if t.kind in args.kinds.split(",") and re.search(args.only, t.name)]
    if not chosen:
        print("coverage: no entry matches", file=sys.stderr)
        return 2
    path = args.json or ROOT / "build" / "conformance" / f"{args.size}.json"
    given = tuple(args.kinds.split(","))
    whole = not args.only and not args.dtypes and args.size == "full" and given in PAGES
    command = "python tests/conformance/coverage.py" + ("" if args.size == "full" else f" --size {args.size}")
    make = "make coverage" + (' ARGS="--kinds compile"' if given == ("compile",) else "")
    results = report.Results(
        {
            "device": args.device, "size": args.size, "cpu": report.cpu_name(), "torch": torch.__version__,
            "command": make if args.size == "full" else command, "workers": args.workers, "seconds": 0.0,
        },
        [],
    )  # fmt: skip
    if args.resume and path.exists():
        results = report.Results.read(path)
        done = {(r["kind"], r["name"], r["dtype"]) for r in results.rows}
        chosen = [t for t in chosen if tuple(t) not in done]
    run(args, chosen, results, path)

    print(report.summary(results))
    if args.findings:
        args.findings.write_text(report.findings(results))
    page = args.page or (ROOT / "docs" / PAGES[given] if whole else None)
    if page:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(report.compiled_page(results) if given == ("compile",) else report.page(results))
        print(f"coverage: wrote {page}")
    if args.update_known:
        print(f"coverage: {report.update_known(results)} entries in {report.KNOWN.name}")
        return 0
    unexpected, passing = report.judge(results, report.known_failures(args.size))
    for text in unexpected:
        print(f"unexpected: {text}")
    for text in passing:
        print(f"passes, remove it from known_failures.yaml: {text}")
    return 1 if unexpected or passing else 0


def run(args: argparse.Namespace, chosen: list[Task], results: report.Results, path: pathlib.Path) -> None:
    started = last = time.monotonic()
    before = results.about["seconds"]
    pool = Pool(runner.Run(args.device, args.size), args.workers, args.limit)
    for count, (task, verdicts, seconds) in enumerate(pool.results(chosen), start=1):
        results.add(task, verdicts, seconds)
        if args.show:
            for variant, verdict in verdicts.items():
                if verdict["state"] != "native":
                    text = f"{verdict['state']:9} {verdict.get('detail', '')}  [{verdict.get('sample', '')}]"
                    print(f"{task.name:30} {task.dtype:9} {variant:14} {text}", *verdict.get("notes", []), sep="\n    ")
        now = time.monotonic()
        if now - last > 20 or count == len(chosen):
            last = now
            results.about["seconds"] = round(before + now - started, 1)
            results.write(path)
            print(f"coverage: {count} of {len(chosen)} entries, {now - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
