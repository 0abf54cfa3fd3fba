"""The chip generation that a kernel is traced for, and the sizes that follow from it.

All numbers come from `torch_neuronx.chips`, where each has its source, except the two limits of instruction operands.
"""

from __future__ import annotations

import dataclasses
import functools
import os

from torch_neuronx import chips, config

from .errors import NkiTargetError

# Names of a generation: NKI documentation, target names of nki.jit.
GENERATIONS = {"trn1": 2, "inf2": 2, "gen2": 2, "trn2": 3, "gen3": 3, "trn3": 4, "gen4": 4}
_CHIP_OF_VERSION = {int(spec.neuroncore_version): name for name, spec in chips.CHIPS.items()}

FREE_ELEMENTS = 65536  # most elements of one partition that an instruction reads or writes: NKI architecture guide
FREE_DIMS = 4  # most free dimensions of an access pattern: NKI architecture guide


@dataclasses.dataclass(frozen=True)
class Target:
    """One chip generation as kernels see it. Sizes are bytes of one partition unless the name says otherwise."""

    name: str
    version: int  # of the NeuronCore: 3 for trn2, 4 for trn3
    partitions: int
    sbuf_bytes: int
    psum_banks: int
    psum_bank_bytes: int
    stationary_fmax: int  # elements
    moving_fmax: int  # elements, for float32 results

    @property
    def psum_bytes(self) -> int:
        """Bytes of one PSUM partition, all banks."""
        return self.psum_banks * self.psum_bank_bytes


@functools.cache
def target(name: str) -> Target:
    """The target of any of its names. NkiTargetError for an unknown name, or a generation that is not modelled."""
    version = GENERATIONS.get(name)
    if version is None:
        raise NkiTargetError(f"{name!r} is not a target: the names are {', '.join(GENERATIONS)}")
    chip_name = _CHIP_OF_VERSION.get(version)
    if chip_name is None:
        raise NkiTargetError(f"{name} is not modelled: kernels run for {', '.join(chips.CHIPS)}")
    chip = chips.CHIPS[chip_name]
    partitions = int(chip.sbuf_partitions)
    bank = int(chip.psum_bytes) // partitions // int(chip.psum_banks)
    return Target(
        name=chip_name,
        version=version,
        partitions=partitions,
        sbuf_bytes=int(chip.sbuf_usable_bytes_per_partition),
        psum_banks=int(chip.psum_banks),
        psum_bank_bytes=bank,
        stationary_fmax=int(chip.tensor_cols),
        # One PSUM bank of float32 before NeuronCore-v4, all banks from then on: NKI 0.5 release notes.
        moving_fmax=bank // 4 * (int(chip.psum_banks) if version >= 4 else 1),
    )


def resolve() -> Target:
    """The target of kernels that are traced now: NEURON_PLATFORM_TARGET_OVERRIDE, else the emulated device's chip.

    NkiTargetError when the variable names no target.
    """
    override = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "").strip()
    if override:
        return target(override)
    instance = config.get_text("TORCH_NEURONX_INSTANCE_TYPE") or chips.DEFAULT_INSTANCE
    if instance not in chips.INSTANCES:
        raise NkiTargetError(f"TORCH_NEURONX_INSTANCE_TYPE={instance!r} is not one of {', '.join(chips.INSTANCES)}")
    return target(chips.INSTANCES[instance].chip)
