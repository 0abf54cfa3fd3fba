"""The largest elements of rows."""

from __future__ import annotations

import math

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces

GROUP = 8  # VectorE finds eight values at a time
LIMIT = 16384  # elements of a row that its instructions take: NKI documentation, nki.isa.max8


@jit
def top_k(x: NkiTensor, k: int) -> tuple[NkiTensor, NkiTensor]:
    """The k largest of each row of x[N, D] in descending order, and their columns as uint32 [N, k].

    D is at most 16384. Of equal values those further left come first. Elements are finite: -infinity stands for what
    has been taken.
    """
    need(x.ndim == 2, f"top_k takes two dimensions, not {x.shape}")
    need_float("x", x)
    rows, columns = x.shape
    need(1 <= k <= columns, f"k is {k}, it takes 1 to {columns}")
    need(columns <= LIMIT, f"a row has {columns} elements, top_k takes up to {LIMIT}")
    values = nl.ndarray((rows, k), x.dtype, buffer=nl.shared_hbm)
    places = nl.ndarray((rows, k), nl.uint32, buffer=nl.shared_hbm)
    rounds = -(-k // GROUP)
    for part in pieces(rows, nl.tile_size.pmax):
        tile = nl.ndarray((length(part), max(columns, GROUP)), nl.float32)
        if columns < GROUP:
            nisa.memset(tile, -math.inf)
        nisa.dma_copy(tile[:, 0:columns], x[part])
        found = nl.ndarray((length(part), rounds * GROUP), nl.float32)
        where = nl.ndarray(found.shape, nl.uint32)
        for number in range(rounds):
            group = slice(number * GROUP, (number + 1) * GROUP)
            nisa.max8(found[:, group], tile)
            nisa.nc_find_index8(where[:, group], tile, found[:, group])
            if number + 1 < rounds:
                rest = nl.ndarray(tile.shape, nl.float32)
                nisa.nc_match_replace8(rest, tile, found[:, group], -math.inf)
                tile = rest
        nl.store(values[part], nl.copy(found[:, 0:k], x.dtype))
        nl.store(places[part], where[:, 0:k])
    return values, places
