"""Device arguments: what PyTorch functions accept wherever they take a device."""

from __future__ import annotations

from typing import TypeAlias

import torch

from torch_neuronx import _C

Device: TypeAlias = torch.device | str | int | None


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of a device given as int, string or `torch.device`.

    `neuron` without an index and None mean the current device when `optional`, and are an error otherwise, as in
    `torch.cuda`. With `allow_cpu` a CPU device gives -1. ValueError for another type of device.
    """
    if isinstance(device, bool):
        raise ValueError(f"Expected a neuron device, but got: {device}")
    if isinstance(device, int):
        return device
    if device is not None:
        device = torch.device(device)
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "neuron":
            raise ValueError(f"Expected a neuron device, but got: {device}")
        if device.index is not None:
            return int(device.index)
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return _C._current_device()
