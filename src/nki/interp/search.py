"""What the instructions that search, gather and shuffle do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..errors import NkiIndexError
from .machine import Core, semantics

Array = NDArray[Any]
GROUP = 16  # partitions of one GpSimd processor
QUADRANT = 32
KEEP = 255  # in a shuffle mask


@semantics("max8")
def max8(core: Core, ins: ir.Instruction) -> None:
    """The eight largest, descending."""
    core.write(ins, "dst", -np.sort(-core.read(ins, "src"), axis=1)[:, :8])


def _match(values: Array, wanted: Array, order: list[int]) -> Array:
    """Index of each wanted value in each row, -1 for none; a place is found once."""
    found = np.full(wanted.shape, -1, np.int64)
    free = np.ones(values.shape, bool)
    rows = np.arange(len(values))
    for slot in order:
        hit = free & (values == wanted[:, slot : slot + 1])
        any_hit = hit.any(axis=1)
        first = hit.argmax(axis=1)
        found[any_hit, slot] = first[any_hit]
        free[rows[any_hit], first[any_hit]] = False
    return found


def _write_indices(core: Core, ins: ir.Instruction, key: str, found: Array) -> None:
    storage = core.dtype(ins, key).storage
    core.write_raw(ins, key, found.astype(storage))  # -1 becomes all ones


@semantics("nc_find_index8")
def nc_find_index8(core: Core, ins: ir.Instruction) -> None:
    """Indices, equal values one after the other."""
    found = _match(core.read(ins, "data"), core.read(ins, "vals"), list(range(8)))
    _write_indices(core, ins, "dst", found)


@semantics("nc_match_replace8")
def nc_match_replace8(core: Core, ins: ir.Instruction) -> None:
    """First matches replaced, the last value first."""
    values = core.read(ins, "data").copy()
    found = _match(values, core.read(ins, "vals"), list(range(7, -1, -1)))
    rows, slots = np.nonzero(found >= 0)
    values[rows, found[rows, slots]] = np.float32(ins.attributes["imm"])
    core.write(ins, "dst", values)
    if "dst_idx" in ins.operands:
        _write_indices(core, ins, "dst_idx", found)


@semantics("nc_stream_shuffle")
def nc_stream_shuffle(core: Core, ins: ir.Instruction) -> None:
    """Partitions permuted in each quadrant."""
    src, dst = core.raw(ins, "src"), core.raw(ins, "dst").copy()
    for partition in range(len(dst)):
        source = ins.attributes["shuffle_mask"][partition % QUADRANT]
        if source == KEEP:
            continue
        source += partition // QUADRANT * QUADRANT
        if source >= len(src):
            raise NkiIndexError(f"shuffle_mask reads partition {source}, src has {len(src)}")
        dst[partition] = src[source]
    core.write_raw(ins, "dst", dst)


@semantics("local_gather")
def local_gather(core: Core, ins: ir.Instruction) -> None:
    """Groups of 16 partitions with one list of indices each."""
    src, index = core.raw(ins, "src_buffer"), core.raw(ins, "index")
    each, valid = ins.attributes["num_elem_per_idx"], ins.attributes["num_valid_indices"]
    out = np.empty((len(src), valid * each), src.dtype)
    for start in range(0, len(src), GROUP):
        listed = index[start : start + GROUP].T.reshape(-1)[:valid].astype(np.int64)
        places = (listed[:, None] * each + np.arange(each)).reshape(-1)
        _in_bounds(places, src.shape[1])
        out[start : start + GROUP] = src[start : start + GROUP, places]
    core.write_raw(ins, "dst", out)


def _in_bounds(places: Array, limit: int) -> None:
    if places.size and places.max() >= limit:
        raise NkiIndexError(f"index reaches element {places.max()}, the source has {limit} in a partition")


@semantics("nc_n_gather")
def nc_n_gather(core: Core, ins: ir.Instruction) -> None:
    """One gather in each partition."""
    data, indices = core.raw(ins, "data"), core.raw(ins, "indices").astype(np.int64)
    _in_bounds(indices, data.shape[1])
    core.write_raw(ins, "dst", np.take_along_axis(data, indices, axis=1))


@semantics("nonzero_with_count")
def nonzero_with_count(core: Core, ins: ir.Instruction) -> None:
    """Indices of what is not zero, in partitions 0, 16, ..."""
    src, dst = core.raw(ins, "src"), core.raw(ins, "dst").copy()
    for row in range(0, len(src), GROUP):
        (places,) = np.nonzero(src[row])
        dst[row, :-1] = ins.attributes["padding_val"]
        dst[row, : len(places)] = places + ins.attributes["index_offset"]
        dst[row, -1] = len(places)
    core.write_raw(ins, "dst", dst)


@semantics("sequence_bounds")
def sequence_bounds(core: Core, ins: ir.Instruction) -> None:
    """Start and end of the run of each element."""
    ids = core.raw(ins, "segment_ids")[0]
    count = len(ids)
    breaks = np.flatnonzero(np.diff(ids)) + 1
    starts, ends = np.concatenate([[0], breaks]), np.concatenate([breaks, [count]])
    run = np.repeat(np.arange(len(starts)), ends - starts)
    first = np.where(ids == 0, count, starts[run])
    last = np.where(ids == 0, -1, ends[run])
    core.write_raw(ins, "dst", np.concatenate([first, last]).astype(ids.dtype))


def _snake(matrix: Array) -> Array:
    """Elements of [16, N] in the order of the snake: column by column, every second one upwards."""
    columns = matrix.T.copy()
    columns[1::2] = columns[1::2, ::-1]
    return columns.reshape(-1)


def _unsnake(flat: Array, columns: int) -> Array:
    matrix = flat.reshape(columns, GROUP).copy()
    matrix[1::2] = matrix[1::2, ::-1]
    return matrix.T


@semantics("topk")
def topk(core: Core, ins: ir.Instruction) -> None:
    """The largest, ascending; of equal values the first ones win."""
    flat = _snake(core.raw(ins, "src"))[: ins.attributes["n"]]
    values = _snake(core.read(ins, "src"))[: ins.attributes["n"]]
    shape = core.access(ins, "val_dst").shape
    keep = int(np.prod(shape))
    order = np.argsort(-values, kind="stable")[:keep][::-1]
    core.write_raw(ins, "val_dst", _unsnake(flat[order], keep // GROUP))
    core.write_raw(ins, "idx_dst", _unsnake(order.astype(np.uint32), keep // GROUP))
