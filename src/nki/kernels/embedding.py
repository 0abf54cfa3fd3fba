"""Embedding: rows of a table by number."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..errors import NkiTypeError
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, pieces


@jit
def embedding(table: NkiTensor, ids: NkiTensor) -> NkiTensor:
    """table[ids] for table[V, D] and ids[N] of int32 or uint32, by indirect DMA.

    A number that is not in 0 to V - 1 raises NkiIndexError when the kernel runs.
    """
    need(table.ndim == 2 and ids.ndim == 1, f"embedding takes (V, D) and (N,), not {table.shape} and {ids.shape}")
    if ids.dtype.name not in ("int32", "uint32"):
        raise NkiTypeError(f"ids is {ids.dtype}, it takes int32 or uint32")
    out = nl.ndarray((ids.shape[0], table.shape[1]), table.dtype, buffer=nl.shared_hbm)
    column = ids.reshape(ids.shape[0], 1)
    for rows in pieces(ids.shape[0], nl.tile_size.pmax):
        tile = nl.ndarray((length(rows), table.shape[1]), table.dtype)
        nisa.dma_copy(tile, table.vector_select(0, nl.load(column[rows])))
        nl.store(out[rows], tile)
    return out
