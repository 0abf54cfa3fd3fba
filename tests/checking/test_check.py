"""What `torch_neuronx.check` and `checking.recording` find, on programs whose answer is known by reading them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_neuronx
from torch_neuronx import checking
from torch_neuronx.checking import Report

HERE = Path(__file__)
RULES = ["engine", "lowering"]


@pytest.fixture(params=RULES)
def rule(request: pytest.FixtureRequest) -> str:
    if request.param == "lowering":
        pytest.importorskip("jaxlib")
    return request.param


def line_of(text: str) -> int:
    """The number of the only line of this file that ends with a mark."""
    [number] = [n for n, line in enumerate(HERE.read_text().splitlines(), 1) if line.endswith(f"# {text}")]
    return number


def calls(report: Report) -> dict[tuple[str, tuple[str, ...]], int]:
    return {(row.name, row.dtypes): row.calls for row in report.operators}


def not_native(report: Report) -> dict[str, str]:
    return {row.name: row.reason for row in report.not_native}


def on_device(*shape: int, **settings) -> torch.Tensor:
    return torch.ones(*shape, device="neuron", **settings)


# --- operators --------------------------------------------------------------------------------------------------------
def test_a_small_model_is_native(rule: str) -> None:
    report = torch_neuronx.check(nn.Sequential(nn.Linear(8, 4), nn.ReLU()), torch.randn(2, 8), rule=rule)
    assert report.ok and report.rule == rule and report.not_native == ()
    assert calls(report) == {
        ("aten::t", ("float32",)): 1,
        ("aten::addmm", ("float32",)): 1,
        ("aten::relu", ("float32",)): 1,
    }
    assert report.verdict == "runs on trn2: all 3 operator calls are native"
    # addmm and relu; a transposed view compiles nothing. As a graph, one program.
    assert report.compilations.eager == 2 and report.compilations.compiled == 1


def test_training_runs_the_backward_too(rule: str) -> None:
    model = nn.Linear(8, 4, bias=False)
    report = torch_neuronx.check(model, torch.randn(2, 8), train=True, rule=rule)
    assert calls(report)["aten::mm", ("float32",)] == 2, "forward, and the gradient of the weight"
    assert [graph.kind for graph in report.compilations.graphs] == ["forward", "backward"]
    assert model.weight.grad is None, "the gradients of the check are not left behind"
    with pytest.raises(ValueError, match="without one. Leave train out"):
        torch_neuronx.check(lambda x: x.argmax(), torch.randn(4), train=True, rule=rule)


def test_each_call_is_counted_once_with_its_types(rule: str) -> None:
    x = on_device(4)
    with checking.recording(rule=rule) as recorded:
        for _ in range(3):
            x * x
        x.to(torch.bfloat16) * 2
    found = calls(recorded.report())
    assert found["aten::mul.Tensor", ("float32",)] == 3 and found["aten::mul.Tensor", ("bfloat16",)] == 1
    assert found["aten::_to_copy", ("float32", "bfloat16")] == 1


def test_the_judge_and_the_device_agree_on_fallbacks() -> None:
    """The rule "engine" says beforehand what the device's own counters say afterwards."""
    torch_neuronx.reset_fallbacks()
    library = torch.library.Library("neuron_test_checking", "DEF")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: 3 * x, "CPU")
    x = on_device(4)
    with checking.recording(rule="engine") as recorded:
        torch.ops.neuron_test_checking.thrice(x)
        torch.fft.fft(x).real.double() * 2
    counted = {(row.op, row.kind) for row in torch_neuronx.fallbacks()}
    report = recorded.report()
    assert {op for op, kind in counted if kind == "operator"} == {"neuron_test_checking::thrice"}
    assert "no native kernel" in not_native(report)["neuron_test_checking::thrice"]
    assert {op for op, kind in counted if kind == "dtype"} <= set(not_native(report))
    torch_neuronx.reset_fallbacks()


def test_policy_is_put_aside_and_back(rule: str) -> None:
    torch_neuronx.set_fallback_policy("raise")
    with checking.recording(rule=rule) as recorded:
        on_device(4, dtype=torch.float64) * 2
    assert not recorded.report().ok
    assert torch_neuronx.set_fallback_policy("warn") == "raise"


def test_fallbacks_of_other_threads_are_not_missed() -> None:
    library = torch.library.Library("neuron_test_threads", "DEF")
    library.define("once(Tensor x) -> Tensor")
    library.impl("once", lambda x: x + 0, "CPU")
    with checking.recording(rule="engine") as recorded:
        thread = threading.Thread(target=lambda: torch.ops.neuron_test_threads.once(on_device(2)))
        thread.start()
        thread.join()
    assert "another thread" in not_native(recorded.report())["neuron_test_threads::once"]


def test_composed_operators_are_judged_by_their_parts() -> None:
    library = torch.library.Library("neuron_test_composed", "DEF")
    library.define("part(Tensor x) -> Tensor")
    library.define("whole(Tensor x) -> Tensor")
    library.impl("part", lambda x: x + 0, "CPU")
    library.impl("whole", lambda x: torch.ops.neuron_test_composed.part(x) * 2, "CompositeExplicitAutograd")
    with checking.recording(rule="engine") as recorded, torch.inference_mode():
        torch.ops.neuron_test_composed.whole(on_device(2))
    reason = not_native(recorded.report())["neuron_test_composed::whole"]
    assert reason == "composed of neuron_test_composed::part: no native kernel: it runs on the CPU"


# --- types and lines --------------------------------------------------------------------------------------------------
def wide(x: torch.Tensor) -> torch.Tensor:
    y = x.double()  # to float64
    y = y * 2  # in float64
    return y.float()


def test_float64_has_the_line_of_the_program(rule: str) -> None:
    report = torch_neuronx.check(wide, torch.randn(4), rule=rule, compile=False)
    assert not report.ok and set(not_native(report)) == {"aten::_to_copy", "aten::mul.Tensor"}
    assert all("float64, which Trainium lacks" in reason for reason in not_native(report).values())
    places = {use.place for use in report.types if use.dtype == "float64"}
    name = checking.places.short_path(str(HERE))
    assert f"{name}:{line_of('to float64')}" in places and f"{name}:{line_of('in float64')}" in places


class Learned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * self.weight.double()  # its backward is float64 too
        return y.float().sum()


def test_backward_is_led_back_to_the_forward_line(rule: str) -> None:
    report = torch_neuronx.check(Learned(), torch.randn(4), train=True, rule=rule, compile=False)
    place = f"{checking.places.short_path(str(HERE))}:{line_of('its backward is float64 too')}"
    assert f"{place} (backward)" in {use.place for use in report.types if use.dtype == "float64"}


def test_compiled_graphs_have_the_line_of_the_program(rule: str) -> None:
    def compiled(x: torch.Tensor) -> torch.Tensor:
        return x.sin().double() * 3  # inside of a graph

    torch._dynamo.reset()
    with checking.recording(rule=rule) as recorded:
        torch.compile(compiled, backend="neuron")(on_device(4))
    report = recorded.report()
    place = f"{checking.places.short_path(str(HERE))}:{line_of('inside of a graph')}"
    assert {use.place for use in report.types if use.dtype == "float64"} == {place}
    assert report.compilations.compiled == 1
    assert report.compilations.eager == 1, "the ones that the input is made of, outside of the graph"


def test_int64_is_listed_and_native(rule: str) -> None:
    table = nn.Embedding(8, 4)
    report = torch_neuronx.check(table, torch.tensor([1, 2]), rule=rule)
    assert report.ok and {use.dtype for use in report.types} == {"int64"}


def test_complex_is_listed(rule: str) -> None:
    report = torch_neuronx.check(lambda x: torch.fft.fft(x).real, torch.randn(4), rule=rule, compile=False)
    assert {use.dtype for use in report.types} == {"complex64"}


def test_a_float64_number_is_the_hosts(rule: str) -> None:
    scale = torch.tensor(2.0, dtype=torch.float64)
    report = torch_neuronx.check(lambda x: x * scale, torch.randn(4), rule=rule)
    assert report.ok and report.types == ()


# --- shapes -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("aten::nonzero", torch.nonzero),
        ("aten::masked_select", lambda x: torch.masked_select(x, x > 0)),
        ("aten::index.Tensor", lambda x: x[x > 0]),
        ("aten::_unique2", torch.unique),
    ],
)
def test_sizes_that_depend_on_data_are_not_native(name: str, function: Callable, rule: str) -> None:
    report = torch_neuronx.check(function, torch.randn(8), rule=rule, compile=False)
    assert "the size of its result depends on data" in not_native(report)[name]
    assert "size of the result depends on data" in {row.what for row in report.shapes}


def test_indexing_by_numbers_is_native(rule: str) -> None:
    report = torch_neuronx.check(lambda x: x[torch.tensor([0, 2], device=x.device)], torch.randn(4), rule=rule)
    assert report.ok, str(report)


def test_a_value_that_the_host_reads_is_told_and_allowed(rule: str) -> None:
    report = torch_neuronx.check(lambda x: x * x.sum().item(), torch.randn(4), rule=rule, compile=False)
    assert report.ok and [row.what for row in report.shapes] == ["the host reads a value"]


def test_inputs_of_different_shapes_are_counted() -> None:
    model = nn.Linear(4, 4).to("neuron")
    with checking.recording(rule="engine") as recorded:
        for length in (1, 2, 3, 3):
            model(on_device(length, 4))
    report = recorded.report()
    [row] = report.shapes
    assert (row.place, row.count, row.examples) == ("Linear", 3, ("(1, 4)", "(2, 4)", "(3, 4)"))
    # ones and addmm, for each of three shapes
    assert report.compilations.eager == 6


def test_programs_differ_by_numbers_as_well() -> None:
    x = on_device(4)
    with checking.recording(rule="engine") as recorded:
        for factor in (1, 2.0, 2.0, True, torch.ones(4, device="neuron")):
            x * factor
    # Four factors, 2.0 once, and the ones that are the last.
    assert recorded.report().compilations.eager == 5


def test_graphs_for_a_range_of_shapes_count_each() -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: x.sin() + 1, backend="neuron", dynamic=True)
    with checking.recording(rule="engine") as recorded:
        for length in (4, 5, 5, 6):
            compiled(on_device(length))
    found = recorded.report().compilations
    assert [graph.shapes for graph in found.graphs] == [3] and found.compiled == 3


def test_recompilations_and_graph_breaks_have_reasons() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x.sin()
        torch._dynamo.graph_break()
        return x.cos()

    torch._dynamo.reset()
    compiled = torch.compile(broken, backend="neuron", dynamic=False)
    with checking.recording(rule="engine") as recorded:
        compiled(on_device(4))
        compiled(on_device(5))
    found = recorded.report().compilations
    assert len(found.graphs) == 4
    [reason] = found.graph_breaks
    assert "graph_break()" in reason and reason.endswith("(2 times)")
    assert any("size mismatch at index 0. expected 4, actual 5" in reason for reason in found.recompilations)


def test_control_flow_is_looked_into() -> None:
    def branches(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.double().sin(), lambda x: x.double(), (x,))

    torch._dynamo.reset()
    with checking.recording(rule="engine") as recorded, torch.no_grad():
        torch.compile(branches, backend="neuron")(on_device(4))
    assert "aten::sin" in not_native(recorded.report())


# --- memory, errors ---------------------------------------------------------------------------------------------------
def test_peak_of_memory() -> None:
    def temporary(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(1 << 20, device=x.device).sum() + x  # 4 MiB

    torch.neuron.empty_cache()
    report = torch_neuronx.check(temporary, torch.randn(4), rule="engine")
    [memory] = report.memory
    assert memory.core == 0 and 4 << 20 <= memory.peak_allocated < 5 << 20
    assert memory.peak_allocated <= memory.peak_reserved <= memory.total == 24 << 30


def test_running_out_of_memory_is_a_verdict(rule: str) -> None:
    def large(x: torch.Tensor) -> torch.Tensor:
        return torch.empty(25 << 30, dtype=torch.uint8, device=x.device)

    report = torch_neuronx.check(large, torch.randn(4), rule=rule)
    assert not report.ok and "out of device memory" in report.verdict and "25.00 GiB" in report.out_of_memory


def test_an_operator_that_is_not_implemented_is_a_verdict(rule: str) -> None:
    def ends(x: torch.Tensor) -> None:
        torch.ops.aten.histc(x.int(), 4)

    report = torch_neuronx.check(ends, torch.randn(4), rule=rule)
    if report.ok:
        pytest.fail("histc of integers works now: another operator is needed here")
    assert "raises on the device" in not_native(report)["aten::histc"]


def test_other_errors_pass(rule: str) -> None:
    def wrong(x: torch.Tensor) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        torch_neuronx.check(wrong, torch.randn(4), rule=rule)


def test_what_ran_elsewhere_is_told() -> None:
    with checking.recording() as recorded:
        torch.ones(2) + 1
    report = recorded.report()
    assert not report.ok and not report.ran and report.elsewhere == {"cpu": 2}
    assert report.verdict.startswith("nothing ran on the neuron device (2 operators on cpu)")


def test_unknown_rule() -> None:
    with pytest.raises(ValueError, match="rule 'strict' is not one of lowering, engine"):
        torch_neuronx.check(torch.sin, torch.randn(2), rule="strict")


def test_arguments_of_any_form_are_moved(rule: str) -> None:
    def function(pair: tuple, *, named: dict) -> torch.Tensor:
        assert {t.device.type for t in (*pair, named["x"])} == {"neuron"}
        return pair[0] + pair[1] + named["x"]

    x = torch.randn(2)
    assert torch_neuronx.check(function, [(x, x)], {"named": {"x": x}}, rule=rule).ok


def test_the_report_is_plain_data_and_prints(rule: str) -> None:
    report = torch_neuronx.check(wide, torch.randn(4), rule=rule)
    data = json.loads(json.dumps(report.to_dict()))
    assert data["schema"] == 1 and data["ok"] is False and data["rule"] == rule and data["chip"] == "trn2"
    assert {row["name"] for row in data["operators"] if not row["native"]} == set(not_native(report))
    assert data["compilations"]["compiled"] == 1
    text = str(report)
    assert text.splitlines()[0] == report.verdict and "aten::mul.Tensor [float64] x 1" in text


def test_a_compile_error_is_told_and_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(graph: torch.fx.Graph) -> torch.fx.Graph:
        raise RuntimeError("this pass fails")

    monkeypatch.setattr("torch_neuronx.compiler.passes.simplify", fails)
    report = torch_neuronx.check(torch.sin, torch.randn(2), rule="engine")
    assert report.ok and "this pass fails" in report.compilations.not_captured


def test_what_cannot_be_captured_at_all_is_told() -> None:
    class Refuses(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if torch.compiler.is_compiling():
                raise RuntimeError("not like this")
            return x + 1

    report = torch_neuronx.check(Refuses(), torch.randn(2), rule="engine")
    assert report.ok and "nothing to capture" in report.compilations.not_captured
