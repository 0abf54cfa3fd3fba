"""Instructions of TensorE, ScalarE, VectorE and GpSimdE that compute. The limits of each are in table.py and checks.py.

P is the partition dimension (up to 128), N the free elements of a partition. All errors are subclasses of NkiError.
Numbers are computed in float32; operands are converted when they are read, results when they are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tensor import NkiTensor
from ..trace import NkiInstruction
from . import enums
from .call import issue
from .checks import FP32_MIN

Tensor = NkiTensor
_E, _C = enums.engine, enums.reduce_cmd


def nc_matmul(
    dst: Tensor,
    stationary: Tensor,
    moving: Tensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: Sequence[int] = (),
    tile_size: Sequence[int] = (),
    perf_mode: Any = enums.matmul_perf_mode.none,
    name: str | None = None,
) -> NkiInstruction:
    """dst[M, N] (+)= stationary[K, M]^T @ moving[K, N] on TensorE. Inputs in SBUF, dst in PSUM as float32.

    K, M <= 128, N <= 512 (NeuronCore-v4: 4096 in float32, 8192 in bfloat16). `accumulate`: None overwrites what no
    product has written since the allocation and adds to the rest; True adds; False overwrites. `perf_mode` double_row
    takes FP8 operands of shape (K, 2, n). The onezero flags say that an operand holds only 0 and 1: time, not values.
    `is_transpose` with an identity as `moving` moves bits: dst = stationary^T in stationary's dtype.
    """
    return issue("nc_matmul", locals())


def nc_matmul_mx(
    dst: Tensor,
    stationary: Tensor,
    moving: Tensor,
    stationary_scale: Tensor,
    moving_scale: Tensor,
    tile_position: Sequence[int] | None = None,
    tile_size: Sequence[int] | None = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """The product of microscaled operands (NeuronCore-v4): 4 values an element, one scale for 8 partitions x 4 values.

    The scales of partitions 32 q to 32 q + 31 are in partitions 32 q to 32 q + 3 of the scale tensors.
    """
    return issue("nc_matmul_mx", locals())


def nc_transpose(dst: Tensor, data: Tensor, engine: Any = _E.unknown, name: str | None = None) -> NkiInstruction:
    """dst[N, P] = data[P, N]^T, bit exact. TensorE: SBUF to PSUM, up to 128x128. VectorE: up to 32x32."""
    return issue("nc_transpose", locals())


def activation(
    dst: Tensor,
    op: Any,
    data: Tensor,
    bias: Any = None,
    scale: Any = 1.0,
    reduce_op: Any = None,
    reduce_res: Tensor | None = None,
    reduce_cmd: Any = _C.idle,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op(data * scale + bias) on ScalarE. `scale`: number or float32 (P, 1); `bias`: number or (P, 1).

    With `reduce_op` nl.add and a `reduce_cmd`, the sum of the results goes into the register of each partition;
    `reduce_res` (P, 1) gets its value.
    """
    return issue("activation", locals())


def activation_reduce(
    dst: Tensor,
    op: Any,
    data: Tensor,
    reduce_op: Any,
    reduce_res: Tensor,
    bias: Any = None,
    scale: Any = 1.0,
    name: str | None = None,
) -> NkiInstruction:
    """`activation`, and the sum of its results in `reduce_res` (P, 1)."""
    return activation(dst, op, data, bias, scale, reduce_op, reduce_res, _C.reset_reduce, name)


def activate2(
    dst: Tensor,
    op: Any,
    data: Tensor,
    imm0: Any,
    imm1: Any,
    op0: Any,
    op1: Any,
    relu_param: float = 0.0,
    reverse0: bool = False,
    reverse1: bool = False,
    reduce_op: Any = None,
    reduce_res: Tensor | None = None,
    reduce_cmd: Any = _C.idle,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op((data op0 imm0) op1 imm1) on ScalarE of NeuronCore-v4. `relu_param` is the slope of nl.prelu."""
    return issue("activate2", locals())


def tensor_reduce(
    dst: Tensor,
    op: Any,
    data: Tensor,
    axis: int | Sequence[int],
    negate: bool = False,
    keepdims: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """Reduces the last free axes of data[P, ...] on VectorE; dst has the elements that are left."""
    return issue("tensor_reduce", {key: value for key, value in locals().items() if key != "keepdims"})


def tensor_partition_reduce(dst: Tensor, op: Any, data: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[1, N] = data[P, N] reduced over partitions on GpSimdE: nl.add, nl.mean, nl.maximum, bitwise or and and."""
    return issue("tensor_partition_reduce", locals())


def tensor_tensor(
    dst: Tensor, data1: Tensor, data2: Tensor, op: Any, engine: Any = _E.unknown, name: str | None = None
) -> NkiInstruction:
    """dst = data1 op data2. Not both inputs in PSUM. int32 and uint32 in SBUF run exactly, on GpSimdE, and wrap."""
    return issue("tensor_tensor", locals())


def tensor_scalar(
    dst: Tensor,
    data: Tensor,
    op0: Any,
    operand0: Any,
    reverse0: bool = False,
    op1: Any = None,
    operand1: Any = None,
    reverse1: bool = False,
    engine: Any = _E.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data op0 operand0) op1 operand1. Operands: numbers or (P, 1); `reverse` swaps the sides of an operator."""
    return issue("tensor_scalar", locals())


def tensor_scalar_reduce(
    dst: Tensor,
    data: Tensor,
    op0: Any,
    operand0: Any,
    reduce_op: Any,
    reduce_res: Tensor | None = None,
    reverse0: bool = False,
    reduce_cmd: Any = _C.reset_reduce,
    reduce_init: Any = None,
    reduce_res_negate: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data op0 operand0, and its reduction over the free elements in VectorE's register and `reduce_res`."""
    return issue("tensor_scalar_reduce", locals())


def tensor_scalar_cumulative(
    dst: Tensor,
    src: Tensor,
    op0: Any,
    op1: Any,
    imm0: Any,
    imm1: Any = None,
    reduce_cmd: Any = _C.reset_reduce,
    name: str | None = None,
) -> NkiInstruction:
    """dst[i] = dst[i - 1] op1 (src[i] op0 imm0) along the free elements; the start is op1's identity, or `imm1`."""
    return issue("tensor_scalar_cumulative", locals())


def scalar_tensor_tensor(
    dst: Tensor,
    data: Tensor,
    op0: Any,
    operand0: Any,
    op1: Any,
    operand1: Tensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data op0 operand0) op1 operand1, operand0 a number or (P, 1), operand1 a tensor."""
    return issue("scalar_tensor_tensor", locals())


def tensor_tensor_scan(
    dst: Tensor,
    data0: Tensor,
    data1: Tensor,
    initial: Any,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst[i] = (data0[i] op0 dst[i - 1]) op1 data1[i] along the free elements, from `initial` (number or (P, 1))."""
    return issue("tensor_tensor_scan", locals())


def tensor_copy(
    dst: Tensor, src: Tensor, engine: Any = _E.unknown, name: str | None = None, dtype: Any = None
) -> NkiInstruction:
    """dst = src, converted; bit exact between equal dtypes.

    `dtype` is of earlier versions, and public kernels still give it; dst's dtype decides.
    """
    arguments = locals()
    del arguments["dtype"]
    return issue("tensor_copy", arguments)


def tensor_copy_predicated(
    dst: Tensor, src: Any, predicate: Tensor, reverse_pred: bool = False, name: str | None = None
) -> NkiInstruction:
    """dst = src where `predicate` (unsigned integers) is not 0; the rest of dst stays."""
    return issue("tensor_copy_predicated", locals())


def memset(dst: Tensor, value: float, engine: Any = _E.unknown, name: str | None = None) -> NkiInstruction:
    """Every element of dst = value. An integer for integer dtypes."""
    return issue("memset", locals())


def reciprocal(dst: Tensor, data: Tensor, name: str | None = None) -> NkiInstruction:
    """dst = 1 / data."""
    return issue("reciprocal", locals())


def exponential(
    dst: Tensor,
    src: Tensor,
    max_value: Any = 0.0,
    reduce_res: Tensor | None = None,
    reduce_cmd: Any = _C.idle,
    reduce_init: Any = 0.0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = exp(src - max_value) on VectorE of NeuronCore-v4, and the sum in its register."""
    return issue("exponential", locals())


def select_reduce(
    dst: Tensor,
    predicate: Tensor,
    on_true: Tensor,
    on_false: Any,
    reduce_res: Tensor | None = None,
    reduce_cmd: Any = _C.idle,
    reduce_op: Any = None,
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true where `predicate` is not 0, else on_false (number or (P, 1)); optionally the maximum of dst."""
    from ..language import maximum

    arguments = locals() | {"reduce_op": maximum if reduce_op is None else reduce_op}
    arguments.pop("maximum")
    return issue("select_reduce", arguments)


def range_select(
    dst: Tensor,
    on_true_tile: Tensor,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Tensor,
    bound1: Tensor,
    reduce_cmd: Any = _C.reset_reduce,
    reduce_res: Tensor | None = None,
    reduce_op: Any = None,
    range_start: int = 0,
    on_false_value: float = FP32_MIN,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true_tile where (i comp_op0 bound0) and (i comp_op1 bound1), i = free index + range_start."""
    from ..language import maximum

    arguments = locals() | {"reduce_op": maximum if reduce_op is None else reduce_op}
    arguments.pop("maximum")
    return issue("range_select", arguments)


def affine_select(
    dst: Tensor,
    pattern: Sequence[Sequence[int]],
    channel_multiplier: int,
    on_true_tile: Tensor,
    on_false_value: float,
    cmp_op: Any = None,
    offset: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true_tile where (offset + p * channel_multiplier + sum(step * index)) cmp_op 0, else on_false_value.

    `pattern` is up to four pairs [step, count]; SBUF only, on GpSimdE.
    """
    from ..language import equal

    arguments = locals() | {"cmp_op": equal if cmp_op is None else cmp_op}
    arguments.pop("equal")
    return issue("affine_select", arguments)


def iota(
    dst: Tensor,
    pattern: Sequence[Sequence[int]],
    offset: int = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """dst[p, i, ...] = offset + p * channel_multiplier + sum(step * index) in int32, converted to dst's dtype."""
    return issue("iota", locals())


def bn_stats(dst: Tensor, data: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[P, 6] = (count, mean, variance * count) of the even elements of data[P, N <= 512], then of the odd ones."""
    return issue("bn_stats", locals())


def bn_aggr(dst: Tensor, data: Tensor, name: str | None = None) -> NkiInstruction:
    """dst[P, 2] = mean and variance of what data[P, 3 n], triples of `bn_stats`, counts together."""
    return issue("bn_aggr", locals())


def dropout(dst: Tensor, data: Tensor, prob: Any, name: str | None = None) -> NkiInstruction:
    """dst = data, with elements set to 0 with probability `prob` (number or (P, 1)); the others are not scaled."""
    return issue("dropout", locals())
