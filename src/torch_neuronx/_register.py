"""Makes the device known to PyTorch under the name `neuron`."""

from __future__ import annotations

import os
import sys

import torch
from torch.utils.backend_registration import generate_methods_for_privateuse1_backend, rename_privateuse1_backend

from torch_neuronx import compat, neuron

NAME = "neuron"


def register() -> None:
    """Give the device its name, its module and its methods. Runs once, at import; touches no device."""
    taken = torch._C._get_privateuse1_backend_name()
    if taken not in ("privateuseone", NAME):
        raise ImportError(
            f"torch_neuronx cannot register its device: PyTorch has room for one out-of-tree device in a process, and "
            f"'{taken}' has taken it; uninstall that backend, or keep the two in different environments."
        )
    rename_privateuse1_backend(NAME)
    torch._register_device_module(NAME, neuron)  # type: ignore[no-untyped-call]
    for part in neuron.SUBMODULES:  # so that `import torch.neuron.memory` finds this module and not a second copy
        sys.modules[f"torch.{NAME}.{part}"] = getattr(neuron, part)
    generate_methods_for_privateuse1_backend(for_storage=True)
    compat.apply()
    if any(name.startswith("TORCH_NEURONX_") for name in os.environ):
        from torch_neuronx import config  # not otherwise: `import torch` is to stay quick

        config.warn_unknown()
