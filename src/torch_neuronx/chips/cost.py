"""What a piece of work costs on a logical core, engine by engine: the formulas of the device clock.

The device itself uses csrc/device/cost.cpp, which has the same formulas; a test holds the two to equal results. Here
they can be read, used without the extension, and asked about another chip than the one that is emulated. What they
rest on, and how they compare with measurements, is in docs/device-time.md.

Times are whole nanoseconds. Each is one product of doubles, rounded up, so that every machine gets the same.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, get_args

from .spec import ChipSpec

Kind = Literal["none", "move", "host_copy", "vector", "scalar", "tensor", "gather"]
KINDS: tuple[Kind, ...] = get_args(Kind)
INDEX_BYTES = 8.0  # int64
LONGEST = 9_000_000_000_000_000  # nanoseconds; longer times are cut to this


@dataclasses.dataclass(frozen=True, kw_only=True)
class Work:
    """What one launch asks of the chip. Bytes are those of its operands; `elements` are those of the largest one."""

    kind: Kind = "none"
    element_bytes: int = 4  # size of the type computed in
    float32_matmul: bool = False
    read_bytes: int = 0
    write_bytes: int = 0
    elements: int = 0
    passes: int = 1  # times an engine goes over the elements
    macs: int = 0  # multiply-accumulates
    descriptors: int = 0  # gather: pieces (elements or rows) that indirect DMA moves one by one


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
    """Nanoseconds: what the host pays, how long each engine is active, and how long the launch takes on its stream."""

    dispatch: int = 0
    tensor: int = 0
    vector: int = 0
    scalar: int = 0
    gpsimd: int = 0
    dma: int = 0
    link: int = 0
    total: int = 0


def _time(amount: float, units_per_second: int) -> int:
    """Time for `amount` units."""
    return min(math.ceil(amount * (1e9 / units_per_second)), LONGEST)


def hbm_bytes_per_second(chip: ChipSpec, lnc: int) -> int:
    """Sustained HBM bandwidth of a logical core: its share of the stacks, or what its DMA engines can carry."""
    share = chip.hbm_bytes_per_second * lnc // chip.cores * chip.hbm_sustained_permille // 1000
    return min(share, chip.dma_sustained_bytes_per_second * lnc)


def macs_per_second(chip: ChipSpec, lnc: int, element_bytes: int, float32: bool) -> int:
    """Sustained multiply-accumulates of a logical core's TensorE.

    float32 takes several passes, and so does what Trainium lacks (float64, counted as float32); one-byte types run in
    the double-row mode of FP8.
    """
    peak = chip.tensor_rows * chip.tensor_cols * chip.tensor_clock_hz * lnc
    sustained = peak * chip.tensor_sustained_permille // 1000
    if float32 or element_bytes > 4:
        return sustained // chip.tensor_float32_passes
    return sustained * chip.tensor_float8_speedup if element_bytes == 1 else sustained


def vector_elements_per_second(chip: ChipSpec, lnc: int, element_bytes: int, passes: int) -> int:
    """Elements a second of a logical core's VectorE.

    Narrow types are faster when both inputs are narrow. In a kernel of several passes they are not: what goes from one
    pass to the next is float32. 8-byte elements count as two of 4 bytes.
    """
    rate = chip.vector_lanes * chip.vector_clock_hz * lnc
    if element_bytes > 4:
        return rate // 2
    if passes > 1:
        return rate
    speedups = {1: chip.vector_binary_speedup_8bit, 2: chip.vector_binary_speedup_16bit}
    return rate * speedups.get(element_bytes, 1)


def scalar_elements_per_second(chip: ChipSpec, lnc: int, element_bytes: int) -> int:
    """Elements a second of a logical core's ScalarE. 8-byte elements count as two of 4 bytes."""
    narrow = element_bytes <= 2
    per_cycle = chip.scalar_elements_per_cycle_narrow if narrow else chip.scalar_elements_per_cycle
    rate = per_cycle * chip.scalar_clock_hz * lnc
    return rate // 2 if element_bytes > 4 else rate


def cost(work: Work, chip: ChipSpec, lnc: int) -> Cost:
    """Cost of one launch on a logical core of `lnc` physical cores: a fixed part, and the slower of engine and memory.

    The fixed part is the latency of an isolated launch: operands come in by DMA, the engine starts, results go out.
    ValueError for an unknown kind or LNC.
    """
    if work.kind not in KINDS:
        raise ValueError(f"kind {work.kind!r} is not one of {', '.join(KINDS)}")
    if lnc not in (1, 2):
        raise ValueError(f"lnc is 1 or 2, not {lnc}")
    dispatch = int(chip.dispatch_ns)
    if work.kind == "none":
        return Cost(dispatch=dispatch)

    elements = float(work.elements) * float(work.passes)
    moved = float(work.read_bytes) + float(work.write_bytes)
    fixed = chip.dma_load_ns + chip.dma_to_engine_ns + chip.dma_store_ns
    times = dict.fromkeys(("tensor", "vector", "scalar", "gpsimd", "link"), 0)
    if work.kind == "move":
        fixed = chip.dma_load_ns
    elif work.kind == "host_copy":
        # The bytes may be given as read, as written or as both: they cross the link once, and HBM once.
        moved = float(max(work.read_bytes, work.write_bytes))
        fixed = chip.dma_load_ns
        times["link"] = _time(moved, chip.host_link_bytes_per_second)
    elif work.kind == "vector":
        times["vector"] = _time(elements, vector_elements_per_second(chip, lnc, work.element_bytes, work.passes))
    elif work.kind == "scalar":
        fixed = fixed + chip.scalar_table_load_ns  # in eager mode each launch loads the table of its function
        times["scalar"] = _time(elements, scalar_elements_per_second(chip, lnc, work.element_bytes))
    elif work.kind == "tensor":
        times["tensor"] = _time(float(work.macs), macs_per_second(chip, lnc, work.element_bytes, work.float32_matmul))
    elif work.descriptors > 0:
        # Of the tensor that is picked from, only what is picked is read: as much as is written, and the indices.
        picked = float(work.write_bytes) + INDEX_BYTES * float(work.descriptors)
        moved = float(work.write_bytes) + min(float(work.read_bytes), picked)
        each = chip.gpsimd_descriptor_ps / (1000 * lnc)  # nanoseconds
        times["gpsimd"] = min(math.ceil(work.descriptors * each), LONGEST)
    else:
        times["gpsimd"] = _time(elements, chip.gpsimd_elements_per_cycle * chip.gpsimd_clock_hz * lnc)
    dma = _time(moved, hbm_bytes_per_second(chip, lnc))
    return Cost(dispatch=dispatch, dma=dma, total=int(fixed) + max(dma, *times.values()), **times)
