"""What the computing instructions of ScalarE, VectorE and GpSimdE do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import ir
from ..dtypes import encode, saturate
from ..ops import ACTIVATIONS, ALU
from .machine import Core, semantics

Array = NDArray[Any]


def apply(op: str, a: Array, b: Array | None, reverse: bool = False) -> Array:
    """a op b in float32; `reverse`: b op a."""
    if b is None or ALU[op].unary:
        b = a
    elif reverse:
        a, b = b, a
    return np.asarray(ALU[op].function(a, b), np.float32)


def _operand(core: Core, ins: ir.Instruction, key: str) -> Array | None:
    return core.read(ins, key) if core.has(ins, key) else None


def _is_bits(ins: ir.Instruction, *keys: str) -> bool:
    return any(ALU[ins.attributes[key]].kind == "bits" for key in keys if key in ins.attributes)


def _bits(core: Core, ins: ir.Instruction, key: str) -> Array:
    """Raw bits of an integer operand without sign extension, or of an integer constant."""
    if key not in ins.operands:
        return np.full((1, 1), ins.attributes.get(key, 0), np.int64)
    raw = core.raw(ins, key)
    return np.ascontiguousarray(raw).view(f"u{raw.dtype.itemsize}").astype(np.int64)


def _write_bits(core: Core, ins: ir.Instruction, key: str, bits: Array) -> None:
    storage = core.dtype(ins, key).storage
    mask = (1 << (8 * storage.itemsize)) - 1
    view = core.view(core.access(ins, key))
    full = np.broadcast_to(bits & mask, (view.shape[0], view.size // view.shape[0]))
    core.write_raw(ins, key, full.astype(f"u{storage.itemsize}").view(storage))


# --- ScalarE


def _activate(op: str, values: Array, slope: float = 0.0) -> Array:
    if op == "prelu":
        return np.where(values >= 0, values, values * np.float32(slope))
    return ACTIVATIONS[op](values.astype(np.float64)).astype(np.float32)


def _reduce(core: Core, ins: ir.Instruction, engine: str, values: Array, start: Any = None, sign: float = 1.0) -> None:
    """The accumulation register of an engine after `values`, and reduce_res."""
    op = ins.attributes.get("reduce_op") or "add"
    command = ins.attributes["reduce_cmd"]
    if command == "idle" and "reduce_res" not in ins.operands:
        return
    reduced = _fold(op, values)
    identity = ALU[op].identity
    assert identity is not None
    begin = identity if start is None or command != "load_reduce" else start
    result = core.accumulators.update(engine, values.shape[0], command, reduced, ALU[op].function, begin)
    if "reduce_res" in ins.operands:
        core.write(ins, "reduce_res", result * np.float32(sign))


def _fold(op: str, values: Array) -> Array:
    """Reduction over the last axis, in float32."""
    if op == "add":
        return values.sum(axis=-1, dtype=np.float32)
    if op == "multiply":
        return values.prod(axis=-1, dtype=np.float32)
    if op in ("maximum", "minimum"):
        return np.asarray(ALU[op].function.reduce(values, axis=-1))  # type: ignore[attr-defined]
    if op in ("abs_max", "abs_min"):
        return np.asarray((np.max if op == "abs_max" else np.min)(np.abs(values), axis=-1))
    folds = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}
    return folds[op].reduce(values != 0, axis=-1).astype(np.float32)


@semantics("activation")
def activation(core: Core, ins: ir.Instruction) -> None:
    """op(data * scale + bias)."""
    values = core.read(ins, "data") * core.read(ins, "scale")
    if core.has(ins, "bias"):
        values = values + core.read(ins, "bias")
    result = _activate(ins.attributes["op"], values)
    core.write(ins, "dst", result)
    _reduce(core, ins, "scalar", result)


@semantics("activate2")
def activate2(core: Core, ins: ir.Instruction) -> None:
    """op((data op0 imm0) op1 imm1)."""
    a = ins.attributes
    values = apply(a["op0"], core.read(ins, "data"), core.read(ins, "imm0"), a["reverse0"])
    values = apply(a["op1"], values, _operand(core, ins, "imm1"), a["reverse1"])
    result = _activate(a["op"], values, a["relu_param"])
    core.write(ins, "dst", result)
    _reduce(core, ins, "scalar", result)


# --- elementwise


@semantics("tensor_tensor")
def tensor_tensor(core: Core, ins: ir.Instruction) -> None:
    """data1 op data2: raw bits, exact integers on GpSimdE, or float32."""
    op = ins.attributes["op"]
    if _is_bits(ins, "op"):
        _write_bits(core, ins, "dst", ALU[op].function(_bits(core, ins, "data1"), _bits(core, ins, "data2")))
    elif ins.engine == "gpsimd" and all(core.dtype(ins, k).name in ("int32", "uint32") for k in ins.operands):
        a, b = (core.raw(ins, key).astype(np.int64) for key in ("data1", "data2"))
        _write_bits(core, ins, "dst", np.asarray(ALU[op].function(a, b)).astype(np.int64))
    else:
        core.write(ins, "dst", apply(op, core.read(ins, "data1"), core.read(ins, "data2")))


@semantics("tensor_scalar")
def tensor_scalar(core: Core, ins: ir.Instruction) -> None:
    """(data op0 operand0) op1 operand1."""
    a = ins.attributes
    if _is_bits(ins, "op0", "op1"):
        bits = _bits(core, ins, "data")
        mask = (1 << (8 * core.dtype(ins, "data").itemsize)) - 1
        for index in range(2 if "op1" in a else 1):
            other = _bits(core, ins, f"operand{index}")
            left, right = (other, bits) if a[f"reverse{index}"] else (bits, other)
            bits = ALU[a[f"op{index}"]].function(left, right) & mask
        _write_bits(core, ins, "dst", bits)
        return
    values = apply(a["op0"], core.read(ins, "data"), _operand(core, ins, "operand0"), a["reverse0"])
    if "op1" in a:
        values = apply(a["op1"], values, _operand(core, ins, "operand1"), a["reverse1"])
    core.write(ins, "dst", values)


@semantics("tensor_scalar_reduce")
def tensor_scalar_reduce(core: Core, ins: ir.Instruction) -> None:
    """data op0 operand0 and its reduction."""
    values = apply(ins.attributes["op0"], core.read(ins, "data"), core.read(ins, "operand0"))
    core.write(ins, "dst", values)
    sign = -1.0 if ins.attributes["reduce_res_negate"] else 1.0
    _reduce(core, ins, "vector", values, _operand(core, ins, "reduce_init"), sign)


@semantics("tensor_scalar_cumulative")
def tensor_scalar_cumulative(core: Core, ins: ir.Instruction) -> None:
    """Running op1 over (src op0 imm0). The register keeps the last value."""
    a = ins.attributes
    values = apply(a["op0"], core.read(ins, "src"), core.read(ins, "imm0"))
    identity = ALU["add" if a["op1"] == "subtract" else a["op1"]].identity
    rows = values.shape[0]
    register = core.accumulators.values["vector"][:rows]
    if a["reduce_cmd"] in ("reset", "reset_reduce"):
        register[:] = identity
    elif a["reduce_cmd"] == "load_reduce":
        register[:] = np.broadcast_to(core.read(ins, "imm1").reshape(-1), (rows,))
    result = np.empty_like(values)
    for index in range(values.shape[1]):
        register[:] = apply(a["op1"], register, values[:, index])
        result[:, index] = register
    core.write(ins, "dst", result)


@semantics("scalar_tensor_tensor")
def scalar_tensor_tensor(core: Core, ins: ir.Instruction) -> None:
    """(data op0 operand0) op1 operand1."""
    a = ins.attributes
    values = apply(a["op0"], core.read(ins, "data"), core.read(ins, "operand0"), a["reverse0"])
    core.write(ins, "dst", apply(a["op1"], values, core.read(ins, "operand1"), a["reverse1"]))


@semantics("tensor_tensor_scan")
def tensor_tensor_scan(core: Core, ins: ir.Instruction) -> None:
    """r = (data0[i] op0 r) op1 data1[i]."""
    a = ins.attributes
    data0, data1 = core.read(ins, "data0"), core.read(ins, "data1")
    running = np.broadcast_to(core.read(ins, "initial").reshape(-1), (data0.shape[0],))
    result = np.empty_like(data0)
    for index in range(data0.shape[1]):
        running = apply(a["op0"], data0[:, index], running, a["reverse0"])
        running = apply(a["op1"], running, data1[:, index], a["reverse1"])
        result[:, index] = running
    core.write(ins, "dst", result)


@semantics("tensor_copy")
def tensor_copy(core: Core, ins: ir.Instruction) -> None:
    """dst = src."""
    core.copy(ins, "dst", "src")


@semantics("tensor_copy_predicated")
def tensor_copy_predicated(core: Core, ins: ir.Instruction) -> None:
    """dst = src where predicate."""
    chosen = (core.raw(ins, "predicate") != 0) ^ ins.attributes["reverse_pred"]
    old = core.raw(ins, "dst")
    constant = ins.attributes.get("src")
    new = core.raw(ins, "src") if constant is None else _constant(core, ins, "dst", constant)
    core.write_raw(ins, "dst", np.where(chosen, new, old))


def _constant(core: Core, ins: ir.Instruction, key: str, value: float) -> Array:
    dtype = core.dtype(ins, key)
    if dtype.kind == "packed":
        return np.zeros((1, 1), dtype.storage)
    if dtype.is_integer and isinstance(value, int):
        return saturate(np.full((1, 1), value, np.int64), dtype)
    return encode(np.full((1, 1), value, np.float32), dtype)


@semantics("memset")
def memset(core: Core, ins: ir.Instruction) -> None:
    """dst = value."""
    view = core.view(core.access(ins, "dst"))
    view[...] = _constant(core, ins, "dst", ins.attributes["value"])[0, 0]


@semantics("reciprocal")
def reciprocal(core: Core, ins: ir.Instruction) -> None:
    """1 / data."""
    core.write(ins, "dst", np.float32(1) / core.read(ins, "data"))


@semantics("exponential")
def exponential(core: Core, ins: ir.Instruction) -> None:
    """exp(src - max_value)."""
    result = _activate("exp", core.read(ins, "src") - core.read(ins, "max_value"))
    core.write(ins, "dst", result)
    _reduce(core, ins, "vector", result, _operand(core, ins, "reduce_init"))


@semantics("select_reduce")
def select_reduce(core: Core, ins: ir.Instruction) -> None:
    """where(predicate, on_true, on_false)."""
    chosen = (core.raw(ins, "predicate") != 0) ^ ins.attributes["reverse_pred"]
    result = np.where(chosen, core.read(ins, "on_true"), core.read(ins, "on_false"))
    core.write(ins, "dst", result)
    _reduce(core, ins, "vector", result)


@semantics("range_select")
def range_select(core: Core, ins: ir.Instruction) -> None:
    """Keep where both comparisons of the index hold."""
    a = ins.attributes
    values = core.read(ins, "on_true_tile")
    index = (np.arange(values.shape[1]) + a["range_start"]).astype(np.float32)[None]
    first = apply(a["comp_op0"], index, core.read(ins, "bound0"))
    second = apply(a["comp_op1"], index, core.read(ins, "bound1"))
    result = np.where((first != 0) & (second != 0), values, np.float32(a["on_false_value"]))
    core.write(ins, "dst", result)
    _reduce(core, ins, "vector", result)


def _ramp(core: Core, ins: ir.Instruction, rows: int) -> Array:
    """offset + p * channel_multiplier + sum(step * index), as [rows, elements], wrapped to int32."""
    a = ins.attributes
    total = np.zeros((1,), np.int64)
    for step, count in a["pattern"]:
        total = (total[:, None] + np.arange(count, dtype=np.int64) * step).reshape(-1)
    full = a["offset"] + np.arange(rows, dtype=np.int64)[:, None] * a["channel_multiplier"] + total[None]
    return full.astype(np.int32)


@semantics("affine_select")
def affine_select(core: Core, ins: ir.Instruction) -> None:
    """where(ramp cmp 0, on_true, on_false)."""
    values = core.read(ins, "on_true_tile")
    ramp = _ramp(core, ins, values.shape[0]).astype(np.int64)
    chosen = ALU[ins.attributes["cmp_op"]].function(ramp, np.zeros_like(ramp)) != 0
    core.write(ins, "dst", np.where(chosen, values, np.float32(ins.attributes["on_false_value"])))


@semantics("iota")
def iota(core: Core, ins: ir.Instruction) -> None:
    """The ramp, converted."""
    ramp = _ramp(core, ins, core.access(ins, "dst").shape[0])
    dtype = core.dtype(ins, "dst")
    if dtype.is_integer:
        core.write_raw(ins, "dst", saturate(ramp.astype(np.int64), dtype))
    else:
        core.write(ins, "dst", ramp.astype(np.float32))


# --- reductions


@semantics("tensor_reduce")
def tensor_reduce(core: Core, ins: ir.Instruction) -> None:
    """The last axes reduced."""
    op, reduced = ins.attributes["op"], ins.attributes["reduced"]
    if ALU[op].kind == "bits":
        bits = _bits(core, ins, "data")
        bits = bits.reshape(bits.shape[0], -1, reduced)
        result = ALU[op].function.reduce(bits, axis=-1)  # type: ignore[attr-defined]
        _write_bits(core, ins, "dst", -result if ins.attributes["negate"] else result)
        return
    values = core.read(ins, "data")
    result = _fold(op, values.reshape(values.shape[0], -1, reduced))
    core.write(ins, "dst", -result if ins.attributes["negate"] else result)


@semantics("tensor_partition_reduce")
def tensor_partition_reduce(core: Core, ins: ir.Instruction) -> None:
    """Partitions reduced into one."""
    op = ins.attributes["op"]
    if op in ("bitwise_or", "bitwise_and"):
        result = ALU[op].function.reduce(_bits(core, ins, "data"), axis=0)  # type: ignore[attr-defined]
        _write_bits(core, ins, "dst", result[None])
        return
    values = core.read(ins, "data").T
    result = _fold("add" if op == "mean" else op, values)
    core.write(ins, "dst", (result / np.float32(values.shape[1]) if op == "mean" else result)[None])


@semantics("bn_stats")
def bn_stats(core: Core, ins: ir.Instruction) -> None:
    """(count, mean, variance * count) of even and of odd elements."""
    values = core.read(ins, "data")
    columns = []
    for part in (values[:, 0::2], values[:, 1::2]):
        count = part.shape[1]
        mean = part.mean(axis=1, dtype=np.float32) if count else np.zeros(len(part), np.float32)
        spread = np.square(part - mean[:, None]).sum(axis=1, dtype=np.float32)
        columns += [np.full(len(part), count, np.float32), mean, spread]
    core.write(ins, "dst", np.stack(columns, axis=1))


@semantics("bn_aggr")
def bn_aggr(core: Core, ins: ir.Instruction) -> None:
    """Mean and variance of all triples together."""
    data = core.read(ins, "data")
    triples = data.reshape(data.shape[0], -1, 3).astype(np.float64)
    count, mean, spread = triples[..., 0], triples[..., 1], triples[..., 2]
    total = count.sum(axis=1)
    overall = (count * mean).sum(axis=1) / total
    variance = (spread + count * np.square(mean - overall[:, None])).sum(axis=1) / total
    core.write(ins, "dst", np.stack([overall, variance], axis=1).astype(np.float32))


# --- random numbers


@semantics("dropout")
def dropout(core: Core, ins: ir.Instruction) -> None:
    """Zero where a random number is below prob."""
    values = core.read(ins, "data")
    draws = core.generators.uniform("vector", *values.shape)
    core.write(ins, "dst", np.where(draws < core.read(ins, "prob"), np.float32(0), values))


@semantics("rng")
def rng(core: Core, ins: ir.Instruction) -> None:
    """Random bits."""
    shape = core.access(ins, "dst").shape
    rows = shape[0]
    draws = core.generators.draw(ins.engine, rows, int(np.prod(shape[1:])))
    _write_bits(core, ins, "dst", draws.astype(np.int64))


@semantics("rand2")
def rand2(core: Core, ins: ir.Instruction) -> None:
    """Uniform in [min, max)."""
    shape = core.access(ins, "dst").shape
    draws = core.generators.uniform("vector", shape[0], int(np.prod(shape[1:])))
    low, high = core.read(ins, "min"), core.read(ins, "max")
    core.write(ins, "dst", low + draws * (high - low))


@semantics("set_rng_seed")
def set_rng_seed(core: Core, ins: ir.Instruction) -> None:
    """All generators from one seed."""
    core.generators.seed(int(core.raw(ins, "src_seeds")[0, 0]))


@semantics("rand_set_state")
def rand_set_state(core: Core, ins: ir.Instruction) -> None:
    """State of the generators of the partitions of src."""
    words = core.raw(ins, "src")
    state = core.generators.state[ins.engine]
    state[: len(words)] = words.reshape(len(words), *state.shape[1:])


@semantics("rand_get_state")
def rand_get_state(core: Core, ins: ir.Instruction) -> None:
    """State of the generators of the partitions of dst."""
    rows = core.access(ins, "dst").shape[0]
    core.write_raw(ins, "dst", core.generators.state[ins.engine][:rows])
