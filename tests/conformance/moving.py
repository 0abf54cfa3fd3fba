"""Copies of samples on another device that keep strides, offsets, shared storage, and conj and neg bits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch


class Mover:
    """Copies tensors to `device`; tensors that share a storage share one after the copy too.

    A plain `.to(device)` would drop what lies outside a view and turn expanded strides into dense ones, and so hide
    wrong handling of offsets and strides. One Mover serves one sample.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._flat: dict[tuple[int, torch.dtype], torch.Tensor] = {}
        self._keep: list[torch.Tensor] = []  # a storage's address must not be given to another while we map it

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        if source.layout != torch.strided or source.is_quantized or source.device.type == "meta":
            moved = source.detach().to(self.device, copy=True)
            return moved.requires_grad_(source.requires_grad)
        with torch.no_grad():
            key = (source.untyped_storage()._cdata, source.dtype)
            flat = self._flat.get(key)
            if flat is None:
                count = source.untyped_storage().nbytes() // source.element_size()
                whole = torch.empty(0, dtype=source.dtype).set_(source.untyped_storage(), 0, (count,), (1,))
                flat = whole.to(self.device, copy=True)
                self._flat[key] = flat
                self._keep.append(source)
            moved = flat.as_strided(source.size(), source.stride(), source.storage_offset())
            if source.is_conj():
                moved = moved.conj()
            if source.is_neg():
                moved = torch._neg_view(moved)
        moved = moved.detach().requires_grad_(source.requires_grad)
        if isinstance(source, torch.nn.Parameter):
            return torch.nn.Parameter(moved, requires_grad=source.requires_grad)
        return moved

    def __call__(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return torch.device(self.device)
        if isinstance(value, str) and value == "cpu":
            return self.device
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        return map_structure(self, value)


def map_structure(function: Callable[[Any], Any], value: Any) -> Any:
    """Applies `function` to the elements of a list, tuple or dict; anything else is returned as it is."""
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, list):
        return [function(v) for v in value]
    if isinstance(value, tuple):
        items = [function(v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {k: function(v) for k, v in value.items()}
    return value


class Sample:
    """Arguments of one call. `args[0]` is what the database calls the sample's input."""

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], process: Callable[[Any], Any] | None = None
    ) -> None:
        self.args = args
        self.kwargs = kwargs
        self.process = process or (lambda out: out)
        self.device = "cpu"  # where on() put it
        self.broadcasts_input = False

    @classmethod
    def of(cls, sample: Any) -> Sample:
        made = cls((sample.input, *sample.args), dict(sample.kwargs), sample.output_process_fn_grad)
        made.broadcasts_input = sample.broadcasts_input
        return made

    def on(self, device: str, keep_args_on_cpu: bool = False) -> Sample:
        move = Mover(device)
        if keep_args_on_cpu:
            args = (move(self.args[0]), *copy.deepcopy(self.args[1:]))
            made = Sample(args, copy.deepcopy(self.kwargs), self.process)
        else:
            made = Sample(move(self.args), move(self.kwargs), self.process)
        made.device = device
        made.broadcasts_input = self.broadcasts_input
        return made

    def map_tensors(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Sample:
        def visit(value: Any) -> Any:
            return function(value) if isinstance(value, torch.Tensor) else map_structure(visit, value)

        made = Sample(visit(self.args), visit(self.kwargs), self.process)
        made.broadcasts_input = self.broadcasts_input
        return made

    def tensors(self) -> list[torch.Tensor]:
        return tensors_of((self.args, self.kwargs))

    def asks_for(self, kind: Callable[[torch.dtype], bool]) -> bool:
        """Whether an argument is a dtype of this kind: the caller wants the result computed in it."""
        return any(isinstance(v, torch.dtype) and kind(v) for v in (*self.args, *self.kwargs.values()))

    def describe(self) -> str:
        """One line such as `f32[3,4], 2, dim=0`, enough to write the call down again."""
        parts = [describe(a) for a in self.args] + [f"{k}={describe(v)}" for k, v in self.kwargs.items()]
        return ", ".join(parts)[:300]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """All tensors in a nest of lists, tuples and dicts, in order."""
    found: list[torch.Tensor] = []

    def visit(item: Any) -> Any:
        if isinstance(item, torch.Tensor):
            found.append(item)
            return item
        return map_structure(visit, item)

    visit(value)
    return found


_SHORT = {"float": "f", "bfloat": "bf", "int": "i", "uint": "u", "complex": "c"}


def describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        word = name.rstrip("0123456789")
        name = _SHORT.get(word, word) + name[len(word) :]
        note = "" if value.layout != torch.strided or value.is_contiguous() else f"/{tuple(value.stride())}"
        bits = ("~conj" if value.is_conj() else "") + ("~neg" if value.is_neg() else "")
        return f"{name}{list(value.shape)}{note}{bits}".replace(" ", "")
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return "[" + ",".join(describe(v) for v in value) + "]"
    return repr(value)
