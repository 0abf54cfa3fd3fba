"""Elementwise functions. Each is also the operator that instructions take: `op=nl.add`.

Called on tiles they return a new tile in SBUF. Without `dtype` the result has the common type of the tiles: the type
of both when they agree, float32 when float32 is one of them or two different floating point types meet, the floating
point type when an integer is the other, and the wider of two integers. Tiles do not broadcast; numbers do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .. import isa
from ..dtypes import DTYPES, DType, as_dtype
from ..errors import NkiTypeError
from ..source import here
from ..tensor import NkiTensor
from ..trace import MemoryBuffer, allocate

Tensor = NkiTensor
SBUF = MemoryBuffer("sbuf")


def tile_of(x: Any, function: str) -> NkiTensor:
    """`x` when it is a tile in SBUF or PSUM, else NkiTypeError."""
    if isinstance(x, NkiTensor) and x.on_chip:
        return x
    raise NkiTypeError(
        f"{x!r} is no tile in SBUF or PSUM; nl.load brings one there", instruction=f"nl.{function}", location=here()
    )


def new(shape: Any, dtype: Any) -> NkiTensor:
    """A new tile in SBUF."""
    return allocate(tuple(shape), dtype, SBUF)


def common_dtype(*tiles: NkiTensor) -> DType:
    """The type of a result, as the head of this module says."""
    result = tiles[0].dtype
    for tile in tiles[1:]:
        other = tile.dtype
        if other == result:
            continue
        if result.is_float and other.is_float:
            result = DTYPES["float32"]
        elif result.is_float or other.is_float:
            result = result if result.is_float else other
        else:
            result = max(result, other, key=lambda dtype: dtype.itemsize)
    return result


def _named(function: Callable[..., NkiTensor], name: str, op: str | None, text: str) -> Callable[..., NkiTensor]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    if op is not None:
        function.nki_op = op  # type: ignore[attr-defined]
    return function


def _binary(name: str, text: str) -> Callable[..., NkiTensor]:
    def function(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        tiles = [side for side in (x, y) if isinstance(side, NkiTensor)]
        if not tiles:
            raise NkiTypeError("one of the operands must be a tile", instruction=f"nl.{name}", location=here())
        for tile in tiles:
            tile_of(tile, name)
        out = new(tiles[0].shape, common_dtype(*tiles) if dtype is None else dtype)
        if len(tiles) == 2:
            isa.tensor_tensor(out, x, y, function)
        elif isinstance(x, NkiTensor):
            isa.tensor_scalar(out, x, function, y)
        else:
            isa.tensor_scalar(out, y, function, x, reverse0=True)
        return out

    return _named(function, name, name, f"{text} `(x, y, dtype=None)`: tiles of one shape, or a tile and a number.")


def _activation(name: str, text: str) -> Callable[..., NkiTensor]:
    def function(x: Any, dtype: Any = None) -> NkiTensor:
        out = new(tile_of(x, name).shape, x.dtype if dtype is None else dtype)
        isa.activation(out, function, x)
        return out

    return _named(function, name, name, f"{text} `(x, dtype=None)`, on ScalarE.")


def _token(name: str, text: str) -> Callable[..., NkiTensor]:
    def function(*arguments: Any, **options: Any) -> NkiTensor:
        raise NkiTypeError(f"nl.{name} is only an operator for instructions", location=here())

    return _named(function, name, name, text)


add = _binary("add", "x + y.")
subtract = _binary("subtract", "x - y.")
multiply = _binary("multiply", "x * y.")
divide = _binary("divide", "x / y; no NeuronCore has it, so it raises.")
maximum = _binary("maximum", "The larger of x and y; NaN when one is.")
minimum = _binary("minimum", "The smaller of x and y; NaN when one is.")
abs_max = _binary("abs_max", "The larger of |x| and |y| (NeuronCore-v4).")
abs_min = _binary("abs_min", "The smaller of |x| and |y| (NeuronCore-v4).")
power = _binary("power", "x to the power y; two tiles run on GpSimdE.")
fmod = _binary("fmod", "Remainder with the sign of x; no NeuronCore has it, so it raises.")
mod = _binary("mod", "Remainder with the sign of y; no NeuronCore has it, so it raises.")
equal = _binary("equal", "1 where x == y, else 0.")
not_equal = _binary("not_equal", "1 where x != y, else 0.")
less = _binary("less", "1 where x < y, else 0.")
less_equal = _binary("less_equal", "1 where x <= y, else 0.")
greater = _binary("greater", "1 where x > y, else 0.")
greater_equal = _binary("greater_equal", "1 where x >= y, else 0.")
bitwise_and = _binary("bitwise_and", "Bits of both, integers only.")
bitwise_or = _binary("bitwise_or", "Bits of either, integers only.")
bitwise_xor = _binary("bitwise_xor", "Bits of one of both, integers only.")
left_shift = _binary("left_shift", "Bits of x moved up by y, integers only.")
right_shift = _binary("right_shift", "Bits of x moved down by y, without sign, integers only.")
logical_and = _binary("logical_and", "1 where x and y are not 0, else 0.")
logical_or = _binary("logical_or", "1 where x or y is not 0, else 0.")
logical_xor = _binary("logical_xor", "1 where one of x and y is not 0, else 0.")

abs = _activation("abs", "|x|.")
square = _activation("square", "x * x.")
exp = _activation("exp", "e to the x.")
log = _activation("log", "Natural logarithm; the chip is accurate in [2^-64, 2^64].")
sqrt = _activation("sqrt", "Square root; the chip is accurate in [2^-116, 2^118].")
rsqrt = _activation("rsqrt", "1 / sqrt(x); the chip is accurate in [2^-87, 2^97].")
tanh = _activation("tanh", "Hyperbolic tangent.")
sigmoid = _activation("sigmoid", "1 / (1 + exp(-x)).")
relu = _activation("relu", "max(x, 0).")
gelu = _activation("gelu", "x * normal cdf(x).")
gelu_dx = _activation("gelu_dx", "Derivative of gelu.")
gelu_apprx_tanh = _activation("gelu_apprx_tanh", "gelu by its tanh approximation.")
gelu_apprx_sigmoid = _activation("gelu_apprx_sigmoid", "gelu as x * sigmoid(1.702 x).")
gelu_apprx_sigmoid_dx = _activation("gelu_apprx_sigmoid_dx", "Derivative of gelu_apprx_sigmoid.")
silu = _activation("silu", "x * sigmoid(x).")
silu_dx = _activation("silu_dx", "Derivative of silu.")
softplus = _activation("softplus", "log(1 + exp(x)).")
mish = _activation("mish", "x * tanh(softplus(x)).")
erf = _activation("erf", "Error function.")
erf_dx = _activation("erf_dx", "Derivative of erf.")
arctan = _activation("arctan", "Inverse tangent; the chip is accurate in [-pi/2, pi/2].")
sign = _activation("sign", "-1, 0 or 1.")

bypass = _token("bypass", "The operator that leaves its first operand as it is.")
prelu = _token("prelu", "x, or x times relu_param where x < 0: an operator of nisa.activate2.")


def copy(x: Tensor, dtype: Any = None) -> Tensor:
    """A copy in SBUF, by VectorE; bit exact when the dtype stays."""
    out = new(tile_of(x, "copy").shape, x.dtype if dtype is None else dtype)
    isa.tensor_copy(out, x, engine=isa.engine.vector)
    return out


def reciprocal(x: Tensor, dtype: Any = None) -> Tensor:
    """1 / x, by VectorE."""
    out = new(tile_of(x, "reciprocal").shape, x.dtype if dtype is None else dtype)
    isa.reciprocal(out, x)
    return out


def negative(x: Tensor, dtype: Any = None) -> Tensor:
    """-x."""
    return multiply(tile_of(x, "negative"), -1.0, dtype)


def invert(x: Tensor, dtype: Any = None) -> Tensor:
    """All bits of an integer tile flipped."""
    out = new(tile_of(x, "invert").shape, x.dtype if dtype is None else dtype)
    isa.tensor_scalar(out, x, invert, None)
    return out


def logical_not(x: Tensor, dtype: Any = None) -> Tensor:
    """1 where x is 0, else 0."""
    return equal(tile_of(x, "logical_not"), 0.0, dtype)


for _function, _name in ((copy, "copy"), (reciprocal, "reciprocal"), (invert, "invert")):
    _function.nki_op = _name  # type: ignore[attr-defined]


def _reduced_angle(x: NkiTensor, shift: float) -> NkiTensor:
    """x + shift - 2 pi k in [-pi, pi], with k the nearest integer; 2 pi in two parts, so that little is lost."""
    turns = new(x.shape, "int32")
    isa.tensor_scalar(turns, x, add, shift, op1=multiply, operand1=1.0 / (2 * math.pi))
    count = copy(turns, "float32")
    high = 6.28125  # few bits: times k it is exact up to k = 2^16
    angle = new(x.shape, "float32")
    isa.scalar_tensor_tensor(angle, count, multiply, -high, add, x)
    isa.scalar_tensor_tensor(angle, count, multiply, high - 2 * math.pi, add, angle)
    isa.tensor_scalar(angle, angle, add, shift)
    limit = 3.1415925  # float32 just below pi: rounding must not leave the range of the engine
    isa.tensor_scalar(angle, angle, minimum, limit, op1=maximum, operand1=-limit)
    return angle


def sin(x: Tensor, dtype: Any = None) -> Tensor:
    """Sine. As an operator of nisa.activation it takes [-pi, pi] only; here the range is reduced first."""
    out = new(tile_of(x, "sin").shape, x.dtype if dtype is None else dtype)
    isa.activation(out, sin, _reduced_angle(x, 0.0))
    return out


def cos(x: Tensor, dtype: Any = None) -> Tensor:
    """Cosine."""
    out = new(tile_of(x, "cos").shape, x.dtype if dtype is None else dtype)
    isa.activation(out, sin, _reduced_angle(x, math.pi / 2))
    return out


def tan(x: Tensor, dtype: Any = None) -> Tensor:
    """Tangent, as sine over cosine."""
    inverse = reciprocal(cos(tile_of(x, "tan"), "float32"))
    return multiply(sin(x, "float32"), inverse, x.dtype if dtype is None else dtype)


sin.nki_op = "sin"  # type: ignore[attr-defined]
_WHOLE = float(1 << 23)  # float32 values from here on have no fraction


def _rounded(x: NkiTensor, name: str, dtype: Any, direction: str) -> NkiTensor:
    """x rounded to a whole number: the nearest, corrected by one step where it lies on the wrong side."""
    tile_of(x, name)
    nearest = copy(copy(x, "int32"), "float32")
    down = subtract(nearest, greater(nearest, x, "float32"))
    if direction == "down":
        result = down
    elif direction == "up":
        result = add(nearest, less(nearest, x, "float32"))
    else:
        up = add(nearest, less(nearest, x, "float32"))
        isa.tensor_copy_predicated(down, up, less(x, 0.0, "uint8"))
        result = down
    huge = greater_equal(abs(x, "float32"), _WHOLE, "uint8")
    isa.tensor_copy_predicated(result, copy(x, "float32"), huge)
    return copy(result, x.dtype if dtype is None else dtype)


def floor(x: Tensor, dtype: Any = None) -> Tensor:
    """The largest whole number that is not above x."""
    return _rounded(x, "floor", dtype, "down")


def ceil(x: Tensor, dtype: Any = None) -> Tensor:
    """The smallest whole number that is not below x."""
    return _rounded(x, "ceil", dtype, "up")


def trunc(x: Tensor, dtype: Any = None) -> Tensor:
    """x without its fraction."""
    return _rounded(x, "trunc", dtype, "zero")


def where(condition: Tensor, x: Any, y: Any, dtype: Any = None) -> Tensor:
    """x where `condition` is not 0, else y. x and y are tiles of one shape, or numbers."""
    tiles = [side for side in (x, y) if isinstance(side, NkiTensor)]
    chosen = as_dtype(dtype) if dtype is not None else common_dtype(*tiles) if tiles else DTYPES["float32"]
    out = new(tile_of(condition, "where").shape, chosen)
    for value, predicate in ((y, None), (x, not_equal(condition, 0.0, "uint8"))):
        if isinstance(value, NkiTensor) and value.dtype != chosen:
            value = copy(value, chosen)
        if predicate is not None:
            isa.tensor_copy_predicated(out, value, predicate)
        elif isinstance(value, NkiTensor):
            isa.tensor_copy(out, value)
        else:
            isa.memset(out, value)
    return out
