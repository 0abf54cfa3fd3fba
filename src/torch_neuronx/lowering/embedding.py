"""Embedding: rows gathered by index. Its backward is PyTorch's decomposition into index_put with accumulation."""

from __future__ import annotations

from typing import Any

from torch_neuronx.lowering.index import gather_rows
from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value


@lowers("embedding")
def embedding(cx: Any, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    return gather_rows(cx, weight, 0, indices, wrap=False)
