"""The harness itself: a fault that is put in on purpose has to come out under its own name."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch

from conformance import compare, engine, report, runner, tables
from conformance.moving import Mover, Sample, tensors_of
from conformance.pool import Pool, Task


def faulty(task, skip, announce):
    """A runner with the variants good, bad and late; what `bad` does is the task's name."""
    for variant in ("good", "bad", "late"):
        if variant in skip:
            continue
        yield variant, None
        if variant == "bad":
            announce("device")
            if task.name == "segfault":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif task.name == "abort":
                os.abort()
            elif task.name == "exit":
                os._exit(3)
            elif task.name == "hang":
                time.sleep(60)
        yield variant, {"state": "native"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("segfault", "SIGSEGV while device"),
        ("abort", "SIGABRT while device"),
        ("exit", "exit status 3"),
        ("hang", "no answer"),
    ],
)
def test_a_dying_worker_loses_one_variant(fault, reason):
    tasks = [Task("op", name, "float32") for name in ("a", fault, "b", "c")]
    found = {task.name: verdicts for task, verdicts, _ in Pool(faulty, workers=2, limit=2).results(tasks)}
    assert set(found) == {"a", fault, "b", "c"}
    assert {v: r["state"] for v, r in found[fault].items()} == {"good": "native", "bad": "crash", "late": "native"}
    assert reason in found[fault]["bad"]["detail"]
    for name in "abc":
        assert all(r["state"] == "native" for r in found[name].values())


class FakeCounter(compare.Counter):
    """A counter that reports what a test tells it to."""

    def __init__(self):
        super().__init__("cpu")
        self.found: dict[str, int] = {}

    def take(self):
        return dict(self.found)


class OnOneSide:
    """Makes an operator behave otherwise on the second of each two calls, which is the device's."""

    def __init__(self, op, change):
        self.op, self.change, self.calls = op, change, 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        return self.op(*args, **kwargs) if self.calls % 2 else self.change(self.op, *args, **kwargs)


def run_variant(name, variant, change=None, dtype=torch.float32, attribute="op", counter=None):
    info = runner.ops()[name]
    original = getattr(info, attribute)
    if change is not None:
        setattr(info, attribute, OnOneSide(original, change))
    try:
        verdict = compare.Verdict()
        getattr(engine.OpEngine(info, dtype, "cpu", 3, counter or compare.Counter("cpu")), variant)(verdict)
        return verdict
    finally:
        setattr(info, attribute, original)


def raise_error(kind):
    def change(op, *args, **kwargs):
        raise kind("on purpose")

    return change


FAULTS = [
    ("value", "mul", "forward", lambda op, *a, **k: op(*a, **k) + 1e-2, "wrong"),
    ("dtype", "mul", "forward", lambda op, *a, **k: op(*a, **k).double(), "wrong"),
    ("shape", "mul", "forward", lambda op, *a, **k: op(*a, **k)[None], "wrong"),
    ("lost alias", "t", "forward", lambda op, *a, **k: op(*a, **k).clone(), "wrong"),
    ("made alias", "clone", "forward", lambda op, x, **k: x, "wrong"),
    ("raises", "mul", "forward", raise_error(RuntimeError), "error"),
    ("strided input", "mul", "noncontiguous", lambda op, *a, **k: op(*a, **k) + 1, "wrong"),
    ("conj input", "mul", "conj", lambda op, x, *a, **k: op(x.conj(), *a, **k), "wrong"),
    ("neg input", "mul", "neg", lambda op, x, *a, **k: op(-x, *a, **k), "wrong"),
    ("empty input", "mul", "empty", raise_error(IndexError), "error"),
    ("gradient", "exp", "backward", lambda op, x, **k: op(x) + x, "wrong"),
]


@pytest.mark.parametrize(("label", "name", "variant", "change", "state"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_fault_is_found(label, name, variant, change, state):
    dtype = torch.complex64 if variant == "conj" else torch.float32
    assert run_variant(name, variant, dtype=dtype).state == "native"
    assert run_variant(name, variant, change, dtype).state == state


def test_an_out_that_is_not_written_is_found():
    # Calls come as: plain CPU result once a sample, then CPU and device by turns for each kind of out=.
    info = runner.ops()["mul"]
    original = info.op

    def forget(op, *args, out=None, **kwargs):
        return op(*args, **kwargs) if out is None else op(*args, **kwargs).clone()

    info.op = lambda *a, **k: forget(original, *a, **k) if forget_now() else original(*a, **k)
    calls = [0]

    def forget_now():
        calls[0] += 1
        return calls[0] > 1 and calls[0] % 2 == 1

    try:
        verdict = compare.Verdict()
        engine.OpEngine(info, torch.float32, "cpu", 3, compare.Counter("cpu")).out(verdict)
    finally:
        info.op = original
    assert verdict.state == "wrong", verdict


def test_an_in_place_variant_that_returns_a_copy_is_found():
    change = lambda op, x, *a, **k: op(x, *a, **k).clone()  # noqa: E731
    assert run_variant("mul", "inplace").state == "native"
    assert run_variant("mul", "inplace", change, attribute="inplace_variant").state == "wrong"


def test_not_implemented_error_is_not_a_runtime_error():
    expected, got = compare.Attempt(error=RuntimeError("x")), compare.Attempt(error=NotImplementedError("x"))
    assert compare.compare_errors(got, expected)
    assert not compare.compare_errors(compare.Attempt(error=RuntimeError("y")), expected)


def test_a_random_operator_that_ignores_the_seed_is_found():
    import itertools

    seeds = itertools.count()

    def unseeded(op, *args, **kwargs):
        torch.manual_seed(next(seeds))
        return op(*args, **kwargs)

    assert run_variant("randn_like", "forward").state == "native"
    info = runner.ops()["randn_like"]
    original, info.op = info.op, lambda *a, **k: unseeded(original, *a, **k)
    try:
        verdict = compare.Verdict()
        engine.OpEngine(info, torch.float32, "cpu", 3, compare.Counter("cpu")).forward(verdict)
    finally:
        info.op = original
    assert verdict.state == "wrong"
    assert "seed" in verdict.detail


def test_another_distribution_is_found():
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(4096, generator=generator)
    assert compare.same_distribution(a, torch.rand(4096, generator=generator))
    assert not compare.same_distribution(a, torch.rand(4096, generator=generator) * 0.85)
    assert not compare.same_distribution(a > 0.5, torch.rand(4096, generator=generator) > 0.4)


def test_a_fallback_is_counted_and_named():
    counter = FakeCounter()
    counter.found = {"aten::mul": 1}
    verdict = run_variant("mul", "forward", counter=counter)
    assert verdict.state == "fallback"
    assert verdict.fallbacks["aten::mul"] == verdict.samples


def test_a_moved_sample_keeps_strides_offsets_and_shared_storage():
    base = torch.arange(24.0).reshape(4, 6)
    view, twin, wide = base[1:, ::2], base.t(), torch.ones(3, 1).expand(3, 5)
    conj = torch.tensor([1 + 2j]).conj()
    sample = Sample((view, [twin, wide]), {"conj": conj})
    moved = sample.on("cpu")
    for a, b in zip(moved.tensors(), sample.tensors(), strict=True):
        assert a is not b and torch.equal(a, b)
        assert (a.stride(), a.storage_offset(), a.is_conj()) == (b.stride(), b.storage_offset(), b.is_conj())
        assert not compare.same_storage(a, b)
    first, second, *_ = moved.tensors()
    assert compare.same_storage(first, second)
    assert Mover("cpu")(torch.device("cpu")) == torch.device("cpu")
    assert tensors_of(moved.args[1]) == moved.args[1]


def results_with(state, name="mul"):
    results = report.Results({"size": "quick"}, [])
    results.add(Task("op", name, "float32"), {"forward": {"state": state, "samples": 1}}, 0.1)
    return results


def test_an_unexpected_pass_fails():
    key = report.Key("op", "mul", "float32", "forward")
    known = {key: {"state": "error", "reason": "a reason"}}
    assert report.judge(results_with("error"), known) == ([], [])
    assert report.judge(results_with("native"), {}) == ([], [])
    assert report.judge(results_with("native"), known)[1], "a known failure that passes has to be reported"
    assert report.judge(results_with("error"), {})[0], "a failure that is not known has to be reported"
    assert report.judge(results_with("crash"), known)[0], "a known error that becomes a crash has to be reported"


def test_known_failures_are_written_kept_and_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "KNOWN", tmp_path / "known.yaml")
    report.update_known(results_with("error"))
    with pytest.raises(ValueError, match="no reviewed reason"):
        report.known_failures("quick")
    text = report.KNOWN.read_text()
    report.KNOWN.write_text(text.replace("unreviewed", "the reason"))
    report.update_known(results_with("error"))
    assert "the reason" in report.KNOWN.read_text()
    assert list(report.known_failures("quick")) == [report.Key("op", "mul", "float32", "forward")]
    assert report.known_failures("full") == {}
    report.update_known(results_with("native"))
    assert report.known_failures("quick") == {}


def test_known_failures_name_entries_that_exist():
    tasks = set(runner.tasks(set(report.KINDS), None))
    for size in runner.SIZES:
        for key in report.known_failures(size):
            assert Task(key.kind, key.name, key.dtype) in tasks, f"known_failures.yaml: {key} is not in the database"


def test_tables_name_operators_that_exist():
    for table in (
        tables.METADATA_ONLY,
        tables.UNDEFINED_WHEN_EMPTY,
        tables.RANDOM,
        tables.APPROXIMATE,
        tables.CPU_TENSORS,
    ):
        for name, reason in table.items():
            assert name in runner.ops() and reason
    assert all(name in tables.RANDOM for name in tables.SELDOM_DRAWS)
    for full_name, _ in tables.widened():
        name = full_name.removesuffix(" fused").removesuffix(" double backward")
        assert name in runner.ops() or name in runner.modules.infos() or name in runner.optimizers.infos("cpu")


def test_a_share_counts_every_variant():
    results = results_with("native")
    results.add(Task("op", "add", "float32"), {"forward": {"state": "native"}, "out": {"state": "fallback"}}, 0.1)
    results.add(Task("op", "jiterator", "float32"), {"forward": {"state": compare.NOT_APPLICABLE}}, 0.1)
    assert report.native_share(results, "float32") == (1, 2)


def test_both_pages_are_written():
    results = results_with("wrong")
    results.about.update(command="x", torch="2", cpu="c", seconds=1, workers=1)
    assert "| mul | W |" in report.page(results)
    assert "wrong x1" in report.findings(results)
