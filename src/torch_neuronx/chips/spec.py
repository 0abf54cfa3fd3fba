"""What is written down about a chip and an instance type: integers, each with its unit in its name and its source.

These modules import nothing but the standard library, so that the build can read them without PyTorch
(tools/gen_chip_data.py turns them into C++ tables). They are the only place where the numbers stand.
"""

from __future__ import annotations

import dataclasses
from typing import Any


class Number(int):
    """An integer that remembers where it comes from.

    `source` names the document and section, or the measurement, or says how the number follows from others.
    """

    source: str

    def __new__(cls, value: int, source: str) -> Number:
        if not source:
            raise ValueError(f"{value} has no source: say which document, measurement or reasoning it comes from.")
        number = super().__new__(cls, value)
        number.source = source
        return number

    def __getnewargs__(self) -> tuple[int, str]:  # type: ignore[override]
        return int(self), self.source


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChipSpec:
    """One chip generation. Figures are for one physical NeuronCore unless the name or the comment says otherwise."""

    name: str
    neuroncore_version: Number
    cores: Number  # physical NeuronCores of a chip

    # TensorE: a systolic array that does rows * cols multiply-accumulates a cycle
    tensor_clock_hz: Number
    tensor_rows: Number
    tensor_cols: Number
    tensor_float32_passes: Number  # bfloat16 passes that one float32 product takes
    tensor_float8_speedup: Number  # FP8 double-row mode against bfloat16
    tensor_mx_speedup: Number  # microscaled FP8 and FP4 against bfloat16; 0: not supported
    tensor_sustained_permille: Number  # of the peak above, for products that fill the array

    # VectorE: one element a cycle and lane, faster in the performance modes of narrow types
    vector_clock_hz: Number
    vector_lanes: Number
    vector_copy_speedup_16bit: Number  # one-input instructions, both sides 16-bit and contiguous in SBUF
    vector_binary_speedup_16bit: Number  # two-input instructions, all three 16-bit in SBUF
    vector_binary_speedup_8bit: Number

    # ScalarE: functions by table
    scalar_clock_hz: Number
    scalar_elements_per_cycle: Number
    scalar_elements_per_cycle_narrow: Number  # 16-bit and 8-bit floating point
    scalar_table_load_ns: Number  # first use of another set of functions

    # GpSimdE: eight processors; also writes the descriptors of indirect DMA
    gpsimd_clock_hz: Number
    gpsimd_processors: Number
    gpsimd_elements_per_cycle: Number
    gpsimd_descriptor_ps: Number  # picoseconds for one element or row of an indirect DMA

    # Memory
    sbuf_bytes: Number
    sbuf_partitions: Number
    sbuf_usable_bytes_per_partition: Number
    psum_bytes: Number
    psum_banks: Number
    hbm_bytes: Number  # of the chip
    hbm_stacks: Number  # of the chip; the cores share them equally
    hbm_bytes_per_second: Number  # of the chip, all stacks
    hbm_sustained_permille: Number  # of the peak above, for streaming kernels

    # DMA
    dma_engines: Number
    dma_bytes_per_second: Number  # all engines of one core, theoretical
    dma_sustained_bytes_per_second: Number  # the same, practical
    dma_load_ns: Number  # an isolated small DMA, from trigger to all data written
    dma_store_ns: Number
    dma_to_engine_ns: Number  # from the end of a DMA to the start of an engine that waits for it

    # Links and host
    neuronlink_bytes_per_second: Number  # of the chip
    host_link_bytes_per_second: Number  # one direction, of one logical core
    dispatch_ns: Number  # host time to enqueue one operator in eager mode
    graph_launch_ns: Number  # host time to launch one compiled graph


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceType:
    """A machine with chips of one generation. A process sees one machine; an UltraServer is several, linked."""

    name: str
    chip: str  # name of the ChipSpec
    chips: Number
    ultraserver_chips: Number  # chips of the UltraServer that this machine is part of; 0: none
    efa_bits_per_second: Number  # network of the machine; 0: not published


def numbers(spec: ChipSpec | InstanceType) -> dict[str, Number]:
    """The numeric fields of a spec by name, in the order of declaration."""
    fields: dict[str, Any] = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    return {name: value for name, value in fields.items() if isinstance(value, Number)}
