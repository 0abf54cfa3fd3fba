"""The report of what did not run natively, and what to do about it."""

from __future__ import annotations

import warnings

import pytest
import torch

import torch_neuronx
from torch_neuronx import FallbackReport, FallbackRow

# An operator of this file's own, with a kernel for the CPU only: a fallback whatever the package has kernels for.
DEFINE = """
library = torch.library.Library("neuron_test_reports", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
"""
exec(DEFINE)
FALLS_BACK = torch.ops.neuron_test_reports.twice


@pytest.fixture(autouse=True)
def _fresh_report():
    torch_neuronx.reset_fallbacks()
    yield
    torch_neuronx.reset_fallbacks()


def test_native_operators_are_not_reported() -> None:
    x = torch.ones(4, device="neuron")
    ((x + x) * 3).sum().item()
    assert not torch_neuronx.fallbacks()
    assert repr(torch_neuronx.fallbacks()) == "No fallbacks: every operator ran natively on the neuron device."


def test_fallbacks_are_counted() -> None:
    torch_neuronx.set_fallback_policy("allow")
    x = torch.linspace(0, 1, 16, device="neuron")
    for _ in range(3):
        assert torch.allclose(FALLS_BACK(x).cpu(), FALLS_BACK(x.cpu()))
    report = torch_neuronx.fallbacks()
    rows = [row for row in report if "twice" in row.op]
    assert [(row.kind, row.count) for row in rows] == [("operator", 3)]
    assert rows[0].bytes >= 3 * 2 * 16 * 4, "input and output of each call cross between device and host"
    torch_neuronx.reset_fallbacks()
    assert len(torch_neuronx.fallbacks()) == 0


def test_types_the_chip_lacks_are_reported() -> None:
    torch_neuronx.set_fallback_policy("allow")
    x = torch.ones(4, dtype=torch.float64, device="neuron")
    assert (x * x).sum().item() == 4
    assert {row.kind for row in torch_neuronx.fallbacks()} == {"dtype"}


def test_one_warning_for_each_operator(run_python) -> None:
    program = f"""
import torch
{DEFINE}
x = torch.ones(4, device="neuron")
for _ in range(3):
    torch.ops.neuron_test_reports.twice(x)
"""
    warning = (
        "The operator 'neuron_test_reports::twice' is not implemented for the neuron device and falls back to the CPU"
    )
    assert run_python(program, env={"TORCH_NEURONX_FALLBACK": None}).stderr.count(warning) == 1
    assert run_python(program, env={"TORCH_NEURONX_FALLBACK": "allow"}).stderr.count(warning) == 0


def test_strict_mode_raises() -> None:
    assert torch_neuronx.set_fallback_policy("raise") == "warn"
    x = torch.ones(4, device="neuron")
    with pytest.raises(NotImplementedError, match="twice"):
        FALLS_BACK(x)
    with pytest.raises(NotImplementedError, match=r"float64|Double"):
        x.double() * 2
    assert (x + x).sum().item() == 8, "native work goes on"
    assert torch_neuronx.set_fallback_policy("allow") == "raise"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FALLS_BACK(x)


def test_unknown_policy() -> None:
    with pytest.raises(ValueError, match="'never' is not one of allow, warn, raise"):
        torch_neuronx.set_fallback_policy("never")  # type: ignore[arg-type]


def test_report_is_a_sorted_list_that_prints_as_a_table() -> None:
    rows = [
        FallbackRow("aten::rare", "operator", 1, 10),
        FallbackRow("aten::often_called_operator", "operator", 1234, 5678901),
        FallbackRow("aten::mul", "dtype", 1, 64),
    ]
    report = FallbackReport(rows)
    assert [row.op for row in report] == ["aten::often_called_operator", "aten::mul", "aten::rare"]
    assert report[0].count == 1234 and len(report[1:]) == 2 and isinstance(report[1:], FallbackReport)
    assert report == FallbackReport(rows[::-1]) and report != FallbackReport([])
    assert rows[0] in report
    assert repr(report).splitlines() == [
        "operator                     kind          calls            bytes",
        "aten::often_called_operator  operator      1,234        5,678,901",
        "aten::mul                    dtype             1               64",
        "aten::rare                   operator          1               10",
    ]
