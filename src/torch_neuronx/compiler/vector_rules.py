"""How ATen operators are said in vector programs: one rule for each operator.

A rule writes the values of one call into an `Emitter`. Operands are numbers of values; Python numbers become constants.
Everything is computed in float32, also between 16-bit operators (as other compilers of PyTorch do); memory is 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

aten = torch.ops.aten
Row = tuple[str, int, int, int, float]
Value = int
Number = int | float


class Emitter:
    """Values of a vector program in order of definition (csrc/engine/vector/program.h), each written once."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._known: dict[Row, Value] = {}

    def row(self, name: str, a: int = -1, b: int = -1, c: int = -1, immediate: float = 0.0) -> Value:
        row = (name, a, b, c, immediate)
        key = (name, a, b, c, _bits(immediate))
        if key not in self._known:  # type: ignore[comparison-overlap]
            self._known[key] = len(self.rows)  # type: ignore[index]
            self.rows.append(row)
        return self._known[key]  # type: ignore[index]

    def constant(self, x: Number) -> Value:
        return self.row("constant", immediate=float(x))

    def value(self, x: Value | Number) -> Value:
        return x if isinstance(x, _Reference) else self.constant(x)

    def __call__(self, name: str, *operands: Value | Number) -> _Reference:
        return _Reference(self.row(name, *(self.value(x) for x in operands)))

    def input(self, operand: int) -> _Reference:
        return _Reference(self.row("input", operand))

    def count(self) -> _Reference:
        """How many elements a row has."""
        return _Reference(self.row("count"))

    def per_count(self) -> _Reference:
        """1 / count."""
        return _Reference(self.row("count", immediate=-1.0))


class _Reference(int):
    """The number of a value, told from a Python number."""


def _bits(x: float) -> str:
    return x.hex()  # tells -0.0 from 0.0, and NaN equals itself


Rule = Callable[..., Any]
POINTWISE: dict[Any, Rule] = {}  # operator -> rule(emit, *args, **kwargs): a value of the shape of the result
ROWS: dict[Any, Rule] = {}  # operator -> rule for operators over the last dimensions (fuse.py knows which these are)


def pointwise(*operators: Any) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for operator in operators:
            POINTWISE[operator] = rule
        return rule

    return add


def over_rows(*operators: Any) -> Callable[[Rule], Rule]:
    def add(rule: Rule) -> Rule:
        for operator in operators:
            ROWS[operator] = rule
        return rule

    return add


def _unary(name: str) -> Rule:
    return lambda e, x: e(name, x)


def _binary(name: str) -> Rule:
    return lambda e, a, b: e(name, a, b)


for _operator, _name in {
    aten.neg: "neg", aten.abs: "abs", aten.sign: "sign", aten.sqrt: "sqrt", aten.rsqrt: "rsqrt", aten.exp: "exp",
    aten.reciprocal: "reciprocal", aten.log: "log", aten.tanh: "tanh", aten.sigmoid: "sigmoid", aten.erf: "erf",
    aten.floor: "floor", aten.ceil: "ceil", aten.trunc: "trunc", aten.round: "round", aten.relu: "relu",
    aten.isnan: "is_nan", aten.logical_not: "is_zero", aten.square: "square",
}.items():  # fmt: skip
    POINTWISE[_operator.default] = _unary(_name)
for _operator, _name in {aten.maximum: "maximum", aten.minimum: "minimum"}.items():
    POINTWISE[_operator.default] = _binary(_name)
for _operator, _name in {
    aten.mul: "mul", aten.div: "div", aten.eq: "eq", aten.ne: "ne", aten.lt: "lt", aten.le: "le", aten.gt: "gt",
    aten.ge: "ge",
}.items():  # fmt: skip
    POINTWISE[_operator.Tensor] = _binary(_name)
    POINTWISE[_operator.Scalar] = _binary(_name)


@pointwise(aten.add.Tensor, aten.add.Scalar)
def _add(e: Emitter, a: Any, b: Any, alpha: Number = 1) -> Any:
    return e("add", a, b if alpha == 1 else e("mul", b, alpha))


@pointwise(aten.sub.Tensor, aten.sub.Scalar)
def _sub(e: Emitter, a: Any, b: Any, alpha: Number = 1) -> Any:
    return e("sub", a, b if alpha == 1 else e("mul", b, alpha))


@pointwise(aten.rsub.Scalar, aten.rsub.Tensor)
def _rsub(e: Emitter, a: Any, b: Any, alpha: Number = 1) -> Any:
    return e("sub", b, a if alpha == 1 else e("mul", a, alpha))


POWERS: dict[float, Rule] = {
    1.0: lambda e, x: x,
    2.0: lambda e, x: e("square", x),
    3.0: lambda e, x: e("mul", e("square", x), x),
    0.5: lambda e, x: e("sqrt", x),
    -0.5: lambda e, x: e("rsqrt", x),
    -1.0: lambda e, x: e("reciprocal", x),
    -2.0: lambda e, x: e("reciprocal", e("square", x)),
}


@pointwise(aten.pow.Tensor_Scalar)
def _pow(e: Emitter, x: Any, exponent: Number) -> Any:
    return POWERS[float(exponent)](e, x)


@pointwise(aten.clamp.default)
def _clamp(e: Emitter, x: Any, low: Number | None = None, high: Number | None = None) -> Any:
    if low is not None:
        x = e("maximum", x, low)
    return x if high is None else e("minimum", x, high)


@pointwise(aten.clamp_min.default)
def _clamp_min(e: Emitter, x: Any, low: Number) -> Any:
    return e("maximum", x, low)


@pointwise(aten.clamp_max.default)
def _clamp_max(e: Emitter, x: Any, high: Number) -> Any:
    return e("minimum", x, high)


@pointwise(aten.where.self, aten.where.ScalarSelf, aten.where.ScalarOther, aten.where.Scalar)
def _where(e: Emitter, condition: Any, yes: Any, no: Any) -> Any:
    return e("select", condition, yes, no)


@pointwise(aten.masked_fill.Scalar)
def _masked_fill(e: Emitter, x: Any, mask: Any, value: Number) -> Any:
    return e("select", mask, value, x)


@pointwise(aten.logical_and.default, aten.bitwise_and.Tensor)
def _and(e: Emitter, a: Any, b: Any) -> Any:
    return e("mul", e("not_zero", a), e("not_zero", b))


@pointwise(aten.logical_or.default, aten.bitwise_or.Tensor)
def _or(e: Emitter, a: Any, b: Any) -> Any:
    return e("maximum", e("not_zero", a), e("not_zero", b))


@pointwise(aten.bitwise_not.default)
def _not(e: Emitter, a: Any) -> Any:
    return e("is_zero", a)


@pointwise(aten.addcmul.default)
def _addcmul(e: Emitter, x: Any, a: Any, b: Any, value: Number = 1) -> Any:
    return e("add", x, e("mul", a if value == 1 else e("mul", a, value), b))


@pointwise(aten.addcdiv.default)
def _addcdiv(e: Emitter, x: Any, a: Any, b: Any, value: Number = 1) -> Any:
    return e("add", x, e("div", a if value == 1 else e("mul", a, value), b))


@pointwise(aten.lerp.Scalar)
def _lerp(e: Emitter, a: Any, b: Any, weight: Number) -> Any:
    step = e("sub", b, a)
    if abs(weight) < 0.5:
        return e("add", a, e("mul", step, weight))
    return e("sub", b, e("mul", step, 1 - weight))


@pointwise(aten.silu.default)
def _silu(e: Emitter, x: Any) -> Any:
    return e("mul", x, e("sigmoid", x))


@pointwise(aten.silu_backward.default)
def _silu_backward(e: Emitter, grad: Any, x: Any) -> Any:
    s = e("sigmoid", x)
    return e("mul", e("mul", grad, s), e("add", 1.0, e("mul", x, e("sub", 1.0, s))))


SQRT_HALF, SQRT_2_OVER_PI, CUBIC = math.sqrt(0.5), math.sqrt(2.0 / math.pi), 0.044715


def _gelu_tanh_argument(e: Emitter, x: Any) -> Any:
    return e("mul", e("mul", x, SQRT_2_OVER_PI), e("add", 1.0, e("mul", e("square", x), CUBIC)))


@pointwise(aten.gelu.default)
def _gelu(e: Emitter, x: Any, approximate: str = "none") -> Any:
    tanh = approximate == "tanh"
    bend = e("tanh", _gelu_tanh_argument(e, x)) if tanh else e("erf", e("mul", x, SQRT_HALF))
    return e("mul", e("mul", x, 0.5), e("add", 1.0, bend))


@pointwise(aten.gelu_backward.default)
def _gelu_backward(e: Emitter, grad: Any, x: Any, approximate: str = "none") -> Any:
    if approximate == "tanh":
        t = e("tanh", _gelu_tanh_argument(e, x))
        slope = e("mul", SQRT_2_OVER_PI, e("add", 1.0, e("mul", e("square", x), 3 * CUBIC)))
        right = e("mul", e("mul", e("mul", x, 0.5), e("sub", 1.0, e("square", t))), slope)
        left = e("mul", 0.5, e("add", 1.0, t))
    else:
        left = e("mul", 0.5, e("add", 1.0, e("erf", e("mul", x, SQRT_HALF))))
        density = e("mul", e("exp", e("mul", e("square", x), -0.5)), 1.0 / math.sqrt(2.0 * math.pi))
        right = e("mul", x, density)
    return e("mul", grad, e("add", left, right))


@pointwise(aten.sigmoid_backward.default)
def _sigmoid_backward(e: Emitter, grad: Any, y: Any) -> Any:
    return e("mul", grad, e("mul", y, e("sub", 1.0, y)))


@pointwise(aten.tanh_backward.default)
def _tanh_backward(e: Emitter, grad: Any, y: Any) -> Any:
    return e("mul", grad, e("sub", 1.0, e("square", y)))


@pointwise(aten.threshold_backward.default)
def _threshold_backward(e: Emitter, grad: Any, x: Any, threshold: Number) -> Any:
    return e("select", e("le", x, threshold), 0.0, grad)


@pointwise(aten.leaky_relu.default)
def _leaky_relu(e: Emitter, x: Any, slope: Number = 0.01) -> Any:
    return e("select", e("gt", x, 0.0), x, e("mul", x, slope))


@pointwise(aten.native_dropout_backward.default)
def _dropout_backward(e: Emitter, grad: Any, mask: Any, scale: Number) -> Any:
    return e("mul", e("mul", grad, mask), scale)


@pointwise(aten.expand.default, aten.clone.default, aten.alias.default, aten.detach.default)
def _same(e: Emitter, x: Any, *_: Any, **__: Any) -> Any:
    return x


@pointwise(aten._to_copy.default)
def _to_copy(e: Emitter, x: Any, *, dtype: torch.dtype | None = None, **_: Any) -> Any:
    return e("not_zero", x) if dtype == torch.bool else x


# --- over the last dimensions of the first tensor ---
def _mean(e: Emitter, x: Any) -> Any:
    return e("mul", e("sum", x), e.per_count())


@over_rows(aten.sum.dim_IntList)
def _sum_rule(e: Emitter, x: Any, *_: Any, **__: Any) -> Any:
    return e("sum", x)


@over_rows(aten.mean.dim)
def _mean_rule(e: Emitter, x: Any, *_: Any, **__: Any) -> Any:
    return _mean(e, x)


@over_rows(aten.amax.default)
def _amax(e: Emitter, x: Any, *_: Any, **__: Any) -> Any:
    return e("largest", x)


@over_rows(aten.amin.default)
def _amin(e: Emitter, x: Any, *_: Any, **__: Any) -> Any:
    return e("smallest", x)


def _moments(e: Emitter, x: Any, correction: Number) -> tuple[Any, Any]:
    mean = _mean(e, x)
    squares = e("sum", e("square", e("sub", x, mean)))
    if correction == 0:
        return e("mul", squares, e.per_count()), mean
    return e("div", squares, e("maximum", e("sub", e.count(), correction), 0.0)), mean


@over_rows(aten.var.correction)
def _var(e: Emitter, x: Any, dim: Any = None, *, correction: Number | None = 1, keepdim: bool = False) -> Any:
    return _moments(e, x, 1 if correction is None else correction)[0]


@over_rows(aten.var_mean.correction)
def _var_mean(e: Emitter, x: Any, dim: Any = None, *, correction: Number | None = 1, keepdim: bool = False) -> Any:
    return _moments(e, x, 1 if correction is None else correction)


def _shifted_exponentials(e: Emitter, x: Any) -> tuple[Any, Any]:
    shifted = e("sub", x, e("largest", x))
    return shifted, e("exp", shifted)


@over_rows(aten._softmax.default)
def _softmax(e: Emitter, x: Any, *_: Any) -> Any:
    exponentials = _shifted_exponentials(e, x)[1]
    return e("mul", exponentials, e("reciprocal", e("sum", exponentials)))


@over_rows(aten._log_softmax.default)
def _log_softmax(e: Emitter, x: Any, *_: Any) -> Any:
    shifted, exponentials = _shifted_exponentials(e, x)
    return e("sub", shifted, e("log", e("sum", exponentials)))


@over_rows(aten._softmax_backward_data.default)
def _softmax_backward(e: Emitter, grad: Any, y: Any, *_: Any) -> Any:
    weighted = e("mul", grad, y)
    return e("sub", weighted, e("mul", y, e("sum", weighted)))


@over_rows(aten._log_softmax_backward_data.default)
def _log_softmax_backward(e: Emitter, grad: Any, y: Any, *_: Any) -> Any:
    return e("sub", grad, e("mul", e("exp", y), e("sum", grad)))


@over_rows(aten.native_layer_norm.default)
def _layer_norm(e: Emitter, x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    mean = _mean(e, x)
    centred = e("sub", x, mean)
    rstd = e("rsqrt", e("add", e("mul", e("sum", e("square", centred)), e.per_count()), eps))
    y = e("mul", centred, rstd)
    if weight is not None:
        y = e("mul", y, weight)
    if bias is not None:
        y = e("add", y, bias)
    return y, mean, rstd


@over_rows(aten.native_layer_norm_backward.default)
def _layer_norm_backward(
    e: Emitter, grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> tuple[Any, Any, Any]:
    """The second and third results are what is to be summed over all rows."""
    normal = e("mul", e("sub", x, mean), rstd)
    g = grad if weight is None else e("mul", grad, weight)
    along = _mean(e, e("mul", g, normal))
    inner = e("sub", e("sub", g, _mean(e, g)), e("mul", normal, along))
    return e("mul", inner, rstd), e("mul", grad, normal), grad
