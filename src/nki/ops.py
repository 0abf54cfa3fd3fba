"""Operators of the vector and scalar engines: what each computes, and where it is allowed.

The engines compute in float32; the functions here take float32 arrays and return what rounds to the float32 result.
Bit operators take 64-bit integers that hold the raw bits.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclasses.dataclass(frozen=True)
class Alu:
    """An operator of the arithmetic units.

    `kind`: "arithmetic" in float32, "bits" on integers. `identity`: the start of a reduction; None: cannot reduce.
    `unary`: the second operand means nothing. `version`: first NeuronCore that has it; None: no chip has it.
    """

    kind: Literal["arithmetic", "bits"]
    function: Callable[[Array, Array], Array]
    identity: float | None = None
    unary: bool = False
    version: int | None = 2


def _truth(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: function(a, b).astype(np.float32)


def _bits(function: Callable[[Array, Array], Array], identity: float | None = None, unary: bool = False) -> Alu:
    return Alu("bits", function, identity, unary)


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def shift(a: Array, b: Array) -> Array:
        amount = np.clip(b, 0, 63)
        return a << amount if left else a >> amount

    return shift


ALU: dict[str, Alu] = {
    "bypass": Alu("arithmetic", lambda a, b: a, unary=True),
    "add": Alu("arithmetic", np.add, 0.0),
    "subtract": Alu("arithmetic", np.subtract),
    "multiply": Alu("arithmetic", np.multiply, 1.0),
    "maximum": Alu("arithmetic", np.maximum, -math.inf),
    "minimum": Alu("arithmetic", np.minimum, math.inf),
    "equal": Alu("arithmetic", _truth(np.equal)),
    "not_equal": Alu("arithmetic", _truth(np.not_equal)),
    "greater": Alu("arithmetic", _truth(np.greater)),
    "greater_equal": Alu("arithmetic", _truth(np.greater_equal)),
    "less": Alu("arithmetic", _truth(np.less)),
    "less_equal": Alu("arithmetic", _truth(np.less_equal)),
    "logical_and": Alu("arithmetic", _truth(np.logical_and), 1.0),
    "logical_or": Alu("arithmetic", _truth(np.logical_or), 0.0),
    "logical_xor": Alu("arithmetic", _truth(np.logical_xor), 0.0),
    "power": Alu("arithmetic", np.power),
    "abs_max": Alu("arithmetic", lambda a, b: np.maximum(np.abs(a), np.abs(b)), 0.0, version=4),
    "abs_min": Alu("arithmetic", lambda a, b: np.minimum(np.abs(a), np.abs(b)), math.inf, version=4),
    "abs": Alu("arithmetic", lambda a, b: np.abs(a), unary=True),
    "square": Alu("arithmetic", lambda a, b: a * a, unary=True),
    "relu": Alu("arithmetic", lambda a, b: np.maximum(a, np.float32(0)), unary=True),
    "rsqrt": Alu("arithmetic", lambda a, b: (1.0 / np.sqrt(a.astype(np.float64))).astype(np.float32), unary=True),
    "reciprocal": Alu("arithmetic", lambda a, b: np.float32(1) / a, unary=True),
    "divide": Alu("arithmetic", np.divide, version=None),
    "fmod": Alu("arithmetic", np.fmod, version=None),
    "mod": Alu("arithmetic", np.mod, version=None),
    "invert": _bits(lambda a, b: ~a, unary=True),
    "bitwise_and": _bits(np.bitwise_and, -1),
    "bitwise_or": _bits(np.bitwise_or, 0),
    "bitwise_xor": _bits(np.bitwise_xor, 0),
    "left_shift": _bits(_shift(True)),
    "right_shift": _bits(_shift(False)),
}


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel().tolist()], np.float64).reshape(x.shape)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _normal_density(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _normal_cdf(x: Array) -> Array:
    return 0.5 * (1.0 + _erf(x / math.sqrt(2.0)))


_TANH_A, _TANH_B = math.sqrt(2.0 / math.pi), 0.044715  # Hendrycks and Gimpel, Gaussian error linear units
_SIGMOID_A = 1.702  # the same


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(_TANH_A * (x + _TANH_B * x**3)))


def _sigmoid_gelu_dx(x: Array) -> Array:
    s = _sigmoid(_SIGMOID_A * x)
    return s + _SIGMOID_A * x * s * (1.0 - s)


def _sin(x: Array) -> Array:
    # The engine's polynomial covers [-pi, pi] and means nothing beyond, with room for pi rounded to float32.
    return np.where(np.abs(x) <= np.float32(math.pi), np.sin(x), np.nan)


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


# Functions of ScalarE on float64 arrays (the caller rounds to float32). Names: NKI documentation, activation functions.
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "copy": lambda x: x,
    "square": np.square,
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0.0),
    "gelu": lambda x: x * _normal_cdf(x),
    "gelu_dx": lambda x: _normal_cdf(x) + x * _normal_density(x),
    "gelu_apprx_tanh": _gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(_SIGMOID_A * x),
    "gelu_apprx_sigmoid_dx": _sigmoid_gelu_dx,
    "silu": lambda x: x * _sigmoid(x),
    "silu_dx": lambda x: _sigmoid(x) * (1.0 + x * (1.0 - _sigmoid(x))),
    "tanh": np.tanh,
    "softplus": _softplus,
    "mish": lambda x: x * np.tanh(_softplus(x)),
    "erf": _erf,
    "erf_dx": lambda x: 2.0 / math.sqrt(math.pi) * np.exp(-x * x),
    "exp": np.exp,
    "log": np.log,
    "sin": _sin,
    "arctan": np.arctan,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "reciprocal": lambda x: 1.0 / x,
    "sign": np.sign,
    "abs": np.abs,
}


def op_name(op: Any) -> str | None:
    """Name of an operator given as a function of `nki.language`; None when it is not one."""
    name = getattr(op, "nki_op", None)
    return name if isinstance(name, str) else None
