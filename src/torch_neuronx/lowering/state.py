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
    for parameter, entries in optimizer.state.items():
        held = found.get(id(parameter))
        base = held.name if held else f"parameter{len(found)}"
        for key, tensor in entries.items():
            if isinstance(tensor, torch.Tensor):
                own = found.setdefault(id(tensor), Held(f"{base}.{key}", "state", tensor, []))
                own.slots.append((entries, key))
    for group in optimizer.param_groups:
        for place, parameter in enumerate(group["params"]):
            held = found.get(id(parameter))
            if held is None:
                held = found.setdefault(id(parameter), Held(f"parameter{len(found)}", "parameter", parameter, []))
            held.slots.append((group["params"], place))


def _optimizers(held: Sequence[Held]) -> bool:
    return any(h.kind == "state" for h in held)


@contextlib.contextmanager
def replaced(held: Sequence[Held], tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Puts traced tensors into the places of the held ones, optimizer state that is keyed by parameter included."""
    keyed = _states_by_parameter(held)
    for h, tensor in zip(held, tensors, strict=True):
        tensor.requires_grad_(h.tensor.requires_grad)
        for container, key in h.slots:
            container[key] = tensor
    new_keys: list[tuple[dict[Any, Any], Any, Any]] = []
    by_id = {id(h.tensor): t for h, t in zip(held, tensors, strict=True)}
    for table, parameter in keyed:
        substitute = by_id.get(id(parameter), parameter)
        table[substitute] = table.pop(parameter)
        new_keys.append((table, parameter, substitute))
    try:
        yield
    finally:
        for table, parameter, substitute in new_keys:
            table[parameter] = table.pop(substitute)
        for h in held:
            for container, key in h.slots:
                container[key] = h.tensor


_KEYED: list[tuple[dict[Any, Any], Any]] = []


def _states_by_parameter(held: Sequence[Held]) -> list[tuple[dict[Any, Any], Any]]:
    return list(_KEYED)


@contextlib.contextmanager
def tracing(held: Sequence[Held]) -> Iterator[None]:
    yield


def current(held: Sequence[Held], which: Sequence[int]) -> list[torch.Tensor]:
    """What stands in the places of these tensors at the moment."""
    return [held[i].slots[0][0][held[i].slots[0][1]] for i in which]
