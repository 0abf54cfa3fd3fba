"""Streams and events. Times are device time: how long the work takes on the chip, not on the host.

`Stream` and `Event` make plain `torch.Stream` and `torch.Event` objects, and `isinstance` knows them by their device.
Objects of a subclass would not do: PyTorch's own methods (`torch.Stream.wait_event`, `torch.Event.elapsed_time`) refuse
an event whose type is not `torch.Event` itself.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from torch_neuronx.neuron._utils import Device, _get_device_index
from torch_neuronx.neuron.devices import _lazy_init

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "priority_range",
    "set_stream",
    "stream",
]


class _OnNeuron(type):
    """Makes neuron streams and events instances of the classes below, which they are not made from."""

    def __instancecheck__(cls, instance: object) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        for base in (torch.Stream, torch.Event):
            if cls.__base__ is base and isinstance(instance, base):
                return bool(instance.device.type == "neuron")
        return False


class Stream(torch.Stream, metaclass=_OnNeuron):
    """A queue of work that runs in order, independent of other streams. Makes a `torch.Stream`.

    Args:
        device: where the stream lives; the current device by default.
        priority: -1 is urgent, 0 is normal; values outside are clamped, as in CUDA.
        stream_id, device_index, device_type: as in `torch.Stream`, to name a stream that exists.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> torch.Stream:  # type: ignore[misc]
        _lazy_init()
        kind = torch.Stream if cls is Stream else cls
        if "stream_id" in kwargs:
            return torch.Stream.__new__(kind, **kwargs)
        index = _get_device_index(device, optional=True)
        return torch.Stream.__new__(kind, device=torch.device("neuron", index), priority=priority)


class Event(torch.Event, metaclass=_OnNeuron):
    """A point in a stream, to wait for and to measure from. Makes a `torch.Event`.

    Args:
        enable_timing: whether `elapsed_time`, in milliseconds of device time, will be asked of this event.
        blocking: accepted for `torch.cuda`'s signature; waiting for emulated work never spins.
        interprocess: RuntimeError if true: device memory and events are not shared between processes.
        device: checked, and otherwise without effect: an event belongs to the device it is first recorded on.
    """

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool | str | torch.device = False,
        blocking: bool = False,
        interprocess: bool = False,
        *,
        device: Device = None,
    ) -> torch.Event:
        if isinstance(enable_timing, (str, torch.device)):
            raise TypeError(
                f"torch.neuron.Event({str(enable_timing)!r}): the first argument is enable_timing, as in "
                "torch.cuda.Event; use torch.Event to give a device first, or give it by name."
            )
        _get_device_index(device, optional=True)  # for its errors: the event takes its device when it is recorded
        if interprocess:
            raise RuntimeError(
                "torch.neuron.Event(interprocess=True): events of the neuron device cannot be shared between "
                "processes; record and wait for them in one process."
            )
        _lazy_init()
        kind = torch.Event if cls is Event else cls
        return torch.Event.__new__(kind, torch.device("neuron"), enable_timing=bool(enable_timing))


def current_stream(device: Device = None) -> torch.Stream:
    """The calling thread's current stream of a device (the current device by default)."""
    _lazy_init()
    return torch._C._accelerator_getStream(_get_device_index(device, optional=True))


def default_stream(device: Device = None) -> torch.Stream:
    """The default stream of a device (the current device by default)."""
    index = _get_device_index(device, optional=True)
    return Stream(stream_id=0, device_index=index, device_type=_DEVICE_TYPE)


def set_stream(stream: torch.Stream | None) -> None:
    """Make `stream` current, and its device too. None does nothing. Prefer the context manager `stream()`."""
    if stream is not None:
        _lazy_init()
        torch._C._accelerator_setStream(stream)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    """Make the stream with this id current."""
    set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


def priority_range() -> tuple[int, int]:
    """(lowest, highest) stream priority: (0, -1). Lower numbers are more urgent."""
    return 0, -1


class StreamContext:
    """Context manager that makes a stream and its device current and restores both. None does nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous: list[torch.Stream] = []

    def __enter__(self) -> None:
        if self.stream is None:
            return
        here, there = current_stream(), current_stream(self.stream.device)
        self._previous = [there] if here.device == there.device else [there, here]
        set_stream(self.stream)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for stream in self._previous:  # the last one also restores the current device
            set_stream(stream)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that runs what is inside on `stream`."""
    return StreamContext(stream)


_DEVICE_TYPE: int = torch._C._autograd.DeviceType.PrivateUse1.value
