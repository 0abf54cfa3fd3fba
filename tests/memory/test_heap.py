"""The HBM heap below PyTorch: builds tests/cpp/heap_test.cpp and runs its cases, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
CASES = ("pages", "capacity", "misuse", "cores", "resident", "host_limit", "host_files", "forked", "debug")


@pytest.fixture(scope="session")
def heap_test(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("heap") / "heap_test"
    sources = [
        ROOT / "tests/cpp/heap_test.cpp",
        *(ROOT / f"csrc/device/{n}.cpp" for n in ("heap", "host_memory", "environment")),
    ]
    compiler = os.environ.get("CXX", "c++")
    command = [
        compiler,
        "-std=c++20",
        "-O1",
        "-g",
        "-Wall",
        "-Wextra",
        f"-I{ROOT / 'csrc'}",
        *map(str, sources),
        "-pthread",
    ]
    built = subprocess.run([*command, "-o", str(program)], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return program


@pytest.mark.parametrize("case", CASES)
def test_heap(heap_test: Path, case: str) -> None:
    env = dict(os.environ, TORCH_NEURONX_DEBUG_MEMORY="1" if case == "debug" else "0")
    done = subprocess.run([str(heap_test), case], capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"


def test_every_case_runs(heap_test: Path) -> None:
    listed = subprocess.run([str(heap_test)], capture_output=True, text=True, check=True).stdout.split()
    assert tuple(listed) == CASES
