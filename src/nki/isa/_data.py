"""Instructions that search, gather, move data, draw random numbers, or work between cores and with registers.

P is the partition dimension (up to 128), N the free elements of a partition. All errors are subclasses of NkiError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import registers
from ..errors import NkiTypeError
from ..source import here
from ..tensor import NkiTensor, Scalar
from ..trace import NkiInstruction, current_target, tracer
from . import checks_data, enums  # noqa: F401 - checks_data registers rules
from .call import Call, issue

Tensor = NkiTensor
_E = enums.engine


def max8(dst: Tensor, src: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[P, 8] = the eight largest of src[P, 8..16384], in descending order."""
    return issue("max8", locals())


def nc_find_index8(dst: Tensor, data: Tensor, vals: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[P, 8] = index in data of each of vals[P, 8]; equal values find one place after another; a miss: all ones."""
    return issue("nc_find_index8", locals())


def nc_match_replace8(
    dst: Tensor, data: Tensor, vals: Tensor, imm: float, dst_idx: Tensor | None = None, name: str | None = None
) -> NkiInstruction:
    """dst = data with the first match of each of vals[P, 8] replaced by `imm`, from the last value to the first.

    `dst_idx` gets the indices; a miss is all ones.
    """
    return issue("nc_match_replace8", locals())


def nc_stream_shuffle(dst: Tensor, src: Tensor, shuffle_mask: Sequence[int], name: str | None = None) -> NkiInstruction:
    """dst[32 q + i] = src[32 q + shuffle_mask[i]] in each quadrant; 255 leaves a partition of dst as it is."""
    return issue("nc_stream_shuffle", locals())


def local_gather(
    dst: Tensor,
    src_buffer: Tensor,
    index: Tensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Gathers along the free dimension; 16 partitions share one list of indices.

    The list of a group is its part of `index` (uint16), read partition by partition within each free element. Index k
    names elements k * e to k * e + e - 1 with e = num_elem_per_idx.
    """
    return issue("local_gather", locals())


def nc_n_gather(dst: Tensor, data: Tensor, indices: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[p, i] = data[p, indices[p, i]], free dimensions flattened, indices uint32."""
    return issue("nc_n_gather", locals())


def nonzero_with_count(
    dst: Tensor, src: Tensor, index_offset: int = 0, padding_val: int = -1, name: str | None = None
) -> NkiInstruction:
    """dst[p, :N] = indices of the elements of src that are not 0, then padding; dst[p, N] = how many.

    Only partitions 0, 16, ... are processed; the others of dst stay.
    """
    return issue("nonzero_with_count", locals())


def sequence_bounds(dst: Tensor, segment_ids: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[0, 0, i], dst[0, 1, i] = start and end of the run of segment_ids[0, i]; for id 0: N and -1."""
    return issue("sequence_bounds", locals())


def topk(val_dst: Tensor, idx_dst: Tensor, src: Tensor, n: int, name: str | None = None) -> NkiInstruction:
    """The largest of the first `n` bfloat16 elements of src[16, N], ascending, and their indices.

    Element k is in partition k % 16; in odd columns the partitions run backwards (a snake). Results lie likewise.
    """
    return issue("topk", locals())


def quantize_mx(dst: Tensor, src: Tensor, dst_scale: Tensor, name: str | None = None) -> NkiInstruction:
    """Microscaled FP8 (NeuronCore-v4): dst[P, N / 4] packed, one scale for 8 partitions x 4 elements of src[P, N]."""
    return issue("quantize_mx", locals())


def rng(dst: Tensor, engine: Any = _E.vector, name: str | None = None) -> NkiInstruction:
    """Random bits in every element of an integer dst."""
    return issue("rng", locals())


def rand2(dst: Tensor, min: Any, max: Any, name: str | None = None) -> NkiInstruction:
    """Uniform random numbers from `min` to `max` (numbers or (P, 1)) on NeuronCore-v4."""
    return issue("rand2", locals())


def set_rng_seed(src_seeds: Tensor, name: str | None = None) -> NkiInstruction:
    """Seeds the generators of all engines and partitions from one 32-bit integer, src_seeds[1, 1]."""
    return issue("set_rng_seed", locals())


def rand_set_state(src: Tensor, engine: Any = _E.unknown, name: str | None = None) -> NkiInstruction:
    """State of the generators from src: uint32 [P, 6] on GpSimdE, [P, 24] on VectorE of NeuronCore-v4."""
    return issue("rand_set_state", locals())


def rand_get_state(dst: Tensor, engine: Any = _E.unknown, name: str | None = None) -> NkiInstruction:
    """The state that `rand_set_state` sets."""
    return issue("rand_get_state", locals())


def dma_copy(
    dst: Tensor,
    src: Tensor,
    priority: int | None = None,
    oob_mode: Any = enums.oob_mode.error,
    dge_mode: Any = enums.dge_mode.unknown,
    engine: Any = _E.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """Copies between HBM and SBUF, any way round, with equal numbers of elements; converts through float32.

    One side may have row offsets (`.ap(vector_offset=...)`): gather or scatter. `oob_mode` skip leaves out rows that
    lie outside of the tensor.
    """
    return issue("dma_copy", locals())


def dma_transpose(
    dst: Tensor,
    src: Tensor,
    axes: Sequence[int] | None = None,
    priority: int | None = None,
    dge_mode: Any = enums.dge_mode.unknown,
    oob_mode: Any = enums.oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """dst in SBUF = src with axes (1, 0), (2, 1, 0) or (3, 1, 2, 0), for 2-byte and 4-byte elements."""
    return issue("dma_transpose", locals())


def dma_compute(
    dst: Tensor,
    srcs: Sequence[Tensor],
    reduce_op: Any,
    scales: Sequence[float] | None = None,
    unique_indices: bool = True,
    oob_mode: Any = enums.oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """dst = sum of up to 16 sources in float32. With row offsets, gathers or scatters one of two sources.

    A dst with row offsets that is also a source is updated in place; without `unique_indices`, rows that come twice
    are added one after the other.
    """
    return issue("dma_compute", locals())


def sendrecv(
    src: Tensor,
    dst: Tensor,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: Any = enums.dma_engine.dma,
    name: str | None = None,
) -> NkiInstruction:
    """The two cores of kernel[2] exchange SBUF tensors: `src` goes to the other core, `dst` comes from it."""
    return issue("sendrecv", locals())


def core_barrier(
    data: Tensor, cores: int | Sequence[int] = (0, 1), engine: Any = _E.gpsimd, name: str | None = None
) -> NkiInstruction:
    """Both cores of kernel[2] wait here until writes to `data` have arrived; one core waits for nothing."""
    return issue("core_barrier", locals())


def register_alloc(x: int | None = None) -> Scalar:
    """A new 32-bit register of the sequencer, with the value `x` when given."""
    register = tracer().register()
    if x is not None:
        _move(register, x)
    return register


def register_move(dst: Scalar, src: Any, name: str | None = None) -> NkiInstruction:
    """dst = src, a register or an integer."""
    return _move(dst, src, name)


def register_load(dst: Scalar, src: Tensor, name: str | None = None) -> NkiInstruction:
    """dst = the one 32-bit integer of src, in SBUF."""
    return _register("register_load", {"src": src, "name": name}, dst, "dst")


def register_store(dst: Tensor, src: Scalar, name: str | None = None) -> NkiInstruction:
    """The one element of dst, a 32-bit integer in SBUF, = the register src."""
    return _register("register_store", {"dst": dst, "name": name}, src, "src")


def scalar_load(src: Tensor) -> Scalar:
    """A new register with the one int32 of src (NKI 0.7)."""
    register = tracer().register()
    register_load(register, src)
    return register


def scalar_store(dst: Tensor, scalar: Scalar) -> NkiInstruction:
    """`register_store` under its name of NKI 0.7."""
    return register_store(dst, scalar)


def _move(dst: Scalar, src: Any, name: str | None = None) -> NkiInstruction:
    operands: dict[str, Any] = {"dst": _need_register("register_move", "dst", dst).register}
    attributes: dict[str, Any] = {}
    registers.operand(src, "register_move: src", operands, attributes, "src")
    return tracer().emit("register_move", "sync", operands, attributes, name)


def _register(opcode: str, arguments: dict[str, Any], register: Scalar, key: str) -> NkiInstruction:
    call = Call(opcode, arguments)
    call.run_checks()
    (tensor,) = call.tensors.values()
    call.need(tensor.size == 1, f"has shape {tensor.shape}, it takes (1, 1)", next(iter(call.tensors)))
    call.values[key] = _need_register(opcode, key, register)
    return call.emit()


def _need_register(opcode: str, key: str, value: Any) -> Scalar:
    if not isinstance(value, Scalar):
        raise NkiTypeError(f"{key} is {value!r}, it takes a register", instruction=opcode, operand=key, location=here())
    return value


def get_nc_version() -> enums.nc_version:
    """Generation of the NeuronCore that the kernel is traced for."""
    return enums.nc_version(current_target().version)


def get_nc_sub_version() -> int:
    """Sub-version of the NeuronCore: always 0, the chips that are modelled have none."""
    return 0
