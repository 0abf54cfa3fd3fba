"""tools/check_handlers.py on small handlers that are right and wrong, and on the extension itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from torch_neuronx import _C

ROOT = Path(__file__).resolve().parents[2]
TOOL = ROOT / "tools" / "check_handlers.py"

SOURCE = """
struct Instruction { void (*handler)(const Instruction*, float); float operand; };
extern void elsewhere(volatile float*);
namespace good {
void op_add(const Instruction* pc, float a) { return pc[1].handler(pc + 1, a + pc->operand); }
void op_mul(const Instruction* pc, float a) { return pc[1].handler(pc + 1, a * pc->operand); }
void op_end(const Instruction*, float) {}
}
namespace spills {
void op_spill(const Instruction* pc, float a) {
  volatile float kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = a;
  return pc[1].handler(pc + 1, kept[static_cast<int>(a)]);
}
}
namespace calls {
void op_call(const Instruction* pc, float a) {
  volatile float kept = a;
  elsewhere(&kept);
  pc[1].handler(pc + 1, kept);
}
}
namespace stops {
void op_stop(const Instruction* pc, float a) { *const_cast<float*>(&pc->operand) = a; }
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "handlers.cpp").write_text(SOURCE)
    command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O2", "-c", "handlers.cpp", "-o", "handlers.o"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "handlers.o"


def check(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(TOOL), *map(str, arguments)], capture_output=True, text=True)


def test_handlers_that_pass_on_are_right(library: Path) -> None:
    done = check(library, r"good::op_", "--returns", r"\bop_end\b")
    assert done.returncode == 0 and "3 handlers, 0 faults" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (r"spills::op_", "op_spill.*: uses the stack"),
        (r"calls::op_", "op_call.*: calls"),
        (r"stops::op_", "op_stop.*: does not end in an indirect jump"),
        (r"good::op_end", "op_end.*: returns instead of passing on"),
    ],
)
def test_each_fault_is_found(library: Path, pattern: str, fault: str) -> None:
    done = check(library, pattern)
    assert done.returncode == 1 and re.search(fault, done.stdout), done.stdout + done.stderr


def test_a_pattern_that_matches_nothing_is_an_error(library: Path) -> None:
    done = check(library, r"no_such_handler")
    assert done.returncode == 2 and "no function of" in done.stderr


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.o").write_text("not a library")
    assert "file format not recognized" in check(tmp_path / "text.o", "op_").stderr


def test_objdump_is_there() -> None:
    assert shutil.which("objdump"), "binutils, which comes with every compiler, is missing"


def test_the_handlers_of_the_extension_have_no_stack_frame() -> None:
    done = check(Path(_C.__file__), r"engine::vector::.*\bop_", "--returns", r"\bop_end\b")
    assert done.returncode == 0, done.stdout + done.stderr
