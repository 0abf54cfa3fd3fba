"""The check that work ran on the device itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch_neuronx


@contextmanager
def natively() -> Iterator[None]:
    """What runs inside uses no fallback operator and no type that the chip lacks, or this fails with the report."""
    torch_neuronx.reset_fallbacks()
    yield
    report = torch_neuronx.fallbacks()
    assert not report, f"\n{report}"
