"""State of a core that is not memory: accumulation registers and random number generators."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LANES = 4  # generators of one partition on VectorE
WORDS = 6  # 32-bit words of one generator: five of the xorshift, and the Weyl counter
_WEYL = np.uint32(362437)  # Marsaglia, Xorshift RNGs, xorwow


class Accumulators:
    """One float32 register of VectorE and one of ScalarE in each partition."""

    def __init__(self, partitions: int) -> None:
        self.values = {engine: np.zeros(partitions, np.float32) for engine in ("vector", "scalar")}

    def update(self, engine: str, rows: int, command: str, reduced: Array, combine: Any, start: Array | float) -> Array:
        """Applies a reduce_cmd to the first `rows` registers and returns them as [rows, 1]."""
        register = self.values[engine][:rows]
        if command in ("reset", "reset_reduce", "load_reduce"):
            register[:] = np.broadcast_to(np.asarray(start, np.float32).reshape(-1), (rows,))
        if command in ("reduce", "reset_reduce", "load_reduce"):
            register[:] = combine(register, reduced.reshape(-1))
        return register.reshape(-1, 1).copy()


def _splitmix(value: Array) -> Array:
    """Well mixed 32-bit numbers from consecutive ones (the finaliser of MurmurHash3)."""
    value = value.astype(np.uint32)
    value ^= value >> 16
    value *= np.uint32(0x85EBCA6B)
    value ^= value >> 13
    value *= np.uint32(0xC2B2AE35)
    return value ^ (value >> 16)


class Generators:
    """XORWOW generators: one a partition on GpSimdE, four a partition on VectorE.

    How the chip spreads a seed over its generators is not published; here each word of each state is a hash of the
    seed, the engine and its position. Without a seed, the seed is 0.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.state: dict[str, Array] = {}
        self.seed(0)

    def seed(self, value: int) -> None:
        """All generators from one 32-bit seed."""
        for number, (engine, lanes) in enumerate((("gpsimd", 1), ("vector", LANES))):
            count = self.partitions * lanes * WORDS
            position = np.arange(count, dtype=np.uint32) + np.uint32((number + 1) << 20)
            mixed = _splitmix(position ^ _splitmix(np.full(count, value & 0xFFFFFFFF, np.uint32)))
            state = mixed.reshape(self.partitions, lanes, WORDS)
            state[..., 0] |= 1  # a xorshift state of zeros stays at zero
            self.state[engine] = state

    def draw(self, engine: str, rows: int, count: int) -> Array:
        """`count` 32-bit numbers for each of the first `rows` partitions. The lanes of a partition take turns."""
        state = self.state[engine][:rows]
        lanes = state.shape[1]
        steps = -(-count // lanes)
        out = np.empty((rows, steps, lanes), np.uint32)
        for step in range(steps):
            t = state[..., 0] ^ (state[..., 0] >> 2)
            last = state[..., 4].copy()
            state[..., 0:4] = state[..., 1:5].copy()
            state[..., 4] = (last ^ (last << 4)) ^ (t ^ (t << 1))
            state[..., 5] += _WEYL
            out[:, step] = state[..., 4] + state[..., 5]
        return out.reshape(rows, -1)[:, :count]

    def uniform(self, engine: str, rows: int, count: int) -> Array:
        """float32 in [0, 1): the upper 24 bits of each number."""
        return ((self.draw(engine, rows, count) >> 8).astype(np.float64) / (1 << 24)).astype(np.float32)
