"""Pointwise operators. Most are rows of the tables at the end of each section.

Narrow floating-point types are computed in float32 and rounded once, as the engine does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from torch_neuronx.lowering.registry import add, lowers
from torch_neuronx.lowering.stablehlo import Builder, Direction, Value, accumulate_dtype, integer_limits

Unary = Callable[[Builder, Value], Value]
Binary = Callable[[Builder, Value, Value], Value]


def promoted(*operands: Any) -> torch.dtype:
    """PyTorch's result type of tensors and Python numbers. `operands` may be Values, Complex values or numbers."""
    return (
        torch.result_type(*operands)
        if len(operands) == 2 and not any(isinstance(o, Value) for o in operands)
        else _promote(operands)
    )


def _promote(operands: Any) -> torch.dtype:
    stand_ins = [
        torch.empty((1,) * o.rank, dtype=o.dtype, device="meta") if hasattr(o, "rank") else o for o in operands
    ]
    result = stand_ins[0]
    if len(stand_ins) == 1:
        return result.dtype if isinstance(result, torch.Tensor) else torch.get_default_dtype()
    dtype = torch.result_type(stand_ins[0], stand_ins[1])
    for other in stand_ins[2:]:
        dtype = torch.promote_types(dtype, torch.result_type(torch.empty((1,), dtype=dtype, device="meta"), other))
    return dtype


# --- one operand ------------------------------------------------------------------------------------------------------
def register_unary(name: str, function: Unary) -> None:
    """`function` gets the operand in the type in which the result is computed, and returns that type or bool."""

    def lower(cx: Any, x: Value, **_: Any) -> Value:
        made = function(cx, cx.convert(x, cx.wide))
        return cx.convert(made, cx.dtype)

    add([name], lower, "elementwise")


def direct(name: str) -> Unary:
    return lambda b, x: b.unary(name, x)


def exact_on_integers(function: Unary) -> Unary:
    """ceil, floor, round, trunc leave integers alone."""
    return lambda b, x: function(b, x) if x.dtype.is_floating_point else x


def _sign(b: Builder, x: Value) -> Value:
    if x.dtype == torch.bool:
        return x
    if not x.dtype.is_floating_point:
        zero = b.constant(0, x.dtype)
        positive = b.convert(b.compare("GT", x, zero), torch.int32)
        return b.convert(b.subtract(positive, b.convert(b.compare("LT", x, zero), torch.int32)), x.dtype)
    return b.select(b.is_nan(x), b.constant(0, x.dtype), b.unary("sign", x))


def _abs(b: Builder, x: Value) -> Value:
    unsigned = x.dtype in (torch.bool, torch.uint8, torch.uint16, torch.uint32)
    return x if unsigned else b.unary("abs", x)


def _trunc(b: Builder, x: Value) -> Value:
    return b.select(b.compare_with("LT", x, 0), b.unary("ceil", x), b.unary("floor", x))


def _reciprocal(b: Builder, x: Value) -> Value:
    return b.divide(b.constant(1, x.dtype), x)


def _sigmoid(b: Builder, x: Value) -> Value:
    return b.unary("logistic", x)


def _negative(b: Builder, x: Value) -> Value:
    return b.unary("negate", x)


def _log_base(base: float) -> Unary:
    return lambda b, x: b.divide(b.unary("log", x), b.constant(math.log(base), x.dtype))


def _exp2(b: Builder, x: Value) -> Value:
    return b.binary("power", b.constant(2, x.dtype, x.shape), x)


def _erfinv(b: Builder, x: Value) -> Value:
    return b.unary("erf_inv", x)


def _nan_at_poles(function: str) -> Unary:
    return lambda b, x: b.unary(function, x)


def _digamma(b: Builder, x: Value) -> Value:
    """At zero PyTorch gives the infinity of the other sign, at other poles NaN."""
    bits = b.compare_with("LT", b.bitcast(x, torch.int32), 0)
    infinity = b.constant(math.inf, x.dtype, x.shape)
    at_zero = b.select(bits, infinity, b.unary("negate", infinity))
    return b.select(b.compare_with("EQ", x, 0), at_zero, b.unary("digamma", x))


def _relu(b: Builder, x: Value) -> Value:
    zero = b.constant(0, x.dtype)
    return x if x.dtype == torch.bool else b.binary("maximum", x, zero)


def _angle(b: Builder, x: Value) -> Value:
    made = b.select(b.compare_with("LT", x, 0), b.constant(math.pi, x.dtype), b.constant(0, x.dtype))
    return b.select(b.is_nan(x), x, made)


def _logit_free(b: Builder, x: Value) -> Value:
    return b.unary("log", b.divide(x, b.subtract(b.constant(1, x.dtype), x)))


_UNARY: dict[str, Unary] = {
    "abs": _abs, "acos": direct("acos"), "acosh": direct("acosh"), "asin": direct("asin"), "asinh": direct("asinh"),
    "atan": direct("atan"), "atanh": direct("atanh"), "ceil": exact_on_integers(direct("ceil")),
    "cos": direct("cosine"), "cosh": direct("cosh"), "digamma": _digamma, "erf": direct("erf"),
    "erfc": direct("erfc"), "erfinv": _erfinv, "exp": direct("exponential"), "exp2": _exp2,
    "expm1": direct("exponential_minus_one"), "floor": exact_on_integers(direct("floor")), "lgamma": direct("lgamma"),
    "log": direct("log"), "log10": _log_base(10), "log1p": direct("log_plus_one"), "log2": _log_base(2),
    "neg": _negative, "reciprocal": _reciprocal, "relu": _relu,
    "round": exact_on_integers(direct("round_nearest_even")), "rsqrt": direct("rsqrt"), "sigmoid": _sigmoid,
    "sign": _sign, "sgn": _sign, "sin": direct("sine"), "sinh": direct("sinh"), "sqrt": direct("sqrt"),
    "tan": direct("tan"), "tanh": direct("tanh"), "trunc": exact_on_integers(_trunc), "angle": _angle,
}  # fmt: skip
for _name, _function in _UNARY.items():
    register_unary(_name, _function)


def _predicate(name: str, on_float: Unary, on_integer: bool) -> None:
    def lower(cx: Any, x: Value) -> Value:
        if not x.dtype.is_floating_point:
            return cx.constant(on_integer, torch.bool, x.shape)
        return on_float(cx, cx.widen(x))

    add([name], lower, "elementwise")


def _is_infinite(b: Builder, x: Value) -> Value:
    return b.compare_with("EQ", b.unary("abs", x), math.inf)


_predicate("isnan", lambda b, x: b.is_nan(x), False)
_predicate("isinf", _is_infinite, False)
_predicate("isposinf", lambda b, x: b.compare_with("EQ", x, math.inf), False)
_predicate("isneginf", lambda b, x: b.compare_with("EQ", x, -math.inf), False)
_predicate("isfinite", lambda b, x: b.compare_with("LT", b.unary("abs", x), math.inf), True)


@lowers("logical_not")
def logical_not(cx: Any, x: Value) -> Value:
    return cx.compare_with("EQ", x, 0)


@lowers("bitwise_not")
def bitwise_not(cx: Any, x: Value) -> Value:
    return cx.unary("not_", x)


@lowers("signbit")
def signbit(cx: Any, x: Value) -> Value:
    if x.dtype.is_floating_point:
        return cx.compare_with("LT", cx.bitcast(cx.convert(x, torch.float32), torch.int32), 0)
    if x.dtype in (torch.bool, torch.uint8):
        return cx.constant(False, torch.bool, x.shape)
    return cx.compare_with("LT", x, 0)


@lowers("round.decimals")
def round_decimals(cx: Any, x: Value, *, decimals: int) -> Value:
    if not x.dtype.is_floating_point:
        return x
    wide = cx.convert(x, cx.wide)
    power = cx.constant(float(10 ** abs(decimals)), cx.wide)
    there, back = ("multiply", "divide") if decimals >= 0 else ("divide", "multiply")
    made = cx.binary(back, cx.unary("round_nearest_even", cx.binary(there, wide, power)), power)
    return cx.convert(made, cx.dtype)


@lowers("nan_to_num")
def nan_to_num(cx: Any, x: Value, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Value:
    if not x.dtype.is_floating_point:
        return x
    info = torch.finfo(x.dtype)
    made = cx.select(cx.is_nan(x), cx.constant(0.0 if nan is None else nan, x.dtype), x)
    high, low = info.max if posinf is None else posinf, info.min if neginf is None else neginf
    made = cx.select(cx.compare_with("EQ", x, math.inf), cx.constant(high, x.dtype), made)
    return cx.select(cx.compare_with("EQ", x, -math.inf), cx.constant(low, x.dtype), made)


@lowers("gelu")
def gelu(cx: Any, x: Value, *, approximate: str = "none") -> Value:
    x = cx.convert(x, cx.wide)
    if approximate == "tanh":
        cubic = cx.multiply(cx.multiply(x, x), x)
        inner = cx.scale(cx.add(x, cx.scale(cubic, 0.044715)), math.sqrt(2 / math.pi))
        factor = cx.shift(cx.unary("tanh", inner), 1)
    else:
        factor = cx.shift(cx.unary("erf", cx.scale(x, math.sqrt(0.5))), 1)
    return cx.convert(cx.multiply(cx.scale(x, 0.5), factor), cx.dtype)


@lowers("silu")
def silu(cx: Any, x: Value) -> Value:
    x = cx.convert(x, cx.wide)
    return cx.convert(cx.multiply(x, cx.unary("logistic", x)), cx.dtype)


@lowers("leaky_relu")
def leaky_relu(cx: Any, x: Value, negative_slope: float = 0.01) -> Value:
    x = cx.convert(x, cx.wide)
    made = cx.select(cx.compare_with("GT", x, 0), x, cx.scale(x, negative_slope))
    return cx.convert(made, cx.dtype)


# --- two operands -----------------------------------------------------------------------------------------------------
def register_binary(names: str, function: Binary) -> None:
    """`function` gets both operands in the type in which the result is computed."""

    def lower(cx: Any, x: Any, y: Any, **_: Any) -> Value:
        made = function(cx, cx.as_value(x, cx.wide), cx.as_value(y, cx.wide))
        return cx.convert(cx.expand(made, cx.shape), cx.dtype)

    add(names.split(), lower, "elementwise")


def named(name: str) -> Binary:
    return lambda b, x, y: b.binary(name, x, y)


def _remainder(b: Builder, x: Value, y: Value) -> Value:
    """Python's %: the sign of the divisor."""
    if not x.dtype.is_floating_point:
        y = _guard_zero(b, y)
    rest = b.binary("remainder", x, y)
    zero = b.constant(0, x.dtype)
    if x.dtype in (torch.uint8, torch.bool):
        return rest
    differs = b.compare("NE", b.compare("LT", rest, zero), b.compare("LT", y, zero))
    wrong = b.binary("and_", b.compare("NE", rest, zero), differs)
    return b.select(wrong, b.add(rest, y), rest)


def _guard_zero(b: Builder, y: Value) -> Value:
    """Integer division by zero is undefined in XLA; PyTorch's CPU raises. -1 stands for what nobody may use."""
    return b.select(b.compare_with("EQ", y, 0), b.constant(1, y.dtype), y)


def floor_divide_values(b: Builder, x: Value, y: Value) -> Value:
    if x.dtype.is_floating_point:
        return _float_floor_divide(b, x, y)
    y = _guard_zero(b, y)
    quotient, rest = b.divide(x, y), b.binary("remainder", x, y)
    if x.dtype in (torch.uint8, torch.bool):
        return quotient
    zero = b.constant(0, x.dtype)
    differs = b.compare("NE", b.compare("LT", rest, zero), b.compare("LT", y, zero))
    wrong = b.binary("and_", b.compare("NE", rest, zero), differs)
    return b.select(wrong, b.subtract(quotient, b.constant(1, x.dtype)), quotient)


def _float_floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """c10's div_floor_floating: through fmod, so that the quotient is that of the exact division."""
    x, y = b.same_shape(x, y)
    zero = b.constant(0, x.dtype, x.shape)
    rest = b.binary("remainder", x, y)
    quotient = b.divide(b.subtract(x, rest), y)
    opposite = b.compare("NE", b.compare("LT", y, zero), b.compare("LT", rest, zero))
    adjust = b.binary("and_", b.compare("NE", rest, zero), opposite)
    quotient = b.select(adjust, b.shift(quotient, -1), quotient)
    floor = b.unary("floor", quotient)
    high = b.compare_with("GT", b.subtract(quotient, floor), 0.5)
    floor = b.select(high, b.shift(floor, 1), floor)
    plain = b.divide(x, y)
    signed_zero = b.multiply(zero, plain)
    made = b.select(b.compare("EQ", quotient, zero), signed_zero, floor)
    return b.select(b.compare("EQ", y, zero), plain, made)


def _fmod(b: Builder, x: Value, y: Value) -> Value:
    return b.binary("remainder", x, y if x.dtype.is_floating_point else _guard_zero(b, y))


def _extreme(name: str) -> Binary:
    return named(name)


def _ignoring_nan(name: str) -> Binary:
    def function(b: Builder, x: Value, y: Value) -> Value:
        x, y = b.same_shape(x, y)
        if not x.dtype.is_floating_point:
            return b.binary(name, x, y)
        return b.select(b.is_nan(x), y, b.select(b.is_nan(y), x, b.binary(name, x, y)))

    return function


def _copysign(b: Builder, x: Value, y: Value) -> Value:
    x, y = b.same_shape(x, y)
    magnitude = b.unary("abs", x)
    negative = b.compare_with("LT", b.bitcast(y, torch.int32), 0)
    return b.select(negative, b.unary("negate", magnitude), magnitude)


def _hypot(b: Builder, x: Value, y: Value) -> Value:
    x, y = b.same_shape(b.unary("abs", x), b.unary("abs", y))
    high, low = b.binary("maximum", x, y), b.binary("minimum", x, y)
    ratio = b.divide(low, b.select(b.compare_with("EQ", high, 0), b.constant(1, x.dtype, x.shape), high))
    made = b.multiply(high, b.unary("sqrt", b.shift(b.multiply(ratio, ratio), 1)))
    infinite = b.compare_with("EQ", high, math.inf)
    infinite = b.binary("or_", infinite, b.compare_with("EQ", low, math.inf))
    return b.select(infinite, b.constant(math.inf, x.dtype, x.shape), made)


def _power(b: Builder, x: Value, y: Value) -> Value:
    x, y = b.same_shape(x, y)
    if x.dtype == torch.bool:
        return b.binary("or_", x, b.logical_not(y))
    if x.dtype.is_floating_point:
        return b.binary("power", x, y)
    return _integer_power(b, x, y)


def _integer_power(b: Builder, x: Value, y: Value) -> Value:
    """By squaring; a negative exponent gives 0, but 1 for 1 and +-1 for -1."""
    one, zero = b.constant(1, x.dtype, x.shape), b.constant(0, x.dtype, x.shape)
    result, base, left = one, x, b.binary("maximum", y, zero)
    for _ in range(torch.iinfo(x.dtype).bits if x.dtype != torch.int64 else 32):
        odd = b.compare("EQ", b.binary("and_", left, one), one)
        result = b.select(odd, b.multiply(result, base), result)
        base, left = b.multiply(base, base), b.binary("shift_right_logical", left, one)
    if x.dtype == torch.uint8:
        return result
    minus = b.constant(-1, x.dtype, x.shape)
    odd = b.compare("EQ", b.binary("and_", y, one), one)
    of_minus = b.select(odd, minus, one)
    negative = b.select(b.compare("EQ", x, one), one, b.select(b.compare("EQ", x, minus), of_minus, zero))
    return b.select(b.compare("LT", y, zero), negative, result)


def _shift(name: str) -> Binary:
    def function(b: Builder, x: Value, y: Value) -> Value:
        if name == "right":
            unsigned = x.dtype in (torch.uint8, torch.bool)
            return b.binary("shift_right_logical" if unsigned else "shift_right_arithmetic", x, y)
        return b.binary("shift_left", x, y)

    return function


def _nextafter(b: Builder, x: Value, y: Value) -> Value:
    return b.binary("next_after", x, y)


_BINARY: dict[str, Binary] = {
    "mul.Tensor mul.Scalar": lambda b, x, y: b.multiply(x, y),
    "atan2": named("atan2"),
    "remainder.Tensor remainder.Scalar remainder.Scalar_Tensor": _remainder,
    "fmod.Tensor fmod.Scalar": _fmod,
    "maximum": _extreme("maximum"),
    "minimum": _extreme("minimum"),
    "fmax": _ignoring_nan("maximum"),
    "fmin": _ignoring_nan("minimum"),
    "bitwise_and.Tensor bitwise_and.Scalar bitwise_and.Scalar_Tensor": named("and_"),
    "bitwise_or.Tensor bitwise_or.Scalar bitwise_or.Scalar_Tensor": named("or_"),
    "bitwise_xor.Tensor bitwise_xor.Scalar bitwise_xor.Scalar_Tensor": named("xor"),
    "bitwise_left_shift.Tensor bitwise_left_shift.Tensor_Scalar bitwise_left_shift.Scalar_Tensor __lshift__.Tensor "
    "__lshift__.Scalar": _shift("left"),
    "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar bitwise_right_shift.Scalar_Tensor __rshift__.Tensor "
    "__rshift__.Scalar": _shift("right"),
    "copysign.Tensor copysign.Scalar": _copysign,
    "hypot": _hypot,
    "pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar": _power,
    "div.Tensor div.Scalar": lambda b, x, y: b.divide(x, y),
    "floor_divide floor_divide.Scalar": floor_divide_values,
    "__and__.Tensor __and__.Scalar": named("and_"),
    "__or__.Tensor __or__.Scalar": named("or_"),
    "__xor__.Tensor __xor__.Scalar": named("xor"),
}
for _name, _binary in _BINARY.items():
    register_binary(_name, _binary)


@lowers("nextafter")
def nextafter(cx: Any, x: Value, y: Value) -> Value:
    return cx.expand(_nextafter(cx, x, y), cx.shape)


def _add_scaled(cx: Any, x: Any, y: Any, alpha: Any, op: str) -> Value:
    left, right = cx.as_value(x, cx.wide), cx.as_value(y, cx.wide)
    if alpha != 1:
        right = cx.multiply(right, cx.constant(alpha, cx.wide))
    made = cx.add(left, right) if op == "add" else cx.subtract(left, right)
    return cx.convert(cx.expand(made, cx.shape), cx.dtype)


@lowers("add.Tensor", "add.Scalar")
def add_(cx: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return _add_scaled(cx, x, y, alpha, "add")


@lowers("sub.Tensor", "sub.Scalar")
def sub(cx: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return _add_scaled(cx, x, y, alpha, "subtract")


@lowers("rsub.Tensor", "rsub.Scalar")
def rsub(cx: Any, x: Any, y: Any, alpha: Any = 1) -> Value:
    return (
        _add_scaled(cx, cx.as_value(y, cx.wide), x, alpha, "subtract") if alpha == 1 else _scaled_rsub(cx, x, y, alpha)
    )


def _scaled_rsub(cx: Any, x: Any, y: Any, alpha: Any) -> Value:
    scaled = cx.multiply(cx.as_value(x, cx.wide), cx.constant(alpha, cx.wide))
    return _add_scaled(cx, y, scaled, 1, "subtract")


@lowers("div.Tensor_mode", "div.Scalar_mode")
def div_mode(cx: Any, x: Any, y: Any, *, rounding_mode: str | None = None) -> Value:
    left, right = cx.same_shape(cx.as_value(x, cx.wide), cx.as_value(y, cx.wide))
    if rounding_mode == "floor":
        made = floor_divide_values(cx, left, right)
    elif rounding_mode == "trunc" and not cx.wide.is_floating_point:
        made = cx.divide(left, _guard_zero(cx, right))
    else:
        made = cx.divide(left, right)
        made = _trunc(cx, made) if rounding_mode == "trunc" else made
    return cx.convert(cx.expand(made, cx.shape), cx.dtype)


# --- comparisons and logic --------------------------------------------------------------------------------------------
def _register_comparison(name: str, direction: Direction) -> None:
    def lower(cx: Any, x: Any, y: Any) -> Value:
        dtype = accumulate_dtype(_promote((x, y)))
        made = compare_with_limits(cx, direction, cx.as_value(x, dtype), y, dtype)
        return cx.expand(made, cx.shape)

    add([f"{name}.Tensor", f"{name}.Scalar"], lower, "elementwise")


def compare_with_limits(cx: Any, direction: Direction, x: Value, y: Any, dtype: torch.dtype) -> Value:
    """A Python integer beyond the range of x's type compares as it would in mathematics."""
    if not isinstance(y, Value) and not dtype.is_floating_point and dtype != torch.bool and dtype != torch.int64:
        low, high = integer_limits(dtype)
        if not low <= y <= high:
            below = y < low
            truth = {"EQ": False, "NE": True, "LT": not below, "LE": not below, "GT": below, "GE": below}[direction]
            return cx.constant(truth, torch.bool, x.shape)
    return cx.compare(direction, x, cx.as_value(y, dtype))


for _name, _direction in (("eq", "EQ"), ("ne", "NE"), ("lt", "LT"), ("le", "LE"), ("gt", "GT"), ("ge", "GE")):
    _register_comparison(_name, _direction)  # type: ignore[arg-type]


def _register_logical(name: str, op: str) -> None:
    def lower(cx: Any, x: Value, y: Value) -> Value:
        return cx.binary(op, cx.convert(x, torch.bool), cx.convert(y, torch.bool))

    add([name], lower, "elementwise")


for _name, _op in (("logical_and", "and_"), ("logical_or", "or_"), ("logical_xor", "xor")):
    _register_logical(_name, _op)


# --- three operands ---------------------------------------------------------------------------------------------------
@lowers("where.self", "where.ScalarOther", "where.ScalarSelf", "where.Scalar")
def where(cx: Any, condition: Value, x: Any, y: Any) -> Value:
    condition = cx.convert(condition, torch.bool)
    made = cx.select(condition, cx.as_value(x, cx.dtype), cx.as_value(y, cx.dtype))
    return cx.expand(made, cx.shape)


@lowers("clamp", "clamp.Tensor")
def clamp(cx: Any, x: Value, low: Any = None, high: Any = None) -> Value:
    value = cx.convert(x, cx.dtype)
    if low is not None:
        value = cx.binary("maximum", value, _bound(cx, low))
    if high is not None:
        value = cx.binary("minimum", value, _bound(cx, high))
    return cx.expand(value, cx.shape)


def _bound(cx: Any, bound: Any) -> Value:
    if not isinstance(bound, Value) and not cx.dtype.is_floating_point and cx.dtype != torch.bool:
        limits = integer_limits(cx.dtype)
        bound = min(max(int(bound), limits[0]), limits[1])
    return cx.as_value(bound, cx.dtype)


@lowers("clamp_min", "clamp_min.Tensor")
def clamp_min(cx: Any, x: Value, low: Any) -> Value:
    return clamp(cx, x, low)


@lowers("clamp_max", "clamp_max.Tensor")
def clamp_max(cx: Any, x: Value, high: Any) -> Value:
    return clamp(cx, x, None, high)


@lowers("lerp.Scalar", "lerp.Tensor")
def lerp(cx: Any, start: Value, end: Value, weight: Any) -> Value:
    a, z, w = (cx.as_value(v, cx.wide) for v in (start, end, weight))
    difference = cx.subtract(z, a)
    small = cx.add(a, cx.multiply(w, difference))
    large = cx.subtract(z, cx.multiply(difference, cx.subtract(cx.constant(1, cx.wide), w)))
    made = cx.select(cx.compare_with("LT", cx.unary("abs", w), 0.5), small, large)
    return cx.convert(cx.expand(made, cx.shape), cx.dtype)


@lowers("addcmul")
def addcmul(cx: Any, x: Value, a: Value, z: Value, *, value: Any = 1) -> Value:
    product = cx.multiply(cx.as_value(a, cx.wide), cx.as_value(z, cx.wide))
    if value != 1:
        product = cx.multiply(product, cx.constant(value, cx.wide))
    return cx.convert(cx.expand(cx.add(cx.as_value(x, cx.wide), product), cx.shape), cx.dtype)


@lowers("addcdiv")
def addcdiv(cx: Any, x: Value, a: Value, z: Value, *, value: Any = 1) -> Value:
    ratio = cx.divide(cx.multiply(cx.as_value(a, cx.wide), cx.constant(value, cx.wide)), cx.as_value(z, cx.wide))
    return cx.convert(cx.expand(cx.add(cx.as_value(x, cx.wide), ratio), cx.shape), cx.dtype)
