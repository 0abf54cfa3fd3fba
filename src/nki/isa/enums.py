"""Named options of instructions. Only the members are accepted, no integers and no strings."""

from __future__ import annotations

import enum

# Values: NKI documentation, nki.isa enumerations.


class engine(enum.Enum):
    """Engines of a core, and the DMA engines. `unknown`: the instruction picks one."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(enum.Enum):
    """What happens to the accumulation register of VectorE or ScalarE."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(enum.Enum):
    """Who writes the descriptors of a DMA: GpSimdE (swdge), hardware (hwdge), the runtime beforehand (none)."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(enum.Enum):
    """What an indirect access beyond its tensor does: an error, or nothing."""

    error = 0
    skip = 1


class matmul_perf_mode(enum.Enum):
    """`double_row` multiplies 256 rows of FP8 at once."""

    none = 0
    double_row = 1


class dma_engine(enum.Enum):
    """What moves the data of `sendrecv`."""

    dma = 1
    gpsimd_dma = 2


class nc_version(enum.IntEnum):
    """Generations of NeuronCores, in order."""

    gen2 = 2
    gen3 = 3
    gen4 = 4
