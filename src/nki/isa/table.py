"""The instructions: name, engines, operands with their limits, first generation. The checks read this table.

Source: NKI documentation 0.6, nki.isa, and the architecture guides of Trainium2 and Trainium3.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

FLOATS = ("float32", "tfloat32", "bfloat16", "float16")
FP8 = ("float8_e4m3", "float8_e4m3fn", "float8_e5m2")
INTS = ("int8", "int16", "int32", "uint8", "uint16", "uint32", "bool_")
PACKED = ("float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4")

DTYPE_SETS: dict[str, tuple[str, ...]] = {
    "any": (*FLOATS, *FP8, *INTS, *PACKED, "float8_e8m0fnu"),
    "number": (*FLOATS, *FP8, *INTS),
    "float": (*FLOATS, *FP8),
    "matmul": (*FLOATS, *FP8),
    "half": ("bfloat16", "float16"),
    "packed": PACKED,
    "scale": ("float8_e8m0fnu", "uint8"),
    "float32": ("float32",),
    "float32 or int32": ("float32", "int32"),
    "bfloat16": ("bfloat16",),
    "integer": INTS,
    "int32": ("int32",),
    "32-bit integer": ("int32", "uint32"),
    "uint16": ("uint16",),
    "uint32": ("uint32",),
    "uint16 or uint32": ("uint16", "uint32"),
    "unsigned": ("uint8", "uint16", "uint32", "bool_"),
    "8-bit or 16-bit integer": ("int8", "uint8", "int16", "uint16", "bool_"),
    "not tfloat32": tuple(name for name in (*FLOATS, *FP8, *INTS) if name != "tfloat32"),
}

# NeuronCore from which a type exists: NKI documentation, data types.
DTYPE_VERSION = {"float8_e4m3fn": 4, "float8_e8m0fnu": 4, **dict.fromkeys(PACKED, 4)}


@dataclasses.dataclass(frozen=True)
class Operand:
    """What an instruction takes in one place.

    `like` names another operand whose partitions this one has, and `shape` says what else: "same" free elements, one
    "column", any number ("rows"). Without `like` the checks of the instruction say it, or nothing does.
    """

    writes: bool = False
    reads: bool = True
    memory: tuple[str, ...] = ("sbuf", "psum")
    dtypes: str = "number"
    optional: bool = False
    number: bool = False  # a Python number is allowed in place of a tensor
    like: str = ""
    shape: Literal["same", "column", "rows"] = "same"


SBUF = ("sbuf",)
PSUM = ("psum",)
HBM = ("private_hbm", "shared_hbm")
ANYWHERE = ("sbuf", "psum", *HBM)


def _w(
    dtypes: str = "number",
    like: str = "",
    shape: Literal["same", "column", "rows"] = "same",
    memory: tuple[str, ...] = ("sbuf", "psum"),
    optional: bool = False,
    also_reads: bool = False,
) -> Operand:
    return Operand(True, also_reads, memory, dtypes, optional, False, like, shape)


def _r(
    dtypes: str = "number",
    like: str = "",
    shape: Literal["same", "column", "rows"] = "same",
    memory: tuple[str, ...] = ("sbuf", "psum"),
    optional: bool = False,
    number: bool = False,
) -> Operand:
    return Operand(False, True, memory, dtypes, optional, number, like, shape)


def _column(dtypes: str = "float32", like: str = "data", optional: bool = False) -> Operand:
    """A number, or one value a partition."""
    return _r(dtypes, like, "column", number=True, optional=optional)


@dataclasses.dataclass(frozen=True)
class Instruction:
    """`engines`: the first one is taken when the caller does not choose. `version`: first NeuronCore."""

    engines: tuple[str, ...]
    operands: dict[str, Operand]
    version: int = 2


T, V, S, G, D, Y = "tensor", "vector", "scalar", "gpsimd", "dma", "sync"

INSTRUCTIONS: dict[str, Instruction] = {
    # --- TensorE
    "nc_matmul": Instruction(
        (T,),
        {
            "dst": _w("float", memory=PSUM, also_reads=True),
            "stationary": _r("matmul", memory=SBUF),
            "moving": _r("matmul", "stationary", "rows", memory=SBUF),
        },
    ),
    "nc_matmul_mx": Instruction(
        (T,),
        {
            "dst": _w("float", memory=PSUM, also_reads=True),
            "stationary": _r("packed", memory=SBUF),
            "moving": _r("packed", "stationary", "rows", memory=SBUF),
            "stationary_scale": _r("scale", memory=SBUF),
            "moving_scale": _r("scale", memory=SBUF),
        },
        4,
    ),
    "nc_transpose": Instruction((T, V), {"dst": _w("number"), "data": _r("number")}),
    # --- ScalarE
    "activation": Instruction(
        (S,),
        {
            "dst": _w(like="data"),
            "data": _r(),
            "bias": _column("not tfloat32", optional=True),
            "scale": _column(),
            "reduce_res": _w("float", "data", "column", optional=True),
        },
    ),
    "activate2": Instruction(
        (S,),
        {
            "dst": _w(like="data"),
            "data": _r(),
            "imm0": _column(),
            "imm1": _column(optional=True),
            "reduce_res": _w("float", "data", "column", optional=True),
        },
        4,
    ),
    # --- elementwise
    "tensor_tensor": Instruction((V, G), {"dst": _w(like="data1"), "data1": _r(), "data2": _r(like="data1")}),
    "tensor_scalar": Instruction(
        (V, S, G),
        {
            "dst": _w(like="data"),
            "data": _r(),
            "operand0": _column("number", optional=True),
            "operand1": _column("number", optional=True),
        },
    ),
    "tensor_scalar_reduce": Instruction(
        (V,),
        {
            "dst": _w(like="data"),
            "data": _r(),
            "operand0": _column(),
            "reduce_init": _column(optional=True),
            "reduce_res": _w("float", "data", "column", optional=True),
        },
    ),
    "tensor_scalar_cumulative": Instruction(
        (V,),
        {"dst": _w(like="src"), "src": _r(), "imm0": _column(like="src"), "imm1": _column(like="src", optional=True)},
    ),
    "scalar_tensor_tensor": Instruction(
        (V,), {"dst": _w(like="data"), "data": _r(), "operand0": _column(), "operand1": _r(like="data")}
    ),
    "tensor_tensor_scan": Instruction(
        (V,), {"dst": _w(like="data0"), "data0": _r(), "data1": _r(like="data0"), "initial": _column(like="data0")}
    ),
    "tensor_copy": Instruction((V, S, G), {"dst": _w("any", "src"), "src": _r("any")}),
    "tensor_copy_predicated": Instruction(
        (V,),
        {
            "dst": _w("number", "predicate", also_reads=True),
            "src": _r("number", "predicate", number=True),
            "predicate": _r("unsigned"),
        },
    ),
    "memset": Instruction((V, G), {"dst": _w("any")}),
    "reciprocal": Instruction((V,), {"dst": _w(like="data"), "data": _r()}),
    "exponential": Instruction(
        (V,),
        {
            "dst": _w(like="src"),
            "src": _r(),
            "max_value": _column(like="src"),
            "reduce_res": _w("float", "src", "column", optional=True),
            "reduce_init": _column(like="src"),
        },
        4,
    ),
    "select_reduce": Instruction(
        (V,),
        {
            "dst": _w(like="on_true"),
            "predicate": _r("8-bit or 16-bit integer", "on_true"),
            "on_true": _r(),
            "on_false": _column(like="on_true"),
            "reduce_res": _w("float", "on_true", "column", optional=True),
        },
    ),
    "range_select": Instruction(
        (V,),
        {
            "dst": _w(like="on_true_tile"),
            "on_true_tile": _r(),
            "bound0": _r("float32", "on_true_tile", "column"),
            "bound1": _r("float32", "on_true_tile", "column"),
            "reduce_res": _w("float", "on_true_tile", "column", optional=True),
        },
        3,
    ),
    "affine_select": Instruction((G,), {"dst": _w(like="on_true_tile", memory=SBUF), "on_true_tile": _r(memory=SBUF)}),
    "iota": Instruction((G,), {"dst": _w(memory=SBUF)}),
    "dropout": Instruction((V,), {"dst": _w(like="data"), "data": _r(), "prob": _column()}),
    # --- reductions
    "tensor_reduce": Instruction((V,), {"dst": _w(like="data", shape="rows"), "data": _r()}),
    "tensor_partition_reduce": Instruction((G,), {"dst": _w(memory=SBUF), "data": _r(memory=SBUF)}),
    "bn_stats": Instruction((V,), {"dst": _w("float", "data", "rows"), "data": _r("float")}),
    "bn_aggr": Instruction((V,), {"dst": _w("float", "data", "rows"), "data": _r("float")}),
    # --- search, gather, shuffle
    "max8": Instruction((V,), {"dst": _w(like="src", shape="rows"), "src": _r()}),
    "nc_find_index8": Instruction(
        (V,), {"dst": _w("uint16 or uint32", "data", "rows"), "data": _r(), "vals": _r(like="data", shape="rows")}
    ),
    "nc_match_replace8": Instruction(
        (V,),
        {
            "dst": _w(like="data"),
            "data": _r(),
            "vals": _r(like="data", shape="rows"),
            "dst_idx": _w("uint16 or uint32", "data", "rows", optional=True),
        },
    ),
    "nc_stream_shuffle": Instruction((V,), {"dst": _w("any", also_reads=True), "src": _r("any")}),
    "local_gather": Instruction(
        (G,),
        {
            "dst": _w("any", "src_buffer", "rows", memory=SBUF),
            "src_buffer": _r("any", memory=SBUF),
            "index": _r("uint16", "src_buffer", "rows", memory=SBUF),
        },
    ),
    "nc_n_gather": Instruction(
        (G,),
        {
            "dst": _w("any", "indices", memory=SBUF),
            "data": _r("any", "indices", "rows", memory=SBUF),
            "indices": _r("uint32", memory=SBUF),
        },
    ),
    "nonzero_with_count": Instruction(
        (G,),
        {"dst": _w("int32", "src", "rows", memory=SBUF, also_reads=True), "src": _r("float32 or int32", memory=SBUF)},
        3,
    ),
    "sequence_bounds": Instruction(
        (G,), {"dst": _w("float32 or int32", memory=SBUF), "segment_ids": _r("float32 or int32", memory=SBUF)}
    ),
    "topk": Instruction(
        (G,),
        {
            "val_dst": _w("bfloat16", memory=SBUF),
            "idx_dst": _w("uint32", memory=SBUF),
            "src": _r("bfloat16", memory=SBUF),
        },
    ),
    "quantize_mx": Instruction(
        (V,),
        {
            "dst": _w("packed", "src", "rows", memory=SBUF),
            "src": _r("half", memory=SBUF),
            "dst_scale": _w("scale", memory=SBUF, also_reads=True),
        },
        4,
    ),
    # --- random numbers
    "rng": Instruction((V, G), {"dst": _w("integer")}),
    "rand2": Instruction((V,), {"dst": _w("float"), "min": _column(like="dst"), "max": _column(like="dst")}, 4),
    "set_rng_seed": Instruction((V,), {"src_seeds": _r("32-bit integer")}),
    "rand_set_state": Instruction((G, V), {"src": _r("uint32", memory=SBUF)}),
    "rand_get_state": Instruction((G, V), {"dst": _w("uint32", memory=SBUF)}),
    # --- DMA
    "dma_copy": Instruction((D,), {"dst": _w("any", memory=("sbuf", *HBM)), "src": _r("any", memory=("sbuf", *HBM))}),
    "dma_transpose": Instruction((D,), {"dst": _w("any", memory=SBUF), "src": _r("any", memory=("sbuf", *HBM))}),
    "dma_compute": Instruction((D,), {"dst": _w("number", memory=("sbuf", *HBM), also_reads=True)}),
    # --- between the cores of a logical core
    "sendrecv": Instruction((D,), {"dst": _w("any", "src", memory=SBUF), "src": _r("any", memory=SBUF)}, 3),
    "core_barrier": Instruction((G, T, V, S, Y), {"data": _r("any", memory=("sbuf", "shared_hbm"))}, 3),
    # --- registers
    "register_load": Instruction((Y,), {"src": _r("32-bit integer", memory=SBUF)}),
    "register_store": Instruction((Y,), {"dst": _w("32-bit integer", memory=SBUF)}),
}
