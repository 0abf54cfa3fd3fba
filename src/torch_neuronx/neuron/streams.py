"""Streams and events. Times are device time: how long the work takes on the chip, not on the host."""

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


class Stream(torch.Stream):
    """A queue of work that runs in order, independent of other streams.

    Args:
        device: where the stream lives; the current device by default.
        priority: -1 is urgent, 0 is normal; values outside are clamped, as in CUDA.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        _lazy_init()
        if "stream_id" in kwargs:
            return super().__new__(cls, **kwargs)
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, device=torch.device("neuron", index), priority=priority)

    def wait_event(self, event: torch.Event) -> None:
        """Make work submitted to this stream from now on wait for `event`; the host does not wait."""
        event.wait(self)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make work submitted to this stream from now on wait for what is in `stream` now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record `event`, or a new one, at this point of the stream and return it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"<torch.neuron.Stream device={self.device} id={self.stream_id}>"


class Event(torch.Event):
    """A point in a stream, to wait for and to measure from.

    Args:
        enable_timing: whether `elapsed_time` will be asked of this event.
        blocking: accepted for `torch.cuda`'s signature; waiting for emulated work never spins.
        interprocess: RuntimeError if true: device memory and events are not shared between processes.
        device: accepted for `torch.Event`'s signature; an event takes the device it is first recorded on.
    """

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        device: Device = None,
    ) -> Event:
        if isinstance(enable_timing, (str, torch.device)):  # torch.Event takes the device first
            enable_timing, device = False, enable_timing
        if interprocess:
            raise RuntimeError(
                "torch.neuron.Event(interprocess=True): events of the neuron device cannot be shared between "
                "processes; record and wait for them in one process."
            )
        _lazy_init()
        index = _get_device_index(device, optional=True)
        return super().__new__(cls, device=torch.device("neuron", index), enable_timing=enable_timing)

    def record(self, stream: torch.Stream | None = None) -> None:
        """Record this event in `stream`, or in the current stream."""
        super().record(stream if stream is not None else current_stream())

    def wait(self, stream: torch.Stream | None = None) -> None:
        """Make `stream`, or the current stream, wait for this event; the host does not wait."""
        super().wait(stream if stream is not None else current_stream())

    def __repr__(self) -> str:
        return f"<torch.neuron.Event device={self.device} id={self.event_id}>"


def _wrap(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)


def current_stream(device: Device = None) -> Stream:
    """The calling thread's current stream of a device (the current device by default)."""
    _lazy_init()
    return _wrap(torch._C._accelerator_getStream(_get_device_index(device, optional=True)))


def default_stream(device: Device = None) -> Stream:
    """The default stream of a device (the current device by default)."""
    place = torch.device("neuron", _get_device_index(device, optional=True))
    return Stream(stream_id=0, device_index=place.index, device_type=_DEVICE_TYPE)


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
        self._previous: list[Stream] = []

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
