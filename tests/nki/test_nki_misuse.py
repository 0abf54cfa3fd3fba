"""Misuses: each is refused with a message that names the instruction, the operand, the value, the limit, the line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import (
    NkiError,
    NkiIndexError,
    NkiNotImplementedError,
    NkiTargetError,
    NkiTypeError,
    NkiValueError,
)


def t(*shape, dtype="float32"):
    """A tile in SBUF."""
    return nl.ndarray(shape, dtype)


def p(*shape, dtype="float32"):
    """A tile in PSUM."""
    return nl.ndarray(shape, dtype, buffer=nl.psum)


def h(*shape, dtype="float32"):
    """A tensor in HBM."""
    return nl.ndarray(shape, dtype, buffer=nl.shared_hbm)


RC, E, DGE = nisa.reduce_cmd, nisa.engine, nisa.dge_mode
V, T, X, G = NkiValueError, NkiTypeError, NkiIndexError, NkiTargetError
H16 = "float16"

# target, what is done, error, message
TRN2 = [
    # allocation
    (lambda: t(129, 4), V, "ndarray: partition dimension 129 exceeds the maximum of 128 in sbuf"),
    (lambda: p(256, 4), V, "partition dimension 256 exceeds the maximum of 128 in psum"),
    (lambda: t(128, 60_000), V, "takes 240000 bytes of a partition, sbuf has 212984"),
    (lambda: p(128, 5000), V, "takes 20000 bytes of a partition, psum has 16384"),
    (lambda: t(128), V, "needs a partition and a free dimension"),
    (lambda: t(4, 0), V, "sizes are integers of at least 1"),
    (lambda: t(4, 2.5), V, "sizes are integers"),
    (lambda: nl.ndarray((4, 4), "float64"), T, "float64 is not an element type"),
    (lambda: nl.ndarray((4, 4), nl.float32, buffer="sbuf"), T, "buffer 'sbuf' is not nl.sbuf"),
    (
        lambda: nl.ndarray((4, 4), nl.float32, address=(0, 2)),
        V,
        "byte 2, which is not a multiple of the 4 bytes",
    ),
    (lambda: nl.ndarray((4, 4), nl.float32, address=(126, 0)), V, "partitions 126 to 129 of 128"),
    (lambda: nl.ndarray((4, 4), nl.float32, address=(0, 212_980)), V, "bytes 212980 to 212995 of 212984 in sbuf"),
    (lambda: nl.ndarray((4, 4), nl.float32, buffer=nl.psum, address=(0, 1024)), V, "no start of a PSUM bank"),
    (
        lambda: nl.ndarray((4, 4), nl.float32, buffer=nl.hbm, address=(0, 0)),
        V,
        "address is for tensors in SBUF and PSUM",
    ),
    (lambda: nl.ndarray((4, 4), nl.float32, address=7), T, r"address 7 is not \(partition, byte offset\)"),
    # indexing and views
    (lambda: t(4, 8)[:, 8], X, "has 8 elements in dimension 1, 8 is out of bounds"),
    (lambda: t(4, 8)[:, 2:9], X, "9 is out of bounds"),
    (lambda: t(4, 8)[:, nl.ds(4, 5)], X, r"ds\(4, 5\) does not fit"),
    (lambda: t(4, 8)[:, 0, 0], X, "has 2 dimensions, the index has 3"),
    (lambda: t(4, 8)[::2], X, "step 2 over partitions"),
    (lambda: t(4, 8)[:, 1.5], T, "cannot be indexed with float 1.5"),
    (lambda: t(4, 8)[:, 3:3], X, "has nothing at 3:3"),
    (lambda: t(4, 8)[..., ...], X, "takes one Ellipsis"),
    (lambda: t(4, 8).__setitem__(0, 1), T, "is written by instructions"),
    (lambda: list(t(4, 8)), T, "cannot be iterated over"),
    (lambda: t(4, 8).permute([1, 0]), V, "cannot be permuted"),
    (lambda: t(4, 8).reshape(2, 16), V, "cannot be reshaped"),
    (lambda: t(4, 8)[:, ::2].reshape(4, 2, 2).reshape(4, 3), V, "cannot be reshaped"),
    (lambda: t(4, 2, 8)[:, :, 0:4].reshape(4, 8), V, "not evenly spaced"),
    (lambda: t(1, 8).broadcast(0, 4), V, "cannot be broadcast over dimension 0"),
    (lambda: t(4, 6)[:, 1:5].view("bfloat16").view("uint8")[:, 1:].view("float32"), V, "bytes do not line up"),
    (lambda: t(4, 8).ap([[4, 4], [1, 4]]), V, "has 8 elements in one partition: the first stride is not 8"),
    (lambda: nisa.memset(t(4, 8).ap([[8, 3], [1, 9]]), 0.0), X, "memset: dst reaches elements 0 to 8 of a partition"),
    (lambda: nisa.memset(t(4, 8).ap([[8, 5], [1, 8]]), 0.0), X, "memset: dst reaches elements 0 to 39 .* which has 32"),
    (lambda: h(4, 8).ap([[8, 4], [1, 8]], scalar_offset=1.5), T, "a register or a 1x1 tensor as scalar_offset"),
    (lambda: h(4, 8).ap([[8, 4], [1, 8]], vector_offset=t(4, 1)), T, r"row offsets of shape \(P, 1\), int32 or uint32"),
    (lambda: h(4, 8).ap([[8, 4], [1, 8]], vector_offset=t(2, 1, dtype="int32")), V, "has 2 row offsets for 4 rows"),
    (lambda: t(4, 8).select(1, t(1, 1)), T, "one element of int32 or uint32"),
    (lambda: t(4, 8).vector_select(0, t(4, 1, dtype="int32")), V, "of a tensor in HBM only"),
    (lambda: t(4, 8).indirect(t(4, 1)), NkiNotImplementedError, "indirect is not implemented"),
    # rules of every instruction
    (
        lambda: nisa.tensor_copy(t(64, 4)[32:40], t(64, 4)[5:13]),
        V,
        "src starts at partition 5; 8 partitions may start at 0, 32, 64, 96",
    ),
    (
        lambda: nisa.tensor_copy(t(128, 4)[32:96], t(64, 4)),
        V,
        "dst starts at partition 32; 64 partitions may start at 0, 64",
    ),
    (
        lambda: nisa.tensor_copy(t(4, 8), np.ones((4, 8))),
        T,
        r"tensor_copy: src is ndarray of shape \(4, 8\), it takes a tensor",
    ),
    (lambda: nisa.tensor_copy(t(4, 8), t(5, 8)), V, "dst has 4 partitions, src has 5"),
    (lambda: nisa.tensor_copy(t(4, 8), t(4, 9)), V, "dst has 8 elements in a partition, src has 9"),
    (lambda: nisa.tensor_copy(t(4, 8), h(4, 8)), V, "src is in HBM, it must be in SBUF or PSUM"),
    (lambda: nisa.tensor_copy(t(4, 8), t(4, 8), engine=1), T, "engine is int 1, it takes a member of nisa.engine"),
    (
        lambda: nisa.tensor_copy(t(4, 8), t(4, 8), engine=E.tensor),
        V,
        "does not run on tensor, it runs on vector, scalar, gpsimd",
    ),
    (lambda: nisa.tensor_copy(t(4, 8), p(4, 8), engine=E.gpsimd), V, "src is in PSUM, which GpSimdE cannot reach"),
    (lambda: nisa.memset(t(2, 70_000, dtype="uint8"), 0), V, "has 70000 elements in a partition, the limit is 65536"),
    (
        lambda: nisa.memset(t(2, 4, 4, 4, 4, 4)[:, ::2, ::2, ::2, ::2, ::2], 0.0),
        V,
        "has 5 free dimensions, the limit .* is 4",
    ),
    # TensorE
    (lambda: nisa.nc_matmul(t(128, 4), t(128, 128), t(128, 4)), V, "nc_matmul: dst is in SBUF, it must be in PSUM"),
    (lambda: nisa.nc_matmul(p(128, 4), t(64, 128), t(128, 4)), V, "moving has 128 partitions, stationary has 64"),
    (
        lambda: nisa.nc_matmul(p(128, 512), t(128, 130), t(128, 512)),
        V,
        "stationary has 130 free elements, the limit is 128",
    ),
    (
        lambda: nisa.nc_matmul(p(128, 600), t(128, 128), t(128, 600)),
        V,
        "moving has 600 free elements, the limit is 512",
    ),
    (lambda: nisa.nc_matmul(p(64, 4), t(128, 128), t(128, 4)), V, r"dst is \[64, 4\], the product is \[128, 4\]"),
    (
        lambda: nisa.nc_matmul(p(128, 4), t(128, 128, dtype=H16), t(128, 4)),
        T,
        "moving is float32, stationary is float16",
    ),
    (lambda: nisa.nc_matmul(p(4, 4), t(4, 4, dtype="int32"), t(4, 4)), T, "stationary is int32, it takes float32"),
    (
        lambda: nisa.nc_matmul(p(4, 4, dtype="bfloat16"), t(4, 4), t(4, 4)),
        T,
        "dst is bfloat16, products are written as float32 on trn2",
    ),
    (lambda: nisa.nc_matmul(p(4, 4), p(4, 4), t(4, 4)), V, "stationary is in PSUM, it must be in SBUF"),
    (
        lambda: nisa.nc_matmul(p(4, 1024)[:, 300:700], t(4, 4), t(4, 400)),
        V,
        "bytes 1200 to 2799 of PSUM, more than one bank of 2048",
    ),
    (lambda: nisa.nc_matmul(p(4, 4), t(4, 4), t(4, 4), accumulate=2), T, "accumulate is 2"),
    (
        lambda: nisa.nc_matmul(p(4, 4), t(4, 2, 4), t(4, 2, 4), perf_mode=nisa.matmul_perf_mode.double_row),
        T,
        "double_row takes float8",
    ),
    (lambda: nisa.nc_matmul(p(4, 4), t(4, 4), t(4, 4), perf_mode="double_row"), T, "a member of nisa.matmul_perf_mode"),
    (
        lambda: nisa.nc_matmul(p(4, 4), t(4, 4), t(4, 4), tile_position=(16, 0), tile_size=(32, 128)),
        V,
        "a tile starts at a multiple",
    ),
    (
        lambda: nisa.nc_matmul(p(4, 4), t(4, 4), t(4, 4), tile_position=(0, 32), tile_size=(32, 64)),
        V,
        r"has columns 32 \+ 64: sizes are 32, 64 or 128",
    ),
    (
        lambda: nisa.nc_matmul(p(40, 4), t(4, 40), t(4, 4), tile_position=(0, 32), tile_size=(32, 32)),
        V,
        "tile_size is 32 columns, stationary has 40",
    ),
    (
        lambda: nisa.nc_matmul(p(4, 4), t(40, 4), t(40, 4), tile_position=(32, 0), tile_size=(32, 32)),
        V,
        "tile_size is 32 rows, the operands have 40 partitions",
    ),
    (lambda: nisa.nc_transpose(p(4, 8), t(4, 8)), V, r"dst is \[4, 8\], the transpose is \[8, 4\]"),
    (lambda: nisa.nc_transpose(t(64, 64), t(64, 64)), V, r"data is \[64, 64\], VectorE transposes up to 32x32"),
    (lambda: nisa.nc_transpose(p(8, 4), t(4, 8, dtype=H16)), T, "dst is float32, data is float16"),
    (lambda: nisa.nc_transpose(p(8, 4, dtype="int32"), t(4, 8, dtype="int32")), T, "TensorE takes floating point"),
    (lambda: nisa.nc_matmul_mx(p(4, 4), t(4, 4), t(4, 4), t(4, 4), t(4, 4)), G, "needs NeuronCore-v4, trn2 has v3"),
    # ScalarE
    (lambda: nisa.activation(t(4, 4), nl.add, t(4, 4)), T, "it takes an activation function"),
    (lambda: nisa.activation(t(4, 4), np.exp, t(4, 4)), T, "it takes an activation function"),
    (lambda: nisa.activation(t(4, 4), nl.prelu, t(4, 4)), T, "it takes an activation function"),
    (lambda: nisa.activation(t(4, 4), nl.exp, t(4, 4), bias=t(4, 4)), V, r"bias has shape \(4, 4\), it takes \(4, 1\)"),
    (
        lambda: nisa.activation(t(4, 4), nl.exp, t(4, 4), scale=t(4, 1, dtype=H16)),
        T,
        "scale is float16, it takes float32",
    ),
    (lambda: nisa.activation(t(4, 4), nl.exp, t(4, 4), reduce_op=nl.maximum), V, "must be nl.add"),
    (
        lambda: nisa.activation(t(4, 4), nl.exp, t(4, 4), reduce_cmd=RC.reduce),
        V,
        "reduce_cmd is reduce, which needs a reduce_op",
    ),
    (lambda: nisa.activation(t(4, 4), nl.exp, t(4, 4), reduce_cmd=RC.load_reduce), V, "load_reduce is for VectorE"),
    (lambda: nisa.activate2(t(4, 4), nl.exp, t(4, 4), 1.0, 1.0, nl.add, nl.add), G, "needs NeuronCore-v4"),
    # VectorE and GpSimdE
    (lambda: nisa.tensor_tensor(t(4, 4), p(4, 4), p(4, 4), nl.add), V, "data2 is in PSUM, and so is data1"),
    (lambda: nisa.tensor_tensor(t(4, 4), t(4, 4), t(4, 4), "add"), T, "op is str 'add', it takes an operator"),
    (lambda: nisa.tensor_tensor(t(4, 4), t(4, 4), t(4, 4), nl.divide), G, "op is divide, which no NeuronCore has"),
    (lambda: nisa.tensor_tensor(t(4, 4), t(4, 4), t(4, 4), nl.abs_max), G, "op=abs_max needs NeuronCore-v4"),
    (
        lambda: nisa.tensor_tensor(t(4, 4), t(4, 4), t(4, 4), nl.bitwise_and),
        T,
        "dst is float32, bit operators take integers",
    ),
    (lambda: nisa.tensor_tensor(t(4, 4), t(4, 4), t(4, 4), nl.abs), V, "op is abs, which takes one operand"),
    (
        lambda: nisa.tensor_tensor(t(4, 4), t(4, 4), t(4, 4), nl.power, engine=E.vector),
        V,
        "power, which runs on gpsimd",
    ),
    (lambda: nisa.tensor_scalar(t(4, 4), t(4, 4), nl.add, None), V, "operand0 is missing, op0=add needs it"),
    (
        lambda: nisa.tensor_scalar(t(4, 4), t(4, 4), nl.add, t(4, 2)),
        V,
        r"operand0 has shape \(4, 2\), it takes \(4, 1\)",
    ),
    (
        lambda: nisa.tensor_scalar(t(4, 4), t(4, 4), nl.add, t(4, 1, dtype=H16)),
        T,
        "operand0 is float16, it takes float32",
    ),
    (
        lambda: nisa.tensor_scalar(t(4, 4), t(4, 4), nl.add, "1"),
        T,
        "operand0 is str '1', it takes a tensor or a number",
    ),
    (
        lambda: nisa.tensor_scalar(t(4, 4, dtype="int32"), t(4, 4, dtype="int32"), nl.bitwise_and, 1.5),
        T,
        "bit operators take integers",
    ),
    (
        lambda: nisa.tensor_scalar(t(4, 4), t(4, 4), nl.subtract, 1.0, engine=E.scalar),
        V,
        "has subtract: ScalarE of trn2 has multiply and add",
    ),
    (lambda: nisa.tensor_scalar(t(4, 4), t(4, 4), nl.add, 1.0, engine=E.gpsimd), V, "has add: GpSimdE has rsqrt only"),
    (
        lambda: nisa.tensor_scalar(
            t(4, 4, dtype="int8"), t(4, 4, dtype="int8"), nl.add, 1, op1=nl.bitwise_or, operand1=1
        ),
        V,
        "is arithmetic and",
    ),
    (
        lambda: nisa.tensor_scalar_reduce(t(4, 4), t(4, 4), nl.add, 1.0, nl.subtract),
        V,
        "reduce_op is subtract, it takes add, multiply",
    ),
    (
        lambda: nisa.tensor_scalar_reduce(t(4, 4), t(4, 4), nl.add, 1.0, nl.add, reverse0=True),
        V,
        "reverse0 is not supported",
    ),
    (
        lambda: nisa.tensor_scalar_reduce(t(4, 4), t(4, 4), nl.add, 1.0, nl.add, reduce_cmd=RC.load_reduce),
        V,
        "reduce_init is missing",
    ),
    (
        lambda: nisa.tensor_scalar_cumulative(t(4, 4, dtype="int32"), t(4, 4), nl.add, nl.add, 1.0),
        T,
        "32-bit integers are not supported",
    ),
    (lambda: nisa.tensor_scalar_cumulative(t(4, 4), t(4, 4), nl.add, nl.power, 1.0), V, "op1 is power, it takes add"),
    (
        lambda: nisa.scalar_tensor_tensor(t(4, 4), p(4, 4), nl.add, 1.0, nl.add, p(4, 4)),
        V,
        "operand1 is in PSUM, and so is data",
    ),
    (
        lambda: nisa.tensor_tensor_scan(t(4, 4), t(4, 4), t(4, 4), 0.0, nl.bitwise_or, nl.add),
        T,
        "op0 is bitwise_or, a bit operator",
    ),
    (lambda: nisa.tensor_copy_predicated(t(4, 4), t(4, 4), t(4, 4)), T, "predicate is float32, it takes uint8"),
    (
        lambda: nisa.tensor_copy_predicated(t(4, 4), t(4, 4, dtype=H16), t(4, 4, dtype="uint8")),
        T,
        "src is float16, dst is float32",
    ),
    (lambda: nisa.memset(t(4, 4, dtype="int32"), 1.0), T, "value is 1.0, int32 takes an integer"),
    (lambda: nisa.memset(t(4, 4, dtype="uint8"), 256), V, "value is 256, uint8 holds 0 to 255"),
    (lambda: nisa.memset(t(4, 4), "0"), T, "value is str '0', it takes a number"),
    (lambda: nisa.exponential(t(4, 4), t(4, 4)), G, "exponential: this instruction needs NeuronCore-v4"),
    (lambda: nisa.select_reduce(t(4, 4), t(4, 4), t(4, 4), 0.0), T, "predicate is float32, it takes int8"),
    (
        lambda: nisa.range_select(t(4, 4), t(4, 4), nl.add, nl.less, t(4, 1), t(4, 1)),
        V,
        "comp_op0 is add, it takes equal",
    ),
    (
        lambda: nisa.range_select(t(4, 4), t(4, 4), nl.less, nl.less, t(4, 1), t(4, 1), on_false_value=0.0),
        V,
        "on_false_value is 0.0, it must be -3.4",
    ),
    (
        lambda: nisa.range_select(t(4, 4), t(4, 4), nl.less, nl.less, t(4, 1), t(4, 1), range_start=1 << 24),
        V,
        "reaches index 16777219",
    ),
    (lambda: nisa.affine_select(t(4, 4), [[1, 5]], 1, t(4, 4), 0.0), V, "pattern has 5 elements, on_true_tile has 4"),
    (lambda: nisa.affine_select(p(4, 4), [[1, 4]], 1, t(4, 4), 0.0), V, "dst is in PSUM, it must be in SBUF"),
    (lambda: nisa.iota(t(4, 4, dtype="int32"), [1, 4]), V, r"pattern is \[1, 4\], it takes 1 to 4 pairs"),
    (lambda: nisa.iota(t(4, 32, dtype="int32"), [[1, 2]] * 5), V, "it takes 1 to 4 pairs"),
    (lambda: nisa.tensor_reduce(t(4, 1), nl.add, t(4, 4), 0), V, "axis contains the partition axis 0"),
    (lambda: nisa.tensor_reduce(t(4, 4), nl.add, t(4, 3, 4), 1), V, "only the last axes"),
    (
        lambda: nisa.tensor_reduce(t(4, 2), nl.add, t(4, 4), 1),
        V,
        "dst has 2 elements in a partition, the reduction leaves 1",
    ),
    (lambda: nisa.tensor_reduce(t(4, 1), nl.subtract, t(4, 4), 1), V, "op is subtract, which cannot reduce"),
    (lambda: nisa.tensor_reduce(t(4, 1), nl.add, t(4, 4), 2), V, "axis is 2, data has 2 dimensions"),
    (lambda: nisa.tensor_partition_reduce(t(1, 4), nl.minimum, t(4, 4)), V, "it takes nl.add, nl.mean"),
    (lambda: nisa.tensor_partition_reduce(t(2, 4), nl.add, t(4, 4)), V, r"dst is \[2, 4\], the reduction is \[1, 4\]"),
    (lambda: nisa.bn_stats(t(4, 6), t(4, 513)), V, "data has 513 elements in a partition, the limit is 512"),
    (lambda: nisa.bn_stats(t(4, 5), t(4, 4)), V, "dst has 5 elements in a partition, it takes 6"),
    (lambda: nisa.bn_aggr(t(4, 2), t(4, 7)), V, "not triples"),
    (lambda: nisa.max8(t(4, 8), t(4, 7)), V, "src has 7 elements in a partition, it takes 8 to 16384"),
    (lambda: nisa.max8(t(4, 4), t(4, 16)), V, "dst has 4 elements in a partition, it takes 8 to 8"),
    (lambda: nisa.nc_find_index8(t(4, 8), t(4, 16), t(4, 8)), T, "dst is float32, it takes uint16, uint32"),
    (lambda: nisa.nc_stream_shuffle(t(32, 4), t(32, 4), [0] * 31), V, "it takes 32 numbers from 0 to 31"),
    (lambda: nisa.nc_stream_shuffle(t(32, 4), t(32, 4), [40] * 32), V, "it takes 32 numbers from 0 to 31"),
    (
        lambda: nisa.local_gather(t(8, 4), t(8, 4), t(8, 1, dtype="uint16")),
        V,
        "src_buffer has 8 partitions, not a multiple of 16",
    ),
    (lambda: nisa.local_gather(t(16, 4), t(16, 4), t(16, 1, dtype="uint16"), 3), V, "num_elem_per_idx is 3"),
    (lambda: nisa.nc_n_gather(t(4, 4), t(4, 4), t(4, 4, dtype="int32")), T, "indices is int32, it takes uint32"),
    (
        lambda: nisa.nonzero_with_count(t(16, 4, dtype="int32"), t(16, 4)),
        V,
        "dst has 4 elements in a partition, it takes 5",
    ),
    (lambda: nisa.sequence_bounds(t(2, 2, 4), t(2, 4)), V, "segment_ids has 2 partitions, it takes 1"),
    (
        lambda: nisa.topk(t(16, 1, dtype="bfloat16"), t(16, 1, dtype="uint32"), t(16, 4, dtype="bfloat16"), 7),
        V,
        "n is 7, it takes 8 to 65535",
    ),
    (lambda: nisa.quantize_mx(t(32, 1), t(32, 4), t(32, 1)), G, "needs NeuronCore-v4"),
    (lambda: nisa.rng(t(4, 4)), T, "dst is float32, it takes int8"),
    (lambda: nisa.rand2(t(4, 4), 0.0, 1.0), G, "needs NeuronCore-v4"),
    (lambda: nisa.set_rng_seed(t(1, 2, dtype="int32")), V, r"src_seeds has shape \(1, 2\), it takes \(1, 1\)"),
    (
        lambda: nisa.rand_set_state(t(4, 24, dtype="uint32")),
        V,
        "has 24 elements in a partition, the state on gpsimd has 6",
    ),
    (
        lambda: nisa.rand_get_state(t(4, 24, dtype="uint32"), engine=E.vector),
        G,
        "random state of VectorE needs NeuronCore-v4",
    ),
    # types of later chips
    (
        lambda: nisa.memset(t(4, 4, dtype="float8_e4m3fn"), 0.0),
        G,
        "float8_e4m3fn, which needs NeuronCore-v4; trn2 has v3",
    ),
    # DMA
    (lambda: nisa.dma_copy(h(4, 4), p(4, 4)), V, "src is in PSUM, it must be in SBUF or HBM"),
    (lambda: nisa.dma_copy(h(4, 4), t(4, 5)), V, "dst has 16 elements, src has 20"),
    (lambda: nisa.dma_copy(h(4, 4), t(4, 4, dtype=H16), dge_mode=DGE.hwdge), T, "hwdge does not convert"),
    (
        lambda: nisa.dma_copy(h(4, 4), t(4, 4), engine=E.vector, dge_mode=DGE.hwdge),
        V,
        "engine is vector, it takes sync or scalar",
    ),
    (lambda: nisa.dma_copy(h(4, 4), t(4, 4), engine=E.sync), V, "sync is for dge_mode hwdge"),
    (lambda: nisa.dma_copy(h(4, 4), t(4, 4), priority=1), G, "priority needs NeuronCore-v4"),
    (lambda: nisa.dma_copy(h(4, 4), t(4, 4), oob_mode=1), T, "a member of nisa.oob_mode"),
    (
        lambda: nisa.dma_copy(
            h(4, 4).vector_select(0, t(4, 1, dtype="int32")), h(4, 4).vector_select(0, t(4, 1, dtype="int32"))
        ),
        V,
        "one side can be indirect",
    ),
    (
        lambda: nisa.dma_copy(h(4, 4).vector_select(0, t(4, 1, dtype="int32")), t(4, 4), dge_mode=DGE.hwdge),
        V,
        "hwdge does not gather or scatter",
    ),
    (lambda: nisa.dma_transpose(t(4, 4), h(4, 8)), V, r"dst has shape \(4, 4\), the transpose is \(8, 4\)"),
    (lambda: nisa.dma_transpose(t(8, 4), h(4, 8), axes=(0, 1)), V, r"axes is \(0, 1\), 2 dimensions take \(1, 0\)"),
    (lambda: nisa.dma_transpose(t(8, 4, 1), h(4, 8)), V, "dst has 3 dimensions, src has 2"),
    (lambda: nisa.dma_transpose(t(8, 4, dtype="uint8"), h(4, 8, dtype="uint8")), V, "1-byte elements, it takes 2 or 4"),
    (
        lambda: nisa.dma_transpose(t(8, 4, dtype=H16), h(4, 8, dtype=H16), dge_mode=DGE.hwdge),
        V,
        "hwdge transposes 16 rows",
    ),
    (lambda: nisa.dma_compute(h(4, 4), [h(4, 4)] * 17, nl.add), V, "srcs has 17 tensors, the limit is 16"),
    (lambda: nisa.dma_compute(h(4, 4), [h(4, 4)], nl.multiply), V, "reduce_op is multiply, DMA computes add"),
    (lambda: nisa.dma_compute(h(4, 4), [h(4, 4)], nl.add, scales=[2.0]), V, "only 1.0 for each source"),
    (lambda: nisa.dma_compute(h(4, 4), h(4, 4), nl.add), T, "it takes a sequence of tensors"),
    # registers and language
    (lambda: nisa.register_load(3, t(1, 1, dtype="int32")), T, "register_load: dst is 3, it takes a register"),
    (
        lambda: nisa.register_load(nisa.register_alloc(), t(1, 2, dtype="int32")),
        V,
        r"src has shape \(1, 2\), it takes \(1, 1\)",
    ),
    (lambda: nisa.register_load(nisa.register_alloc(), t(1, 1)), T, "src is float32, it takes int32, uint32"),
    (lambda: nisa.register_move(nisa.register_alloc(), 1.5), T, "1.5 is neither an integer nor a register"),
    (lambda: nl.add(1, 2), T, "nl.add: one of the operands must be a tile"),
    (lambda: nl.add(t(4, 4), t(4, 5)), V, "tensor_tensor: data2 has 5 elements in a partition, data1 has 4"),
    (lambda: nl.exp(h(4, 4)), T, "nl.exp: .* is no tile in SBUF or PSUM; nl.load brings one there"),
    (lambda: nl.load(t(4, 4)), T, "nl.load: .* is no tensor in HBM"),
    (lambda: nl.load(h(200, 4)), V, "partition dimension 200 exceeds the maximum of 128"),
    (lambda: nl.divide(t(4, 4), 2.0), G, "divide, which no NeuronCore has; multiply by a reciprocal"),
    (lambda: nl.fmod(t(4, 4), 2.0), G, "op0 is fmod, which no NeuronCore has"),
    (lambda: nl.mod(t(4, 4), t(4, 4)), G, "op is mod, which no NeuronCore has"),
    (lambda: left_behind(), V, "src was allocated in the body of a loop that has ended"),
    (lambda: frozen_loop(), V, "nl.no_reorder cannot hold a loop that runs on the device"),
    (lambda: nl.softmax(t(4, 2, 2)), V, "nl.softmax: takes two dimensions"),
    (lambda: nl.sum(t(4, 4), 0), V, "tensor_reduce: axis contains the partition axis 0"),
    (lambda: nl.broadcast_to(t(4, 4), (8, 4)), V, "does not broadcast to"),
    (lambda: nl.program_id(1), V, "the launch grid has one dimension"),
    (lambda: nl.prelu(t(4, 4)), T, "nl.prelu is only an operator"),
    (lambda: nl.device_print("x", p(4, 4)), T, "takes a tensor in SBUF or HBM"),
    (lambda: nl.shared_constant([1, 2]), T, "a NumPy array or the path"),
    (lambda: nisa.memset(t(4, 4), 0.0).depends_on(3), T, "depends_on takes instructions, not 3"),
]

TRN3 = [
    (
        lambda: nisa.activate2(t(4, 4), nl.exp, t(4, 4), 1.0, 1.0, nl.add, nl.add),
        V,
        r"\(op0, op1\) is \('add', 'add'\), legal are",
    ),
    (
        lambda: nisa.activate2(t(4, 4), nl.exp, t(4, 4), 1.0, None, nl.multiply, nl.add),
        V,
        "imm1 is missing, op1=add needs it",
    ),
    (
        lambda: nisa.nc_matmul(p(4, 4, dtype=H16), t(4, 4), t(4, 4)),
        T,
        "products are written as float32 or bfloat16 on trn3",
    ),
    (lambda: nisa.nc_matmul(p(4, 4096), t(4, 4), t(4, 4097)), V, "moving has 4097 free elements, the limit is 4096"),
    (
        lambda: nisa.nc_matmul_mx(
            p(4, 4),
            t(16, 4, dtype="float8_e4m3fn_x4"),
            t(16, 4, dtype="float8_e4m3fn_x4"),
            t(4, 4, dtype="uint8"),
            t(4, 4, dtype="uint8"),
        ),
        V,
        "stationary has 16 partitions, not a multiple of 32",
    ),
    (
        lambda: nisa.nc_matmul_mx(
            p(4, 4),
            t(64, 4, dtype="float8_e4m3fn_x4"),
            t(64, 4, dtype="float8_e4m3fn_x4"),
            t(4, 4, dtype="uint8"),
            t(36, 4, dtype="uint8"),
        ),
        V,
        r"stationary_scale is \[4, 4\], it takes at least \[36, 4\]",
    ),
    (
        lambda: nisa.quantize_mx(t(32, 2, dtype="float8_e5m2_x4"), t(32, 6, dtype=H16), t(32, 2, dtype="uint8")),
        V,
        "not a multiple of 4",
    ),
    (
        lambda: nisa.quantize_mx(t(32, 1, dtype="float4_e2m1fn_x4"), t(32, 4, dtype=H16), t(32, 1, dtype="uint8")),
        T,
        "it takes float8_e5m2_x4",
    ),
    (lambda: nisa.memset(t(4, 4, dtype="float8_e5m2_x4"), 1), V, "value is 1, float8_e5m2_x4 takes only 0"),
    (lambda: nisa.tensor_copy(t(4, 4), t(4, 4, dtype="float8_e5m2_x4")), T, "dst is float32, src is float8_e5m2_x4"),
    (lambda: nisa.dma_copy(h(4, 4), t(4, 4), priority=4), V, "priority is 4, it takes 0 to 3"),
    (
        lambda: nisa.tensor_tensor(t(4, 4, dtype="float8_e5m2_x4"), t(4, 4), t(4, 4), nl.add),
        T,
        "dst is float8_e5m2_x4, it takes",
    ),
]


def refuse(body, error, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        nki.jit(lambda x: body() and None)(np.ones((1, 1), np.float32))
    if isinstance(caught.value, NkiError):
        assert caught.value.location is not None and caught.value.location.file == __file__
        assert str(caught.value.location) in str(caught.value)


@pytest.mark.parametrize(("body", "error", "message"), TRN2, ids=range(len(TRN2)))
def test_on_trn2(body, error, message: str) -> None:
    refuse(body, error, message)


@pytest.mark.parametrize(("body", "error", "message"), TRN3, ids=range(len(TRN3)))
def test_on_trn3(trn3, body, error, message: str) -> None:
    refuse(body, error, message)


COLLECTIVES = [
    "all_gather", "all_gather_v", "all_gather_v_prepare", "all_gather_v_trigger", "all_reduce", "all_to_all",
    "all_to_all_v", "all_to_all_v_prepare", "all_to_all_v_trigger", "collective_permute", "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id", "collective_permute_implicit_reduce", "rank_id",
    "reduce_scatter",
]  # fmt: skip


@pytest.mark.parametrize("name", [*COLLECTIVES, "tiles", "blocks", "alloc_tiles", "alloc_blocks"])
def test_what_is_missing_says_so(name: str) -> None:
    module = nki.collectives if name in COLLECTIVES else nl
    with pytest.raises(NkiNotImplementedError, match=rf"\.{name} .*is not implemented"):
        getattr(module, name)()
    assert nki.collectives.ReplicaGroup([(0, 1), (2, 3)]).groups == [[0, 1], [2, 3]]


def frozen_loop() -> None:
    with nl.no_reorder():
        nl.fori_loop(0, 3, lambda i: None)


def left_behind() -> None:
    kept = []
    nl.fori_loop(0, 3, lambda i: kept.append(nl.zeros((4, 4), nl.float32)))
    nl.copy(kept[0])


def test_there_are_at_least_eighty() -> None:
    assert len(TRN2) + len(TRN3) >= 80


@pytest.mark.parametrize(
    ("name", "message"),
    [("trn1", "trn1 is not modelled"), ("gen2", "gen2 is not modelled"), ("tpu", "'tpu' is not a target")],
)
def test_targets(monkeypatch, name: str, message: str) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", name)
    with pytest.raises(NkiTargetError, match=message):
        nki.jit(lambda x: None)(np.ones((1, 1), np.float32))


def test_the_target_is_the_emulated_chip_unless_overridden(monkeypatch) -> None:
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE")
    monkeypatch.setenv("TORCH_NEURONX_INSTANCE_TYPE", "trn3-gen1")
    kernel = nki.jit(lambda x: None)
    assert kernel.program(np.ones((1, 1), np.float32)).target == "trn3"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen3")
    assert kernel.program(np.ones((1, 1), np.float32)).target == "trn2"


def test_errors_while_a_kernel_runs_name_the_line() -> None:
    @nki.jit
    def kernel(x, index):
        out = nl.ndarray((4, 4), x.dtype, buffer=nl.shared_hbm)
        gathered = nl.gather_flattened(nl.load(x), nl.load(index))  # the line
        nl.store(out, gathered)
        return out

    with pytest.raises(NkiIndexError, match="nc_n_gather: index reaches element 9, the source has 4") as caught:
        kernel(torch.ones(4, 4), torch.full((4, 4), 9).to(torch.uint32))
    assert caught.value.location is not None
    line = Path(__file__).read_text().splitlines()[caught.value.location.line - 1]
    assert line.endswith("# the line")
