"""Operators on complex tensors, which are pairs of real ones (complex.Complex)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree

from torch_neuronx.lowering import registry
from torch_neuronx.lowering.complex import Complex
from torch_neuronx.lowering.registry import add_complex, lowers, lowers_complex
from torch_neuronx.lowering.stablehlo import Value
from torch_neuronx.lowering.view import normal

FLOAT = torch.float32


def as_complex(cx: Any, x: Any, shape: Any = None) -> Complex:
    """A Complex of a Complex, a real Value or a Python number."""
    if isinstance(x, Complex):
        made = x
    elif isinstance(x, Value):
        made = Complex(cx.convert(x, FLOAT), cx.constant(0, FLOAT, x.shape))
    else:
        number = complex(x)
        made = Complex(cx.constant(number.real, FLOAT), cx.constant(number.imag, FLOAT))
    return made if shape is None else Complex(cx.expand(made.real, shape), cx.expand(made.imag, shape))


def each(cx: Any, function: Callable[..., Any], *operands: Complex) -> Complex:
    """`function` on the real parts, and on the imaginary parts."""
    return Complex(function(*(o.real for o in operands)), function(*(o.imag for o in operands)))


# --- operators that treat both parts alike ----------------------------------------------------------------------------
# fmt: off
_PARTWISE = (
    "clone", "alias", "alias_copy", "detach", "detach_copy", "lift", "lift_fresh", "lift_fresh_copy", "copy",
    "view", "view_copy", "reshape", "_unsafe_view", "_reshape_alias", "squeeze", "squeeze.dim", "squeeze.dims",
    "squeeze_copy", "squeeze_copy.dim", "squeeze_copy.dims", "unsqueeze", "unsqueeze_copy", "permute", "permute_copy",
    "t", "t_copy", "transpose.int", "transpose_copy.int", "expand", "expand_copy", "slice.Tensor", "slice_copy.Tensor",
    "narrow", "narrow_copy", "select.int", "select_copy.int", "split.Tensor", "split_with_sizes", "unbind.int",
    "diagonal", "diagonal_copy", "as_strided", "as_strided_copy", "unfold", "unfold_copy", "cat", "stack",
    "constant_pad_nd", "flip", "roll", "repeat", "tril", "triu", "slice_scatter", "select_scatter", "diagonal_scatter",
    "index_select", "index.Tensor", "_unsafe_index.Tensor", "index_put", "gather", "scatter.src", "scatter_add",
    "index_add", "sum", "sum.dim_IntList", "mean", "mean.dim", "cumsum", "neg", "embedding", "zeros", "zeros_like",
    "new_zeros", "empty.memory_format", "empty_like", "empty_permuted", "empty_strided", "new_empty",
)
# fmt: on


def _part(name: str, value: Any) -> Any:
    """Real or imaginary part of what is complex in an argument; real tensors and numbers stay."""

    def visit(item: Any) -> Any:
        if isinstance(item, Complex):
            return getattr(item, name)
        if isinstance(item, torch.Tensor) and item.dtype.is_complex:
            return torch.empty_strided(item.shape, item.stride(), dtype=FLOAT, device="meta")
        if isinstance(item, (list, tuple)):
            return type(item)(visit(i) for i in item)
        return item

    return visit(value)


def _partwise(name: str) -> Callable[..., Any]:
    def lower(cx: Any, *args: Any, **kwargs: Any) -> Any:
        function = registry.table()[registry.qualified(name)].function
        out, fakes = cx.out, cx.fakes
        complex_out = pytree.tree_any(lambda t: isinstance(t, torch.Tensor) and t.dtype.is_complex, out)
        if complex_out:
            args = _promoted(cx, args)
        made = []
        for part in ("real", "imag"):
            cx.out, cx.fakes = _part(part, out), _part(part, fakes)
            made.append(function(cx, *_part(part, args), **_part(part, kwargs)))
        cx.out, cx.fakes = out, fakes
        if isinstance(made[0], (list, tuple)):
            return [Complex(r, i) for r, i in zip(*made, strict=True)]
        return Complex(*made)

    return lower


def _promoted(cx: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Real floating-point tensors next to complex ones (torch.cat, index_put) become complex; indices stay."""

    def visit(item: Any) -> Any:
        if isinstance(item, Value) and item.dtype.is_floating_point:
            return as_complex(cx, item)
        if isinstance(item, (list, tuple)) and not isinstance(item, Complex):
            return [visit(i) for i in item]
        return item

    return tuple(visit(a) for a in args)


for _name in _PARTWISE:
    add_complex([_name], _partwise(_name))


# --- making and taking apart ------------------------------------------------------------------------------------------
@lowers_complex("complex")
def complex_(cx: Any, real: Value, imag: Value) -> Complex:
    return Complex(cx.as_value(real, FLOAT, cx.shape), cx.as_value(imag, FLOAT, cx.shape))


@lowers_complex("polar")
def polar(cx: Any, size: Value, angle: Value) -> Complex:
    size, angle = (cx.as_value(v, FLOAT, cx.shape) for v in (size, angle))
    return Complex(cx.multiply(size, cx.unary("cosine", angle)), cx.multiply(size, cx.unary("sine", angle)))


@lowers_complex("view_as_complex", "view_as_complex_copy")
def view_as_complex(cx: Any, x: Value) -> Complex:
    last = x.rank - 1
    return Complex(*(cx.reshape(cx.slice_dim(x, last, i, i + 1), x.shape[:-1]) for i in (0, 1)))


@lowers_complex("view_as_real", "view_as_real_copy")
def view_as_real(cx: Any, x: Complex) -> Value:
    parts = [cx.reshape(p, (*p.shape, 1)) for p in x]
    return cx.concatenate(parts, x.rank)


@lowers_complex("real")
def real(cx: Any, x: Complex) -> Value:
    return x.real


@lowers_complex("imag")
def imag(cx: Any, x: Complex) -> Value:
    return x.imag


@lowers_complex("_conj", "_conj_copy", "_conj_physical", "conj_physical")
def conj(cx: Any, x: Complex) -> Complex:
    return Complex(x.real, cx.unary("negate", x.imag))


@lowers("_conj", "_conj_physical", "conj_physical", "resolve_conj", "resolve_neg", "real")
def same(cx: Any, x: Value) -> Value:
    return x


@lowers("_neg_view", "_neg_view_copy")
def neg_view(cx: Any, x: Value) -> Value:
    return cx.unary("negate", x)


@lowers_complex("resolve_conj", "resolve_neg")
def resolve(cx: Any, x: Complex) -> Complex:
    return x


@lowers_complex("_to_copy", "prims::convert_element_type")
def to_copy(cx: Any, x: Any, *_: Any, **__: Any) -> Any:
    if cx.dtype.is_complex:
        return as_complex(cx, x)
    return cx.convert(x.real, cx.dtype)


@lowers_complex("full", "full_like", "new_full", "scalar_tensor", "fill.Scalar")
def full(cx: Any, *args: Any, **_: Any) -> Complex:
    value = args[0] if cx.name.endswith("scalar_tensor") else args[-1]
    return as_complex(cx, value, cx.shape)


@lowers_complex("ones", "ones_like", "new_ones")
def ones(cx: Any, *_: Any, **__: Any) -> Complex:
    return as_complex(cx, 1, cx.shape)


# --- arithmetic -------------------------------------------------------------------------------------------------------
def multiply(cx: Any, x: Complex, y: Complex) -> Complex:
    real = cx.subtract(cx.multiply(x.real, y.real), cx.multiply(x.imag, y.imag))
    return Complex(real, cx.add(cx.multiply(x.real, y.imag), cx.multiply(x.imag, y.real)))


def scaled(cx: Any, x: Complex, factor: Value) -> Complex:
    return each(cx, lambda p: cx.multiply(p, factor), x)


def magnitude(cx: Any, x: Complex) -> Value:
    from torch_neuronx.lowering.elementwise import _hypot

    return _hypot(cx, x.real, x.imag)


def divide(cx: Any, x: Complex, y: Complex) -> Complex:
    """By the conjugate, with the divisor scaled to size 1 so that its square neither overflows nor vanishes."""
    size = cx.binary("maximum", cx.unary("abs", y.real), cx.unary("abs", y.imag))
    safe = cx.select(cx.compare_with("EQ", size, 0), cx.constant(1, FLOAT, size.shape), size)
    unit = each(cx, lambda p: cx.divide(p, safe), y)
    norm = cx.add(cx.multiply(unit.real, unit.real), cx.multiply(unit.imag, unit.imag))
    top = multiply(cx, x, Complex(unit.real, cx.unary("negate", unit.imag)))
    return each(cx, lambda p: cx.divide(cx.divide(p, norm), safe), top)


def _binary(name: str, function: Callable[[Any, Complex, Complex], Complex]) -> None:
    def lower(cx: Any, x: Any, y: Any, alpha: Any = 1, **_: Any) -> Complex:
        left, right = as_complex(cx, x), as_complex(cx, y)
        if alpha != 1:
            right = multiply(cx, right, as_complex(cx, alpha))
        made = function(cx, left, right)
        return as_complex(cx, made, cx.shape)

    add_complex([f"{name}.Tensor", f"{name}.Scalar"], lower)


_binary("add", lambda cx, x, y: each(cx, cx.add, x, y))
_binary("sub", lambda cx, x, y: each(cx, cx.subtract, x, y))
_binary("mul", multiply)
_binary("div", divide)


@lowers_complex("where.self")
def where(cx: Any, condition: Value, x: Any, y: Any) -> Complex:
    left, right = as_complex(cx, x, cx.shape), as_complex(cx, y, cx.shape)
    return each(cx, lambda a, b: cx.select(cx.expand(condition, cx.shape), a, b), left, right)


@lowers_complex("eq.Tensor", "eq.Scalar")
def eq(cx: Any, x: Any, y: Any) -> Value:
    left, right = as_complex(cx, x), as_complex(cx, y)
    return cx.binary("and_", cx.compare("EQ", left.real, right.real), cx.compare("EQ", left.imag, right.imag))


@lowers_complex("ne.Tensor", "ne.Scalar")
def ne(cx: Any, x: Any, y: Any) -> Value:
    return cx.logical_not(eq(cx, x, y))


@lowers_complex("abs")
def abs_(cx: Any, x: Complex) -> Value:
    return magnitude(cx, x)


@lowers_complex("angle")
def angle(cx: Any, x: Complex) -> Value:
    return cx.binary("atan2", x.imag, x.real)


@lowers_complex("exp")
def exp(cx: Any, x: Complex) -> Complex:
    size = cx.unary("exponential", x.real)
    return Complex(cx.multiply(size, cx.unary("cosine", x.imag)), cx.multiply(size, cx.unary("sine", x.imag)))


@lowers_complex("log")
def log(cx: Any, x: Complex) -> Complex:
    return Complex(cx.unary("log", magnitude(cx, x)), angle(cx, x))


@lowers_complex("reciprocal")
def reciprocal(cx: Any, x: Complex) -> Complex:
    return divide(cx, as_complex(cx, 1), x)


@lowers_complex("sgn")
def sgn(cx: Any, x: Complex) -> Complex:
    size = magnitude(cx, x)
    none = cx.compare_with("EQ", size, 0)
    safe = cx.select(none, cx.constant(1, FLOAT, size.shape), size)
    return each(cx, lambda p: cx.select(none, cx.constant(0, FLOAT, p.shape), cx.divide(p, safe)), x)


@lowers_complex("sqrt")
def sqrt(cx: Any, x: Complex) -> Complex:
    """The principal root: half-angle formulas, with the sign of the imaginary part."""
    size = magnitude(cx, x)
    real = cx.unary("sqrt", cx.scale(cx.add(size, cx.unary("abs", x.real)), 0.5))
    other = cx.divide(cx.unary("abs", x.imag), cx.scale(real, 2.0))
    other = cx.select(cx.compare_with("EQ", real, 0), cx.constant(0, FLOAT, real.shape), other)
    right = cx.compare_with("GE", x.real, 0)
    imag = cx.select(right, other, real)
    negative = cx.compare_with("LT", x.imag, 0)
    return Complex(cx.select(right, real, other), cx.select(negative, cx.unary("negate", imag), imag))


@lowers_complex("pow.Tensor_Scalar")
def pow_scalar(cx: Any, x: Complex, exponent: Any) -> Complex:
    if exponent == 2:
        return multiply(cx, x, x)
    if exponent == 0.5:
        return sqrt(cx, x)
    return exp(cx, multiply(cx, log(cx, as_complex(cx, x)), as_complex(cx, exponent)))


def _product(name: str) -> None:
    def lower(cx: Any, x: Any, y: Any) -> Complex:
        left, right = as_complex(cx, x), as_complex(cx, y)
        function = registry.table()[registry.qualified(name)].function
        out = cx.out
        cx.out = torch.empty(out.shape, dtype=FLOAT, device="meta")
        rr, ii, ri, ir = (
            function(cx, a, b)
            for a, b in (
                (left.real, right.real),
                (left.imag, right.imag),
                (left.real, right.imag),
                (left.imag, right.real),
            )  # fmt: skip
        )
        cx.out = out
        return Complex(cx.subtract(rr, ii), cx.add(ri, ir))

    add_complex([name], lower)


for _name in ("mm", "bmm", "mv", "dot"):
    _product(_name)


@lowers_complex("isnan", "isinf")
def either(cx: Any, x: Complex) -> Value:
    function = registry.table()[registry.qualified(cx.name.removeprefix("aten."))].function
    return cx.binary("or_", function(cx, x.real), function(cx, x.imag))


@lowers_complex("isfinite")
def isfinite(cx: Any, x: Complex) -> Value:
    function = registry.table()["aten::isfinite.default"].function
    return cx.binary("and_", function(cx, x.real), function(cx, x.imag))


# --- Fourier transforms -----------------------------------------------------------------------------------------------
_DIRECT = 96  # lengths up to this are one product with a matrix; longer ones are factored


def _matrix(rows: int, columns: int, length: int, sign: float) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin of sign * 2 pi * row * column / length."""
    steps = (torch.arange(rows).unsqueeze(1) * torch.arange(columns)) % length
    angle = steps.to(torch.float64) * (sign * 2 * math.pi / length)
    return angle.cos().to(FLOAT), angle.sin().to(FLOAT)


def _times(cx: Any, x: Value, dim: int, matrix: torch.Tensor) -> Value:
    """x times a matrix [x.shape[dim], n] along `dim`."""
    made = cx.dot(x, cx.dense(matrix), ([], []), ([dim], [0]), FLOAT)
    return cx.move_dim(made, made.rank - 1, dim)


def _factor(length: int) -> int:
    """A factor near the square root; 1 for a prime."""
    return next((f for f in range(math.isqrt(length), 1, -1) if length % f == 0), 1)


def transform(cx: Any, x: Complex, dim: int, sign: float) -> Complex:
    """The discrete Fourier transform along `dim`, without a scale; sign -1 is the forward one."""
    length = x.shape[dim]
    small = _factor(length)
    if length <= _DIRECT or small == 1:
        cos, sin = _matrix(length, length, length, sign)
        real = cx.subtract(_times(cx, x.real, dim, cos), _times(cx, x.imag, dim, sin))
        return Complex(real, cx.add(_times(cx, x.real, dim, sin), _times(cx, x.imag, dim, cos)))
    # length = small * large, index = a * large + b, frequency = c + small * d
    large = length // small
    split = (*x.shape[:dim], small, large, *x.shape[dim + 1 :])
    inner = transform(cx, each(cx, lambda p: cx.reshape(p, split), x), dim, sign)
    cos, sin = _matrix(small, large, length, sign)
    twiddle = Complex(*(cx.broadcast_dims(cx.dense(m), split, [dim, dim + 1]) for m in (cos, sin)))
    outer = transform(cx, multiply(cx, inner, twiddle), dim + 1, sign)
    order = list(range(len(split)))
    order[dim], order[dim + 1] = order[dim + 1], order[dim]
    return each(cx, lambda p: cx.reshape(cx.transpose(p, order), x.shape), outer)


def _normalised(cx: Any, x: Complex, sizes: list[int], mode: int) -> Complex:
    """mode 0: as it is; 1: divided by the root of the number of points; 2: by the number."""
    count = math.prod(sizes)
    if mode == 0 or count == 1:
        return x
    return scaled(cx, x, cx.constant(1 / (math.sqrt(count) if mode == 1 else count), FLOAT))


@lowers_complex("_fft_c2c")
def fft_c2c(cx: Any, x: Any, dim: Any, normalization: int, forward: bool) -> Complex:
    made = as_complex(cx, x)
    dims = [normal(d, made.rank) for d in dim]
    for d in dims:
        made = transform(cx, made, d, -1.0 if forward else 1.0)
    return _normalised(cx, made, [made.shape[d] for d in dims], normalization)


@lowers_complex("_fft_r2c")
def fft_r2c(cx: Any, x: Value, dim: Any, normalization: int, onesided: bool) -> Complex:
    dims = [normal(d, x.rank) for d in dim]
    made = as_complex(cx, x)
    sizes = [x.shape[d] for d in dims]
    for d in reversed(dims):
        made = transform(cx, made, d, -1.0)
        if onesided and d == dims[-1]:
            made = each(cx, lambda p, d=d: cx.slice_dim(p, d, 0, x.shape[d] // 2 + 1), made)
    return _normalised(cx, made, sizes, normalization)


@lowers_complex("_fft_c2r")
def fft_c2r(cx: Any, x: Any, dim: Any, normalization: int, last_dim_size: int) -> Value:
    """The last dimension from half a spectrum: each frequency counts for its mirror image too."""
    made = as_complex(cx, x)
    dims = [normal(d, made.rank) for d in dim]
    for d in dims[:-1]:
        made = transform(cx, made, d, 1.0)
    last = dims[-1]
    cos, sin = _matrix(made.shape[last], last_dim_size, last_dim_size, 1.0)
    weight = torch.full((made.shape[last], 1), 2.0)
    weight[0] = 1.0
    if last_dim_size % 2 == 0:
        weight[last_dim_size // 2 :] = 1.0
    real = cx.subtract(_times(cx, made.real, last, cos * weight), _times(cx, made.imag, last, sin * weight))
    sizes = [made.shape[d] for d in dims[:-1]] + [last_dim_size]
    return _normalised(cx, Complex(real, real), sizes, normalization).real
