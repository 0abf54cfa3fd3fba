"""Kernels written in NKI, to use and to learn from; docs/nki goes through them."""

from __future__ import annotations

from .embedding import embedding
from .matmul import matmul_blocked, matmul_naive, matmul_rows
from .norms import layer_norm, rms_norm
from .rope import rope
from .softmax import softmax
from .swiglu import swiglu_mlp

__all__ = [
    "embedding",
    "layer_norm",
    "matmul_blocked",
    "matmul_naive",
    "matmul_rows",
    "rms_norm",
    "rope",
    "softmax",
    "swiglu_mlp",
]
