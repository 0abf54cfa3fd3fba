"""Where the CPU's own answer is wrong, the reference is computed another way.

On CPUs with AVX512-FP16, oneDNN's float16 convolutions inside PyTorch 2.13 read memory that nobody wrote: for dilated
and even-sized windows results differ from float64 by far more than the values themselves, or are NaN. The reference
there is the same convolution in float32, rounded once.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

CONVOLUTIONS = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)


@functools.cache
def has_float16_instructions() -> bool:
    """Whether this CPU is one on which PyTorch gives float16 convolutions to oneDNN."""
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.exists() and "avx512_fp16" in cpuinfo.read_text().split()


class WideConvolutions(TorchDispatchMode):
    """Convolutions of float16 tensors run in float32; results are float16 again."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in CONVOLUTIONS or args[0].dtype != torch.float16:
            return func(*args, **(kwargs or {}))
        wide = [a.float() if isinstance(a, torch.Tensor) else a for a in args]
        return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.half, func(*wide, **(kwargs or {})))


def host_reference(name: str, dtype: torch.dtype) -> contextlib.AbstractContextManager[Any]:
    """The surroundings in which the CPU's answer for the operator `name` is computed."""
    wrong = "conv" in name and dtype == torch.float16 and has_float16_instructions()
    return WideConvolutions() if wrong else contextlib.nullcontext()
