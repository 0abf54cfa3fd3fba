"""nki.isa: the instructions of a NeuronCore. Each writes `dst` and returns a handle that orders instructions."""

from __future__ import annotations

from ._compute import *  # noqa: F403
from ._data import *  # noqa: F403
from .enums import dge_mode, dma_engine, engine, matmul_perf_mode, nc_version, oob_mode, reduce_cmd

# Older names of the engines.
tensor_engine, vector_engine, scalar_engine = engine.tensor, engine.vector, engine.scalar
gpsimd_engine, unknown_engine = engine.gpsimd, engine.unknown

INSTRUCTIONS: tuple[str, ...] = ["activate2", "activation", "activation_reduce", "affine_select", "bn_aggr", "bn_stats", "core_barrier", "dma_compute", "dma_copy", "dma_transpose", "dropout", "exponential", "get_nc_sub_version", "get_nc_version", "iota", "local_gather", "max8", "memset", "nc_find_index8", "nc_match_replace8", "nc_matmul", "nc_matmul_mx", "nc_n_gather", "nc_stream_shuffle", "nc_transpose", "nonzero_with_count", "quantize_mx", "rand2", "rand_get_state", "rand_set_state", "range_select", "reciprocal", "register_alloc", "register_load", "register_move", "register_store", "rng", "scalar_tensor_tensor", "select_reduce", "sendrecv", "sequence_bounds", "set_rng_seed", "tensor_copy", "tensor_copy_predicated", "tensor_partition_reduce", "tensor_reduce", "tensor_scalar", "tensor_scalar_cumulative", "tensor_scalar_reduce", "tensor_tensor", "tensor_tensor_scan", "topk"]  # type: ignore[assignment]

__all__ = [
    *INSTRUCTIONS,
    "dge_mode",
    "dma_engine",
    "engine",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "scalar_load",
    "scalar_store",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
