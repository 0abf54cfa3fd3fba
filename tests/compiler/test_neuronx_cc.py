"""The door to neuronx-cc: what is written, what the command says, what is kept. A script stands in for the compiler."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

import torch_neuronx
from torch_neuronx.compiler import hlo, neuronx_cc

pytest.importorskip("jaxlib")

ADD = """
module @add {
  func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
    %0 = stablehlo.add %a, %a : tensor<4xf32> loc("model.py":LINE:0)
    return %0 : tensor<4xf32>
  }
}
"""
LOOP = """
module @loop {
  func.func public @main(%a: tensor<4xf32>, %n: tensor<i32>) -> tensor<4xf32> {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %r:2 = stablehlo.while(%i = %zero, %x = %a) : tensor<i32>, tensor<4xf32>
      cond {
        %p = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %j = stablehlo.add %i, %one : tensor<i32>
        %y = stablehlo.multiply %x, %x : tensor<4xf32>
        stablehlo.return %j, %y : tensor<i32>, tensor<4xf32>
      }
    return %r#1 : tensor<4xf32>
  }
}
"""

# Writes down how it was called, and "compiles" by copying its input behind a heading.
STAND_IN = """#!{python}
import json, os, pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("NeuronX Compiler version 2.28.7631.0")
    sys.exit()
calls = pathlib.Path(os.environ["STAND_IN_CALLS"])
calls.write_text(calls.read_text() + json.dumps({{"argv": sys.argv[1:], "cwd": os.getcwd()}}) + "\\n")
options = dict(word.split("=", 1) for word in sys.argv if word.startswith("--") and "=" in word)
pathlib.Path("intermediate.txt").write_text("left where it ran")
pathlib.Path(options["--logfile"]).write_text("log of the compiler\\n")
behaviour = os.environ.get("STAND_IN_FAILS", "")
if behaviour == "status":
    print("NCC_EVRF001: an operator is not supported", file=sys.stderr)
    sys.exit(70)
if behaviour == "partial":
    pathlib.Path(options["--output"]).write_bytes(b"half")
    os.kill(os.getpid(), 9)
if behaviour != "nothing":
    pathlib.Path(options["--output"]).write_bytes(b"NEFF " + pathlib.Path(sys.argv[2]).read_bytes())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NEURON_CC_FLAGS", "TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", "TORCH_NEURONX_DISABLE_NEFF_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TORCH_NEURONX_NEFF_CACHE_DIR", str(tmp_path / "neff"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "neff"


@pytest.fixture
def compiler(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stand-in on PATH; what it returns is the file of its calls."""
    executable = tmp_path / "bin" / "neuronx-cc"
    executable.parent.mkdir()
    executable.write_text(STAND_IN.format(python=sys.executable))
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    calls = tmp_path / "calls"
    calls.write_text("")
    monkeypatch.setenv("STAND_IN_CALLS", str(calls))
    return calls


def argv(calls: Path) -> list[list[str]]:
    return [json.loads(line)["argv"] for line in calls.read_text().splitlines()]


def leftovers(cache: Path) -> list[str]:
    return [path.name for path in cache.rglob(".*")]


def test_compiles_with_the_documented_command(compiler: Path, cache: Path) -> None:
    neff = neuronx_cc.compile(ADD.replace("LINE", "3"), target="trn3", lnc=1)
    folder = neff.parent
    assert neff == cache / folder.name / "module.neff"
    assert neff.read_bytes() == b"NEFF " + (folder / "module.hlo_module.pb").read_bytes()
    [words] = argv(compiler)
    assert words[:2] == ["compile", str(folder / "module.hlo_module.pb")]
    assert {"--framework=XLA", "--target=trn3", "--lnc=1", "-O1"} <= set(words)
    assert "stablehlo.add" in (folder / "module.mlir").read_text()
    assert (folder / "log.txt").read_text() == "log of the compiler\n"
    command = "neuronx-cc compile module.hlo_module.pb --framework=XLA --target=trn3 --lnc=1 --output=module.neff"
    assert (folder / "command.txt").read_text().startswith(command)
    assert leftovers(cache) == [] and not list(cache.rglob("intermediate.txt"))


def test_target_and_lnc_are_by_default_those_of_the_emulated_chip(compiler: Path) -> None:
    neuronx_cc.compile(ADD.replace("LINE", "3"))
    chip = torch_neuronx._C.topology()
    assert {f"--target={chip['chip']}", f"--lnc={chip['lnc']}"} <= set(argv(compiler)[0])


def test_the_same_module_is_compiled_once(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = neuronx_cc.compile(ADD.replace("LINE", "3"))
    assert neuronx_cc.compile(ADD.replace("LINE", "99")) == first, "a line of the program that moved changes nothing"
    assert len(argv(compiler)) == 1
    others = [
        neuronx_cc.compile(LOOP),
        neuronx_cc.compile(ADD.replace("LINE", "3"), target="trn3"),
        neuronx_cc.compile(ADD.replace("LINE", "3"), lnc=1),
        neuronx_cc.compile(ADD.replace("LINE", "3"), flags=["--model-type=transformer"]),
    ]
    assert len({first, *others}) == 5 and len(argv(compiler)) == 5
    for name in ("TORCH_NEURONX_DISABLE_NEFF_CACHE", "TORCH_NEURONX_NEFF_DISABLE_CACHE"):
        monkeypatch.setenv(name, "1")
        assert neuronx_cc.compile(ADD.replace("LINE", "3")) == first
        monkeypatch.delenv(name)
    assert len(argv(compiler)) == 7


def test_a_local_cache_is_in_front_of_the_shared_one(
    compiler: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = neuronx_cc.compile(LOOP)
    monkeypatch.setenv("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR", str(tmp_path / "local"))
    near = neuronx_cc.compile(LOOP)
    assert near == tmp_path / "local" / shared.parent.name / "module.neff" and near.read_bytes() == shared.read_bytes()
    shared.unlink()
    assert neuronx_cc.compile(LOOP) == near and len(argv(compiler)) == 1


def test_flags_of_the_environment(compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", "--target trn2 --lnc=2 -O2 --auto-cast 'none' --model-type=generic")
    neuronx_cc.compile(LOOP, target="trn2", lnc=2, flags=["--model-type=transformer"])
    assert argv(compiler)[0][-5:] == ["-O2", "--auto-cast", "none", "--model-type=generic", "--model-type=transformer"]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ("--target=trn3", "--target trn3, and trn2"),
        ("-lnc 1", "-lnc 1, and 2"),
        ("--logical-nc-config", r"--logical-nc-config \(nothing\), and 2"),
        ("--cache_dir=/somewhere", "TORCH_NEURONX_NEFF_CACHE_DIR"),
        ("--output x.neff", "the cache decides it"),
        ("--framework=XLA", "always XLA"),
    ],
)
def test_flags_that_cannot_be(flags: str, said: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", flags)
    with pytest.raises(ValueError, match=said):
        neuronx_cc.compile(LOOP, target="trn2", lnc=2)
    assert not cache.exists()


@pytest.mark.parametrize(("target", "lnc", "said"), [("trn1", 2, "trn2, trn3"), ("trn2", 4, "lnc 4 is not 1 or 2")])
def test_targets_that_cannot_be(target: str, lnc: int, said: str, cache: Path) -> None:
    with pytest.raises(ValueError, match=said):
        neuronx_cc.compile(LOOP, target=target, lnc=lnc)


def test_without_the_compiler_the_error_says_what_was_written(cache: Path) -> None:
    with pytest.raises(neuronx_cc.CompilerNotFoundError, match="not on PATH") as caught:
        neuronx_cc.compile(LOOP)
    folder = caught.value.folder
    assert str(folder) in str(caught.value)
    assert sorted(path.name for path in folder.iterdir()) == ["command.txt", "module.hlo_module.pb", "module.mlir"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("status", "exit status 70: NCC_EVRF001: an operator is not supported"),
        ("nothing", "exit status 0 and no NEFF"),
        ("partial", "exit status -9"),
    ],
)
def test_a_failed_compilation_keeps_nothing_but_its_input_and_log(
    how: str, said: str, compiler: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAND_IN_FAILS", how)
    with pytest.raises(neuronx_cc.CompilationError, match=said) as caught:
        neuronx_cc.compile(LOOP)
    folder = caught.value.folder
    assert not (folder / "module.neff").exists() and "log of the compiler" in (folder / "log.txt").read_text()
    assert leftovers(cache) == []
    monkeypatch.delenv("STAND_IN_FAILS")
    assert neuronx_cc.compile(LOOP).exists(), "a failure is not remembered"


def test_an_unwritable_cache_is_named(cache: Path) -> None:
    cache.parent.joinpath("neff").write_text("a file, where the folder should be")
    with pytest.raises(OSError, match="Set TORCH_NEURONX_NEFF_CACHE_DIR"):
        neuronx_cc.compile(LOOP)


def test_text_that_is_no_module_is_refused(cache: Path) -> None:
    with pytest.raises(ValueError, match="not a StableHLO module"):
        neuronx_cc.compile("module {")


def test_without_jaxlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jaxlib", None)
    with pytest.raises(hlo.MissingExtraError, match=r"torch-neuronx\[stablehlo\]"):
        hlo.from_stablehlo(LOOP)


# --- the HLO file -----------------------------------------------------------------------------------------------------
def ids(module: bytes) -> list[tuple[int, list[int]]]:
    """(id, operands) of each instruction, from the wire."""
    found = []
    for computation in hlo._messages(module, hlo.MODULE_COMPUTATIONS):
        for instruction in hlo._messages(computation, hlo.COMPUTATION_INSTRUCTIONS):
            values = {field.number: field.value for field in hlo.fields(instruction)}
            operands = values.get(hlo.INSTRUCTION_OPERANDS, b"")
            found.append((values[hlo.INSTRUCTION_ID], list(hlo._packed(operands))))
    return found


def computation(stablehlo: str) -> Any:
    """What XLA itself makes of a module."""
    from jaxlib import _jax

    return _jax.mlir.mlir_module_to_xla_computation(stablehlo, use_tuple_args=False, return_tuple=True)


def raw(stablehlo: str) -> bytes:
    return computation(stablehlo).as_serialized_hlo_module_proto()


def test_ids_fit_32_bits_and_still_name_the_same_instructions() -> None:
    before, after = ids(raw(LOOP)), ids(hlo.from_stablehlo(LOOP))
    assert max(number for number, _ in before) > 2**31, "XLA's own ids need not be changed any more"
    assert [number for number, _ in after] == list(range(1, len(before) + 1))
    new = {old: number for (old, _), (number, _) in zip(before, after, strict=True)}
    assert [[new[o] for o in operands] for _, operands in before] == [operands for _, operands in after]


@pytest.mark.parametrize("module", [ADD.replace("LINE", "3"), LOOP], ids=["add", "loop"])
def test_xla_reads_what_was_written(module: str) -> None:
    theirs = computation(module)
    assert type(theirs)(hlo.from_stablehlo(module)).as_hlo_text() == theirs.as_hlo_text()


def test_locations_can_be_taken_out() -> None:
    assert hlo.from_stablehlo(LOOP) == hlo.from_stablehlo(LOOP)
    one, other = (hlo.from_stablehlo(ADD.replace("LINE", line)) for line in ("3", "4"))
    assert one != other and hlo.without_locations(one) == hlo.without_locations(other)
    assert hlo.without_locations(one) != hlo.without_locations(hlo.from_stablehlo(LOOP))


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_file_that_was_cut_short_is_refused(cut: int) -> None:
    with pytest.raises(ValueError, match="protocol-buffer message"):
        hlo.with_small_ids(raw(LOOP)[:-cut])


def test_a_lowered_model_goes_through(compiler: Path) -> None:
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    for _ in range(2):
        lowered = torch_neuronx.lower(model, (torch.randn(2, 8),))
        assert os.path.getsize(neuronx_cc.compile(lowered.text_with_locations())) > 0
    assert len(argv(compiler)) == 1, "lowering the same model again gives the same module"
