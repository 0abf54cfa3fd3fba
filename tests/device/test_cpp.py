"""The chip layer and the engine by themselves: C++ tests with real threads and neither Python nor PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "cpp_tests"  # kept, so that the next run compiles only what changed
# cmake and ninja stand beside the interpreter in a virtual environment, activated or not.
ENVIRONMENT = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def run(*command: str) -> str:
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built() -> Path:
    python = f"-DPython_EXECUTABLE={sys.executable}"
    run("cmake", "-S", str(ROOT), "-B", str(BUILD), "-G", "Ninja", "-DNEURON_BUILD_TESTS=ON", python)
    run("cmake", "--build", str(BUILD), "--target", "cpp_tests", "--parallel", "1")
    return BUILD


def test_cpp_tests(built: Path) -> None:
    assert "100% tests passed" in run("ctest", "--test-dir", str(built), "--output-on-failure")


def test_the_chip_layer_includes_nothing_of_pytorch() -> None:
    for path in (ROOT / "csrc" / "device").iterdir():
        text = path.read_text()
        for word in ("<ATen/", "<c10/", "<torch/", '"aten/', '"engine/', "pybind11"):
            assert word not in text, f"{path.name} includes {word}"
