"""The second way: each sample of the op database is lowered to StableHLO, compiled by XLA for the CPU, run, and compared
with PyTorch on the CPU under the same tolerances as the device.

python tests/conformance/referee.py                            all pairs, writes docs/lowering-coverage.md
python tests/conformance/referee.py --size quick               a spread of the pairs, one sample each: a minute
python tests/conformance/referee.py --show --only '^add$' --dtypes float32     one operator, verdicts on the screen

A verdict is one of compare.STATES, with these meanings here: native: lowered, and equal. fallback: cannot be lowered,
and `detail` says why. error: anything else that was raised. wrong: another value, dtype or shape. crash: the process
died.
"""  # noqa: E501

from __future__ import annotations

import argparse
import os
import pathlib
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import torch

from conformance import lowering_page, report, runner, tables
from conformance.compare import Attempt, Judge, Mismatch, Verdict, attempt, one_line, where
from conformance.engine import SEED, op_name, spread
from conformance.moving import Sample, tensors_of
from conformance.pool import Pool, Task

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DTYPES = ("float32", "bfloat16", "float16", "int32", "int64", "bool")
SAMPLES = {"quick": 1, "full": 4}
QUICK_STEP = 11  # the quick form takes every eleventh pair: a prime, so that all dtypes and families are met
INT32 = torch.iinfo(torch.int32)


def tasks(dtypes: tuple[str, ...] = DTYPES) -> list[Task]:
    """Every (operator, dtype) pair of the database in these dtypes."""
    found = []
    for name, info in runner.ops().items():
        found += [Task("lowering", name, d) for d in dtypes if runner.dtype_of(d) in info.dtypes]
    return found


class Referee:
    """A pool.Runner: variants forward and, for floating point, backward of one pair."""

    def __init__(self, size: str) -> None:
        self.budget = SAMPLES[size]
        self.ready = False

    def __call__(
        self, task: Task, skip: set[str], announce: Callable[[str], None]
    ) -> Iterator[tuple[str, dict[str, Any] | None]]:
        if not self.ready:
            warnings.simplefilter("ignore")
            torch.set_num_threads(1)
            import torch_neuronx

            torch_neuronx.set_fallback_policy("allow")
            self.ready = True
        pair = Pair(runner.ops()[task.name], runner.dtype_of(task.dtype), self.budget, announce)
        for variant, run in pair.variants().items():
            if variant in skip:
                continue
            yield variant, None
            verdict = Verdict()
            announce("starting")
            try:
                run(verdict)
            except Exception as error:
                verdict.add("error", f"harness: {one_line(error)} at {where(error)}")
            yield variant, verdict.as_dict()


class Pair:
    """One (operator, dtype) pair before the referee."""

    def __init__(self, info: Any, dtype: torch.dtype, budget: int, announce: Callable[[str], None]) -> None:
        self.info, self.dtype, self.budget, self.announce = info, dtype, budget, announce
        self.name = op_name(info)
        metadata = self.name in tables.METADATA_ONLY or self.name in tables.APPROXIMATE
        self.judge = Judge(info, self.name, dtype, "cpu", metadata)
        self.random = self.name in tables.RANDOM

    def variants(self) -> dict[str, Callable[[Verdict], None]]:
        table: dict[str, Callable[[Verdict], None]] = {"forward": self.forward}
        if self.info.supports_autograd and self.dtype in self.info.supported_backward_dtypes("cpu"):
            table["backward"] = self.backward
        return table

    def samples(self, requires_grad: bool) -> list[Sample]:
        found = self.info.sample_inputs("cpu", self.dtype, requires_grad=requires_grad)
        return [Sample.of(s) for s in spread(found, self.budget)]

    def call(self, sample: Sample) -> Any:
        return self.info.op(*sample.args, **sample.kwargs)

    def forward(self, verdict: Verdict) -> None:
        for sample in self.samples(False):
            self.check(verdict, sample, lambda *a, **k: self.info.op(*a, **k), self.call)

    def backward(self, verdict: Verdict) -> None:
        for sample in self.samples(True)[: max(1, self.budget // 2)]:
            if any(t.requires_grad for t in sample.tensors()):
                self.check(
                    verdict,
                    sample,
                    lambda *a, process=sample.process, **k: self.gradients(Sample(a, k, process)),
                    self.gradients,
                )

    def gradients(self, sample: Sample) -> Any:
        """Gradients of the leaves for a gradient of ones, scaled by position so that mistakes in order show."""
        leaves = [t for t in sample.tensors() if t.requires_grad]
        outputs = [t for t in tensors_of(sample.process(self.call(sample))) if t.requires_grad]
        if not outputs or not leaves:
            return None
        seeds = [torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape).to(t.dtype) for t in outputs]
        return [
            torch.zeros_like(t) if g is None else g
            for t, g in zip(leaves, torch.autograd.grad(outputs, leaves, seeds, allow_unused=True), strict=True)
        ]

    def check(
        self, verdict: Verdict, sample: Sample, function: Callable[..., Any], reference: Callable[[Sample], Any]
    ) -> None:
        from torch_neuronx.lowering.errors import LoweringError

        described = sample.describe()
        self.announce(f"cpu|{described}")
        expected = self.expected(sample, reference)
        if expected.error is not None:
            return
        self.announce(f"device|{described}")
        try:
            got = self.run(sample, function)
            self.compare(got, expected.value)
        except LoweringError as error:
            verdict.add("fallback", one_line(error), described)
        except Mismatch as error:
            if beyond_int32(expected.value):
                verdict.add("fallback", "an int64 result beyond int32, as which int64 runs", described)
            else:
                verdict.add("wrong", str(error), described)
        except Exception as error:
            verdict.add("error", f"{one_line(error)} at {where(error)}", described)
        else:
            verdict.add("native", sample=described)

    def expected(self, sample: Sample, reference: Callable[[Sample], Any]) -> Attempt:
        """PyTorch's answer: the CPU's; for operators that draw, the device's, whose random stream the module has."""
        if not self.random:
            return attempt(lambda: reference(sample.on("cpu")))
        on_device = sample.on("neuron")
        torch.manual_seed(SEED)
        return attempt(lambda: reference(on_device))

    def run(self, sample: Sample, function: Callable[..., Any]) -> Any:
        import torch_neuronx

        given = sample.on("cpu")
        lowered = torch_neuronx.lower(function, given.args, given.kwargs, name="sample")
        return lowered.run(*given.args, seed=SEED, **given.kwargs)

    def compare(self, got: Any, expected: Any) -> None:
        expected = torch.utils._pytree.tree_map(
            lambda t: t.detach().cpu() if isinstance(t, torch.Tensor) else t, expected
        )
        self.judge.compare(got, expected, on_device=False)


def beyond_int32(value: Any) -> bool:
    """Whether a result holds integers that do not fit into 32 bits."""
    wide = [t for t in tensors_of(value) if t.dtype == torch.int64 and t.numel()]
    return any(int(t.min()) < INT32.min or int(t.max()) > INT32.max for t in wide)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=tuple(SAMPLES), default="full")
    parser.add_argument("--dtypes", help=f"comma-separated; default: {','.join(DTYPES)}")
    parser.add_argument("--only", default="", help="regular expression on the entry's name")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--limit", type=float, default=180, help="seconds that one variant may take")
    parser.add_argument("--json", type=pathlib.Path, help="default: build/conformance/lowering-SIZE.json")
    parser.add_argument("--resume", action="store_true", help="keep what the JSON file already has")
    parser.add_argument("--page", type=pathlib.Path, help="default: docs/lowering-coverage.md after a whole full run")
    parser.add_argument("--show", action="store_true", help="print every verdict that is not native")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    chosen = tasks(tuple(args.dtypes.split(",")) if args.dtypes else DTYPES)
    chosen = [t for t in chosen if re.search(args.only, t.name)]
    if args.size == "quick" and not args.only:
        chosen = chosen[::QUICK_STEP]
    if not chosen:
        print("referee: no entry matches", file=sys.stderr)
        return 2
    path = args.json or ROOT / "build" / "conformance" / f"lowering-{args.size}.json"
    results = report.Results(
        {
            "size": args.size,
            "cpu": report.cpu_name(),
            "torch": torch.__version__,
            "workers": args.workers,
            "seconds": 0.0,
        },
        [],
    )
    if args.resume and path.exists():
        results = report.Results.read(path)
        done = {(r["kind"], r["name"], r["dtype"]) for r in results.rows}
        chosen = [t for t in chosen if tuple(t) not in done]
    run(args, chosen, results, path)
    print(lowering_page.summary(results))
    whole = args.size == "full" and not args.only and not args.dtypes
    page = args.page or (ROOT / "docs" / "lowering-coverage.md" if whole else None)
    if page:
        page.write_text(lowering_page.page(results))
        print(f"referee: wrote {page}")
    bad = [(k, v) for k, v in results.verdicts() if v["state"] in report.BAD]
    for key, verdict in bad:
        print(f"{key.name} {key.dtype} {key.variant}: {verdict['state']}: {verdict.get('detail', '')}")
    return 1 if bad else 0


def run(args: argparse.Namespace, chosen: list[Task], results: report.Results, path: pathlib.Path) -> None:
    started = last = time.monotonic()
    before = results.about["seconds"]
    pool = Pool(Referee(args.size), args.workers, args.limit)
    for count, (task, verdicts, seconds) in enumerate(pool.results(chosen), start=1):
        results.add(task, verdicts, seconds)
        if args.show:
            for variant, verdict in verdicts.items():
                if verdict["state"] != "native":
                    text = f"{verdict['state']:9} {verdict.get('detail', '')}  [{verdict.get('sample', '')}]"
                    print(f"{task.name:30} {task.dtype:9} {variant:9} {text}", *verdict.get("notes", []), sep="\n    ")
        now = time.monotonic()
        if now - last > 20 or count == len(chosen):
            last = now
            results.about["seconds"] = round(before + now - started, 1)
            results.write(path)
            print(f"referee: {count} of {len(chosen)} pairs, {now - started:.0f} s", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
