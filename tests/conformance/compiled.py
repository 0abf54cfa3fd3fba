"""Entries of the op database under torch.compile(backend="neuron", fullgraph=True), with the rules of eager execution.

Compiling takes most of the time, so samples are few. Dynamo is reset before each variant, not before each sample: the
second sample's shapes make a dimension symbolic.

A sample that fails counts as refused, not as an error, if `backend="aot_eager"` on the CPU fails in the same way: the
limit is then PyTorch's own. Refused samples are listed with the reason and not judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from conformance.compare import NOT_APPLICABLE, Verdict, attempt
from conformance.engine import Call, OpEngine, spread
from conformance.moving import Sample

MOST = 2  # samples of the forward variant; the others take one
QUICK_STEP = 4  # the quick form takes every fourth operator, in float32
TWIN = "cpu:0"  # the CPU, compiled: plain "cpu" is the eager reference

Operator = Callable[..., Any]


class CompiledEngine(OpEngine):
    """Runs one (operator, dtype) pair: on the CPU eagerly, on the device compiled."""

    backend = "neuron"
    earlier: list[Sample]  # samples that ran since Dynamo was reset

    def variants(self) -> dict[str, Callable[[Verdict], None]]:
        table: dict[str, Callable[[Verdict], None]] = {"compiled": self.forward}
        if self.info.inplace_variant is not None:
            table["compiled inplace"] = self.inplace
        if self.info.supports_autograd and self.dtype in self.info.supported_backward_dtypes("cpu"):
            table["compiled backward"] = self.backward
        return table

    def forward(self, verdict: Verdict) -> None:
        for sample in self.few(MOST):
            self.compare(verdict, self.info.op, sample)

    def inplace(self, verdict: Verdict) -> None:
        for sample in self.few(1):
            self.compare(verdict, self.info.inplace_variant, sample)

    def backward(self, verdict: Verdict) -> None:
        for sample in self.few(1, requires_grad=True):
            if any(t.requires_grad for t in sample.tensors()):
                self.compare(verdict, self.info.op, sample, gradients=True)

    def few(self, count: int, requires_grad: bool = False) -> list[Sample]:
        torch._dynamo.reset()
        self.earlier = []
        return [Sample.of(s) for s in spread(self.info.sample_inputs("cpu", self.dtype, requires_grad), count)]

    def compare(self, verdict: Verdict, operator: Operator, sample: Sample, gradients: bool = False) -> None:
        """Adds what became of one sample. One that raises in eager execution on the CPU says nothing here."""
        if attempt(lambda: self.call(operator, gradients)(self.on("cpu", sample))).error is not None:
            return
        found = self.verdict_of(operator, sample, gradients)
        self.earlier.append(sample)
        if found.state in ("error", "wrong") and self.device != TWIN:
            torch._dynamo.reset()
            twin = Twin(self.info, self.dtype, TWIN, self.budget, self.counter, self.phase)
            for earlier in self.earlier[:-1]:  # what made dimensions symbolic
                twin.verdict_of(operator, earlier, gradients)
            theirs = twin.verdict_of(operator, sample, gradients)
            torch._dynamo.reset()
            if same_limit(found, theirs):
                verdict.refused.append(f"{found.detail}  [{found.sample}]")
                return
        if found.state != NOT_APPLICABLE:
            verdict.add(found.state, found.detail, found.sample)
            verdict.inexact += found.inexact
            verdict.other_types += found.other_types
            for op, count in found.fallbacks.items():
                verdict.fallbacks[op] = verdict.fallbacks.get(op, 0) + count

    def verdict_of(self, operator: Operator, sample: Sample, gradients: bool) -> Verdict:
        found = Verdict()
        compares = not gradients  # a gradient shares memory with nothing
        call = self.call(operator, gradients)
        self.check(found, call, sample, aliasing=compares, inputs=compares, moments=False)
        return found

    def call(self, operator: Operator, gradients: bool) -> Call:
        """`operator` compiled for samples on the device, and as it is for the reference."""

        def run(sample: Sample) -> Any:
            f = operator if sample.device == "cpu" else compiled(operator, self.backend)
            # A factory that was not told where makes its tensor on the default device.
            factory = not sample.tensors() and "device" not in sample.kwargs
            with torch.device(sample.device) if factory else contextlib.nullcontext():
                result = f(*sample.args, **sample.kwargs)
            return self.gradients_of(sample.process(result), sample) if gradients else result

        return run


class Twin(CompiledEngine):
    """The same on the CPU with PyTorch's own backend that compiles nothing."""

    backend = "aot_eager"


def same_limit(ours: Verdict, theirs: Verdict) -> bool:
    """Whether both failed in the same way: the same exception, or the same difference in kind."""
    kind = ours.detail.split(":")[0]
    return ours.state == theirs.state and kind == theirs.detail.split(":")[0]


def compiled(operator: Operator, backend: str) -> Operator:
    def function(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return torch.compile(function, backend=backend, fullgraph=True)
