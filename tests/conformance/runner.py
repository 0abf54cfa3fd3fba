"""What a worker does with a task: finds the database entry and runs its variants."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from conformance import tables
from conformance.compare import Counter, Verdict, one_line, where
from conformance.pool import Task

# Op databases are big: imported here, in the parent, before workers are forked.
from torch.testing._internal import common_methods_invocations as databases  # isort: skip
from conformance import compiled, engine, extras, modules, optimizers  # isort: skip

# The database wraps random operators so that they seed themselves with a constant, which would hide an operator that
# ignores the seed, or one that draws and is not in tables.RANDOM. The engine seeds.
databases.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

SIZES = {"quick": 3, "full": 48}  # samples of a variant


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype)
    return found


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@functools.cache
def ops() -> dict[str, Any]:
    return {engine.op_name(info): info for info in databases.op_db}


def tasks(kinds: set[str], dtypes: set[str] | None, size: str = "full") -> list[Task]:
    """All tasks of the given kinds, in the databases' order; `dtypes` None means every one that an entry declares.

    Compiling is dear: the full form takes the hardware's dtypes, the quick form float32 of some operators.
    """
    found: list[Task] = []
    if "op" in kinds:
        for name, info in ops().items():
            found += [Task("op", name, dtype_name(d)) for d in sorted(info.dtypes, key=str)]
            found.append(Task("error", name, "-"))
    if "module" in kinds:
        found += modules.tasks()
    if "optimizer" in kinds:
        found += optimizers.tasks()
    if "foreach" in kinds:
        found += extras.foreach_tasks()
    if "custom" in kinds:
        found += extras.custom_tasks()
    if "compile" in kinds:
        step, every = (
            (compiled.QUICK_STEP, tables.HARDWARE_DTYPES[:1]) if size == "quick" else (1, tables.HARDWARE_DTYPES)
        )
        for name, info in list(ops().items())[::step]:
            found += [Task("compile", name, dtype_name(d)) for d in every if d in info.dtypes]
    return [t for t in found if dtypes is None or t.dtype == "-" or t.dtype in dtypes]


class Run:
    """A pool.Runner for one device and size."""

    def __init__(self, device: str, size: str) -> None:
        self.device, self.budget = device, SIZES[size]
        self.counter: Counter | None = None

    def __call__(
        self, task: Task, skip: set[str], announce: Callable[[str], None]
    ) -> Iterator[tuple[str, dict[str, Any] | None]]:
        if self.counter is None:
            self._set_up()
        for variant, run in self.variants(task, announce).items():
            if variant in skip:
                continue
            yield variant, None
            verdict = Verdict()
            announce("starting")
            try:
                run(verdict)
            except Exception as error:  # the harness or the database failed, not the device: never a pass
                verdict.add("error", f"harness: {one_line(error)} at {where(error)}")
            yield variant, verdict.as_dict()

    def variants(self, task: Task, announce: Callable[[str], None]) -> dict[str, Callable[[Verdict], None]]:
        assert self.counter is not None
        if task.kind in ("op", "error"):
            info = ops()[task.name]
            dtype = dtype_of(task.dtype) if task.kind == "op" else torch.float32
            runner = engine.OpEngine(info, dtype, self.device, self.budget, self.counter, announce)
            return runner.variants() if task.kind == "op" else runner.error_variants()
        if task.kind == "compile":
            info = ops()[task.name]
            dtype = dtype_of(task.dtype)
            return compiled.CompiledEngine(info, dtype, self.device, self.budget, self.counter, announce).variants()
        if task.kind == "module":
            return modules.variants(task, self.device, self.budget, self.counter, announce)
        if task.kind == "optimizer":
            return optimizers.variants(task, self.device, self.counter, announce)
        if task.kind == "foreach":
            return extras.foreach_variants(task, self.device, self.budget, self.counter, announce)
        return extras.custom_variants(task, self.device, self.budget, announce)

    def _set_up(self) -> None:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)  # a worker is one of several processes on the machine
        os.environ["TORCH_NEURONX_FALLBACK"] = "allow"
        if self.device.split(":")[0] == "neuron":
            import torch_neuronx

            torch_neuronx.set_fallback_policy("allow")
        self.counter = Counter(self.device)
