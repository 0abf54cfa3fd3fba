"""Entries of the op database under torch.compile(backend="neuron", fullgraph=True), with the rules of eager execution.

Compiling takes most of the time, so samples are few: MOST a variant, those of the database's middle among them. Dynamo
is reset before each entry, not before each sample: the second sample's shapes make a dimension symbolic.

A call that does not compile counts as refused if `backend="aot_eager"` on the CPU refuses it with the same type of
exception: the limit is then PyTorch's own. Refused samples are counted and listed with the reason, not judged.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo

from conformance.compare import Verdict, attempt, one_line
from conformance.engine import Call, OpEngine, Refused, spread
from conformance.moving import Sample

MOST = 2
QUICK_STEP = 4  # the quick form takes every fourth operator, in float32

Operator = Callable[..., Any]


class CompiledEngine(OpEngine):
    """Runs one (operator, dtype) pair: on the CPU eagerly, on the device compiled."""

    def variants(self) -> dict[str, Callable[[Verdict], None]]:
        table: dict[str, Callable[[Verdict], None]] = {"compiled": self.forward}
        if self.info.inplace_variant is not None:
            table["compiled inplace"] = self.inplace
        if self.info.supports_autograd and self.dtype in self.info.supported_backward_dtypes("cpu"):
            table["compiled backward"] = self.backward
        return table

    def samples(self) -> list[Sample]:
        if self._plain is None:
            found = spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=False), min(self.budget, MOST))
            self._plain = [Sample.of(s) for s in found]
        return self._plain

    def forward(self, verdict: Verdict) -> None:
        torch._dynamo.reset()
        for sample in self.samples():
            self.check(verdict, self.calls(self.info.op), sample, aliasing=True, inputs=True)

    def inplace(self, verdict: Verdict) -> None:
        torch._dynamo.reset()
        for sample in self.samples()[:1]:
            self.check(verdict, self.calls(self.info.inplace_variant), sample, aliasing=True, inputs=True)

    def backward(self, verdict: Verdict) -> None:
        torch._dynamo.reset()
        run = self.calls(self.info.op)
        for raw in spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=True), 1):
            sample = Sample.of(raw)
            if any(t.requires_grad for t in sample.tensors()):
                self.check(verdict, lambda s: self.gradients_of(s.process(run(s)), s), sample)

    def calls(self, operator: Operator) -> Call:
        """`operator` compiled for samples on the device, and as it is on the CPU."""

        def run(sample: Sample) -> Any:
            if sample.device == "cpu":
                return self.call(operator, sample)
            got = attempt(lambda: self.call(compiled(operator, "neuron"), sample))
            if got.error is None:
                return got.value
            torch._dynamo.reset()
            there = attempt(lambda: self.call(compiled(operator, "aot_eager"), self.on("cpu", sample)))
            torch._dynamo.reset()
            if type(there.error) is type(got.error):
                raise Refused(one_line(got.error))
            raise got.error

        return run

    def call(self, operator: Operator, sample: Sample) -> Any:
        factory = not sample.tensors() and "device" not in sample.kwargs  # was not told where: the default device
        with torch.device(sample.device) if factory else contextlib.nullcontext():
            return operator(*sample.args, **sample.kwargs)

    def check(self, verdict: Verdict, call: Call, sample: Sample, **rules: Any) -> None:
        """Samples that raise on the CPU are eager execution's business: Dynamo wraps exceptions in types of its own."""
        if attempt(lambda: call(self.on("cpu", sample))).error is None:
            super().check(verdict, call, sample, **{**rules, "moments": False})


def compiled(operator: Operator, backend: str) -> Operator:
    def function(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return torch.compile(function, backend=backend, fullgraph=True)
