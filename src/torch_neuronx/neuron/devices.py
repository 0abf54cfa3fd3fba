"""Which devices there are, which one is current, and what they are made of."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import torch

from torch_neuronx import _C
from torch_neuronx.neuron._utils import Device, _get_device_index

__all__ = [
    "DeviceProperties",
    "can_device_access_peer",
    "current_device",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "set_device",
    "synchronize",
]

_lock = threading.RLock()
_queued: list[Callable[[], None]] = []


def is_available() -> bool:
    """Whether there is a device. Never raises and starts nothing; a bad NEURON_* variable is reported as a warning."""
    try:
        return _C._device_count() > 0
    except (RuntimeError, ValueError) as error:
        warnings.warn(f"The neuron device is not available: {error}", stacklevel=2)
        return False


def device_count() -> int:
    """Number of logical NeuronCores this process sees. ValueError when a NEURON_* variable is wrong."""
    return _C._device_count()


def is_initialized() -> bool:
    """Whether this process has started to use the device."""
    return _C._is_initialized() and not _is_in_bad_fork()


def init() -> None:
    """Start the device now instead of at first use. Calling it again does nothing."""
    _lazy_init()


def _lazy_init() -> None:
    with _lock:
        if not _C._is_initialized():
            from torch_neuronx import config  # `import torch` does without it

            config.check()
        _C._init()
        while _queued:
            _queued.pop(0)()


def _lazy_call(function: Callable[[], None], **_: Any) -> None:
    """Run `function` now if the device has been started, else when it is."""
    with _lock:
        if is_initialized():
            function()
        else:
            _queued.append(function)


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from one that had started the device: it must not use it."""
    return _C._is_in_bad_fork()


def current_device() -> int:
    """Index of the calling thread's current device.

    A thread starts on device 0, or on LOCAL_RANK modulo `device_count()` when a launcher has set LOCAL_RANK.
    """
    return _C._current_device()


def set_device(device: Device) -> None:
    """Make a device current for the calling thread. A negative index does nothing; RuntimeError beyond the last one."""
    index = _get_device_index(device)
    if index >= 0:
        _C._set_device(index)


def _exchange_device(device: int) -> int:
    """Make `device` current and return the one that was; a negative index changes nothing and returns -1."""
    return _C._exchange_device(device) if device >= 0 else -1


def _maybe_exchange_device(device: int) -> int:
    """As `_exchange_device`, but does not start a device that has not been used."""
    return _C._maybe_exchange_device(device) if device >= 0 else -1


class device:  # noqa: N801 - the name of torch.cuda.device
    """Context manager that makes a device current.

    Args:
        device: index, string or `torch.device`; None means the current one and a negative index does nothing.
    """

    def __init__(self, device: Device) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device_of(device):  # noqa: N801 - the name of torch.cuda.device_of
    """Context manager that makes the device of a tensor or storage current; does nothing for one on another device."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        place = obj._untyped_storage.device if isinstance(obj, torch.TypedStorage) else obj.device
        super().__init__(place.index if place.type == "neuron" and place.index is not None else -1)


def synchronize(device: Device = None) -> None:
    """Wait until all work on all streams of a device is done (the current device by default)."""
    _C._synchronize(_get_device_index(device, optional=True))


class DeviceProperties(NamedTuple):
    """What one neuron device, a logical NeuronCore, is made of. Sizes are in bytes.

    The numbers are those of `torch_neuronx.chips`, where each has its source.
    """

    name: str  # chip generation: "trn2", "trn3"
    total_memory: int  # HBM of this device
    major: int  # NeuronCore version: 3 on trn2, 4 on trn3
    minor: int
    multi_processor_count: int  # physical NeuronCores that make up this device
    lnc: int  # the same number under its Neuron name, the logical NeuronCore configuration
    core: int  # id of the logical core in the instance
    instance_type: str  # "trn2.3xlarge", ...
    sbuf_bytes: int  # on-chip SBUF of one physical core
    psum_bytes: int  # on-chip PSUM of one physical core


@functools.cache
def _properties(index: int) -> DeviceProperties:
    topology = _C.topology()
    chip = _C.chip(topology["chip"])
    return DeviceProperties(
        name=topology["chip"],
        total_memory=topology["hbm_bytes_per_core"],
        major=chip["neuroncore_version"],
        minor=0,
        multi_processor_count=topology["lnc"],
        lnc=topology["lnc"],
        core=topology["visible"][index],
        instance_type=topology["instance"],
        sbuf_bytes=chip["sbuf_bytes"],
        psum_bytes=chip["psum_bytes"],
    )


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Properties of a device (the current one by default). RuntimeError for an index beyond the last device."""
    index = _get_device_index(device, optional=True)
    if not 0 <= index < _C._device_count():
        raise RuntimeError(f"invalid device ordinal: neuron:{index}, this process sees {_C._device_count()} device(s)")
    return _properties(index)


def get_device_name(device: Device = None) -> str:
    """Name of a device, "neuron:<index>". The chip is `get_device_properties().name`."""
    index = _get_device_index(device, optional=True)
    get_device_properties(index)
    return f"neuron:{index}"


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """(NeuronCore version, 0): (3, 0) on trn2, (4, 0) on trn3. For dtypes see `torch.accelerator`'s function."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Whether `device` can copy from `peer_device` without the host: true for any two different cores (NeuronLink)."""
    index, peer = _get_device_index(device, optional=True), _get_device_index(peer_device)
    get_device_properties(index)
    get_device_properties(peer)
    return index != peer


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes in bfloat16: always, and natively (the argument is for `torch.cuda`'s signature)."""
    return True


def ipc_collect() -> None:
    """Nothing to collect: neuron memory is never shared between processes (`share_memory_` raises)."""


# Dynamo cannot trace into the extension; what these answer does not change while the process runs.
for _constant in (is_available, device_count, get_device_properties, get_device_name, get_device_capability):
    _constant._dynamo_marked_constant = True  # type: ignore[attr-defined, union-attr]
