"""PyTorch on AWS Trainium: the `neuron` device, with an emulated chip behind it.

`import torch` is enough: PyTorch finds this package through the `torch.backends` entry point and loads it. Import it by
name for what is not part of `torch.neuron`: `check()`, `lower()`, `fallbacks()`, `reset_fallbacks()`,
`set_fallback_policy()`, `config`.
Every public name of `torch.neuron` can also be reached here: `torch_neuronx.synchronize is torch.neuron.synchronize`.

This is an independent implementation, not AWS's package of the same name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"


def _autoload() -> None:
    """Entry point of the `torch.backends` group; PyTorch calls it at the end of `import torch`.

    Importing this package has already registered the device, so nothing is left to do. It is defined before
    `import torch` because a program may import this package first: torch's own import then reaches this module
    half-way, and must find the entry point in it.
    """


import torch  # noqa: E402, F401 - reaches this module again through the entry point, unless it is what loads it

from torch_neuronx import _extension  # noqa: E402

_extension.load()  # before anything else: it raises when the extension and torch do not match

from torch_neuronx import _register, neuron  # noqa: E402

_register.register()

if TYPE_CHECKING:
    from torch_neuronx import config
    from torch_neuronx.checking.run import check
    from torch_neuronx.compiler.metrics import GraphMetrics, get_dynamo_metrics, reset_dynamo_metrics
    from torch_neuronx.kernels import nki_op, wrap_nki
    from torch_neuronx.lowering.api import Lowered, lower
    from torch_neuronx.reports import FallbackReport, FallbackRow, fallbacks, reset_fallbacks, set_fallback_policy

__all__ = [
    "FallbackReport",
    "FallbackRow",
    "GraphMetrics",
    "Lowered",
    "__version__",
    "check",
    "config",
    "fallbacks",
    "get_dynamo_metrics",
    "lower",
    "neuron",
    "nki_op",
    "reset_dynamo_metrics",
    "reset_fallbacks",
    "set_fallback_policy",
    "wrap_nki",
]


_HOMES = {
    "GraphMetrics": "compiler.metrics",
    "Lowered": "lowering.api",
    "check": "checking.run",
    "get_dynamo_metrics": "compiler.metrics",
    "lower": "lowering.api",
    "nki_op": "kernels",
    "reset_dynamo_metrics": "compiler.metrics",
    "wrap_nki": "kernels",
}


def __getattr__(name: str) -> Any:
    """What `import torch` need not load, and the public names of `torch.neuron`, the same objects as there."""
    if name == "config":
        return importlib.import_module("torch_neuronx.config")
    if name in __all__:
        return getattr(importlib.import_module(f"torch_neuronx.{_HOMES.get(name, 'reports')}"), name)
    if not name.startswith("_"):
        try:
            return getattr(neuron, name)
        except AttributeError:
            pass
    raise AttributeError(f"module 'torch_neuronx' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__) | set(neuron.__all__))
