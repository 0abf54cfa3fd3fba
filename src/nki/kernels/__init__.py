"""Kernels written in NKI, to use and to learn from; docs/nki goes through them."""

from __future__ import annotations

from .attention import flash_attention, flash_attention_backward
from .convolution import conv1d
from .embedding import embedding
from .loss import cross_entropy, cross_entropy_backward
from .matmul import matmul_blocked, matmul_naive, matmul_rows
from .microscaled import mx_matmul, mx_quantize
from .norms import layer_norm, rms_norm
from .optimizer import adamw
from .rope import rope
from .selection import top_k
from .softmax import softmax
from .swiglu import swiglu_mlp

__all__ = [
    "adamw",
    "conv1d",
    "cross_entropy",
    "cross_entropy_backward",
    "embedding",
    "flash_attention",
    "flash_attention_backward",
    "layer_norm",
    "matmul_blocked",
    "matmul_naive",
    "matmul_rows",
    "mx_matmul",
    "mx_quantize",
    "rms_norm",
    "rope",
    "softmax",
    "swiglu_mlp",
    "top_k",
]
