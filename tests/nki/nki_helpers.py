"""What the tests of kernels share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki
import nki.language as nl

F32 = np.float32


def run(body: Callable[..., Any], *arrays: Any, cores: int = 1, target: str | None = None) -> Any:
    """Runs `body(*tiles)` as a kernel: arguments are loaded into SBUF, the tiles it returns are stored and returned.

    Numbers are passed as they are.
    """

    def kernel(inputs: Any) -> Any:
        tiles = [nl.load(x) if isinstance(x, nki.NkiTensor) else x for x in inputs]
        results = body(*tiles)
        outputs = []
        for tile in results if isinstance(results, tuple) else (results,):
            out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
            nl.store(out, tile)
            outputs.append(out)
        return tuple(outputs)

    results = nki.jit(kernel)[cores](arrays)
    return results[0] if len(results) == 1 else results


def sample(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    """Normally distributed float32 numbers."""
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(F32)


def like(tile: Any, dtype: Any = None, shape: Any = None) -> Any:
    """A new tile in SBUF."""
    return nl.ndarray(tile.shape if shape is None else shape, tile.dtype if dtype is None else dtype)
