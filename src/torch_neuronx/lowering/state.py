"""Tensors that a function holds rather than takes: parameters, buffers and optimizer state, lifted to arguments."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from torch_neuronx.lowering.errors import LoweringError
from torch_neuronx.lowering.graph import ArgumentKind


@dataclasses.dataclass
class Held:
    """A tensor, its name, and the places that hold it."""

    name: str
    kind: ArgumentKind
    tensor: torch.Tensor
    slots: list[tuple[Any, Any]]  # (container, key): a module's _parameters or _buffers, a list, a dict
    keys: list[dict[Any, Any]] = dataclasses.field(default_factory=list)  # an optimizer's `state`, keyed by this tensor


def collect(owners: Sequence[Any]) -> list[Held]:
    """All tensors of modules and optimizers; a tensor that is held in several places is listed once."""
    found: dict[int, Held] = {}
    prefix = "" if sum(isinstance(o, torch.nn.Module) for o in owners) < 2 else "m{}."
    number = 0
    for owner in owners:
        if isinstance(owner, torch.nn.Module):
            _collect_module(owner, prefix.format(number), found)
            number += 1
        elif not isinstance(owner, torch.optim.Optimizer):
            raise TypeError(f"lower: state takes modules and optimizers, not {type(owner).__name__}")
    for owner in owners:
        if isinstance(owner, torch.optim.Optimizer):
            _collect_optimizer(owner, found)
    return list(found.values())


def _collect_module(module: torch.nn.Module, prefix: str, found: dict[int, Held]) -> None:
    for path, part in module.named_modules(remove_duplicate=True):
        for kind, table in (("parameter", part._parameters), ("buffer", part._buffers)):
            for key, tensor in table.items():
                if tensor is not None:
                    name = prefix + (f"{path}.{key}" if path else key)
                    held = found.setdefault(id(tensor), Held(name, kind, tensor, []))  # type: ignore[arg-type]
                    held.slots.append((table, key))


def _collect_optimizer(optimizer: torch.optim.Optimizer, found: dict[int, Held]) -> None:
    if not optimizer.state:
        raise LoweringError(
            f"{type(optimizer).__name__} has no state yet, so its tensors cannot become arguments of the module. Call "
            "its step() once (with gradients) before lowering, or load a state_dict."
        )
    for group in optimizer.param_groups:
        for place, parameter in enumerate(group["params"]):
            held = found.setdefault(id(parameter), Held(f"parameter{len(found)}", "parameter", parameter, []))
            held.slots.append((group["params"], place))
    for parameter, entries in optimizer.state.items():
        held = found[id(parameter)]
        held.keys.append(optimizer.state)
        for key, tensor in entries.items():
            if isinstance(tensor, torch.Tensor):
                own = found.setdefault(id(tensor), Held(f"{held.name}.{key}", "state", tensor, []))
                own.slots.append((entries, key))


@contextlib.contextmanager
def replaced(held: Sequence[Held], tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Puts traced tensors into the places of the held ones, optimizer state that is keyed by parameter included."""
    substitutes = {h.tensor: tensor for h, tensor in zip(held, tensors, strict=True)}
    tables = {id(table): table for h in held for table in h.keys}.values()
    before = [(table, dict(table)) for table in tables]
    try:
        for table, entries in before:
            table.clear()
            table.update({substitutes.get(key, key): value for key, value in entries.items()})
        for h in held:
            for container, key in h.slots:
                container[key] = substitutes[h.tensor]
        yield
    finally:
        for table, entries in before:
            table.clear()
            table.update(entries)
        for h in held:
            for container, key in h.slots:
                container[key] = h.tensor


# How optimizers run while a step is traced: counts stay tensors, as under torch.compile, and updates are operators that
# have a lowering; the other ways compute the same.
_OPTIONS = {"capturable": True, "foreach": False, "fused": False}


@contextlib.contextmanager
def compiling(owners: Sequence[Any]) -> Iterator[None]:
    """Puts the optimizers among `owners` into _OPTIONS; what they were set to returns afterwards."""
    groups = [group for owner in owners if isinstance(owner, torch.optim.Optimizer) for group in owner.param_groups]
    before = [{name: group[name] for name in _OPTIONS if name in group} for group in groups]
    try:
        for group, options in zip(groups, before, strict=True):
            group.update({name: _OPTIONS[name] for name in options})
        with torch.compiler._compile_session_context():
            yield
    finally:
        for group, options in zip(groups, before, strict=True):
            group.update(options)


def current(held: Sequence[Held], which: Sequence[int]) -> list[torch.Tensor]:
    """What stands in the places of these tensors at the moment."""
    return [held[i].slots[0][0][held[i].slots[0][1]] for i in which]
