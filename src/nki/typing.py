"""nki.typing (`nt`): annotations for the arguments of kernels. They document; nothing is checked."""

from __future__ import annotations

from typing import Annotated, Any

from .tensor import NkiTensor


class tensor:
    """`nt.tensor[128, 512]` or `nt.tensor[shape]`: a tensor argument and its shape."""

    def __class_getitem__(cls, shape: Any) -> Any:
        return Annotated[NkiTensor, tuple(shape) if isinstance(shape, tuple | list) else (shape,)]


class mutable_tensor(tensor):
    """`nt.mutable_tensor`: a tensor argument that the kernel writes."""


__all__ = ["mutable_tensor", "tensor"]
