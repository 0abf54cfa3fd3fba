"""Random programs: the quick form of run.py, and that it finds what is put in wrong on purpose."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torch_neuronx
from programs import run
from programs.generate import generate, overlaps_itself
from programs.judge import Noise, distance, judge, reference
from programs.minimise import minimise, script
from programs.program import Program, Statement, execute

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # programs are not careful

EAGER, COMPILED = 2000, 50


@pytest.fixture(autouse=True)
def _set_up() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch_neuronx.set_fallback_policy("allow")
    yield
    torch.set_num_threads(threads)


def assert_none_differs(report: run.Report, least: int) -> None:
    assert not report.crashes, report.crashes
    assert not report.failures, "\n\n".join(f.script for f in report.failures)
    assert report.programs - sum(report.refused.values()) >= least, report.refused


def test_eager_programs() -> None:
    report = run.run_all(0, EAGER, "eager", stop_after=3)
    assert_none_differs(report, EAGER)
    assert report.exceptions > EAGER // 10 and report.statements > 10 * EAGER


def test_compiled_programs() -> None:
    # Some are PyTorch's own limits (a graph break, a view of an input that needs a gradient and is written).
    assert_none_differs(run.run_all(0, COMPILED, "compile", stop_after=3), COMPILED * 2 // 3)


# --- the test itself: a fault that is put in has to be found
class Faulty(TorchDispatchMode):
    """Changes what one operator does to tensors of the device."""

    def __init__(self, name: str, change: Callable[..., Any]) -> None:
        super().__init__()
        self.name, self.change = name, change

    def __torch_dispatch__(self, f: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        on_device = any(isinstance(a, torch.Tensor) and a.device.type == "neuron" for a in args)
        if on_device and f.overloadpacket.__name__ == self.name:
            return self.change(f, *args, **(kwargs or {}))
        return f(*args, **(kwargs or {}))


def off_by(factor: float) -> Callable[..., Any]:
    def change(f: Any, *args: Any, **kwargs: Any) -> Any:
        result = f(*args, **kwargs)
        return result * factor if result.is_floating_point() else result

    return change


def last_element_lost(f: Any, *args: Any, **kwargs: Any) -> Any:
    result = f(*args, **kwargs)
    if result.numel() > 8:
        result.view(-1)[-1] = 0
    return result


def raises(f: Any, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("on purpose")


FAULTS = {
    "an exact operator that is off by two units in the last place": ("add", off_by(1 + 2.0**-22)),
    "a function that is off by 40": ("sin", off_by(1 + 40 * 2.0**-23)),
    "a tail that is not computed": ("mul", last_element_lost),
    "another exception": ("relu", raises),
    "a write that is lost": ("add_", lambda f, x, *args, **kwargs: x),
    "a copy instead of a view": ("slice", lambda f, *args, **kwargs: f(*args, **kwargs).clone()),
    "a read that comes too early": ("_local_scalar_dense", lambda f, x: f(x) * 2),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str) -> None:
    found = None
    for seed in range(400):
        program, expected = generate(seed, "eager")
        with Faulty(*FAULTS[fault]):
            got = execute(program, "neuron")
        if judge(program, got, expected):
            found = program
            break
    assert found is not None, "400 programs ran and none of them noticed"


def test_noise_is_not_a_licence() -> None:
    """An element that no noise of the program moves has to be equal; others may differ by a small multiple."""
    lines = [
        Statement("x0 = data(torch.float32, 3, (65,))", ("x0",), is_input=True),
        Statement("x1 = x0 * 2", ("x1",)),
        Statement("x2 = x0.sin()", ("x2",), 4.0),
    ]
    program = Program(0, "eager", lines)
    for name, factor, wrong in (("x1", 1 + 2.0**-23, True), ("x2", 1 + 2.0**-23, False), ("x2", 1 + 2.0**-18, True)):
        got = execute(program, "neuron")
        got.env[name].data.mul_(factor)
        assert [d.name for d in judge(program, got, reference(program))] == ([name] if wrong else []), name
    noisy = execute(program, "cpu", Noise(1, 0.0))
    assert torch.equal(noisy.env["x1"], reference(program).env["x1"])
    assert not torch.equal(noisy.env["x2"], reference(program).env["x2"])


def test_a_failing_program_is_made_small_and_runs_by_itself(
    run_python: Callable[..., Any],
) -> None:
    program, _ = generate(3, "eager")
    program.statements[5:5] = [
        Statement("y0 = data(torch.float32, 3, (5,))", ("y0",), is_input=True),
        Statement("y1 = y0 * 2", ("y1",)),
    ]
    small = minimise(program, lambda p: "y1" in execute(p, "cpu").env)
    assert [s.text for s in small.statements] == ["y0 = data(torch.float32, 3, (5,))", "y1 = y0 * 2"]
    text = script(small, [], set())
    assert "y1 tensor(" in run_python(text).stdout


def dies(seed: int, end: int, mode: str, stop_after: int, at: Any, pipe: Any) -> None:
    at.value = 7
    if seed <= 7:
        os.kill(os.getpid(), signal.SIGSEGV)
    pipe.send(run.Report(programs=end - seed))


def test_a_program_that_kills_the_process_is_named_and_the_next_one_runs() -> None:
    report = run.run_all(0, 20, "eager", worker=dies)
    assert report.crashes == {7: "SIGSEGV"} and report.programs == 12


def test_the_same_seed_is_the_same_program() -> None:
    for mode in ("eager", "compile"):
        first, second = generate(17, mode)[0], generate(17, mode)[0]
        assert [s.text for s in first.statements] == [s.text for s in second.statements]
    assert generate(18, "eager")[0].statements[0].text != generate(17, "eager")[0].statements[0].text


def test_threads_streams_and_exceptions_are_in_the_programs() -> None:
    seen = "\n".join(s.text for seed in range(300) for s in generate(seed, "eager")[0].statements)
    for part in ("record_stream", "set_stream", "backward(", "inference_mode", "out=", "as_strided", ".item()", "del "):
        assert part in seen, part
    assert any(s.thread for seed in range(100) for s in generate(seed, "eager")[0].statements)


def test_helpers() -> None:
    x = torch.zeros(4, 6)
    assert not overlaps_itself(x.t()) and not overlaps_itself(x[:, ::2]) and overlaps_itself(x[:1].expand(3, 6))
    assert overlaps_itself(x.as_strided((3, 3), (1, 1)))
    inf, nan = float("inf"), float("nan")
    a, b = torch.tensor([1.0, nan, inf, nan, -inf]), torch.tensor([1.5, nan, inf, 1.0, inf])
    assert distance(a.double(), b.double()).tolist() == [0.5, 0.0, 0.0, inf, inf]
