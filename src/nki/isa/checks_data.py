"""Rules of the instructions that search and move data, beyond the table. Each names its limit in the error."""

from __future__ import annotations

from typing import Any

from ..errors import NkiTargetError, NkiTypeError
from ..tensor import NkiTensor
from . import enums
from .call import Call, check, free, partitions
from .checks import QUADRANT, scale_rows
from .table import DTYPE_SETS

# --- search, gather, shuffle


def _between(call: Call, key: str, low: int, high: int) -> None:
    count = free(call.tensors[key])
    call.need(low <= count <= high, f"has {count} elements in a partition, it takes {low} to {high}", key)


def _eight(call: Call, *keys: str) -> None:
    for key in keys:
        if key in call.tensors:
            _between(call, key, 8, 8)


@check("max8")
def max8(call: Call) -> None:
    """Eight largest values."""
    _between(call, "src", 8, 16384)
    _eight(call, "dst")


@check("nc_find_index8")
def nc_find_index8(call: Call) -> None:
    """Indices of eight values."""
    _between(call, "data", 8, 16384)
    _eight(call, "dst", "vals")


@check("nc_match_replace8")
def nc_match_replace8(call: Call) -> None:
    """Eight values replaced."""
    _between(call, "data", 8, 16384)
    _eight(call, "vals", "dst_idx")
    call.number("imm")


@check("nc_stream_shuffle")
def nc_stream_shuffle(call: Call) -> None:
    """A mask of 32 partitions."""
    call.same_dtype("dst", "src")
    mask = call.values["shuffle_mask"]
    ok = len(mask) == QUADRANT and all(isinstance(m, int) and (0 <= m < QUADRANT or m == 255) for m in mask)
    call.need(ok, f"is {mask!r}, it takes {QUADRANT} numbers from 0 to 31, or 255 to keep a partition", "shuffle_mask")
    call.need(
        free(call.tensors["dst"]) == free(call.tensors["src"]),
        f"has {free(call.tensors['dst'])} elements in a partition, src has {free(call.tensors['src'])}",
        "dst",
    )


@check("local_gather")
def local_gather(call: Call) -> None:
    """Groups of 16 partitions, indices shared in a group."""
    call.same_dtype("dst", "src_buffer")
    rows = partitions(call.tensors["src_buffer"])
    call.need(rows % 16 == 0, f"has {rows} partitions, not a multiple of 16", "src_buffer")
    each = call.values["num_elem_per_idx"]
    call.need(each in (1, 2, 4, 8, 16, 32), f"is {each!r}, it takes 1, 2, 4, 8, 16 or 32", "num_elem_per_idx")
    most = free(call.tensors["index"]) * 16
    valid = most if call.values["num_valid_indices"] is None else call.values["num_valid_indices"]
    call.need(1 <= valid <= min(most, 4096), f"is {valid}, it takes 1 to {min(most, 4096)}", "num_valid_indices")
    call.need(
        free(call.tensors["dst"]) == valid * each,
        f"has {free(call.tensors['dst'])} elements in a partition, {valid} indices of {each} elements give "
        f"{valid * each}",
        "dst",
    )
    call.values["num_valid_indices"] = valid


@check("nc_n_gather")
def nc_n_gather(call: Call) -> None:
    """Dtype of the result."""
    call.same_dtype("dst", "data")


@check("nonzero_with_count")
def nonzero_with_count(call: Call) -> None:
    """One more element than the source: the count."""
    dst, src = call.tensors["dst"], call.tensors["src"]
    call.need(free(dst) == free(src) + 1, f"has {free(dst)} elements in a partition, it takes {free(src) + 1}", "dst")


@check("sequence_bounds")
def sequence_bounds(call: Call) -> None:
    """One partition; two results an element."""
    dst, ids = call.tensors["dst"], call.tensors["segment_ids"]
    call.need(partitions(ids) == 1, f"has {partitions(ids)} partitions, it takes 1", "segment_ids")
    call.need(
        partitions(dst) == 1 and dst.shape[1:] == (2, free(ids)),
        f"has shape {dst.shape}, it takes (1, 2, {free(ids)})",
        "dst",
    )
    call.same_dtype("dst", "segment_ids")


@check("topk")
def topk(call: Call) -> None:
    """Sixteen partitions, read as a snake."""
    n = call.values["n"]
    call.need(isinstance(n, int) and 8 <= n < 65536, f"is {n!r}, it takes 8 to 65535", "n")
    src, val, idx = (call.tensors[key] for key in ("src", "val_dst", "idx_dst"))
    for key, tensor in (("src", src), ("val_dst", val), ("idx_dst", idx)):
        call.need(partitions(tensor) == 16, f"has {partitions(tensor)} partitions, it takes 16", key)
    call.need(n <= 16 * free(src), f"is {n}, src has {16 * free(src)} elements", "n")
    call.need(free(val) == free(idx), f"has {free(idx)} elements in a partition, val_dst has {free(val)}", "idx_dst")
    call.need(
        16 * free(val) <= min(n, 32767), f"has {16 * free(val)} elements, it takes up to {min(n, 32767)}", "val_dst"
    )


@check("quantize_mx")
def quantize_mx(call: Call) -> None:
    """Groups of 8 partitions by 4 elements."""
    dst, src = call.tensors["dst"], call.tensors["src"]
    rows = partitions(src)
    call.need(rows % QUADRANT == 0, f"has {rows} partitions, not a multiple of {QUADRANT}", "src")
    call.need(free(src) % 4 == 0, f"has {free(src)} elements in a partition, not a multiple of 4", "src")
    call.need(free(dst) * 4 == free(src), f"has {free(dst)} elements in a partition, it takes {free(src) // 4}", "dst")
    if dst.dtype.part == "float4_e2m1fn":
        call.fail(f"is {dst.dtype}, it takes float8_e5m2_x4 or float8_e4m3fn_x4", "dst", NkiTypeError)
    scale_rows(call, "dst_scale", rows, free(dst))


# --- random numbers


@check("set_rng_seed")
def set_rng_seed(call: Call) -> None:
    """One seed."""
    call.need(
        call.tensors["src_seeds"].size == 1,
        f"has shape {call.tensors['src_seeds'].shape}, it takes (1, 1)",
        "src_seeds",
    )


def _state(call: Call, key: str) -> None:
    call.engine = "vector" if call.target.version >= 4 else "gpsimd"
    if call.asked is not enums.engine.unknown:
        call.engine = call.asked.name if isinstance(call.asked, enums.engine) else call.engine
    if call.engine == "vector":
        call.need_version(4, "random state of VectorE")
    words = 24 if call.engine == "vector" else 6
    have = free(call.tensors[key])
    call.need(have == words, f"has {have} elements in a partition, the state on {call.engine} has {words}", key)


@check("rand_set_state")
def rand_set_state(call: Call) -> None:
    """Six words on GpSimdE, 24 on VectorE."""
    _state(call, "src")


@check("rand_get_state")
def rand_get_state(call: Call) -> None:
    """Six words on GpSimdE, 24 on VectorE."""
    _state(call, "dst")


# --- DMA


def _row_offsets(call: Call, *keys: str) -> bool:
    found = [key for key in keys if key in call.tensors and call.tensors[key]._rows is not None]
    if len(found) > 1:
        call.fail(f"has row offsets, and so does {found[0]}: one side can be indirect", found[1])
    return bool(found)


@check("dma_copy")
def dma_copy(call: Call) -> None:
    """Equal numbers of elements; what each way of making descriptors can do."""
    dst, src = call.tensors["dst"], call.tensors["src"]
    call.need(dst.size == src.size, f"has {dst.size} elements, src has {src.size}", "dst")
    if "packed" in (dst.dtype.kind, src.dtype.kind):
        call.same_dtype("dst", "src")
    mode = call.member("dge_mode", enums.dge_mode)
    call.member("oob_mode", enums.oob_mode)
    _priority(call)
    indirect = _row_offsets(call, "dst", "src")
    if mode is enums.dge_mode.hwdge:
        if dst.dtype != src.dtype:
            call.fail(f"is {dst.dtype}, src is {src.dtype}: hwdge does not convert", "dst", NkiTypeError)
        call.need(not indirect, "hwdge does not gather or scatter; use swdge", "dge_mode")
    if call.asked is not enums.engine.unknown and isinstance(call.asked, enums.engine):
        call.need(mode is enums.dge_mode.hwdge, f"{call.asked.name} is for dge_mode hwdge", "engine")
        call.need(call.asked.name in ("sync", "scalar"), f"is {call.asked.name}, it takes sync or scalar", "engine")
        call.values["queue"] = call.asked.name
        call.asked = enums.engine.unknown


def _priority(call: Call) -> None:
    priority = call.values.get("priority")
    if priority is not None:
        call.need_version(4, "priority")
        call.need(priority in (0, 1, 2, 3), f"is {priority!r}, it takes 0 to 3", "priority")


AXES: dict[int, tuple[int, ...]] = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


@check("dma_transpose")
def dma_transpose(call: Call) -> None:
    """Two to four dimensions, first and last swapped."""
    dst, src = call.tensors["dst"], call.tensors["src"]
    axes = call.values["axes"]
    wanted = AXES.get(src.ndim)
    if wanted is None:
        call.fail(f"has {src.ndim} dimensions, it takes 2 to 4", "src")
    call.need(axes is None or tuple(axes) == wanted, f"is {axes}, {src.ndim} dimensions take {wanted}", "axes")
    call.need(dst.ndim == src.ndim, f"has {dst.ndim} dimensions, src has {src.ndim}", "dst")
    shape = tuple(src.shape[axis] for axis in wanted)
    call.need(dst.shape == shape, f"has shape {dst.shape}, the transpose is {shape}", "dst")
    call.values["axes"] = wanted
    call.same_dtype("dst", "src")
    call.need(dst.dtype.itemsize in (2, 4), f"has {dst.dtype.itemsize}-byte elements, it takes 2 or 4 bytes", "dst")
    mode = call.member("dge_mode", enums.dge_mode)
    call.member("oob_mode", enums.oob_mode)
    _priority(call)
    indirect = _row_offsets(call, "src")
    call.need(dst._rows is None, "cannot be indirect", "dst")
    if indirect:
        call.need(src.dtype.itemsize == 2, "is indirect, which takes 2-byte elements", "src")
        call.need(mode is not enums.dge_mode.hwdge, "hwdge does not gather; use swdge", "dge_mode")
    if mode is enums.dge_mode.hwdge:
        rows = src.shape[0]
        good = rows == 16 if src.ndim == 2 else rows in (1, 2, 4, 8, 16) and rows * src.shape[-2] % 16 == 0
        call.need(
            good and src.shape[-1] <= 128 and src.dtype.itemsize == 2,
            f"has shape {src.shape} of {src.dtype}: hwdge transposes 16 rows of up to 128 2-byte elements",
            "src",
        )


def sources(call: Call) -> None:
    """The sources of dma_compute become operands src0, src1, ..."""
    given: Any = call.values.pop("srcs")
    if not isinstance(given, list | tuple) or not given or not all(isinstance(t, NkiTensor) for t in given):
        call.fail(f"is {given!r}, it takes a sequence of tensors", "srcs", NkiTypeError)
    call.need(len(given) <= 16, f"has {len(given)} tensors, the limit is 16", "srcs")
    dst = call.tensors["dst"]
    for index, tensor in enumerate(given):
        key = f"src{index}"
        call.need(tensor.buffer != "psum", "is in PSUM, which DMA does not read here", key)
        if tensor.dtype.name not in DTYPE_SETS["number"]:
            call.fail(f"is {tensor.dtype}, which has no sum", key, NkiTypeError)
        call.need(tensor.size == dst.size, f"has {tensor.size} elements, dst has {dst.size}", key)
        call.check_bounds(key, tensor)
        call.tensors[key] = tensor
    call.values["sources"] = len(given)


@check("dma_compute")
def dma_compute(call: Call) -> None:
    """A sum; with row offsets, of two sources."""
    op = call.alu("reduce_op")
    call.need(op == "add", f"is {op}, DMA computes add", "reduce_op")
    count = len(call.values["srcs"]) if isinstance(call.values["srcs"], list | tuple) else 0
    sources(call)
    scales = call.values.pop("scales")
    if scales is not None:
        call.need(list(scales) == [1.0] * count, f"is {scales!r}, only 1.0 for each source is supported", "scales")
    call.member("oob_mode", enums.oob_mode)
    names = ("dst", *(f"src{index}" for index in range(count)))
    if any(call.tensors[key]._rows is not None for key in names):
        call.need(count == 2, f"has {count} tensors, with row offsets it takes 2", "srcs")
    call.values["unique_indices"] = bool(call.values["unique_indices"])


# --- between cores


@check("sendrecv")
def sendrecv(call: Call) -> None:
    """The two cores of a logical core swap tensors."""
    call.member("dma_engine", enums.dma_engine)
    call.same_dtype("dst", "src")
    need_pair(call)
    for key in ("send_to_rank", "recv_from_rank"):
        rank = call.values[key]
        call.need(rank == 1 - call.trace.core, f"is {rank!r}, the other core is {1 - call.trace.core}", key)
    size = free(call.tensors["src"]) * call.tensors["src"].dtype.itemsize
    limit = {4: 1024, 2: 512, 1: 256}.get(call.tensors["src"].dtype.itemsize, 1024)
    if call.values["dma_engine"] == "gpsimd_dma":
        call.need(size <= limit, f"has {size} bytes in a partition, gpsimd_dma takes up to {limit}", "src")


@check("core_barrier")
def core_barrier(call: Call) -> None:
    """All cores of the launch wait for each other; one core has nothing to wait for."""
    given = call.values["cores"]
    cores = (given,) if isinstance(given, int) else tuple(given)
    call.need(cores in ((0,), (0, 1)), f"is {given!r}, it takes (0, 1), or 0 on one core", "cores")
    call.need(call.trace.cores == 1 or cores == (0, 1), f"is {given!r}, this kernel runs on (0, 1)", "cores")
    call.values["cores"] = cores


def need_pair(call: Call) -> None:
    """The kernel runs on two cores."""
    if call.trace.cores != 2:
        call.fail("needs two cores: launch the kernel as kernel[2](...)", kind=NkiTargetError)
