"""Runs public NKI kernels against their own references and prints, or writes, the table of docs/nki-public-kernels.md.

    NKI_LIBRARY_PATH=<checkout of aws-neuron/nki-library> NKI_SAMPLES_PATH=<checkout of aws-neuron/nki-samples> \
        python tests/ecosystem/nki_public.py [--write] [--rows 1,5-8]

The checkouts are only read. What is missing from the environment names is left out. NKI_LIBRARY_CASES (3) is how many
cases of each test function run, NKI_LIBRARY_SECONDS (120) how long one may take.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "nki-public-kernels.md"
MARK = "<!-- results -->"
FOLDER = "test/integration/nkilib"

# The targets, each with the files of the suite that belong to it.
TARGETS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("cumulative sum", ("core/cumsum/test_cumsum",)),
    ("tensor views", ("core/utils/test_tensor_view",)),
    ("copy across partitions", ("core/utils/test_cross_partition_copy",)),
    ("broadcast by transposition", ("core/utils/test_tp_broadcast",)),
    ("quantise to MX", ("core/utils/test_quantize_to_mx",)),
    ("RMS norm, decoding", ("core/subkernels/test_rmsnorm_tkg",)),
    ("layer norm, decoding", ("core/subkernels/test_layernorm_tkg",)),
    ("find nonzero indices", ("core/subkernels/test_find_nonzero_indices",)),
    ("indexed flatten", ("core/subkernels/test_indexed_flatten",)),
    ("RoPE", ("core/embeddings/test_rope", "core/embeddings/test_rope_hf")),
    ("cascaded max", ("core/max/test_cascaded_max", "core/max/test_cascaded_max_utils")),
    ("RMS norm and quantise", ("core/rmsnorm/test_rmsnorm_quant",)),
    ("router top-k", ("core/router_topk/test_router_topk",)),
    ("rotational top-k", ("core/topk/test_topk",)),
    ("attention masks, decoding", ("core/attention/test_gen_mask_tkg",)),
    ("attention, prefill", ("core/attention/test_attention_cte",)),
    ("attention, decoding", ("core/attention/test_attention_tkg",)),
    ("attention, backward", ("core/attention/test_attention_bwd",)),
    ("QKV projection", ("core/qkv/test_qkv_cte", "core/qkv/test_qkv_tkg")),
    (
        "output projection",
        ("core/output_projection/test_output_proj_cte", "core/output_projection/test_output_proj_tkg"),
    ),
    ("MLP", ("core/mlp/test_mlp_tkg", "core/mlp/test_mlp_cte", "core/mlp/test_mlp_proj_mxfp4")),
    ("mixture of experts", ("core/moe/moe_tkg/test_moe_tkg", "core/moe/moe_cte/test_moe_cte")),
    ("dynamic shapes", ("experimental/dynamic_shapes/test_dynamic_elementwise_add",)),
    (
        "cross-entropy",
        ("experimental/loss/test_cross_entropy_forward", "experimental/loss/test_cross_entropy_backward"),
    ),
    ("convolution", ("experimental/conv/test_conv1d", "experimental/conv/test_depthwise_conv1d")),
    (
        "top-k reduction, collectives",
        ("experimental/subkernels/test_topk_reduce", "experimental/collectives/test_collectives"),
    ),
)


@dataclasses.dataclass
class Row:
    """What the cases of one target gave: counts by outcome, and the first line of each different failure."""

    number: int
    title: str
    counts: Counter[str]
    problems: list[str]

    @property
    def passes(self) -> bool:
        """Cases ran, and all of them agree with the reference."""
        return self.counts["passed"] > 0 and self.counts["failed"] + self.counts["errors"] == 0

    def line(self) -> str:
        """The row of the table."""
        done = "passes" if self.passes else "partly" if self.counts["passed"] else "fails"
        outcome = (
            f"{self.counts['passed']} | {self.counts['failed'] + self.counts['errors']} | {self.counts['skipped']}"
        )
        return f"| {self.number} | {self.title} | {done} | {outcome} | {'; '.join(self.problems)} |"


def run_file(checkout: Path, file: str) -> tuple[Counter[str], list[str]]:
    """Runs one file of the suite. Outcomes, and the first lines of failures."""
    if not (checkout / FOLDER / f"{file}.py").exists():
        return Counter(errors=1), [f"{file}.py is not in the checkout"]
    paths = os.pathsep.join([str(ROOT / "src"), str(HERE)])
    environment = {**os.environ, "NKI_LIBRARY_PATH": str(checkout), "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-p", "nki_library_plugin", "--noconftest", "-c", os.devnull]
        command += [f"--rootdir={checkout}", "-p", "no:cacheprovider", "-W", "ignore", "-q", f"--junitxml={report}"]
        subprocess.run([*command, f"{FOLDER}/{file}.py"], cwd=checkout, env=environment, stdout=subprocess.DEVNULL)
        suite = ElementTree.parse(report).getroot()
    counts: Counter[str] = Counter()
    problems: dict[str, None] = {}
    for case in suite.iter("testcase"):
        outcome = next((o for o in ("failure", "error", "skipped") if case.find(o) is not None), "passed")
        counts[{"failure": "failed", "error": "errors"}.get(outcome, outcome)] += 1
        found = case.find(outcome)
        if outcome in ("failure", "error") and found is not None:
            problems[_first_line(found)] = None
    return counts, [f"{Path(file).name}: {text}" for text in problems]


def _first_line(found: ElementTree.Element) -> str:
    lines = [line for line in (found.text or "").splitlines() if line.startswith("E  ")] or [found.get("message", "")]
    text = lines[-1].removeprefix("E").strip() if "Error" not in lines[0] else lines[0].removeprefix("E").strip()
    return text.replace("|", "/").split(" (/")[0][:160]


def run_library(checkout: Path, chosen: set[int]) -> list[Row]:
    """Runs the targets, one after the other, and prints each row as it is known."""
    rows = []
    for number, (title, files) in enumerate(TARGETS, 1):
        if number not in chosen:
            continue
        row = Row(number, title, Counter(), [])
        for file in files:
            counts, problems = run_file(checkout, file)
            row.counts += counts
            row.problems += problems
        rows.append(row)
        print(row.line(), flush=True)
    return rows


def commit(checkout: Path) -> str:
    """The commit of a checkout; for an archive without one, NKI_COMMIT or nothing."""
    found = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
    inside = found.returncode == 0 and (checkout / ".git").exists()
    return found.stdout.strip() if inside else os.environ.get("NKI_COMMIT", "unknown")


def numbers(text: str) -> set[int]:
    """The numbers of "1,5-8"."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen |= set(range(int(first), int(last or first) + 1))
    return chosen


def main() -> int:
    """Runs what the environment names. Exit status 1 when fewer than 18 targets pass, of all that there are."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the tables into docs/nki-public-kernels.md")
    parser.add_argument("--rows", type=numbers, default=set(range(1, len(TARGETS) + 1)), help="targets, as 1,5-8")
    options = parser.parse_args()
    text = []
    status = 0
    if "NKI_LIBRARY_PATH" in os.environ:
        checkout = Path(os.environ["NKI_LIBRARY_PATH"]).resolve()
        rows = run_library(checkout, options.rows)
        passed = sum(row.passes for row in rows)
        status = int(len(rows) == len(TARGETS) and passed < 18)
        text.append(f"## nki-library\n\nCommit {commit(checkout)}: {passed} of {len(rows)} targets pass.\n")
        text.append("| # | target | result | passed | failed | skipped by the suite | what fails |\n|" + "---|" * 7)
        text += [row.line() for row in rows]
    if "NKI_SAMPLES_PATH" in os.environ:
        import nki_samples

        checkout = Path(os.environ["NKI_SAMPLES_PATH"]).resolve()
        results = nki_samples.run(checkout)
        status |= int(any(problem for _, problem in results))
        good = sum(not problem for _, problem in results)
        text.append(f"\n## nki-samples\n\nCommit {commit(checkout)}: {good} of {len(results)} kernels agree.\n")
        text.append("| kernel | result |\n|---|---|")
        text += [f"| `{name}` | {problem or 'agrees'} |" for name, problem in results]
    print("\n".join(text))
    if options.write:
        head = PAGE.read_text().split(MARK)[0]
        PAGE.write_text(head + MARK + "\n\n" + "\n".join(text) + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
