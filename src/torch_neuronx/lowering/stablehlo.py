"""Builds StableHLO modules from tensor values that know their PyTorch type. The MLIR binding is jaxlib's.

A `Value` is an SSA value with the shape and dtype that PyTorch gives it; int64 is carried as i32 (see `element_type`).
The `Builder`'s methods are StableHLO's operations with PyTorch's conventions: sizes as tuples, negative dimensions
already resolved, types inferred.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import torch

from torch_neuronx.lowering.errors import IntegerRangeError, MissingExtraError, UnsupportedDtypeError

try:
    import numpy as np
    from jaxlib.mlir import ir, passmanager
    from jaxlib.mlir._mlir_libs import _jax_mlir_ext
    from jaxlib.mlir.dialects import chlo, func
    from jaxlib.mlir.dialects import stablehlo as hlo
except ImportError as error:
    raise MissingExtraError(
        f"lowering to StableHLO needs jaxlib's MLIR binding, which is not installed here ({error}). Install the "
        "optional extra: pip install 'torch-neuronx[stablehlo]'."
    ) from error

Size = tuple[int, ...]
Direction = Literal["EQ", "NE", "LT", "LE", "GT", "GE"]

INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)

# PyTorch's type -> name of the MLIR type. int64 runs as int32, as Trainium's compiler does by default.
_ELEMENTS = {
    torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.bool: "i1", torch.int8: "i8",
    torch.int16: "i16", torch.int32: "i32", torch.int64: "i32", torch.uint8: "ui8", torch.uint16: "ui16",
    torch.uint32: "ui32", torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2",
}  # fmt: skip
UNSUPPORTED_REASONS = {
    torch.float64: "Trainium has no float64; convert the tensor to float32, or keep this part on the CPU",
    torch.complex128: "Trainium has no float64; use complex64, which runs as pairs of float32",
    torch.uint64: "Trainium has no 64-bit integers; use int32 or uint32",
}


def unsupported_dtype(dtype: torch.dtype, what: str) -> UnsupportedDtypeError:
    """The error for a tensor of this dtype: names it, `what` has it, and the remedy."""
    reason = UNSUPPORTED_REASONS.get(dtype, "use one of " + ", ".join(sorted(str(d)[6:] for d in _ELEMENTS)))
    return UnsupportedDtypeError(f"{what} has dtype {dtype}, which cannot be lowered: {reason}.")


@functools.cache
def context() -> Any:
    """The MLIR context of this process, with the dialects loaded."""
    registry = ir.DialectRegistry()
    _jax_mlir_ext.register_dialects(registry)
    made = ir.Context()
    made.append_dialect_registry(registry)
    made.load_all_available_dialects()
    hlo.register_dialect(made)
    chlo.register_dialect(made)
    hlo.register_stablehlo_passes()
    return made


def is_lowerable(dtype: torch.dtype) -> bool:
    """Whether tensors of this dtype have a StableHLO form here (complex64 has one as a pair, see complex.py)."""
    return dtype in _ELEMENTS


def element_type(dtype: torch.dtype) -> Any:
    """MLIR's element type. UnsupportedDtypeError for what Trainium lacks."""
    name = _ELEMENTS.get(dtype)
    if name is None:
        raise unsupported_dtype(dtype, "a tensor of this graph")
    return ir.Type.parse(name, context())


def tensor_type(shape: Sequence[int], dtype: torch.dtype) -> Any:
    return ir.RankedTensorType.get([int(s) for s in shape], element_type(dtype), loc=ir.Location.unknown(context()))


def accumulate_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums and functions of this type are computed: float32 for the narrow ones."""
    narrow = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
    return torch.float32 if dtype in narrow else dtype


def integer_limits(dtype: torch.dtype) -> tuple[int, int]:
    """Smallest and largest value that this integer type holds in a module."""
    info = torch.iinfo(torch.int32 if dtype == torch.int64 else dtype)
    return info.min, info.max


def lowest(dtype: torch.dtype) -> float | int | bool:
    """Identity of max."""
    if dtype == torch.bool:
        return False
    return -math.inf if dtype.is_floating_point else integer_limits(dtype)[0]


def highest(dtype: torch.dtype) -> float | int | bool:
    """Identity of min."""
    if dtype == torch.bool:
        return True
    return math.inf if dtype.is_floating_point else integer_limits(dtype)[1]


def checked_int(value: int, what: str) -> int:
    """An int64 constant as int32. The ends of int64, which stand for 'no limit', become the ends of int32."""
    if value in _INT64:
        return INT32[_INT64.index(value)]
    if not INT32[0] <= value <= INT32[1]:
        raise IntegerRangeError(
            f"{what} is {value}, but int64 runs as int32 on Trainium and holds {INT32[0]} to {INT32[1]}. Use smaller "
            "numbers, float32 where rounding does not matter, or keep this part on the CPU."
        )
    return value


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor in the module."""

    ir: Any
    shape: Size
    dtype: torch.dtype

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)


def _ints(values: Sequence[int]) -> Any:
    return ir.DenseI64ArrayAttr.get([int(v) for v in values])


class Builder:
    """Writes operations at MLIR's current insertion point and location."""

    # --- constants ----------------------------------------------------------------------------------------------------
    def constant(self, value: Any, dtype: torch.dtype, shape: Sequence[int] = ()) -> Value:
        """`value` everywhere. An integer constant has to fit its type (int64: int32, see checked_int)."""
        shape = tuple(shape)
        element = element_type(dtype)
        if dtype.is_floating_point:
            attribute = ir.FloatAttr.get(element, float(value))
        elif dtype == torch.bool:
            attribute = ir.BoolAttr.get(bool(value))
        else:
            number = checked_int(int(value), "a constant of the graph") if dtype == torch.int64 else int(value)
            low, high = integer_limits(dtype)
            number = (number - low) % (high - low + 1) + low
            attribute = ir.IntegerAttr.get(element, number)
        splat = ir.DenseElementsAttr.get_splat(tensor_type(shape, dtype), attribute)
        return Value(hlo.constant(splat), shape, dtype)

    def dense(self, tensor: torch.Tensor) -> Value:
        """A constant with the values of a CPU tensor."""
        return self._dense(tensor.detach().resolve_conj().resolve_neg().contiguous())

    def _dense(self, tensor: torch.Tensor) -> Value:
        shape, dtype = tuple(tensor.shape), tensor.dtype
        if tensor.numel() and bool((tensor.reshape(-1) == tensor.reshape(-1)[0]).all()):
            return self.constant(tensor.reshape(-1)[0].item(), dtype, shape)
        if dtype == torch.int64 and tensor.numel():
            checked_int(int(tensor.min()), "a constant of the graph"), checked_int(int(tensor.max()), "a constant")
            tensor = tensor.to(torch.int32)
        if dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
            return self.convert(self._dense(tensor.to(torch.float32)), dtype)
        array = tensor.numpy()
        if dtype == torch.bool:
            packed = np.packbits(array, bitorder="little")
            attribute = ir.DenseElementsAttr.get(packed, type=element_type(dtype), shape=list(shape))
        else:
            attribute = ir.DenseElementsAttr.get(array, type=element_type(dtype), shape=list(shape))
        return Value(hlo.constant(attribute), shape, dtype)

    def iota(self, shape: Sequence[int], dim: int, dtype: torch.dtype = torch.int32) -> Value:
        """0, 1, 2, ... along `dim`."""
        return Value(hlo.iota(tensor_type(shape, dtype), dim), tuple(shape), dtype)

    # --- types and shapes ---------------------------------------------------------------------------------------------
    def convert(self, x: Value, dtype: torch.dtype) -> Value:
        """PyTorch's `.to(dtype)`: to bool by != 0, from float to integer towards zero."""
        if x.dtype == dtype:
            return x
        if element_type(x.dtype) == element_type(dtype):
            return Value(x.ir, x.shape, dtype)
        if dtype == torch.bool:
            return self.compare("NE", x, self.constant(0, x.dtype, x.shape))
        narrow = not dtype.is_floating_point and dtype not in (torch.int32, torch.int64)
        if x.dtype.is_floating_point and narrow:
            x = self.convert(x, torch.int32)  # XLA would saturate where PyTorch wraps round
        return Value(hlo.convert(tensor_type(x.shape, dtype), x.ir), x.shape, dtype)

    def bitcast(self, x: Value, dtype: torch.dtype) -> Value:
        """The same bits as a type of the same size."""
        return Value(hlo.bitcast_convert(tensor_type(x.shape, dtype), x.ir), x.shape, dtype)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(int(s) for s in shape)
        if shape == x.shape:
            return x
        return Value(hlo.reshape(tensor_type(shape, x.dtype), x.ir), shape, x.dtype)

    def broadcast_dims(self, x: Value, shape: Sequence[int], dims: Sequence[int]) -> Value:
        """Dimension i of x becomes dimension dims[i] of the result."""
        shape = tuple(int(s) for s in shape)
        made = hlo.broadcast_in_dim(tensor_type(shape, x.dtype), x.ir, _ints(dims))
        return Value(made, shape, x.dtype)

    def expand(self, x: Value, shape: Sequence[int]) -> Value:
        """PyTorch's broadcasting to `shape`."""
        shape = tuple(int(s) for s in shape)
        if shape == x.shape:
            return x
        return self.broadcast_dims(x, shape, range(len(shape) - x.rank, len(shape)))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        permutation = list(permutation)
        if permutation == list(range(x.rank)):
            return x
        return Value(hlo.transpose(x.ir, _ints(permutation)), tuple(x.shape[p] for p in permutation), x.dtype)

    def move_dim(self, x: Value, source: int, target: int) -> Value:
        order = [d for d in range(x.rank) if d != source]
        order.insert(target, source)
        return self.transpose(x, order)

    def slice(self, x: Value, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None) -> Value:
        step = [1] * x.rank if step is None else list(step)
        shape = tuple(max(0, -(-(b - a) // c)) for a, b, c in zip(start, stop, step, strict=True))
        if shape == x.shape:
            return x
        return Value(hlo.slice(x.ir, _ints(start), _ints(stop), _ints(step)), shape, x.dtype)

    def slice_dim(self, x: Value, dim: int, start: int, stop: int, step: int = 1) -> Value:
        low, high, steps = [0] * x.rank, list(x.shape), [1] * x.rank
        low[dim], high[dim], steps[dim] = start, max(start, stop), step
        return self.slice(x, low, high, steps)

    def pad(
        self, x: Value, value: Any, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None = None
    ) -> Value:
        """Negative padding cuts off."""
        interior = [0] * x.rank if interior is None else list(interior)
        shape = tuple(
            lo + hi + n + max(n - 1, 0) * i for lo, hi, n, i in zip(low, high, x.shape, interior, strict=True)
        )
        if shape == x.shape and not any(low):
            return x
        fill = value if isinstance(value, Value) else self.constant(value, x.dtype)
        return Value(hlo.pad(x.ir, fill.ir, _ints(low), _ints(high), _ints(interior)), shape, x.dtype)

    def concatenate(self, parts: Sequence[Value], dim: int) -> Value:
        if len(parts) == 1:
            return parts[0]
        shape = list(parts[0].shape)
        shape[dim] = sum(p.shape[dim] for p in parts)
        return Value(hlo.concatenate([p.ir for p in parts], dim), tuple(shape), parts[0].dtype)

    def reverse(self, x: Value, dims: Sequence[int]) -> Value:
        return Value(hlo.reverse(x.ir, _ints(dims)), x.shape, x.dtype) if dims else x

    # --- elementwise --------------------------------------------------------------------------------------------------
    def unary(self, name: str, x: Value) -> Value:
        """A StableHLO or CHLO operation of one tensor with a result of the same type."""
        made = getattr(hlo, name, None) or getattr(chlo, name)
        return Value(made(x.ir), x.shape, x.dtype)

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """A StableHLO or CHLO operation of two tensors of one type; the smaller is broadcast."""
        if name == "next_after":
            made = chlo.broadcast_next_after
        elif name in ("polygamma", "zeta"):
            made = getattr(chlo, name)
        else:
            made = getattr(hlo, name)
        x, y = self.same_shape(x, y)
        return Value(made(x.ir, y.ir), x.shape, x.dtype)

    def same_shape(self, *values: Value) -> list[Value]:
        shape = tuple(torch.broadcast_shapes(*(v.shape for v in values)))  # type: ignore[no-untyped-call]
        return [self.expand(v, shape) for v in values]

    def add(self, x: Value, y: Value) -> Value:
        return self.binary("or_" if x.dtype == torch.bool else "add", x, y)

    def subtract(self, x: Value, y: Value) -> Value:
        return self.binary("subtract", x, y)

    def multiply(self, x: Value, y: Value) -> Value:
        return self.binary("and_" if x.dtype == torch.bool else "multiply", x, y)

    def divide(self, x: Value, y: Value) -> Value:
        return self.binary("divide", x, y)

    def scale(self, x: Value, factor: float) -> Value:
        return self.multiply(x, self.constant(factor, x.dtype))

    def shift(self, x: Value, amount: float) -> Value:
        return self.add(x, self.constant(amount, x.dtype))

    def compare(self, direction: Direction, x: Value, y: Value) -> Value:
        x, y = self.same_shape(x, y)
        kind = "FLOAT" if x.dtype.is_floating_point else "SIGNED"
        if x.dtype in (torch.bool, torch.uint8, torch.uint16, torch.uint32):
            kind = "UNSIGNED"
        made = hlo.compare(
            x.ir,
            y.ir,
            hlo.ComparisonDirectionAttr.get(direction, context()),
            compare_type=hlo.ComparisonTypeAttr.get(kind, context()),
        )
        return Value(made, x.shape, torch.bool)

    def compare_with(self, direction: Direction, x: Value, number: float | int) -> Value:
        return self.compare(direction, x, self.constant(number, x.dtype))

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        condition, x, y = self.same_shape(condition, x, y)
        return Value(hlo.select(condition.ir, x.ir, y.ir), x.shape, x.dtype)

    def logical_not(self, x: Value) -> Value:
        return self.unary("not_", x)

    def is_nan(self, x: Value) -> Value:
        return self.compare("NE", x, x)

    # --- regions ------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def region(self, region: Any, types: Sequence[tuple[Size, torch.dtype]]) -> Iterator[list[Value]]:
        """A new block of `region` with arguments of these types; the body ends with `returns`."""
        block = region.blocks.append(
            *[tensor_type(s, d) for s, d in types], arg_locs=[ir.Location.current for _ in types]
        )
        with ir.InsertionPoint(block):
            yield [Value(a, s, d) for a, (s, d) in zip(block.arguments, types, strict=True)]

    def returns(self, *values: Value) -> None:
        hlo.return_([v.ir for v in values])

    def _binary_region(self, region: Any, dtype: torch.dtype, combine: Callable[[Value, Value], Value]) -> None:
        with self.region(region, [((), dtype), ((), dtype)]) as (a, b):
            self.returns(combine(a, b))

    # --- reductions and windows ---------------------------------------------------------------------------------------
    def reduce(self, name: str, x: Value, dims: Sequence[int], keepdim: bool = False) -> Value:
        """`name` is sum, prod, max, min, any or all, in x's own type: convert first where that is too narrow."""
        combine, start = self.reducer(name, x.dtype)
        shape = tuple(s for d, s in enumerate(x.shape) if d not in dims)
        if dims:
            op = hlo.ReduceOp([tensor_type(shape, x.dtype)], [x.ir], [start.ir], _ints(sorted(dims)))
            self._binary_region(op.body, x.dtype, combine)
            result = Value(op.results[0], shape, x.dtype)
        else:
            result = x
        if keepdim:
            result = self.reshape(result, [1 if d in dims else s for d, s in enumerate(x.shape)])
        return result

    def reducer(self, name: str, dtype: torch.dtype) -> tuple[Callable[[Value, Value], Value], Value]:
        """(function of two scalars, its identity)"""
        table: dict[str, tuple[str, Any]] = {
            "sum": ("add", 0), "prod": ("multiply", 1), "max": ("maximum", lowest(dtype)),
            "min": ("minimum", highest(dtype)), "any": ("or_", False), "all": ("and_", True),
        }  # fmt: skip
        op, identity = table[name]
        return functools.partial(self.binary, op), self.constant(identity, dtype)

    def reduce_many(
        self,
        values: Sequence[Value],
        identities: Sequence[Value],
        dim: int,
        combine: Callable[[list[Value], list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """A reduction along one dimension of several tensors of one shape together."""
        shape = tuple(s for d, s in enumerate(values[0].shape) if d != dim)
        op = hlo.ReduceOp(
            [tensor_type(shape, v.dtype) for v in values],
            [v.ir for v in values],
            [i.ir for i in identities],
            _ints([dim]),
        )
        n = len(values)
        types: list[tuple[Size, torch.dtype]] = [((), v.dtype) for v in values] * 2  # type: ignore[assignment]
        with self.region(op.body, types) as scalars:
            self.returns(*combine(scalars[:n], scalars[n:]))
        return [Value(r, shape, v.dtype) for r, v in zip(op.results, values, strict=True)]

    def reduce_window(
        self,
        name: str,
        x: Value,
        window: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        dilation: Sequence[int] | None = None,
    ) -> Value:
        dilation = [1] * x.rank if dilation is None else list(dilation)
        shape = tuple(
            (n + lo + hi - d * (w - 1) - 1) // s + 1
            for n, w, s, (lo, hi), d in zip(x.shape, window, strides, padding, dilation, strict=True)
        )
        combine, start = self.reducer(name, x.dtype)
        op = hlo.ReduceWindowOp(
            [tensor_type(shape, x.dtype)],
            [x.ir],
            [start.ir],
            _ints(window),
            window_strides=_ints(strides),
            window_dilations=_ints(dilation),
            padding=self._pairs(padding),
        )
        self._binary_region(op.body, x.dtype, combine)
        return Value(op.results[0], shape, x.dtype)

    def reduce_window_many(
        self,
        values: Sequence[Value],
        identities: Sequence[Value],
        window: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        dilation: Sequence[int],
        combine: Callable[[list[Value], list[Value]], Sequence[Value]],
    ) -> list[Value]:
        """reduce_window of several tensors of one shape together."""
        shape = tuple(
            (n + lo + hi - d * (w - 1) - 1) // s + 1
            for n, w, s, (lo, hi), d in zip(values[0].shape, window, strides, padding, dilation, strict=True)
        )
        op = hlo.ReduceWindowOp(
            [tensor_type(shape, v.dtype) for v in values],
            [v.ir for v in values],
            [i.ir for i in identities],
            _ints(window),
            window_strides=_ints(strides),
            window_dilations=_ints(dilation),
            padding=self._pairs(padding),
        )
        n = len(values)
        types: list[tuple[Size, torch.dtype]] = [((), v.dtype) for v in values] * 2  # type: ignore[assignment]
        with self.region(op.body, types) as scalars:
            self.returns(*combine(scalars[:n], scalars[n:]))
        return [Value(r, shape, v.dtype) for r, v in zip(op.results, values, strict=True)]

    def select_and_scatter(
        self,
        x: Value,
        source: Value,
        window: Sequence[int],
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
    ) -> Value:
        """Adds each element of `source` to where the maximum of its window of x is: max-pooling's gradient."""
        op = hlo.SelectAndScatterOp(
            tensor_type(x.shape, x.dtype),
            x.ir,
            source.ir,
            self.constant(0, x.dtype).ir,
            window_dimensions=_ints(window),
            window_strides=_ints(strides),
            padding=self._pairs(padding),
        )
        with self.region(op.select, [((), x.dtype), ((), x.dtype)]) as (a, b):
            self.returns(self.compare("GE", a, b))
        self._binary_region(op.scatter, x.dtype, self.add)
        return Value(op.result, x.shape, x.dtype)

    @staticmethod
    def _pairs(padding: Sequence[tuple[int, int]]) -> Any:
        return ir.DenseIntElementsAttr.get(np.asarray(padding, dtype=np.int64).reshape(-1, 2))

    # --- products -----------------------------------------------------------------------------------------------------
    def dot(
        self,
        x: Value,
        y: Value,
        batch: tuple[Sequence[int], Sequence[int]],
        contract: tuple[Sequence[int], Sequence[int]],
        dtype: torch.dtype,
    ) -> Value:
        """dot_general with a result of the accumulation type of `dtype`, rounded to `dtype` once at the end."""
        wide = accumulate_dtype(dtype)
        if dtype == torch.bool:
            wide, x, y = torch.int32, self.convert(x, torch.int32), self.convert(y, torch.int32)
        free_x = [d for d in range(x.rank) if d not in (*batch[0], *contract[0])]
        free_y = [d for d in range(y.rank) if d not in (*batch[1], *contract[1])]
        shape = (
            *(x.shape[d] for d in batch[0]),
            *(x.shape[d] for d in free_x),
            *(y.shape[d] for d in free_y),
        )
        numbers = hlo.DotDimensionNumbers.get(
            list(batch[0]), list(batch[1]), list(contract[0]), list(contract[1]), context()
        )
        highest_precision = hlo.PrecisionAttr.get(
            "HIGHEST" if wide == x.dtype == torch.float32 else "DEFAULT", context()
        )
        config = ir.ArrayAttr.get([highest_precision, highest_precision])
        made = hlo.dot_general(tensor_type(shape, wide), x.ir, y.ir, numbers, precision_config=config)
        return self.convert(Value(made, shape, wide), dtype)

    def convolution(
        self,
        x: Value,
        w: Value,
        layout: tuple[str, str, str],
        strides: Sequence[int],
        padding: Sequence[tuple[int, int]],
        lhs_dilation: Sequence[int],
        rhs_dilation: Sequence[int],
        shape: Sequence[int],
        dtype: torch.dtype,
        feature_groups: int = 1,
        batch_groups: int = 1,
    ) -> Value:
        """`layout` spells the dimensions of input, kernel and result: b, f, i, o and 0, 1, 2 for spatial ones."""
        wide = accumulate_dtype(dtype)
        spatial = "".join(c for c in layout[0] if c.isdigit())
        order = sorted(spatial)

        def at(text: str, letter: str) -> int:
            return text.index(letter)

        numbers = hlo.ConvDimensionNumbers.get(
            at(layout[0], "b"), at(layout[0], "f"), [at(layout[0], c) for c in order],
            at(layout[1], "i"), at(layout[1], "o"), [at(layout[1], c) for c in order],
            at(layout[2], "b"), at(layout[2], "f"), [at(layout[2], c) for c in order], context(),
        )  # fmt: skip
        made = hlo.convolution(
            tensor_type(shape, wide),
            x.ir,
            w.ir,
            numbers,
            feature_groups,
            batch_groups,
            window_strides=_ints(strides),
            padding=self._pairs(padding),
            lhs_dilation=_ints(lhs_dilation),
            rhs_dilation=_ints(rhs_dilation),
        )
        return self.convert(Value(made, tuple(shape), wide), dtype)

    # --- indexing -----------------------------------------------------------------------------------------------------
    def gather(
        self,
        x: Value,
        indices: Value,
        offset_dims: Sequence[int],
        collapsed: Sequence[int],
        index_map: Sequence[int],
        sizes: Sequence[int],
        shape: Sequence[int],
    ) -> Value:
        """Windows of `sizes` of x at `indices`, whose last dimension is the index vector. Out of range is clamped."""
        numbers = hlo.GatherDimensionNumbers.get(
            list(offset_dims), list(collapsed), [], [], list(index_map), indices.rank - 1, context()
        )
        made = hlo.gather(x.ir, indices.ir, numbers, _ints(sizes))
        return Value(made, tuple(shape), x.dtype)

    def scatter(
        self,
        x: Value,
        indices: Value,
        updates: Value,
        window_dims: Sequence[int],
        inserted: Sequence[int],
        index_map: Sequence[int],
        combine: Callable[[Value, Value], Value],
    ) -> Value:
        """x with `combine(old, update)` at `indices` (last dimension: the index vector). Out of range is dropped."""
        numbers = hlo.ScatterDimensionNumbers.get(
            list(window_dims), list(inserted), [], [], list(index_map), indices.rank - 1, context()
        )
        op = hlo.ScatterOp([tensor_type(x.shape, x.dtype)], [x.ir], indices.ir, [updates.ir], numbers)
        self._binary_region(op.update_computation, x.dtype, combine)
        return Value(op.results[0], x.shape, x.dtype)

    def dynamic_slice(self, x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
        return Value(hlo.dynamic_slice(x.ir, [s.ir for s in starts], _ints(sizes)), tuple(sizes), x.dtype)

    def dynamic_update_slice(self, x: Value, update: Value, starts: Sequence[Value]) -> Value:
        return Value(hlo.dynamic_update_slice(x.ir, update.ir, [s.ir for s in starts]), x.shape, x.dtype)

    def sort(
        self,
        values: Sequence[Value],
        dim: int,
        before: Callable[[list[Value], list[Value]], Value],
        stable: bool = True,
    ) -> list[Value]:
        """Sorts tensors together along `dim`; `before(a, b)` says whether the elements a go before the elements b."""
        op = hlo.SortOp(
            [tensor_type(v.shape, v.dtype) for v in values], [v.ir for v in values], dimension=dim, is_stable=stable
        )
        types: list[tuple[Size, torch.dtype]] = [((), v.dtype) for v in values for _ in range(2)]
        with self.region(op.comparator, types) as pairs:
            self.returns(before(pairs[0::2], pairs[1::2]))
        return [Value(r, v.shape, v.dtype) for r, v in zip(op.results, values, strict=True)]

    # --- control flow -------------------------------------------------------------------------------------------------
    def while_loop(
        self,
        carried: Sequence[Value],
        condition: Callable[[list[Value]], Value],
        body: Callable[[list[Value]], Sequence[Value]],
    ) -> list[Value]:
        types = [(v.shape, v.dtype) for v in carried]
        op = hlo.WhileOp([tensor_type(*t) for t in types], [v.ir for v in carried])
        with self.region(op.cond, types) as values:
            self.returns(condition(values))
        with self.region(op.body, types) as values:
            self.returns(*body(values))
        return [Value(r, s, d) for r, (s, d) in zip(op.results, types, strict=True)]

    def if_else(
        self,
        predicate: Value,
        types: Sequence[tuple[Size, torch.dtype]],
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]],
    ) -> list[Value]:
        op = hlo.IfOp([tensor_type(*t) for t in types], self.reshape(predicate, ()).ir)
        for region, branch in ((op.true_branch, then), (op.false_branch, otherwise)):
            with self.region(region, []):
                self.returns(*branch())
        return [Value(r, s, d) for r, (s, d) in zip(op.results, types, strict=True)]


def legalize(module: Any) -> None:
    """Replaces CHLO's functions (erf, lgamma, ...) by StableHLO arithmetic, and verifies the module."""
    with context():
        passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))").run(module.operation)
        module.operation.verify()


__all__ = [
    "Builder", "Direction", "INT32", "Size", "Value", "accumulate_dtype", "checked_int", "chlo", "context",
    "element_type", "func", "highest", "hlo", "integer_limits", "ir", "is_lowerable", "legalize", "lowest",
    "tensor_type", "unsupported_dtype",
]  # fmt: skip
