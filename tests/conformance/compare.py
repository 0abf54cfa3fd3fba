"""Running one call on the CPU and on the device, and judging the second by the first."""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch

from conformance import tables
from conformance.moving import describe, tensors_of

# From best to worst: a wrong value, which nobody notices, is worse than an error.
STATES = ("native", "fallback", "error", "wrong", "crash")
NOT_APPLICABLE = "n/a"  # the CPU does not run it either


@dataclasses.dataclass
class Verdict:
    """What became of one variant of one (operator, dtype) pair: the worst of its samples."""

    state: str = NOT_APPLICABLE
    samples: int = 0
    detail: str = ""  # of the first sample in that state
    sample: str = ""
    inexact: int = 0  # samples equal within the tolerance, but not bit by bit
    other_types: int = (
        0  # samples that ask for a type Trainium lacks (dtype=float64), and so do not compute in the pair's
    )
    fallbacks: dict[str, int] = dataclasses.field(default_factory=dict)
    refused: list[str] = dataclasses.field(default_factory=list)  # why PyTorch itself does not run a sample
    notes: list[str] = dataclasses.field(default_factory=list)

    def add(self, state: str, detail: str = "", sample: str = "") -> None:
        self.samples += 1
        if self.state == NOT_APPLICABLE or STATES.index(state) > STATES.index(self.state):
            self.state, self.detail, self.sample = state, detail, sample

    def as_dict(self) -> dict[str, Any]:
        return {k: v for k, v in dataclasses.asdict(self).items() if v or k == "state"}


class Mismatch(AssertionError):
    """The device's result differs from the CPU's."""


@dataclasses.dataclass
class Attempt:
    """A call that returned a value or raised."""

    value: Any = None
    error: Exception | None = None


def attempt(call: Callable[[], Any]) -> Attempt:
    try:
        return Attempt(value=call())
    except Exception as error:
        return Attempt(error=error)


class Counter:
    """Operators that left the device since the last call of `take()`."""

    def __init__(self, device: str) -> None:
        self._stats: Callable[[], Iterable[tuple[str, str, int, int]]] = lambda: ()
        self._reset: Callable[[], None] = lambda: None
        if device.split(":")[0] == "neuron":
            from torch_neuronx import _C

            self._stats, self._reset = _C._fallback_stats, _C._reset_fallbacks

    def reset(self) -> None:
        self._reset()

    def take(self) -> dict[str, int]:
        """Count by operator since the last reset; operators that computed in a type the chip lacks end in `[dtype]`."""
        found = {op if kind == "operator" else f"{op} [{kind}]": count for op, kind, count, _ in self._stats()}
        self._reset()
        return found


def one_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:300]}"


def where(error: BaseException) -> str:
    """The last frames of a traceback, for errors inside the harness itself."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    return " <- ".join(f"{f.name}:{f.lineno}" for f in reversed(frames))


def as_complex64(t: torch.Tensor) -> torch.Tensor:
    """A complex32 tensor's values; the CPU does not convert one whose minus and conjugate are both lazy."""
    neg, conj = t.is_neg(), t.is_conj()
    t = torch._neg_view(t) if neg else t
    t = (t.conj() if conj else t).to(torch.complex64)
    t = t.conj_physical() if conj else t
    return -t if neg else t


class Judge:
    """Compares results of one (operator, dtype) pair."""

    def __init__(self, info: object, name: str, dtype: torch.dtype, device: str, metadata_only: bool = False) -> None:
        self.info, self.name, self.dtype, self.device = info, name, dtype, device
        self.metadata_only = metadata_only
        self._tolerances: dict[torch.dtype, tables.Tolerance] = {}
        self.exact = True  # whether every comparison since this was set found the same bits

    def tolerance(self, seen: torch.dtype) -> tables.Tolerance:
        if seen not in self._tolerances:
            self._tolerances[seen] = tables.tolerance(self.info, self.name, self.dtype, seen)
        return self._tolerances[seen]

    def compare(self, actual: Any, expected: Any, what: str = "result", on_device: bool = True) -> None:
        """Raises Mismatch unless `actual` (from the device) equals `expected` (from the CPU)."""
        if isinstance(expected, torch.Tensor):
            self._tensor(actual, expected, what, on_device)
        elif isinstance(expected, (list, tuple)):
            if type(actual) is not type(expected) or len(actual) != len(expected):
                raise Mismatch(f"{what}: {describe(actual)} instead of {describe(expected)}")
            for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
                self.compare(a, e, f"{what}[{i}]", on_device)
        elif isinstance(expected, dict):
            if list(actual) != list(expected):
                raise Mismatch(f"{what}: keys {list(actual)} instead of {list(expected)}")
            for k in expected:
                self.compare(actual[k], expected[k], f"{what}[{k!r}]", on_device)
        elif isinstance(expected, (bool, int, float, complex)) and not self.metadata_only:
            self._number(actual, expected, what)
        elif type(actual) is not type(expected) or (
            not self.metadata_only and isinstance(expected, (str, torch.dtype, type(None))) and actual != expected
        ):
            raise Mismatch(f"{what}: {actual!r} instead of {expected!r}")

    def _number(self, actual: Any, expected: Any, what: str) -> None:
        if type(actual) is not type(expected):
            raise Mismatch(f"{what}: {actual!r} instead of {expected!r}")
        seen = {bool: torch.bool, int: torch.int64, float: torch.float32, complex: torch.complex64}[type(expected)]
        limit = self.tolerance(seen)
        try:
            torch.testing.assert_close(actual, expected, rtol=limit.rtol, atol=limit.atol, equal_nan=True)
        except AssertionError:
            raise Mismatch(f"{what}: {actual!r} instead of {expected!r}") from None

    def _tensor(self, actual: Any, expected: torch.Tensor, what: str, on_device: bool) -> None:
        if not isinstance(actual, torch.Tensor):
            raise Mismatch(f"{what}: {type(actual).__name__} instead of a tensor")
        if on_device and actual.device.type != self.device.split(":")[0]:
            raise Mismatch(f"{what}: on {actual.device} instead of {self.device}")
        for attribute in ("dtype", "shape", "layout", "requires_grad"):
            a, e = getattr(actual, attribute), getattr(expected, attribute)
            if a != e:
                raise Mismatch(f"{what}: {attribute} {a} instead of {e}")
        if self.metadata_only:
            return
        actual, expected = actual.detach().cpu(), expected.detach()
        if expected.dtype == torch.complex32:  # the CPU cannot compare it
            actual, expected = as_complex64(actual), as_complex64(expected)
        if actual.layout == torch.strided and torch.equal(actual, expected):
            return  # bit-equal, the common case; NaN and tolerances take the slow way
        limit = self.tolerance(expected.dtype)
        try:
            torch.testing.assert_close(
                actual, expected, rtol=limit.rtol, atol=limit.atol, equal_nan=True, check_device=False
            )
        except AssertionError as error:
            raise Mismatch(f"{what}: {one_line(error).removeprefix('AssertionError: ')}") from None
        if actual.layout != torch.strided or not bool(((actual == expected) | (actual != actual)).all()):
            self.exact = False

    def equal(self, a: Any, b: Any) -> bool:
        """Whether two results of the same device agree."""
        try:
            self.compare(a, b, on_device=False)
        except Mismatch:
            return False
        return True


def compare_errors(actual: Attempt, expected: Attempt) -> str:
    """'' if both raised the very same type (NotImplementedError for RuntimeError will not do), else what differs."""
    if type(actual.error) is type(expected.error):
        return ""
    if actual.error is None and "derivative for" in str(expected.error):
        return ""  # a derivative that the CPU library lacks is a gap there, not an error of the caller
    if actual.error is None:
        return f"does not raise; the CPU raises {one_line(expected.error)}"  # type: ignore[arg-type]
    if expected.error is None:
        return one_line(actual.error)
    return f"{one_line(actual.error)} (the CPU raises {one_line(expected.error)})"


def compare_aliasing(got: Any, inputs: list[torch.Tensor], cpu: Any, cpu_inputs: list[torch.Tensor]) -> None:
    """Raises Mismatch unless results share storage with the same inputs as on the CPU, at the same place."""
    for i, (a, e) in enumerate(zip(tensors_of(got), tensors_of(cpu), strict=True)):
        if a.layout != torch.strided or e.layout != torch.strided:
            continue
        shares = [t.layout == torch.strided and same_storage(a, t) for t in inputs]
        expected = [t.layout == torch.strided and same_storage(e, t) for t in cpu_inputs]
        if shares != expected:
            raise Mismatch(f"aliasing: result {i} shares storage with inputs {shares} instead of {expected}")
        if any(expected) and (a.stride() != e.stride() or a.storage_offset() != e.storage_offset()):
            raise Mismatch(
                f"aliasing: view {i} has strides {a.stride()} offset {a.storage_offset()} "
                f"instead of {e.stride()} offset {e.storage_offset()}"
            )


def same_storage(a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(a.untyped_storage()._cdata == b.untyped_storage()._cdata)


def same_distribution(a: torch.Tensor, b: torch.Tensor, effective: float = 1.0) -> bool:
    """Two-sample Kolmogorov-Smirnov test with a one-in-a-million false alarm.

    `effective` is the share of elements that are independent (one mask a channel makes a channel's elements move
    together).
    """
    x = torch.sort(a.detach().cpu().flatten().to(torch.float64)).values
    y = torch.sort(b.detach().cpu().flatten().to(torch.float64)).values
    x, y = x[~x.isnan()], y[~y.isnan()]
    if x.numel() == 0 or y.numel() == 0:
        return x.numel() == y.numel()
    both = torch.cat([x, y])
    gap = torch.searchsorted(x, both, right=True) / x.numel() - torch.searchsorted(y, both, right=True) / y.numel()
    size = x.numel() * y.numel() / (x.numel() + y.numel()) * effective
    return bool(gap.abs().max() <= math.sqrt(-math.log(5e-7) / 2) / math.sqrt(size))
