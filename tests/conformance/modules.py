"""The module database: forward, backward, `.to`, non-contiguous inputs and pickling, device against CPU."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleInfo, module_db

from conformance.compare import Counter, Judge, Mismatch, Verdict, attempt, compare_errors, one_line
from conformance.engine import SEED, map_tensors, strided_like
from conformance.moving import Mover, describe, tensors_of
from conformance.pool import Task

# Modules that draw numbers when they train: their results are compared in evaluation mode; in training mode metadata,
# and equality under the same seed. Values are compared as well wherever the CPU gives the same result under two seeds.
RANDOM = {
    "nn.AlphaDropout",
    "nn.Dropout",
    "nn.Dropout1d",
    "nn.Dropout2d",
    "nn.Dropout3d",
    "nn.FeatureAlphaDropout",
    "nn.FractionalMaxPool2d",
    "nn.FractionalMaxPool3d",
    "nn.MultiheadAttention",
    "nn.RReLU",
    "nn.Transformer",
    "nn.TransformerDecoderLayer",
    "nn.TransformerEncoder",
    "nn.TransformerEncoderLayer",
}


@functools.cache
def infos() -> dict[str, ModuleInfo]:
    return {info.name: info for info in module_db}


def tasks() -> list[Task]:
    return [
        Task("module", name, str(dtype).removeprefix("torch."))
        for name, info in infos().items()
        for dtype in sorted(info.dtypes, key=str)
    ]


def variants(
    task: Task, device: str, budget: int, counter: Counter, announce: Callable[[str], None]
) -> dict[str, Callable[[Verdict], None]]:
    engine = ModuleEngine(infos()[task.name], getattr(torch, task.dtype), device, budget, counter, announce)
    return {
        "forward": engine.forward,
        "backward": engine.backward,
        "noncontiguous": engine.noncontiguous,
        "to": engine.to,
        "pickle": engine.pickle,
    }


def as_bytes(t: torch.Tensor) -> torch.Tensor:
    """The bits: equal for NaNs too, and for types that the CPU does not compare."""
    return t.detach().reshape(-1).view(torch.uint8)


class ModuleEngine:
    def __init__(
        self,
        info: ModuleInfo,
        dtype: torch.dtype,
        device: str,
        budget: int,
        counter: Counter,
        phase: Callable[[str], None],
    ) -> None:
        self.info, self.dtype, self.device, self.budget = info, dtype, device, budget
        self.counter, self.phase = counter, phase
        self.judge = Judge(info, info.name, dtype, device)

    def cases(
        self, requires_grad: bool = False
    ) -> Iterator[tuple[str, torch.nn.Module, tuple[Any, ...], dict[str, Any]]]:
        """(description, module on the CPU with materialised parameters, args, kwargs), in training and evaluation."""
        for training in (True, False) if self.info.train_and_eval_differ else (True,):
            torch.manual_seed(SEED)
            inputs = self.info.module_inputs_func(
                self.info, device="cpu", dtype=self.dtype, requires_grad=requires_grad, training=training
            )
            inputs = [i for i in inputs if i.forward_input is not None]
            for item in inputs[: self.budget * 2]:
                torch.manual_seed(SEED)
                make = item.constructor_input
                module = self.info.module_cls(*make.args, **make.kwargs).to(self.dtype).train(training)
                args, kwargs = item.forward_input.args, item.forward_input.kwargs
                if self.info.is_lazy:  # takes the shapes of its parameters from the first input
                    module(*copy_tensors(args), **copy_tensors(kwargs))
                mode = "train" if training else "eval"
                yield f"{describe(args)} {describe(list(kwargs.values()))} {item.desc} {mode}", module, args, kwargs

    def forward(self, verdict: Verdict) -> None:
        for described, module, args, kwargs in self.cases():
            self._compare(verdict, described, module, args, kwargs, lambda m, a, k: m(*a, **k))

    def noncontiguous(self, verdict: Verdict) -> None:
        for described, module, args, kwargs in self.cases():
            args, kwargs = map_tensors(strided_like, args), map_tensors(strided_like, kwargs)
            self._compare(verdict, described, module, args, kwargs, lambda m, a, k: m(*a, **k))

    def backward(self, verdict: Verdict) -> None:
        def gradients(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
            outputs = [t for t in tensors_of(module(*args, **kwargs)) if t.requires_grad]
            if not outputs:
                return None
            noise = []
            for i, t in enumerate(outputs):
                generator = torch.Generator().manual_seed(SEED + i)
                noise.append(torch.randn(t.shape, generator=generator).to(t.dtype).to(t.device))
            torch.autograd.backward(outputs, noise)
            inputs = [t.grad for t in tensors_of((args, kwargs)) if t.is_leaf and t.requires_grad]
            return {"inputs": inputs, "parameters": {n: p.grad for n, p in module.named_parameters()}}

        for described, module, args, kwargs in self.cases(requires_grad=True):
            self._compare(verdict, described, module, args, kwargs, gradients)

    def to(self, verdict: Verdict) -> None:
        """`.to(device)` moves in place: the same Parameter objects, ties kept, and back without loss."""
        for described, module, _, _ in self.cases():
            problems = []
            names = dict(module.named_parameters())
            before = {n: p.detach().clone() for n, p in module.state_dict(keep_vars=True).items()}
            holder = torch.nn.ModuleList([module])
            holder.register_module("twin", module)  # a tied use of the same parameters
            self.phase("device .to")
            self.counter.reset()
            moved = attempt(lambda holder=holder: holder.to(self.device))
            used = self.counter.take()
            if moved.error:
                verdict.add("error", one_line(moved.error), described)
                continue
            for name, parameter in module.named_parameters():
                if parameter is not names[name]:
                    problems.append(f"{name} was replaced by another Parameter")
                if parameter.device.type != self.device.split(":")[0]:
                    problems.append(f"{name} is on {parameter.device}")
            holder.to("cpu")
            for name, value in module.state_dict(keep_vars=True).items():
                if not torch.equal(as_bytes(value), as_bytes(before[name])):
                    problems.append(f"{name} changed on the way to {self.device} and back")
            if problems:
                verdict.add("wrong", "; ".join(problems), described)
            else:
                verdict.add("fallback" if used else "native", ", ".join(used), described if used else "")

    def pickle(self, verdict: Verdict) -> None:
        """torch.save and torch.load of the module on the device give the same results there."""

        def round_trip(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
            buffer = io.BytesIO()
            torch.save(module, buffer)
            buffer.seek(0)
            loaded = torch.load(buffer, weights_only=False)
            torch.manual_seed(SEED)
            return loaded(*args, **kwargs)

        for described, module, args, kwargs in self.cases():
            self._compare(verdict, described, module, args, kwargs, round_trip)

    def _compare(
        self,
        verdict: Verdict,
        described: str,
        module: torch.nn.Module,
        args: Any,
        kwargs: Any,
        call: Callable[[torch.nn.Module, Any, Any], Any],
    ) -> None:
        def on(device: str) -> tuple[torch.nn.Module, Any, Any]:
            move = Mover(device)
            return copy.deepcopy(module).to(device), move(args), move(kwargs)

        def run(device: str, seed: int = SEED) -> Any:
            on_it = on(device)
            torch.manual_seed(seed)
            self.counter.reset()
            return call(*on_it)

        self.phase("cpu")
        expected = attempt(lambda: run("cpu"))
        self.phase("device")
        got = attempt(lambda: run(self.device))
        used = self.counter.take()
        if expected.error is not None or got.error is not None:
            if problem := compare_errors(got, expected):
                verdict.add("error", problem, described)
            return
        try:
            if self.info.name in RANDOM and not self.judge.equal(run("cpu", SEED + 1), expected.value):
                Judge(self.info, self.info.name, self.dtype, self.device, metadata_only=True).compare(
                    got.value, expected.value
                )
                if not self.judge.equal(run(self.device), map_tensors(lambda t: t.detach().cpu(), got.value)):
                    raise Mismatch("random result differs under the same seed")
            else:
                self.judge.compare(got.value, expected.value)
        except Mismatch as mismatch:
            verdict.add("wrong", str(mismatch), described)
        else:
            verdict.add("fallback" if used else "native", ", ".join(used), described if used else "")
            for op, count in used.items():
                verdict.fallbacks[op] = verdict.fallbacks.get(op, 0) + count


def copy_tensors(value: Any) -> Any:
    return map_tensors(lambda t: t.detach().clone(), value)
