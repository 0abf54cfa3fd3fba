"""nki.collectives: communication between ranks inside a kernel. The names are here; none is implemented yet.

What is there: `nki.isa.sendrecv` and `nki.isa.core_barrier` between the two cores of kernel[2].
"""

from __future__ import annotations

from typing import Any

from .errors import NkiNotImplementedError
from .source import here


class ReplicaGroup:
    """Ranks that communicate: a list of lists of rank numbers."""

    def __init__(self, groups: Any) -> None:
        self.groups = [list(group) for group in groups]


def _missing(name: str) -> Any:
    def function(*arguments: Any, **options: Any) -> Any:
        raise NkiNotImplementedError(
            f"nki.collectives.{name} is not implemented: it needs more than one rank", location=here()
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Not implemented: raises NkiNotImplementedError."
    return function


all_reduce, all_gather, reduce_scatter = map(_missing, ("all_reduce", "all_gather", "reduce_scatter"))
all_to_all, all_to_all_v, all_gather_v = map(_missing, ("all_to_all", "all_to_all_v", "all_gather_v"))
collective_permute = _missing("collective_permute")
collective_permute_implicit = _missing("collective_permute_implicit")
collective_permute_implicit_reduce = _missing("collective_permute_implicit_reduce")
collective_permute_implicit_current_processing_rank_id = _missing(
    "collective_permute_implicit_current_processing_rank_id"
)
rank_id = _missing("rank_id")
all_to_all_v_prepare, all_to_all_v_trigger = _missing("all_to_all_v_prepare"), _missing("all_to_all_v_trigger")
all_gather_v_prepare, all_gather_v_trigger = _missing("all_gather_v_prepare"), _missing("all_gather_v_trigger")
