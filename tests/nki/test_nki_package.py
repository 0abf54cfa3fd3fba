"""The package: names, versions of the interface, and living beside another package called nki."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.interp import SEMANTICS
from nki.isa.table import INSTRUCTIONS

ROOT = Path(__file__).resolve().parents[2]

ISA_NAMES = """
nc_matmul nc_matmul_mx nc_transpose activation activation_reduce activate2 tensor_reduce tensor_partition_reduce
tensor_tensor tensor_scalar tensor_scalar_reduce tensor_scalar_cumulative scalar_tensor_tensor tensor_tensor_scan
tensor_copy tensor_copy_predicated memset reciprocal exponential select_reduce range_select affine_select iota
bn_stats bn_aggr max8 nc_find_index8 nc_match_replace8 nc_stream_shuffle local_gather nc_n_gather nonzero_with_count
sequence_bounds topk quantize_mx dropout rng rand2 set_rng_seed rand_set_state rand_get_state dma_copy dma_transpose
dma_compute sendrecv core_barrier register_alloc register_load register_store register_move get_nc_version
get_nc_sub_version
"""

LANGUAGE_NAMES = """
add subtract multiply divide maximum minimum abs_max abs_min power equal not_equal less less_equal greater
greater_equal bitwise_and bitwise_or bitwise_xor left_shift right_shift logical_and logical_or logical_xor fmod mod
abs square invert logical_not exp log sqrt rsqrt reciprocal tanh sigmoid relu gelu gelu_apprx_sigmoid gelu_apprx_tanh
gelu_dx gelu_apprx_sigmoid_dx silu silu_dx softplus mish erf erf_dx sin cos tan arctan ceil floor trunc negative sign
copy sum max min mean prod var all softmax rms_norm where dropout load store load_transpose2d gather_flattened
transpose broadcast_to expand_dims matmul ndarray zeros ones full zeros_like empty_like shared_constant
shared_identity_matrix rand random_seed bypass prelu ds affine_range sequential_range static_range dynamic_range
fori_loop while_loop program_id num_programs program_ndim no_reorder device_print is_hbm is_sbuf is_psum is_on_chip
NKIObject tile_size sbuf psum hbm private_hbm shared_hbm bool_ int8 int16 int32 uint8 uint16 uint32 float16 bfloat16
tfloat32 float32 float8_e4m3 float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e5m2_x4 float8_e4m3fn_x4 float4_e2m1fn_x4
"""

ISA, LANGUAGE = ISA_NAMES.split(), LANGUAGE_NAMES.split()

# Signatures as documented for NKI 0.6, without `name=None` at the end.
SIGNATURES = {
    "nc_matmul": "dst, stationary, moving, is_stationary_onezero=False, is_moving_onezero=False, is_transpose=False, "
    "accumulate=None, tile_position=(), tile_size=(), perf_mode=none",
    "nc_matmul_mx": "dst, stationary, moving, stationary_scale, moving_scale, tile_position=None, tile_size=None, "
    "accumulate=None",
    "nc_transpose": "dst, data, engine=unknown",
    "activation": "dst, op, data, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=idle",
    "activation_reduce": "dst, op, data, reduce_op, reduce_res, bias=None, scale=1.0",
    "activate2": "dst, op, data, imm0, imm1, op0, op1, relu_param=0.0, reverse0=False, reverse1=False, reduce_op=None, "
    "reduce_res=None, reduce_cmd=idle",
    "tensor_reduce": "dst, op, data, axis, negate=False, keepdims=False",
    "tensor_partition_reduce": "dst, op, data",
    "tensor_tensor": "dst, data1, data2, op, engine=unknown",
    "tensor_scalar": "dst, data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, "
    "engine=unknown",
    "tensor_scalar_reduce": "dst, data, op0, operand0, reduce_op, reduce_res=None, reverse0=False, "
    "reduce_cmd=reset_reduce, reduce_init=None, reduce_res_negate=False",
    "tensor_scalar_cumulative": "dst, src, op0, op1, imm0, imm1=None, reduce_cmd=reset_reduce",
    "scalar_tensor_tensor": "dst, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False",
    "tensor_tensor_scan": "dst, data0, data1, initial, op0, op1, reverse0=False, reverse1=False",
    "tensor_copy": "dst, src, engine=unknown, dtype=None",  # dtype: of earlier versions, public kernels give it
    "tensor_copy_predicated": "dst, src, predicate, reverse_pred=False",
    "memset": "dst, value, engine=unknown",
    "reciprocal": "dst, data",
    "exponential": "dst, src, max_value=0.0, reduce_res=None, reduce_cmd=idle, reduce_init=0.0",
    "iota": "dst, pattern, offset=0, channel_multiplier=0",
    "bn_stats": "dst, data",
    "max8": "dst, src",
    "nc_find_index8": "dst, data, vals",
    "nc_match_replace8": "dst, data, vals, imm, dst_idx=None",
    "nc_stream_shuffle": "dst, src, shuffle_mask",
    "local_gather": "dst, src_buffer, index, num_elem_per_idx=1, num_valid_indices=None",
    "nc_n_gather": "dst, data, indices",
    "nonzero_with_count": "dst, src, index_offset=0, padding_val=-1",
    "topk": "val_dst, idx_dst, src, n",
    "quantize_mx": "dst, src, dst_scale",
    "dropout": "dst, data, prob",
    "rng": "dst, engine=vector",
    "rand2": "dst, min, max",
    "dma_copy": "dst, src, priority=None, oob_mode=error, dge_mode=unknown, engine=unknown",
    "dma_transpose": "dst, src, axes=None, priority=None, dge_mode=unknown, oob_mode=error",
    "dma_compute": "dst, srcs, reduce_op, scales=None, unique_indices=True, oob_mode=error",
    "sendrecv": "src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma",
}


def test_all_names_of_the_interface_are_there() -> None:
    assert len(ISA) == 52 and [name for name in ISA if not callable(getattr(nisa, name, None))] == []
    assert [name for name in LANGUAGE if not hasattr(nl, name)] == []
    assert set(LANGUAGE) <= set(nl.__all__) and set(ISA) <= set(nisa.__all__)


def test_every_instruction_of_the_table_has_a_meaning_and_a_function() -> None:
    between_cores = {"sendrecv", "core_barrier"}  # the interpreter has these where cores meet
    assert set(INSTRUCTIONS) - between_cores <= set(SEMANTICS)
    assert set(INSTRUCTIONS) <= set(ISA)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name: str) -> None:
    parts = []
    for parameter in inspect.signature(getattr(nisa, name)).parameters.values():
        if parameter.name == "name":
            continue
        default = getattr(parameter.default, "name", parameter.default)
        parts.append(parameter.name + ("" if default is inspect.Parameter.empty else f"={default}"))
    assert ", ".join(parts) == SIGNATURES[name]


@pytest.mark.parametrize("module", [nki, nl, nisa], ids=lambda m: m.__name__)
def test_public_functions_have_docstrings(module) -> None:
    for name in module.__all__:
        value = getattr(module, name)
        assert not callable(value) or inspect.getdoc(value), name


def test_torch_neuronx_nki_is_the_same_package(run_python) -> None:
    code = """
import torch_neuronx.nki.language as nl, torch_neuronx.nki as ours, nki.language, nki
import torch_neuronx.nki.isa.enums, nki.isa
assert ours is nki and nl is nki.language and torch_neuronx.nki.isa.enums.engine is nki.isa.engine
assert nki.language.__spec__.name == "nki.language"
"""
    assert run_python("import warnings; warnings.simplefilter('error')\n" + code).returncode == 0


def test_another_nki_in_the_environment(run_python, tmp_path: Path) -> None:
    (tmp_path / "nki").mkdir()
    (tmp_path / "nki" / "__init__.py").write_text("theirs = True\n")
    # An editable install has a finder of its own that comes before the path, so the path has to be put first.
    code = """
import importlib.machinery, warnings, sys
sys.meta_path.insert(0, importlib.machinery.PathFinder)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch_neuronx.nki as ours
print([str(w.message) for w in caught if "nki" in str(w.message)])
import numpy as np
import nki
import torch_neuronx.nki.language as nl
from torch_neuronx.nki.kernels import softmax
assert nki.theirs and ours.language is nl
assert abs(softmax(np.ones((4, 8), np.float32)) - 1 / 8).max() < 1e-7
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    output = run_python(code, env={"PYTHONPATH": path}).stdout
    assert "finds another package" in output and "torch_neuronx.nki" in output and str(tmp_path) in output


def test_without_numpy_the_error_says_what_to_install(run_python, tmp_path: Path) -> None:
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("raise ImportError('no numpy here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    code = "try:\n    import nki\nexcept ImportError as error:\n    print(error)"
    assert "torch-neuronx[nki]" in run_python(code, env={"PYTHONPATH": path}).stdout


def test_types_under_their_other_names() -> None:
    assert nki.dtype.bfloat16 is nl.bfloat16 and nisa.constants.engine is nisa.engine
    annotation = nki.typing.tensor[128, 512]
    assert annotation.__metadata__ == ((128, 512),) and nki.typing.tensor[7].__metadata__ == ((7,),)


def test_coverage_page_is_up_to_date_and_every_function_has_a_test() -> None:
    tool = ROOT / "tools" / "gen_nki_coverage.py"
    assert subprocess.run([sys.executable, str(tool), "--check"]).returncode == 0, "run `make docs`"
    cells = [
        line.split(" | ") for line in (ROOT / "docs" / "nki-coverage.md").read_text().splitlines() if "| `" in line
    ]
    assert len(cells) > 150 and [row[0] for row in cells if row[-1].strip(" |") == ""] == []
