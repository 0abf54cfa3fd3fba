"""Times the neuron device against the same program on the CPU, interleaved in one process, and prints ratios.

A ratio is CPU time over neuron time: above 1 the device is faster. Every round runs both, in the order CPU, neuron,
neuron, CPU, so that a slow minute of the machine hits both alike; the figure is the median of the rounds' ratios, with
its quartiles. `--quick` runs one round of the small sizes and proves only that the program works.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch loads OpenMP

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from models import MODELS
from torch import Tensor

DEVICES = ("cpu", "neuron")
Program = Callable[[], object]


def cpu_name() -> str:
    """The processor's name and its number of cores."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()}"


def measure(cpu: Program, neuron: Program, rounds: int, calls: int) -> dict[str, float]:
    """Median and quartiles of the rounds' ratios, and the median microseconds of a call on each device."""

    def once(program: Program) -> float:
        began = time.perf_counter()
        for _ in range(calls):
            program()
        return (time.perf_counter() - began) / calls

    once(cpu), once(neuron)  # warm up
    ratios, times = [], {"cpu": [], "neuron": []}
    for _ in range(rounds):
        a, b, c, d = once(cpu), once(neuron), once(neuron), once(cpu)
        ratios.append((a + d) / (b + c))
        times["cpu"].append((a + d) / 2)
        times["neuron"].append((b + c) / 2)
    quartiles = statistics.quantiles(ratios, n=4) if rounds > 1 else [ratios[0]] * 3
    return {
        "ratio": quartiles[1],
        "low": quartiles[0],
        "high": quartiles[2],
        "cpu_us": statistics.median(times["cpu"]) * 1e6,
        "neuron_us": statistics.median(times["neuron"]) * 1e6,
    }


def on_both(
    make: Callable[[Callable[..., Tensor]], Program], *shapes: tuple[int, ...], dtype: torch.dtype
) -> list[Program]:
    """The program of `make(t)` for each device, where t(i) is the i-th input tensor there."""
    tensors = [torch.randn(shape).to(dtype) for shape in shapes]
    return [make([t.to(device) for t in tensors].__getitem__) for device in DEVICES]


TINY: dict[str, Callable[[Callable[..., Tensor]], Program]] = {
    "add": lambda t: lambda: t(0) + t(1),
    "mul by a number": lambda t: lambda: t(0) * 2.0,
    "exp": lambda t: lambda: t(0).exp(),
    "relu": lambda t: lambda: t(0).relu(),
    "sum": lambda t: lambda: t(0).sum(),
    "matmul": lambda t: lambda: t(0) @ t(1),
    "view": lambda t: lambda: t(0).view(16),
    "empty_like": lambda t: lambda: torch.empty_like(t(0)),
    "zero_": lambda t: lambda: t(0).zero_(),
    "copy_": lambda t: lambda: t(0).copy_(t(1)),
    "softmax": lambda t: lambda: t(0).softmax(-1),
    "add_": lambda t: lambda: t(0).add_(1.0),
}


def tiny(quick: bool) -> dict[str, dict[str, float]]:
    rounds, calls = (1, 20) if quick else (15, 2000)
    return {n: measure(*on_both(m, (4, 4), (4, 4), dtype=torch.float32), rounds, calls) for n, m in TINY.items()}


def sizes(quick: bool) -> dict[str, dict[str, float]]:
    results = {}
    for elements in [1 << 10, 1 << 16] if quick else [1 << 10, 1 << 16, 1 << 20, 1 << 24, 1 << 26]:
        rounds, calls = (1, 1) if quick else (7, max(1, (1 << 20) // elements))
        for name, program in {"add": TINY["add"], "exp": TINY["exp"], "sum": TINY["sum"]}.items():
            label = f"{name} {elements * 4 / 2**20:g} MiB"
            results[label] = measure(*on_both(program, (elements,), (elements,), dtype=torch.float32), rounds, calls)
    return results


def products(quick: bool) -> dict[str, dict[str, float]]:
    results = {}
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for n in [32] if quick else [128, 512, 1024] if dtype == torch.float32 else [128, 512]:
            programs = on_both(TINY["matmul"], (n, n), (n, n), dtype=dtype)
            results[f"{n}x{n} {str(dtype)[6:]}"] = measure(*programs, 1 if quick else 7, 1 if n > 256 else 4)
    return results


def training(quick: bool) -> dict[str, dict[str, float]]:
    """One training step: forward, backward, AdamW with its default arguments."""
    results = {}
    for name, spec in MODELS.items():
        for dtype in ["fp32"] if quick else ["fp32", "bf16"]:
            batch = spec.batch_quick if quick else spec.batch_fp32 if dtype == "fp32" else spec.batch_bf16
            torch.manual_seed(0)
            inputs = spec.inputs(batch)

            def program(device: str, spec=spec, dtype=dtype, inputs=inputs) -> Program:
                torch.manual_seed(0)
                model, x = spec.build().to(device), inputs.to(device)
                optimizer = torch.optim.AdamW(model.parameters())

                def step() -> None:
                    with torch.autocast(device, torch.bfloat16, enabled=dtype == "bf16"):
                        loss = model(x)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()

                return step

            results[f"{name} {dtype}"] = measure(program("cpu"), program("neuron"), 1 if quick else 5, 1)
            print(f"  {name} {dtype}: {results[f'{name} {dtype}']['ratio']:.2f}", file=sys.stderr, flush=True)
    return results


GROUPS = {"tiny": tiny, "sizes": sizes, "products": products, "training": training}


def table(results: dict[str, dict[str, dict[str, float]]], facts: dict[str, str]) -> str:
    lines = [f"{facts['cpu']}; torch {facts['torch']}; {facts['date']}; `{facts['command']}`", ""]
    for group, rows in results.items():
        lines += ["", f"| {group} | CPU / neuron | quartiles | CPU us | neuron us |", "|---|---|---|---|---|"]
        for name, r in rows.items():
            spread = f"{r['low']:.2f} to {r['high']:.2f}"
            lines.append(f"| {name} | {r['ratio']:.2f} | {spread} | {r['cpu_us']:,.1f} | {r['neuron_us']:,.1f} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=GROUPS, action="append", help="a group of measurements (may be repeated)")
    parser.add_argument("--out", default="build/benchmarks", help="folder for results.json and results.md")
    args = parser.parse_args(argv)
    given = [*(["--quick"] if args.quick else []), *(f"--only {name}" for name in args.only or [])]
    facts = {
        "cpu": cpu_name(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "command": "make bench" + (f' ARGS="{" ".join(given)}"' if given else ""),
    }
    results = {}
    for name in args.only or GROUPS:
        print(name, file=sys.stderr, flush=True)
        results[name] = GROUPS[name](args.quick)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for file, text in {
        "results.json": json.dumps({**facts, "results": results}, indent=1),
        "results.md": table(results, facts),
    }.items():
        partial = out / f"{file}.part"
        partial.write_text(text)
        partial.replace(out / file)
    print(table(results, facts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
