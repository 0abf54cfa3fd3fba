"""The set-up script: what it says when something is missing, and where it takes PyTorch from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A project with the set-up script, in a folder whose name has a space, and an environment that is already there.

    Its Python is a script that stands in for pip and for the installed torch, and is the real one for all else.
    """
    root = tmp_path / "a project"
    (root / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "setup.sh", root / "tools")
    shutil.copy(ROOT / "pyproject.toml", root)
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        f"""#!/usr/bin/env bash
case "$*" in
  *--report*) cat report.json ;;
  "-m pip install"*torch==*) echo "$*" >>pip.log; touch installed ;;
  "-m pip install"*) echo "$*" >>pip.log ;;
  "- 2."*) [ -e installed ] && [ ! -e cuda ] ;;
  *) exec "{sys.executable}" "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    return root


def setup(root: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_", "PYTHON"))}
    environment |= {"PYTHON": sys.executable, **env}
    return subprocess.run([str(root / "tools" / "setup.sh")], env=environment, capture_output=True, text=True)


def report(root: Path, *requirements: str) -> None:
    (root / "report.json").write_text(json.dumps({"install": [{"metadata": {"requires_dist": list(requirements)}}]}))


def installed_from(root: Path) -> str:
    first = (root / "pip.log").read_text().splitlines()[0]
    assert "torch==2.13.0" in first
    return first


def test_plain_pip_when_it_gives_a_cpu_build(tree: Path) -> None:
    report(tree, "filelock", "sympy>=1.13.3", "numpy; extra == 'x'")
    done = setup(tree)
    assert done.returncode == 0, done.stderr
    assert "--index-url" not in installed_from(tree)


@pytest.mark.parametrize("requirement", ["nvidia-cudnn-cu13==9.1; platform_system == 'Linux'", "cuda-toolkit[nvrtc]"])
def test_cpu_index_when_plain_pip_gives_a_cuda_build(requirement: str, tree: Path) -> None:
    report(tree, "filelock", requirement)
    assert setup(tree).returncode == 0
    assert f"--index-url={CPU_INDEX}" in installed_from(tree)


def test_cpu_index_when_pip_cannot_say(tree: Path) -> None:
    (tree / "report.json").write_text("")
    assert setup(tree).returncode == 0
    assert f"--index-url={CPU_INDEX}" in installed_from(tree)


def test_given_index_wins(tree: Path) -> None:
    report(tree, "filelock")
    assert setup(tree, TORCH_INDEX_URL="https://example.org/simple").returncode == 0
    assert "--index-url=https://example.org/simple" in installed_from(tree)


def test_cuda_build_is_refused(tree: Path) -> None:
    report(tree, "filelock")
    (tree / "cuda").touch()
    done = setup(tree, TORCH_INDEX_URL="https://example.org/simple")
    assert done.returncode == 1
    assert "not the CPU build of 2.13.0" in done.stderr and f"TORCH_INDEX_URL={CPU_INDEX}" in done.stderr


def test_nothing_is_installed_twice(tree: Path) -> None:
    (tree / "installed").touch()
    assert setup(tree).returncode == 0
    assert "torch==" not in (tree / "pip.log").read_text()
    requirements = (tree / ".venv" / "requirements.txt").read_text().split()
    assert {"ninja", "pytest>=8", "ruff"} <= set(requirements)


def test_missing_compiler_is_named_with_its_package(tree: Path) -> None:
    done = setup(tree, CXX="no-such-compiler")
    assert done.returncode == 1
    for part in ("no-such-compiler", "build-essential", "gcc-c++"):
        assert part in done.stderr


def test_old_compiler_is_named(tree: Path, tmp_path: Path) -> None:
    old = tmp_path / "old-c++"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "old-c++ 4.8" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = setup(tree, CXX=str(old))
    assert done.returncode == 1 and "cannot compile C++20: old-c++ 4.8" in done.stderr


@pytest.mark.parametrize(
    ("question", "package"), [("venv", "python3-venv"), ("Python.h", "python3-dev"), ("version_info", "Python 3.10")]
)
def test_missing_part_of_python_is_named(question: str, package: str, tree: Path, tmp_path: Path) -> None:
    python = tmp_path / "poor-python"
    python.write_text(f'#!/bin/sh\ncase "$2" in *{question}*) exit 1 ;; esac\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    done = setup(tree, PYTHON=str(python))
    assert done.returncode == 1 and package in done.stderr


def test_missing_python_is_named(tree: Path) -> None:
    done = setup(tree, PYTHON="no-such-python")
    assert done.returncode == 1 and "no-such-python" in done.stderr and "set PYTHON" in done.stderr


def test_makefile_knows_its_targets() -> None:
    targets = "setup all demo test ecosystem lint bench coverage docs clean distclean"
    for target in targets.split():
        done = subprocess.run(["make", "-n", "-C", str(ROOT), target], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_shell_scripts_parse() -> None:
    for script in ("tools/setup.sh", "tools/ecosystem_env.sh", ".ci/run"):
        subprocess.run(["bash", "-n", str(ROOT / script)], check=True)
        assert os.access(ROOT / script, os.X_OK)
