"""What DMA instructions do: copies with conversion, gather and scatter by rows, transposes, sums."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..dtypes import DType, decode, encode
from ..errors import NkiIndexError
from .machine import Core, semantics

Array = NDArray[Any]


def _rows(core: Core, access: ir.Access, skip: bool) -> tuple[Array, Array, Array]:
    """(flat storage, element index of each element as [rows, elements], which rows are inside)."""
    assert access.rows is not None
    starts = core.view(access.rows).reshape(-1).astype(np.int64)
    tensor = core.program.tensors[access.tensor]
    inside = (starts >= 0) & (starts < access.rows_limit)
    if not skip and not inside.all():
        at = int(np.flatnonzero(~inside)[0])
        raise NkiIndexError(
            f"row index {starts[at]} (partition {at}) for {tensor.name!r} is not in 0 to {access.rows_limit - 1}"
        )
    inner = np.zeros(1, np.int64)
    for stride, count in access.pattern[1:]:
        inner = (inner[:, None] + np.arange(count) * stride).reshape(-1)
    places = access.offset + np.where(inside, starts, 0)[:, None] * access.rows_scale + inner
    flat = core.memory.hbm[access.tensor, core.number if tensor.core is not None else 0]
    flat = flat.view(core.memory.dtype(access).storage)
    last = places[inside].max() if inside.any() else 0
    if last >= flat.size:
        raise NkiIndexError(f"reaches element {last} of {tensor.name!r}, which has {flat.size}")
    return flat, places, inside


def _convert(stored: Array, source: DType, target: DType) -> Array:
    return stored if source == target else encode(decode(stored, source), target)


def _load(core: Core, ins: ir.Instruction, key: str) -> tuple[Array, Array | None]:
    """Stored elements of a source and, when it is indirect, which rows are inside."""
    access = core.access(ins, key)
    if access.rows is None:
        return core.view(access), None
    flat, places, inside = _rows(core, access, ins.attributes["oob_mode"] == "skip")
    return flat[np.minimum(places, flat.size - 1)], inside


def _store(core: Core, ins: ir.Instruction, stored: Array, inside: Array | None) -> None:
    access = core.access(ins, "dst")
    if access.rows is None:
        view = core.view(access)
        if inside is None or inside.all():
            view[...] = stored.reshape(view.shape)
        else:
            # Rows of the gather, in the order of the destination's elements.
            keep = np.repeat(inside, stored.size // len(inside)).reshape(view.shape)
            view[keep] = stored.reshape(view.shape)[keep]
        return
    flat, places, good = _rows(core, access, ins.attributes["oob_mode"] == "skip")
    flat[places[good]] = stored.reshape(places.shape)[good]


@semantics("dma_copy")
def dma_copy(core: Core, ins: ir.Instruction) -> None:
    """dst = src, element by element in order. An address beyond its tensor leaves all out under oob_mode skip."""
    try:
        stored, inside = _load(core, ins, "src")
        stored = _convert(stored, core.dtype(ins, "src"), core.dtype(ins, "dst"))
        _store(core, ins, np.ascontiguousarray(stored), inside)
    except NkiIndexError:
        if ins.attributes["oob_mode"] != "skip":
            raise


@semantics("dma_transpose")
def dma_transpose(core: Core, ins: ir.Instruction) -> None:
    """dst = src with axes permuted."""
    stored, inside = _load(core, ins, "src")
    access = core.access(ins, "src")
    stored = stored.reshape(access.shape).transpose(ins.attributes["axes"])
    view = core.view(core.access(ins, "dst"))
    if inside is None:
        view[...] = stored
    else:
        view[..., inside] = stored[..., inside]  # the rows of the source are the last axis now


@semantics("dma_compute")
def dma_compute(core: Core, ins: ir.Instruction) -> None:
    """Sum of the sources. A scatter onto itself adds row by row."""
    names = [f"src{index}" for index in range(ins.attributes["sources"])]
    dst = core.access(ins, "dst")
    dtype = core.dtype(ins, "dst")
    if dst.rows is not None:
        flat, places, good = _rows(core, dst, ins.attributes["oob_mode"] == "skip")
        sources = [name for name in names if core.access(ins, name) != dst]
        adds = [decode(_load(core, ins, name)[0], core.dtype(ins, name)).reshape(places.shape) for name in sources]
        for row in np.flatnonzero(good):
            start = decode(flat[places[row]], dtype) if len(sources) < len(names) else np.float32(0)
            flat[places[row]] = encode(sum((add[row] for add in adds), start), dtype)
        return
    total: Array | None = None
    keep: Array | None = None
    for name in names:
        stored, inside = _load(core, ins, name)
        values = decode(stored, core.dtype(ins, name)).reshape(dst.shape)
        if inside is not None and not inside.all():
            keep = np.repeat(inside, stored.size // len(inside)).reshape(dst.shape)
            values = np.where(keep, values, np.float32(0))
        total = values if total is None else total + values
    assert total is not None
    core.view(dst)[...] = encode(total, dtype)
