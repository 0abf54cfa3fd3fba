"""What a program does on the device, and what of it would not run on Trainium: the analysis behind `torchneuron check`.

`check(module, args)` runs a model and reports; `recording()` reports on whatever runs inside it.
"""

from __future__ import annotations

from torch_neuronx.checking.report import Compilations, Graph, Memory, Operator, Report, Shapes, TypeUse
from torch_neuronx.checking.run import check, recording

__all__ = [
    "Compilations",
    "Graph",
    "Memory",
    "Operator",
    "Report",
    "Shapes",
    "TypeUse",
    "check",
    "recording",
]
