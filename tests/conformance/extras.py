"""Foreach functions, and custom operators through torch.library.opcheck."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as databases
from torch.testing._internal.custom_op_db import custom_op_db

from conformance.compare import Counter, Verdict, attempt, one_line
from conformance.engine import OpEngine, spread
from conformance.moving import Sample
from conformance.pool import Task

DTYPES = ("float32", "bfloat16", "float16", "int64", "bool", "float64", "complex64")


@functools.cache
def foreach_infos() -> dict[str, Any]:
    groups = ("unary", "binary", "pointwise", "reduce", "other")
    return {info.name: info for group in groups for info in getattr(databases, f"foreach_{group}_op_db")}


def foreach_tasks() -> list[Task]:
    return [Task("foreach", name, dtype) for name in foreach_infos() for dtype in DTYPES]


class ForeachEngine(OpEngine):
    """Foreach samples have lists as inputs, sometimes with tensors without elements among them."""

    def samples(self) -> list[Sample]:
        if self._plain is None:
            plain = spread(self.info.sample_inputs("cpu", self.dtype, requires_grad=False), 2 * self.budget)
            empty = spread(self.info.sample_zero_size_inputs("cpu", self.dtype), 1)
            self._plain = [Sample.of(s) for s in (*plain, *empty)]
        return self._plain


def foreach_variants(
    task: Task, device: str, budget: int, counter: Counter, announce: Callable[[str], None]
) -> dict[str, Callable[[Verdict], None]]:
    info = foreach_infos()[task.name]
    dtype = getattr(torch, task.dtype)
    engine = ForeachEngine(info, dtype, device, budget, counter, announce)
    table: dict[str, Callable[[Verdict], None]] = {}
    if info.supports_out:  # False marks functions that exist in place only
        table["forward"] = engine.forward
        table["noncontiguous"] = engine.noncontiguous
    if info.inplace_variant is not None:
        table["inplace"] = engine.inplace
    if info.supports_autograd and info.supports_out and (dtype.is_floating_point or dtype.is_complex):
        table["backward"] = engine.backward
    return table


@functools.cache
def custom_infos() -> dict[str, Any]:
    return {info.name: info for info in custom_op_db}


def custom_tasks() -> list[Task]:
    return [Task("custom", name, "float32") for name in custom_infos()]


def custom_variants(
    task: Task, device: str, budget: int, announce: Callable[[str], None]
) -> dict[str, Callable[[Verdict], None]]:
    """One variant for each of opcheck's utilities: schema, autograd registration, fake tensors, AOT dispatch."""
    info = custom_infos()[task.name]
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")

    def check(utility: str, verdict: Verdict) -> None:
        for raw in spread(info.sample_inputs("cpu", torch.float32, requires_grad=info.supports_autograd), budget):
            described = Sample.of(raw).describe()

            def run(on: str, raw: Any = raw) -> Any:
                sample = Sample.of(raw).on(on)
                return torch.library.opcheck(info.op, sample.args, sample.kwargs, test_utils=utility)

            announce("cpu")
            expected = attempt(lambda: run("cpu"))
            announce("device")
            got = attempt(lambda: run(device))
            if got.error is not None and expected.error is None:
                verdict.add("error", one_line(got.error), described)
            elif expected.error is None:
                verdict.add("native")

    return {utility: functools.partial(check, utility) for utility in utilities}
