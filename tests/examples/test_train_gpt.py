"""The main job: the demo trains on neuron as on the CPU, natively, and says what is wrong with bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "train_gpt.py"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=600)


def losses(path: Path, *arguments: str) -> list[float]:
    result = run("--small", "--json", str(path), *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads(path.read_text())["loss"]


def test_loss_curve_agrees_with_the_cpu(tmp_path: Path) -> None:
    options = ("--dropout", "0", "--dtype", "fp32", "--steps", "100")
    cpu = losses(tmp_path / "cpu.json", "--device", "cpu", *options)
    neuron = losses(tmp_path / "neuron.json", "--device", "neuron", *options)
    assert len(cpu) == len(neuron) == 100
    assert cpu[-1] < 0.8 * cpu[0], "the model must have learnt something, or agreement says nothing"
    for step, (a, b) in enumerate(zip(cpu, neuron, strict=True)):
        assert b == pytest.approx(a, rel=1e-3), f"step {step}"


def test_default_configuration_runs_natively(tmp_path: Path) -> None:
    result = run("--steps", "3", "--small")
    assert result.returncode == 0, result.stderr
    assert "fallbacks        none" in result.stdout
    assert "device time" in result.stdout and "peak HBM" in result.stdout and "trn2.3xlarge" in result.stdout


def test_bf16_with_dropout_learns(tmp_path: Path) -> None:
    curve = losses(tmp_path / "bf16.json", "--steps", "60")
    assert curve[-1] < 0.85 * curve[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--text", "no/such/file"), "--text no/such/file: "),
        (("--device", "nonsense"), "--device nonsense: "),
        (("--device", "neuron:99"), "invalid device ordinal"),
        (("--dtype", "fp8"), "invalid choice: 'fp8'"),
        (("--steps", "0"), "--steps 0: must be 1 or more"),
        (("--dropout", "1"), "--dropout 1.0: must be in [0, 1)"),
    ],
)
def test_bad_input_is_named(arguments: tuple[str, ...], message: str) -> None:
    result = run("--small", *arguments)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr
