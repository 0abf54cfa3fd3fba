"""`torchneuron check` on public architectures: for each it is known what Trainium would not run, and why.

The answers come from reading the models: which of them asks for sizes that depend on data, float64 or complex numbers.
A second opinion is the whole model's lowering, which knows nothing of the checker.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import torch_neuronx
from ecosystem import architectures
from torch_neuronx.checking import Report
from torchneuron.app import app

NATIVE = [
    "bert", "gpt2", "llama", "t5", "vit", "resnet", "whisper", "mamba", "clip", "unet", "vae", "dit", "flux",
]  # fmt: skip

# What is not native, and the file whose lines ask for it.
SIZES = "the size of its result depends on data"
NOT_NATIVE = {
    # Routing: which tokens an expert gets is found with nonzero and where.
    "mixtral": ({"aten::nonzero"}, SIZES, "modeling_mixtral.py"),
    "switch": ({"aten::nonzero"}, SIZES, "modeling_switch_transformers.py"),
    # Tokens with global attention are looked up with nonzero.
    "longformer": ({"aten::nonzero"}, SIZES, "modeling_longformer.py"),
    # The spline flow picks what is inside of its interval with masks as indices.
    "vits": ({"aten::index.Tensor"}, SIZES, "modeling_vits.py"),
}
# Complex numbers: kernels of the device compute in them, which the chip cannot; lowering makes pairs of them.
COMPLEX = {
    "fnet": ("modeling_fnet.py", "aten::_fft_c2c"),  # Fourier transforms in the place of attention
    "deepseek": ("modeling_deepseek_v2.py", "aten::polar"),  # rotary embedding by multiplication
}
# Those that go through torch.export and its decompositions on the CPU as they are. Not among them: gpt2 (asks for a
# view of what attention's decomposition makes with other strides), resnet (its running statistics stop the
# decomposition), flux (uses float64 on a CPU, and not on neuron).
LOWERED_WHOLE = ["bert", "llama", "t5", "vit", "whisper", "mamba", "clip", "unet", "vae", "dit", "fnet"]


@pytest.fixture(params=["lowering", "engine"])
def rule(request: pytest.FixtureRequest) -> str:
    return request.param


def check(name: str, rule: str) -> Report:
    return torch_neuronx.check(*getattr(architectures, name)(), rule=rule, compile=False)


@pytest.mark.parametrize("name", NATIVE)
def test_native(name: str, rule: str) -> None:
    report = check(name, rule)
    assert report.ok, f"\n{report}"
    assert report.compilations.eager > 5 and report.memory[0].peak_allocated > 0
    assert {use.dtype for use in report.types} <= {"int64"}


@pytest.mark.parametrize("name", NOT_NATIVE)
def test_not_native(name: str, rule: str) -> None:
    operators, reason, file = NOT_NATIVE[name]
    report = check(name, rule)
    assert not report.ok and {row.name for row in report.not_native} == operators, f"\n{report}"
    for row in report.not_native:
        assert reason in row.reason and all(file in place for place in row.places)
    assert any(file in row.place for row in report.shapes if "depends on data" in row.what)


def test_float64(rule: str) -> None:
    """The position embedding of RT-DETR is computed in float64, and nothing else of it is."""
    # transformers keeps the embedding of each size for the process, and so asks for it once.
    model, args, kwargs = architectures.rt_detr(pixels={"lowering": 64, "engine": 96}[rule])
    report = torch_neuronx.check(model, args, kwargs, rule=rule, compile=False)
    assert not report.ok and all("float64" in row.dtypes for row in report.not_native), f"\n{report}"
    assert {"aten::arange", "aten::sin", "aten::cos"} <= {row.name for row in report.not_native}
    places = {use.place for use in report.types if use.dtype == "float64"}
    assert places and all("rt_detr/modeling_rt_detr.py" in place for place in places)


@pytest.mark.parametrize("name", COMPLEX)
def test_complex(name: str, rule: str) -> None:
    file, operator = COMPLEX[name]
    report = check(name, rule)
    assert any(file in use.place and operator in use.operators for use in report.types if use.dtype == "complex64")
    if rule == "lowering":
        assert report.ok, f"\n{report}"
    else:
        assert operator in {row.name for row in report.not_native}
        assert all("complex64, which Trainium lacks" in row.reason for row in report.not_native)


def test_an_operator_that_the_device_refuses() -> None:
    """transformers' default for Mixtral asks histc for integers, which it does of every device but CPU and MPS."""
    model, args, kwargs = architectures.mixtral()
    model.set_experts_implementation("grouped_mm")
    report = torch_neuronx.check(model, args, kwargs, rule="engine")
    assert not report.ok and {row.name for row in report.not_native} == {"aten::histc"}
    assert "raises on the device" in report.not_native[0].reason


@pytest.mark.parametrize("name", LOWERED_WHOLE)
def test_second_opinion_native(name: str) -> None:
    model, args, *kwargs = getattr(architectures, name)()
    assert torch_neuronx.lower(model, args, *kwargs).operations() > 100


def test_second_opinion_not_native() -> None:
    model, args, kwargs = architectures.vits()
    with pytest.raises(RuntimeError, match=r"aten\.index\.Tensor cannot be lowered"):
        torch_neuronx.lower(model, args, kwargs)


def test_training() -> None:
    report = torch_neuronx.check(*architectures.resnet(), train=True, rule="engine")
    assert report.ok, f"\n{report}"
    assert "aten::convolution_backward" in {row.name for row in report.operators}
    assert [graph.kind for graph in report.compilations.graphs] == ["forward", "backward"]


def test_command_line() -> None:
    file = Path(architectures.__file__)
    done = CliRunner().invoke(app, ["check", "--json", f"{file}:longformer"])
    assert done.exit_code == 1, done.output
    report = json.loads(done.stdout)
    assert {row["name"] for row in report["operators"] if not row["native"]} == {"aten::nonzero"}
    assert CliRunner().invoke(app, ["check", "--no-compile", f"{file}:bert"]).exit_code == 0
    torch._dynamo.reset()
