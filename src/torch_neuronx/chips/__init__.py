"""The chips and machines that can be emulated, in numbers with their sources, and what work costs on them.

Standard library only: the build reads this package without PyTorch. docs/chips.md is written from it.
"""

from __future__ import annotations

from . import cost, trn2, trn3
from .spec import ChipSpec, InstanceType, Number, numbers

__all__ = ["CHIPS", "DEFAULT_INSTANCE", "INSTANCES", "ChipSpec", "InstanceType", "Number", "cost", "numbers"]

CHIPS: dict[str, ChipSpec] = {spec.name: spec for spec in (trn2.CHIP_SPEC, trn3.CHIP_SPEC)}

# In the order of their size within a generation: the first one of a generation stands for it.
INSTANCES: dict[str, InstanceType] = {instance.name: instance for instance in (*trn2.INSTANCES, *trn3.INSTANCES)}

DEFAULT_INSTANCE = "trn2.3xlarge"
