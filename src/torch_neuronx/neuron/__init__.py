"""torch.neuron: what a program that knows `torch.cuda` looks for, on the neuron device.

New code needs little of it: `torch.accelerator` covers devices, streams and memory for every backend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_neuronx.neuron import _utils, amp, devices, memory, random, streams
from torch_neuronx.neuron.amp import *  # noqa: F403
from torch_neuronx.neuron.devices import *  # noqa: F403
from torch_neuronx.neuron.devices import (
    _exchange_device,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _maybe_exchange_device,
)
from torch_neuronx.neuron.memory import *  # noqa: F403
from torch_neuronx.neuron.random import *  # noqa: F403
from torch_neuronx.neuron.random import _get_generator, _get_rng_state_offset, _set_rng_state_offset
from torch_neuronx.neuron.streams import *  # noqa: F403
from torch_neuronx.neuron.streams import _set_stream_by_id

if TYPE_CHECKING:
    import torch

    default_generators: tuple[torch.Generator, ...]
    _initialized: bool

SUBMODULES = ("_utils", "amp", "devices", "memory", "random", "streams")

__all__ = [
    "amp",
    "default_generators",  # noqa: F405 - given by __getattr__ below
    "memory",
    "random",
    "streams",
    *amp.__all__,
    *devices.__all__,
    *memory.__all__,
    *random.__all__,
    *streams.__all__,
]

_PRIVATE = (  # looked up by name in PyTorch, so they belong to the module although they are private
    _exchange_device,
    _get_generator,
    _get_rng_state_offset,
    _is_in_bad_fork,
    _lazy_call,
    _lazy_init,
    _maybe_exchange_device,
    _set_rng_state_offset,
    _set_stream_by_id,
    _utils,
)


def __getattr__(name: str) -> Any:
    """Attributes whose value depends on the device's state."""
    if name == "default_generators":
        return random.generators()
    if name == "_initialized":
        return devices.is_initialized()
    raise AttributeError(f"module 'torch.neuron' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
