"""What did not run natively: operators that fell back to the CPU, and types that Trainium does not compute in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, overload

from torch_neuronx import _C

__all__ = ["FallbackReport", "FallbackRow", "fallbacks", "reset_fallbacks", "set_fallback_policy"]

POLICIES = ("allow", "warn", "raise")


class FallbackRow(NamedTuple):
    """One line of the report."""

    op: str  # "aten::lgamma"
    kind: str  # "operator": no native kernel, ran on the CPU; "dtype": ran natively in a type the chip lacks
    count: int  # type: ignore[assignment]  # calls
    bytes: int  # copied between device and host for "operator", computed in that type for "dtype"


class FallbackReport(Sequence[FallbackRow]):
    """A list of `FallbackRow`, most calls first, that prints as a table. Empty, and false, when all ran natively."""

    def __init__(self, rows: Sequence[FallbackRow]) -> None:
        self._rows = sorted(rows, key=lambda row: (-row.count, row.op, row.kind))

    @overload
    def __getitem__(self, index: int) -> FallbackRow: ...
    @overload
    def __getitem__(self, index: slice) -> FallbackReport: ...
    def __getitem__(self, index: int | slice) -> FallbackRow | FallbackReport:
        return FallbackReport(self._rows[index]) if isinstance(index, slice) else self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[FallbackRow]:
        return iter(self._rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FallbackReport) and self._rows == other._rows

    __hash__ = None  # type: ignore[assignment]  # compares by content, like a list

    def __repr__(self) -> str:
        if not self._rows:
            return "No fallbacks: every operator ran natively on the neuron device."
        width = max(8, *(len(row.op) for row in self._rows))
        lines = [f"{'operator':<{width}}  {'kind':<8}  {'calls':>9}  {'bytes':>15}"]
        lines += [f"{row.op:<{width}}  {row.kind:<8}  {row.count:>9,}  {row.bytes:>15,}" for row in self._rows]
        return "\n".join(lines)


def fallbacks() -> FallbackReport:
    """What did not run natively since the process started or `reset_fallbacks()` was called, most calls first."""
    return FallbackReport([FallbackRow(*row) for row in _C._fallback_stats()])


def reset_fallbacks() -> None:
    """Start counting fallbacks from zero. Warnings that were shown are not shown again."""
    _C._reset_fallbacks()


def set_fallback_policy(policy: Literal["allow", "warn", "raise"]) -> Literal["allow", "warn", "raise"]:
    """Decide what a fallback does from now on: count only, count and warn once per operator, or raise.

    Returns the policy that was in force. TORCH_NEURONX_FALLBACK sets the first one. ValueError for another word.
    """
    if policy not in POLICIES:
        raise ValueError(f"fallback policy {policy!r} is not one of {', '.join(POLICIES)}")
    previous = _C._fallback_policy()
    _C._set_fallback_policy(policy)
    return previous
