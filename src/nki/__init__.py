"""NKI: kernels for Trainium's NeuronCores, run on the host.

    import nki
    import nki.isa as nisa
    import nki.language as nl

An independent implementation of AWS's kernel interface; docs/nki.md says what is there. Needs NumPy.
"""

from __future__ import annotations

try:
    import numpy as _numpy  # noqa: F401
except ImportError as _error:
    raise ImportError("nki needs NumPy, which the base install does not: pip install 'torch-neuronx[nki]'") from _error

from . import collectives, dtype, errors, isa, language, typing
from .errors import NkiError
from .jit import Kernel, jit, simulate
from .tensor import NkiTensor
from .trace import NkiInstruction

DISTRIBUTION = "torch-neuronx"  # tells this package from others of the same name
__all__ = [
    "Kernel",
    "NkiError",
    "NkiInstruction",
    "NkiTensor",
    "collectives",
    "dtype",
    "errors",
    "isa",
    "jit",
    "language",
    "simulate",
    "typing",
]
