"""Rules of the computing instructions that the table does not hold. Each names its limit in the error."""

from __future__ import annotations

import math

from ..errors import NkiTypeError
from ..ops import ACTIVATIONS, ALU, op_name
from . import enums
from .call import Call, check, free, partitions
from .table import FP8

QUADRANT = 32  # partitions


# --- TensorE


def _bank(call: Call, key: str = "dst") -> None:
    """The result of one matrix product lies in one PSUM bank, before NeuronCore-v4."""
    dst = call.tensors[key]
    bank = call.target.psum_bank_bytes
    first = dst.offset % dst.storage_free * dst.dtype.itemsize
    last = first + sum(stride * (count - 1) for stride, count in dst.get_pattern()[1:]) * dst.dtype.itemsize
    if call.target.version < 4 and not dst._dynamic and first // bank != last // bank:
        call.fail(f"covers bytes {first} to {last + dst.dtype.itemsize - 1} of PSUM, more than one bank of {bank}", key)


@check("nc_matmul")
def nc_matmul(call: Call) -> None:
    """Sizes, dtypes and modes of a matrix product."""
    target, values = call.target, call.values
    dst, stationary, moving = (call.tensors[key] for key in ("dst", "stationary", "moving"))
    double = call.member("perf_mode", enums.matmul_perf_mode) is enums.matmul_perf_mode.double_row
    rows, columns = free(stationary), free(moving)
    if double:
        for key, tensor in (("stationary", stationary), ("moving", moving)):
            if tensor.dtype.name not in FP8:
                call.fail(f"is {tensor.dtype}, double_row takes {', '.join(FP8)}", key, NkiTypeError)
            call.need(
                tensor.ndim == 3 and tensor.shape[1] == 2, f"has shape {tensor.shape}, double_row takes (K, 2, n)", key
            )
        call.need(not values["is_transpose"], "is_transpose does not go with double_row")
        rows, columns = rows // 2, columns // 2
    wide = [tensor.dtype.name in ("float32", "tfloat32") for tensor in (stationary, moving)]
    if wide[0] != wide[1]:
        call.fail(
            f"is {moving.dtype}, stationary is {stationary.dtype}: float32 and tfloat32 go only with each other",
            "moving",
            NkiTypeError,
        )
    call.need(
        rows <= target.stationary_fmax, f"has {rows} free elements, the limit is {target.stationary_fmax}", "stationary"
    )
    limit = target.moving_fmax * (2 if target.version >= 4 and dst.dtype.itemsize == 2 else 1)
    call.need(columns <= limit, f"has {columns} free elements, the limit is {limit}", "moving")
    if partitions(dst) != rows or free(dst) != columns:
        call.fail(f"is [{partitions(dst)}, {free(dst)}], the product is [{rows}, {columns}]", "dst")
    if values["is_transpose"]:
        call.need(dst.dtype == stationary.dtype, f"is {dst.dtype}, a transpose keeps {stationary.dtype}", "dst")
    else:
        allowed = ("float32", "bfloat16") if target.version >= 4 else ("float32",)
        if dst.dtype.name not in allowed:
            call.fail(
                f"is {dst.dtype}, products are written as {' or '.join(allowed)} on {target.name}", "dst", NkiTypeError
            )
    if call.values["accumulate"] not in (None, True, False):
        call.fail(f"is {call.values['accumulate']!r}, it takes None, True or False", "accumulate", NkiTypeError)
    _tile(call, rows)
    _bank(call)


def _tile(call: Call, columns: int | None) -> None:
    """tile_position and tile_size: parts of the array that start at multiples of their size, 32, 64 or 128.

    `columns` is the number of stationary columns; None: only rows can be tiled.
    """
    position, size = call.values["tile_position"], call.values["tile_size"]
    if not position and not size:
        call.values["tile_position"] = call.values["tile_size"] = None
        return
    ok = len(position or ()) == 2 and len(size or ()) == 2
    call.need(ok, f"takes (row, column) pairs for both tile_position {position} and tile_size {size}")
    for what, start, extent in zip(("rows", "columns"), position, size, strict=True):
        good = extent in (32, 64, 128) and start % extent == 0 and start >= 0 and start + extent <= 128
        problem = f"has {what} {start} + {extent}: sizes are 32, 64 or 128, a tile starts at a multiple of its size"
        call.need(good, problem, "tile_position")
    rows = partitions(call.tensors["moving"])
    call.need(rows <= size[0], f"is {size[0]} rows, the operands have {rows} partitions", "tile_size")
    if columns is None:
        call.need(size[1] == 128, f"has columns {position[1]} + {size[1]}: only rows can be tiled", "tile_position")
    else:
        call.need(columns <= size[1], f"is {size[1]} columns, stationary has {columns}", "tile_size")


@check("nc_matmul_mx")
def nc_matmul_mx(call: Call) -> None:
    """Microscaled product: quadrants, scales, sizes."""
    dst, stationary, moving = (call.tensors[key] for key in ("dst", "stationary", "moving"))
    rows = partitions(stationary)
    call.need(rows % QUADRANT == 0, f"has {rows} partitions, not a multiple of {QUADRANT}", "stationary")
    call.need(
        free(stationary) <= call.target.stationary_fmax and free(stationary) % 2 == 0,
        f"has {free(stationary)} free elements, it takes an even number up to {call.target.stationary_fmax}",
        "stationary",
    )
    limit = call.target.moving_fmax * (2 if dst.dtype.itemsize == 2 else 1)
    call.need(free(moving) <= limit, f"has {free(moving)} free elements, the limit is {limit}", "moving")
    if (partitions(dst), free(dst)) != (free(stationary), free(moving)):
        call.fail(f"is [{partitions(dst)}, {free(dst)}], the product is [{free(stationary)}, {free(moving)}]", "dst")
    if dst.dtype.name not in ("float32", "bfloat16"):
        call.fail(f"is {dst.dtype}, products are written as float32 or bfloat16", "dst", NkiTypeError)
    for key in ("stationary", "moving"):
        scale_rows(call, key + "_scale", rows, free(call.tensors[key]))
    _tile(call, None)


def scale_rows(call: Call, key: str, rows: int, columns: int) -> None:
    """Four scales for each quadrant of 32 partitions, in its first partitions."""
    scale = call.tensors[key]
    least = (rows // QUADRANT - 1) * QUADRANT + 4
    call.need(
        partitions(scale) >= least and free(scale) == columns,
        f"is [{partitions(scale)}, {free(scale)}], it takes at least [{least}, {columns}]",
        key,
    )


@check("nc_transpose")
def nc_transpose(call: Call) -> None:
    """TensorE: SBUF to PSUM up to 128x128. VectorE: up to 32x32 anywhere."""
    dst, data = call.tensors["dst"], call.tensors["data"]
    if (partitions(dst), free(dst)) != (free(data), partitions(data)):
        call.fail(f"is [{partitions(dst)}, {free(dst)}], the transpose is [{free(data)}, {partitions(data)}]", "dst")
    call.same_dtype("dst", "data")
    tensor_engine = dst.buffer == "psum" and data.buffer == "sbuf"
    small = max(partitions(data), free(data)) <= QUADRANT
    if call.asked is enums.engine.unknown:
        call.asked = enums.engine.tensor if tensor_engine else enums.engine.vector
    if call.asked is enums.engine.tensor:
        call.need(tensor_engine, "on TensorE reads SBUF and writes PSUM")
        call.need(free(data) <= 128, f"has {free(data)} free elements, the limit is 128", "data")
        if data.dtype.is_integer:
            call.fail(f"is {data.dtype}, TensorE takes floating point; cast or use VectorE", "data", NkiTypeError)
        _bank(call)
    else:
        call.need(small, f"is [{partitions(data)}, {free(data)}], VectorE transposes up to 32x32", "data")


# --- ScalarE


def activation_function(call: Call) -> None:
    """`op` is a function of ScalarE."""
    name = op_name(call.values["op"])
    if name == "prelu" and call.opcode == "activate2":
        call.values["op"] = name
        return
    if name not in ACTIVATIONS:
        call.fail(
            f"is {call.values['op']!r}, it takes an activation function of nki.language such as nl.exp",
            "op",
            NkiTypeError,
        )
    call.values["op"] = name


@check("activation")
def activation(call: Call) -> None:
    """Function, bias, scale and the accumulation register."""
    activation_function(call)
    command = call.member("reduce_cmd", enums.reduce_cmd)
    call.need(command is not enums.reduce_cmd.load_reduce, "load_reduce is for VectorE", "reduce_cmd")
    if call.values["reduce_op"] is not None:
        call.need(call.alu("reduce_op") == "add", "must be nl.add: ScalarE reduces by adding", "reduce_op")
    elif command in (enums.reduce_cmd.reduce, enums.reduce_cmd.reset_reduce):
        call.fail(f"is {command.name}, which needs a reduce_op", "reduce_cmd")


@check("activate2")
def activate2(call: Call) -> None:
    """Function and the two operators before it."""
    activation_function(call)
    call.member("reduce_cmd", enums.reduce_cmd)
    pair = (call.alu("op0"), call.alu("op1"))
    legal = [
        ("multiply", "add"),
        ("multiply", "subtract"),
        ("multiply", "bypass"),
        ("add", "bypass"),
        ("subtract", "bypass"),
        ("bypass", "bypass"),
    ]
    call.need(pair in legal, f"(op0, op1) is {pair}, legal are {', '.join(map(str, legal))}")
    if "imm1" not in call.tensors and "imm1" not in call.values:
        call.need(pair[1] == "bypass", f"is missing, op1={pair[1]} needs it", "imm1")
    if call.values["reduce_op"] is not None:
        op = call.alu("reduce_op")
        call.need(
            op in ("add", "maximum", "minimum", "abs_max", "abs_min"), f"is {op}, which cannot reduce here", "reduce_op"
        )
    call.number("relu_param")


# --- elementwise


@check("tensor_tensor")
def tensor_tensor(call: Call) -> None:
    """Operator class, PSUM rule, engine: 32-bit integers go to GpSimdE, which computes them exactly."""
    name = call.alu("op")
    call.need(not ALU[name].unary, f"is {name}, which takes one operand", "op")
    if ALU[name].kind == "bits":
        call.need_bits("dst", "data1", "data2")
    call.not_both_psum("data1", "data2")
    sides = [call.tensors[key] for key in ("dst", "data1", "data2")]
    exact = all(t.dtype.name in ("int32", "uint32") and t.buffer == "sbuf" for t in sides)
    if call.asked is enums.engine.unknown and ALU[name].kind == "arithmetic" and (exact or name == "power"):
        call.engine = "gpsimd"
    elif name == "power" and call.asked is not enums.engine.gpsimd:
        call.fail(f"is power, which runs on gpsimd, not {call.asked.name}", "op")


@check("tensor_scalar")
def tensor_scalar(call: Call) -> None:
    """One or two operators of one class; what each engine has."""
    names = [call.alu("op0")]
    if call.values["op1"] is not None:
        names.append(call.alu("op1"))
    kinds = {ALU[name].kind for name in names if name != "bypass"}
    call.need(len(kinds) <= 1, f"op0={names[0]} is arithmetic and op1={names[-1]} is not, or the reverse")
    for index, name in enumerate(names):
        key = f"operand{index}"
        given = key in call.tensors or key in call.values
        call.need(given or ALU[name].unary, f"is missing, op{index}={name} needs it", key)
        if kinds == {"arithmetic"} and key in call.tensors and call.tensors[key].dtype.name != "float32":
            call.fail(f"is {call.tensors[key].dtype}, it takes float32", key, NkiTypeError)
    if kinds == {"bits"}:
        call.need_bits("dst", "data", "operand0", "operand1")
        for key in ("operand0", "operand1"):
            if isinstance(call.values.get(key), float):
                call.fail(f"is {call.values[key]!r}, bit operators take integers", key, NkiTypeError)
    asked = call.asked
    if asked is enums.engine.scalar:
        call.need_version(3, "tensor_scalar on ScalarE")
        legal = tuple(names) in (("multiply", "add"), ("multiply",), ("add",))
        call.need(
            legal or call.target.version >= 4,
            f"has {' and '.join(names)}: ScalarE of {call.target.name} has multiply and add, multiply, or add",
        )
    if asked is enums.engine.gpsimd:
        call.need(names == ["rsqrt"], f"has {' and '.join(names)}: GpSimdE has rsqrt only")
    if kinds == {"bits"} and asked not in (enums.engine.unknown, enums.engine.vector):
        call.fail(f"has bit operators, which run on vector, not {asked.name}")


@check("tensor_scalar_reduce")
def tensor_scalar_reduce(call: Call) -> None:
    """Arithmetic, with a reduction into VectorE's register."""
    call.alu("op0", ("arithmetic",))
    call.need(not call.values["reverse0"], "is not supported", "reverse0")
    _vector_reduction(call, ("add", "multiply", "maximum", "minimum"))


def _vector_reduction(call: Call, legal: tuple[str, ...]) -> None:
    command = call.member("reduce_cmd", enums.reduce_cmd)
    op = call.alu("reduce_op", ("arithmetic",))
    call.need(op in legal, f"is {op}, it takes {', '.join(legal)}", "reduce_op")
    if command is enums.reduce_cmd.load_reduce and "reduce_init" in call.spec.operands:
        call.need(
            "reduce_init" in call.tensors or "reduce_init" in call.values,
            "is missing, load_reduce needs it",
            "reduce_init",
        )


@check("tensor_scalar_cumulative")
def tensor_scalar_cumulative(call: Call) -> None:
    """A running reduction along the free dimension."""
    call.alu("op0", ("arithmetic",))
    op = call.alu("op1", ("arithmetic",))
    legal = ("add", "subtract", "multiply", "maximum", "minimum")
    call.need(op in legal, f"is {op}, it takes {', '.join(legal)}", "op1")
    command = call.member("reduce_cmd", enums.reduce_cmd)
    if command is enums.reduce_cmd.load_reduce:
        call.need("imm1" in call.tensors or "imm1" in call.values, "is missing, load_reduce needs it", "imm1")
    for key in ("dst", "src"):
        if call.tensors[key].dtype.name in ("int32", "uint32"):
            call.fail(f"is {call.tensors[key].dtype}, 32-bit integers are not supported", key, NkiTypeError)


@check("scalar_tensor_tensor")
def scalar_tensor_tensor(call: Call) -> None:
    """Arithmetic on at most one PSUM input."""
    call.alu("op0", ("arithmetic",))
    call.alu("op1", ("arithmetic",))
    call.not_both_psum("data", "operand1")


@check("tensor_tensor_scan")
def tensor_tensor_scan(call: Call) -> None:
    """Arithmetic on at most one PSUM input."""
    call.alu("op0", ("arithmetic",))
    call.alu("op1", ("arithmetic",))
    call.not_both_psum("data0", "data1")


@check("tensor_copy")
def tensor_copy(call: Call) -> None:
    """Packed types are copied as they are."""
    dst, src = call.tensors["dst"], call.tensors["src"]
    if "packed" in (dst.dtype.kind, src.dtype.kind):
        call.same_dtype("dst", "src")
    if call.asked is enums.engine.scalar:
        call.need_version(3, "tensor_copy on ScalarE")
    if call.asked is enums.engine.unknown and call.target.version >= 3 and dst.buffer == src.buffer == "psum":
        call.engine = "vector"


@check("tensor_copy_predicated")
def tensor_copy_predicated(call: Call) -> None:
    """Source and destination have one dtype."""
    if "src" in call.tensors:
        call.same_dtype("src", "dst")


@check("memset")
def memset(call: Call) -> None:
    """The value is of the class of the dtype."""
    dtype = call.tensors["dst"].dtype
    value = call.number("value")
    if dtype.kind == "packed":
        call.need(value == 0, f"is {value}, {dtype} takes only 0", "value")
    elif dtype.is_integer and (isinstance(value, float) or isinstance(value, bool) and dtype.name != "bool_"):
        call.fail(f"is {value!r}, {dtype} takes an integer", "value", NkiTypeError)
    elif dtype.is_integer:
        bits, signed = dtype.itemsize * 8, dtype.kind == "int"
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        call.need(low <= value <= high, f"is {value}, {dtype} holds {low} to {high}", "value")
    elif isinstance(value, bool):
        call.fail(f"is {value!r}, {dtype} takes a number", "value", NkiTypeError)


@check("exponential")
def exponential(call: Call) -> None:
    """The accumulation register."""
    call.member("reduce_cmd", enums.reduce_cmd)


@check("select_reduce")
def select_reduce(call: Call) -> None:
    """Only maximum reduces here."""
    _vector_reduction(call, ("maximum",))


FP32_MIN = -3.4028234663852886e38


@check("range_select")
def range_select(call: Call) -> None:
    """Comparisons, and the value that what is not selected gets."""
    for key in ("comp_op0", "comp_op1"):
        op = call.alu(key, ("arithmetic",))
        legal = ("equal", "greater", "greater_equal", "less", "less_equal")
        call.need(op in legal, f"is {op}, it takes {', '.join(legal)}", key)
    _vector_reduction(call, ("maximum",))
    call.need(
        abs(call.number("on_false_value") / FP32_MIN - 1) < 1e-7,
        f"is {call.values['on_false_value']}, it must be {FP32_MIN}",
        "on_false_value",
    )
    last = call.number("range_start") + free(call.tensors["on_true_tile"]) - 1
    call.need(last < 1 << 24, f"reaches index {last}, which float32 cannot hold (limit {1 << 24})", "range_start")


def _pattern(call: Call, key: str) -> int:
    pattern = call.values["pattern"]
    ok = isinstance(pattern, list | tuple) and 1 <= len(pattern) <= 4
    ok = ok and all(isinstance(entry, list | tuple) and len(entry) == 2 for entry in pattern)
    call.need(ok, f"is {pattern!r}, it takes 1 to 4 pairs [step, count]", "pattern")
    count = math.prod(int(entry[1]) for entry in pattern)
    call.need(
        count == free(call.tensors[key]),
        f"has {count} elements, {key} has {free(call.tensors[key])} in a partition",
        "pattern",
    )
    return count


@check("affine_select")
def affine_select(call: Call) -> None:
    """An affine predicate over partition and free indices."""
    _pattern(call, "on_true_tile")
    op = call.alu("cmp_op", ("arithmetic",))
    legal = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
    call.need(op in legal, f"is {op}, it takes {', '.join(legal)}", "cmp_op")
    call.number("on_false_value")
    for key in ("offset", "channel_multiplier"):
        call.number(key)


@check("iota")
def iota(call: Call) -> None:
    """An affine ramp."""
    _pattern(call, "dst")
    for key in ("offset", "channel_multiplier"):
        call.number(key)


# --- reductions


@check("tensor_reduce")
def tensor_reduce(call: Call) -> None:
    """The last free axes, without a gap."""
    data, dst = call.tensors["data"], call.tensors["dst"]
    op = call.alu("op", reduce=True)
    if ALU[op].kind == "bits":
        call.need_bits("data", "dst")
    axis = call.values["axis"]
    axes = [axis] if isinstance(axis, int) else list(axis)
    ok = bool(axes) and all(isinstance(a, int) and -data.ndim <= a < data.ndim for a in axes)
    call.need(ok, f"is {axis!r}, data has {data.ndim} dimensions", "axis")
    axes = sorted(a % data.ndim for a in axes)
    call.need(
        0 not in axes, "contains the partition axis 0; nisa.tensor_partition_reduce reduces over partitions", "axis"
    )
    call.need(
        axes == list(range(data.ndim - len(axes), data.ndim)),
        f"is {axis!r}: only the last axes, without a gap, can be reduced; permute the view",
        "axis",
    )
    kept = math.prod(data.shape[1 : axes[0]])
    call.need(free(dst) == kept, f"has {free(dst)} elements in a partition, the reduction leaves {kept}", "dst")
    call.values = {"op": op, "reduced": free(data) // kept, "negate": bool(call.values["negate"])}


@check("tensor_partition_reduce")
def tensor_partition_reduce(call: Call) -> None:
    """Over partitions, into one."""
    op = op_name(call.values["op"])
    legal = ("add", "mean", "maximum", "bitwise_or", "bitwise_and")
    call.need(
        op in legal,
        f"is {call.values['op']!r}, it takes nl.add, nl.mean, nl.maximum, nl.bitwise_or or nl.bitwise_and",
        "op",
    )
    call.values["op"] = op
    if op in ("bitwise_or", "bitwise_and"):
        call.need_bits("data", "dst")
    dst, data = call.tensors["dst"], call.tensors["data"]
    call.need(
        partitions(dst) == 1 and free(dst) == free(data),
        f"is [{partitions(dst)}, {free(dst)}], the reduction is [1, {free(data)}]",
        "dst",
    )


@check("bn_stats")
def bn_stats(call: Call) -> None:
    """Six statistics of up to 512 elements."""
    count = free(call.tensors["data"])
    call.need(count <= 512, f"has {count} elements in a partition, the limit is 512", "data")
    call.need(
        free(call.tensors["dst"]) == 6, f"has {free(call.tensors['dst'])} elements in a partition, it takes 6", "dst"
    )


@check("bn_aggr")
def bn_aggr(call: Call) -> None:
    """Mean and variance of triples."""
    count = free(call.tensors["data"])
    call.need(count % 3 == 0, f"has {count} elements in a partition, not triples", "data")
    call.need(
        free(call.tensors["dst"]) == 2, f"has {free(call.tensors['dst'])} elements in a partition, it takes 2", "dst"
    )
