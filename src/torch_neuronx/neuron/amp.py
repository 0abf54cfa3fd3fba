"""Mixed precision under the names of `torch.cuda.amp`; new code writes `torch.autocast("neuron")`."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types that `torch.autocast("neuron", dtype=...)` takes."""
    return [torch.bfloat16, torch.float16]


class autocast(torch.amp.autocast_mode.autocast):  # noqa: N801 - the name of torch.cuda.amp.autocast
    """`torch.autocast("neuron", ...)`, in bfloat16 unless told otherwise."""

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.bfloat16, cache_enabled: bool | None = True
    ) -> None:
        super().__init__("neuron", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


class GradScaler(torch.amp.grad_scaler.GradScaler):
    """`torch.amp.GradScaler("neuron", ...)`. Needed for float16 only: bfloat16 has the range of float32."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("neuron", *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="neuron")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="neuron")
