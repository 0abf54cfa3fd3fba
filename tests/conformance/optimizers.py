"""The optimizer database against the CPU: each configuration as loop, foreach, fused, capturable, differentiable."""

from __future__ import annotations

import contextlib
import copy
import functools
import sys
import unittest.mock
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db

from conformance.compare import Counter, Judge, Mismatch, Verdict, attempt, compare_errors
from conformance.engine import SEED
from conformance.pool import Task

STEPS = 4
SHAPES = ((3, 4), (5,), (), (2, 3, 2), (0,), (33, 7))
MATRICES = ((3, 4), (4, 3), (33, 7))  # Muon optimises matrices only, and a sparse gradient needs a dimension
FUSED = ("Adagrad", "Adam", "AdamW", "SGD")  # upstream lists the devices of fused kernels by name and omits ours


@contextlib.contextmanager
def capturable_on_the_cpu() -> Iterator[None]:
    """Lets the CPU run the capturable implementations, which are tensor code: the reference of the same algorithm."""
    modules = [sys.modules[info.optim_cls.__module__] for info in optim_db]
    name = "_get_capturable_supported_devices"
    with contextlib.ExitStack() as stack:
        for module in modules:
            if hasattr(module, name):
                stack.enter_context(unittest.mock.patch.object(module, name, lambda **_: ["cpu"]))
        yield


@functools.cache
def infos(device: str) -> dict[str, OptimizerInfo]:
    table = {}
    for info in optim_db:
        kind = device.split(":")[0]
        if "fused" in info.supported_impls and kind not in info.supports_fused_on:
            info.supports_fused_on = (*info.supports_fused_on, kind)
        table[info.name] = info
    assert {n for n, i in table.items() if "fused" in i.supported_impls} == set(FUSED)
    return table


def tasks() -> list[Task]:
    return [Task("optimizer", info.name, dtype) for info in optim_db for dtype in ("float32", "bfloat16")]


def variants(
    task: Task, device: str, counter: Counter, announce: Callable[[str], None]
) -> dict[str, Callable[[Verdict], None]]:
    info = infos(device)[task.name]
    engine = OptimizerEngine(info, getattr(torch, task.dtype), device, counter, announce)
    table: dict[str, Callable[[Verdict], None]] = {"loop": functools.partial(engine.run, {})}
    for flag in info.supported_impls:
        table[flag] = functools.partial(engine.run, {flag: True})
    if info.has_capturable_arg:
        table["capturable"] = functools.partial(engine.run, {"capturable": True})
        if "foreach" in info.supported_impls:
            table["capturable foreach"] = functools.partial(engine.run, {"capturable": True, "foreach": True})
    return table


class OptimizerEngine:
    def __init__(
        self, info: OptimizerInfo, dtype: torch.dtype, device: str, counter: Counter, phase: Callable[[str], None]
    ) -> None:
        self.info, self.dtype, self.device, self.counter, self.phase = info, dtype, device, counter, phase
        self.judge = Judge(info, info.name, dtype, device)

    def run(self, flags: dict[str, bool], verdict: Verdict) -> None:
        if flags.get("fused"):
            self.judge = Judge(self.info, f"{self.info.name} fused", self.dtype, self.device)
        for given in self.info.optim_inputs_func(device="cpu"):
            if "foreach" in given.kwargs or "fused" in given.kwargs or "capturable" in given.kwargs:
                continue  # these are the flags that `flags` sets
            # Left to itself, foreach is on for the device and off for the CPU.
            loop = {"foreach": False} if "foreach" in self.info.supported_impls and "fused" not in flags else {}
            ours = {**given.kwargs, **loop, **flags}
            # The CPU's fused SGD loses the momentum of bfloat16 parameters: the loop is the reference of fused.
            reference = {k: v for k, v in ours.items() if k != "fused"}
            if flags.get("capturable") and isinstance(ours.get("lr"), torch.Tensor):
                ours["lr"] = ours["lr"].to(self.device)
            self._compare(verdict, given.desc, ours, reference)

    def _compare(self, verdict: Verdict, described: str, ours: dict[str, Any], reference: dict[str, Any]) -> None:
        self.phase("cpu")
        with capturable_on_the_cpu():
            expected = attempt(lambda: self.train("cpu", reference))
        self.phase("device")
        self.counter.reset()
        got = attempt(lambda: self.train(self.device, ours))
        used = self.counter.take()
        if expected.error is not None or got.error is not None:
            if problem := compare_errors(got, expected):
                verdict.add("error", problem, described)
            return
        try:
            self.judge.compare(got.value["parameters"], expected.value["parameters"], "parameters")
            self.judge.compare(got.value["state"], expected.value["state"], "state", on_device=False)
        except Mismatch as mismatch:
            verdict.add("wrong", str(mismatch), described)
        else:
            verdict.add("fallback" if used else "native", ", ".join(used), described if used else "")
            for op, count in used.items():
                verdict.fallbacks[op] = verdict.fallbacks.get(op, 0) + count

    def train(self, device: str, kwargs: dict[str, Any]) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(SEED)
        shapes: tuple[tuple[int, ...], ...] = MATRICES if self.info.name in ("Muon", "SparseAdam") else SHAPES
        if self.info.name == "Adafactor":  # divides by the number of elements
            shapes = tuple(s for s in shapes if 0 not in s)

        def make(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, generator=generator).to(self.dtype).to(device)

        parameters: list[torch.Tensor] = [torch.nn.Parameter(make(s)) for s in shapes]
        if kwargs.get("differentiable"):
            parameters = [p.clone() for p in parameters]  # a step writes into them with gradients recorded
        optimizer = self.info.optim_cls(parameters, **copy.deepcopy(kwargs))
        if self.info.step_requires_closure:
            targets = [make(s) for s in shapes]

            def closure() -> torch.Tensor:
                optimizer.zero_grad()
                loss = torch.stack([(p - t).square().sum() for p, t in zip(parameters, targets, strict=True)]).sum()
                loss.backward()
                return loss

            for _ in range(STEPS):
                optimizer.step(closure)
        else:
            for _ in range(STEPS):
                for parameter, shape in zip(parameters, shapes, strict=True):
                    gradient = make(shape)
                    if self.info.only_supports_sparse_grads:
                        gradient = gradient.to_sparse()
                    parameter.grad = gradient
                optimizer.step()
        state = {
            f"{i}.{key}": value
            for i, entry in optimizer.state_dict()["state"].items()
            for key, value in sorted(entry.items(), key=lambda kv: str(kv[0]))
            if key not in ("step", "func_evals", "n_iter") and isinstance(value, torch.Tensor)
        }
        return {"parameters": [p.detach() for p in parameters], "state": state}
