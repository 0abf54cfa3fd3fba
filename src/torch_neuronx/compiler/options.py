"""What `torch.compile(..., backend="neuron", options={...})` takes, checked when the function is compiled."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from torch_neuronx import config


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of one compiled function.

    model_name: names the function's graphs in errors and in `torch_neuronx.get_dynamo_metrics()`.
    strict: refuse, when compiling, a graph with an operator that would run on the CPU.
    fallback_execution: run a graph that cannot be compiled eagerly instead of raising. None: the opposite of
        TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION.
    fusion: run groups of operators as vector programs. False: one by one, with eager's numbers to the last bit.
    """

    model_name: str = "graph"
    strict: bool = False
    fallback_execution: bool | None = None
    fusion: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Options:
        """TypeError for a value of another type, ValueError for an unknown name; both say what is allowed."""
        types = {"model_name": str, "strict": bool, "fallback_execution": (bool, type(None)), "fusion": bool}
        for name, value in (given or {}).items():
            if name not in types:
                close = difflib.get_close_matches(name, types, 1)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                raise ValueError(
                    f"torch.compile(backend='neuron') has no option {name!r}, only {', '.join(types)}{hint}"
                )
            if not isinstance(value, types[name]):  # type: ignore[arg-type]
                raise TypeError(
                    f"option {name!r} of torch.compile(backend='neuron') is {value!r} of type {type(value).__name__}: "
                    f"it takes a {'str' if name == 'model_name' else 'bool'}."
                )
        return cls(**(given or {}))

    def runs_eagerly_on_failure(self) -> bool:
        if self.fallback_execution is not None:
            return self.fallback_execution
        return not config.get_bool("TORCH_NEURONX_DISABLE_FALLBACK_EXECUTION")
