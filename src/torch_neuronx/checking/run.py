"""Runs a model under the recorder and turns what was seen into a report."""

from __future__ import annotations

import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from torch_neuronx import _C, neuron
from torch_neuronx.checking import native
from torch_neuronx.checking.calls import LACKING
from torch_neuronx.checking.native import Judge, Rule, Verdict
from torch_neuronx.checking.places import short_path
from torch_neuronx.checking.recorder import DEVICE, EXAMPLES, OperatorCall, Recorder
from torch_neuronx.checking.report import Compilations, Graph, Memory, Operator, Report, Shapes, TypeUse
from torch_neuronx.compiler import metrics
from torch_neuronx.reports import fallbacks, set_fallback_policy

Progress = Callable[[int], None]


class Recording:
    """What `recording()` gives: `report()` is complete once its block has ended."""

    def __init__(self, judge: Judge, progress: Progress | None) -> None:
        self.recorder = Recorder(judge.knows, progress)
        self.not_captured = ""
        self.out_of_memory = ""
        self._judge = judge
        self._graphs = len(metrics.get_dynamo_metrics())
        self.fallbacks = _fallback_counts()  # before; `recording` makes it the difference
        self._breaks, self._recompiles = _graph_breaks(), _recompilations()
        for core in range(neuron.device_count()):
            neuron.reset_peak_memory_stats(core)

    def report(self) -> Report:
        """The report of what ran so far."""
        recorder = self.recorder
        return Report(
            chip=_C.topology()["chip"],
            rule=self._judge.rule,
            operators=tuple(self._operators()),
            types=tuple(_type_uses(recorder)),
            shapes=tuple(_shapes(recorder)),
            compilations=self._compilations(),
            memory=tuple(_memory()),
            out_of_memory=self.out_of_memory,
            elsewhere=dict(recorder.elsewhere),
        )

    def _verdict(self, call: OperatorCall) -> Verdict:
        """An operator is native when all that it is composed of is."""
        for leaf in sorted(call.leaves, key=str):
            verdict = self._judge.decide(self.recorder.examples[leaf])
            if not verdict.native:
                name = native.op_name(leaf.op)
                made_of = "" if leaf.op is call.op else f"composed of {name}: "
                return Verdict(False, made_of + verdict.reason)
        return Verdict(True)

    def _operators(self) -> list[Operator]:
        calls: dict[tuple[str, tuple[torch.dtype, ...], Verdict], Counter[str]] = defaultdict(Counter)
        for call, count in self.recorder.calls.items():
            calls[native.op_name(call.op), call.dtypes, self._verdict(call)][str(call.place)] += count
        rows = [
            Operator(
                name=name,
                dtypes=tuple(native.type_name(dtype) for dtype in dtypes),
                calls=places.total(),
                native=verdict.native,
                reason=verdict.reason,
                places=() if verdict.native else tuple(place for place, _ in places.most_common(EXAMPLES)),
            )
            for (name, dtypes, verdict), places in calls.items()
        ]
        rows += self._unseen(rows)
        return sorted(rows, key=lambda row: (row.native, -row.calls, row.name, row.dtypes))

    def _unseen(self, rows: Sequence[Operator]) -> Iterator[Operator]:
        """Fallbacks that the device counted and the recorder did not see: those of threads that the program started."""
        seen = {native.op_name(leaf.op) for call in self.recorder.calls for leaf in call.leaves}
        for (name, kind), count in self.fallbacks.items():
            if kind == "operator" and name not in seen:
                reason = "no native kernel: it runs on the CPU (in another thread)"
                yield Operator(name=name, dtypes=(), calls=count, native=False, reason=reason, places=())

    def _compilations(self) -> Compilations:
        programs = {
            program
            for program in self.recorder.programs
            if program.arguments is not None
            and native.is_compiled(program.leaf.op)
            and self._judge.decide(program).native
        }
        rows = metrics.get_dynamo_metrics()[self._graphs :]
        return Compilations(
            eager=len(programs),
            graphs=tuple(Graph(name=r.name, kind=r.kind, operators=r.nodes, shapes=r.shapes) for r in rows),
            graph_breaks=tuple(_told(_graph_breaks() - self._breaks)),
            recompilations=tuple(_told(_recompilations() - self._recompiles)),
            not_captured=self.not_captured,
        )


@contextlib.contextmanager
def recording(*, rule: Rule | None = None, progress: Progress | None = None) -> Iterator[Recording]:
    """Records what the block does on the neuron device; `.report()` of what it gives is the `Report`.

    Running out of device memory, or an operator that is not implemented, ends the block and is part of the report;
    other errors pass. Peaks of memory are
    counted from here on (`reset_peak_memory_stats`), fallbacks neither warn nor raise, and operators that run in
    threads which the block starts are reported only if they fall back to the CPU.

    Args:
        rule: what "native" means: "lowering", that an operator can be given to Trainium's compiler, or "engine", that
            the emulated device has a kernel for it. None: "lowering" where the extra `stablehlo` is installed.
        progress: called with the number of operators so far, after each.
    """
    judge = native.judge(rule)
    with _fallbacks_allowed():
        recording = Recording(judge, progress)
        try:
            with recording.recorder:
                yield recording
            neuron.synchronize()
        except torch.OutOfMemoryError as error:
            recording.out_of_memory = str(error)
        except NotImplementedError as error:
            if error is not recording.recorder.stopped:
                raise
        finally:
            recording.fallbacks = _fallback_counts() - recording.fallbacks


def check(
    model: Callable[..., Any],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    train: bool = False,
    compile: bool = True,
    rule: Rule | None = None,
    progress: Progress | None = None,
) -> Report:
    """Runs a model on the neuron device and reports what of it would not run on Trainium.

    Args:
        model: a module, which is moved to the device, or a function.
        args: a tuple or list of arguments, or a single one. Tensors are moved to the device, also within lists,
            tuples and dictionaries.
        kwargs: named arguments, likewise.
        train: also run the backward, of the result's `loss` where it has one and else of the mean of its floating
            point tensors. Otherwise the model runs without gradients.
        compile: run the model once more under `torch.compile(backend="neuron")`, to count its graphs.
        rule, progress: as for `recording`.

    Raises what the model raises, except that running out of device memory and an operator that is not implemented are
    part of the report.
    ValueError when `train` is asked for and no result can be differentiated.
    """
    if isinstance(model, torch.nn.Module):
        model = model.to(DEVICE)
    positional = _to_device(tuple(args) if isinstance(args, (tuple, list)) else (args,))
    named = _to_device(dict(kwargs or {}))
    with recording(rule=rule, progress=progress) as recorded:
        _run(model, positional, named, train)
    if compile and not recorded.out_of_memory and not recorded.recorder.stopped:
        torch._dynamo.reset()
        before = len(metrics.get_dynamo_metrics())
        try:
            with _fallbacks_allowed():
                _run(torch.compile(model, backend=DEVICE), positional, named, train)
            if len(metrics.get_dynamo_metrics()) == before:
                recorded.not_captured = "torch.compile found nothing to capture: all of it runs as Python"
        except Exception as error:
            recorded.not_captured = " ".join(f"{type(error).__name__}: {error}".split("\n\n")[0].split())
        finally:
            if isinstance(model, torch.nn.Module):
                model.zero_grad(set_to_none=True)
    return recorded.report()


@contextlib.contextmanager
def _fallbacks_allowed() -> Iterator[None]:
    """They are what is looked for: no warning, and no error that would hide what comes after the first."""
    policy = set_fallback_policy("allow")
    try:
        yield
    finally:
        set_fallback_policy(policy)


def _run(model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], train: bool) -> None:
    with torch.set_grad_enabled(train):
        result = model(*args, **kwargs)
        if train:
            _loss(result).backward()  # type: ignore[no-untyped-call]


def _loss(result: Any) -> torch.Tensor:
    loss = result.get("loss") if isinstance(result, Mapping) else getattr(result, "loss", None)
    if loss is None:
        parts = [t.float().mean() for t in _leaves(result) if t.is_floating_point() and t.requires_grad]
        if not parts:
            raise ValueError(
                "train=True needs a result with a floating point tensor that depends on a parameter, and the model "
                f"returned {type(result).__name__} without one. Leave train out, or return the loss."
            )
        loss = torch.stack(parts).sum()
    return loss


def _leaves(value: Any) -> Iterator[torch.Tensor]:
    yield from (leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _to_device(value: Any) -> Any:
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda t: t.to(DEVICE), value)


def _fallback_counts() -> Counter[tuple[str, str]]:
    return Counter({(row.op, row.kind): row.count for row in fallbacks()})


def _told(reasons: Counter[str]) -> Iterator[str]:
    for reason, count in reasons.items():
        yield reason if count == 1 else f"{reason} ({count} times)"


def _graph_breaks() -> Counter[str]:
    from torch._dynamo.utils import counters

    return Counter({reason.splitlines()[0]: count for reason, count in counters["graph_break"].items()})


def _recompilations() -> Counter[str]:
    """Why graphs were captured again, as Dynamo says it."""
    from torch._dynamo.utils import guard_failures

    reasons: Counter[str] = Counter()
    for code, failures in guard_failures.items():
        place = f"{short_path(code.co_filename)}:{code.co_firstlineno}"
        reasons.update(f"{place}: {failure.splitlines()[0]}" for failure in failures)
    return reasons


def _type_uses(recorder: Recorder) -> Iterator[TypeUse]:
    order = (*LACKING, torch.int64)
    rows = sorted(recorder.uses.items(), key=lambda item: (order.index(item[0][0]), -item[1].total(), item[0][1]))
    for (dtype, place), operators in rows:
        names = tuple(name for name, _ in operators.most_common())
        yield TypeUse(dtype=native.type_name(dtype), place=str(place), calls=operators.total(), operators=names)


def _shapes(recorder: Recorder) -> Iterator[Shapes]:
    for (_, name), shapes in recorder.inputs.items():
        if len(shapes) > 1:
            examples = [" ".join(map(str, inputs)) for inputs in list(shapes)[:EXAMPLES]]
            yield Shapes(what="inputs of the module differ", place=name, count=len(shapes), examples=tuple(examples))
    for (what, place), seen in recorder.data_dependent.items():
        examples = [text for text, _ in seen.most_common(EXAMPLES)]
        yield Shapes(what=what, place=str(place), count=seen.total(), examples=tuple(examples))


def _memory() -> Iterator[Memory]:
    for core in range(neuron.device_count()):
        peak = neuron.max_memory_allocated(core)
        if peak > 0:
            yield Memory(
                core=core,
                peak_allocated=peak,
                peak_reserved=neuron.max_memory_reserved(core),
                total=neuron.get_device_properties(core).total_memory,
            )
