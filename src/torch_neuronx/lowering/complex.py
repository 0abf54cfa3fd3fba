"""Complex tensors as pairs of real ones: Trainium has no complex types."""

from __future__ import annotations

from typing import NamedTuple

import torch

from torch_neuronx.lowering.stablehlo import Size, Value


class Complex(NamedTuple):
    """A complex64 tensor: two float32 tensors of its shape."""

    real: Value
    imag: Value

    @property
    def shape(self) -> Size:
        return self.real.shape

    @property
    def rank(self) -> int:
        return self.real.rank

    @property
    def numel(self) -> int:
        return self.real.numel

    @property
    def dtype(self) -> torch.dtype:
        return torch.complex64
