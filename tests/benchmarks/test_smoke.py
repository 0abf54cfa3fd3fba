"""The benchmark program runs and writes what the docs quote. Its figures are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"


def test_quick_form_writes_its_results(tmp_path: Path) -> None:
    command = [sys.executable, str(RUN), "--quick", "--out", str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr
    written = json.loads((tmp_path / "results.json").read_text())
    assert set(written["results"]) == {"tiny", "sizes", "products", "training"}
    assert set(written["results"]["training"]) == {"GPT fp32", "Llama fp32", "ResNet-18 fp32", "ViT fp32"}
    for group in written["results"].values():
        for row in group.values():
            assert row["low"] <= row["ratio"] <= row["high"] and row["cpu_us"] > 0 and row["neuron_us"] > 0
    assert written["cpu"] in (tmp_path / "results.md").read_text()
