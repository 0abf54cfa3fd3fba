"""ScalarE: activation functions, scale and bias, and the accumulation register."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from nki_helpers import F32, like, run, sample

import nki.isa as nisa
import nki.language as nl

A = sample(128, 96)
COLUMN = sample(128, 1, seed=2)

TORCH_FUNCTIONS = {
    "square": torch.square,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_apprx_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "gelu_apprx_sigmoid": lambda x: x * torch.sigmoid(1.702 * x),
    "silu": torch.nn.functional.silu,
    "tanh": torch.tanh,
    "softplus": torch.nn.functional.softplus,
    "mish": torch.nn.functional.mish,
    "erf": torch.erf,
    "exp": torch.exp,
    "sin": torch.sin,
    "arctan": torch.atan,
    "sign": torch.sign,
    "abs": torch.abs,
    "copy": lambda x: x,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "reciprocal": torch.reciprocal,
}
DERIVATIVES = {"gelu_dx": "gelu", "gelu_apprx_sigmoid_dx": "gelu_apprx_sigmoid", "silu_dx": "silu", "erf_dx": "erf"}


def activation(x, op, dtype=None, **options):
    out = like(x, dtype)
    nisa.activation(out, op, x, **options)
    return out


@pytest.mark.parametrize("name", TORCH_FUNCTIONS)
def test_activation_functions(name: str) -> None:
    x = np.clip(A, -3, 3)
    if name in ("log", "sqrt", "rsqrt", "reciprocal"):
        x = np.abs(x) + F32(0.01)
    want = TORCH_FUNCTIONS[name](torch.from_numpy(x).double()).float().numpy()
    np.testing.assert_allclose(run(lambda t: activation(t, getattr(nl, name)), x), want, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("name", DERIVATIVES)
def test_derivatives(name: str) -> None:
    x = torch.from_numpy(A).double().requires_grad_()
    TORCH_FUNCTIONS[DERIVATIVES[name]](x).sum().backward()
    np.testing.assert_allclose(run(lambda t: activation(t, getattr(nl, name)), A), x.grad.numpy(), rtol=1e-6, atol=1e-6)


def test_sin_means_nothing_beyond_pi() -> None:
    edge = np.array([[math.pi, -math.pi, 3.2, -9.0]], F32)
    got = run(lambda t: activation(t, nl.sin), edge)
    assert np.isnan(got[0, 2:]).all() and np.abs(got[0, :2]).max() < 1e-6


def test_activation_scale_bias_and_register() -> None:
    def body(x, c):
        total, kept, again = (like(c) for _ in range(3))
        first = activation(x, nl.exp, scale=0.5, bias=c)
        second = activation(x, nl.square, scale=c, bias=1.0)
        scratch = like(x)
        nisa.activation_reduce(scratch, nl.square, x, nl.add, total)
        nisa.activation(scratch, nl.square, x, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reduce)
        nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_res=kept)  # idle: reads the register
        nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_res=again, reduce_cmd=nisa.reduce_cmd.reset)
        return first, second, total, kept, again

    first, second, total, kept, again = run(body, A, COLUMN)
    np.testing.assert_allclose(first, np.exp(A * F32(0.5) + COLUMN), rtol=1e-6)
    assert np.array_equal(second, np.square(A * COLUMN + F32(1)))
    want = np.square(A.astype(np.float64)).sum(1, keepdims=True)
    np.testing.assert_allclose(total, want, rtol=1e-6)
    np.testing.assert_allclose(kept, 2 * want, rtol=1e-6)
    assert (again == 0).all()


def test_activate2(trn3) -> None:
    def body(x, c):
        first, second, total = like(x), like(x), like(c)
        nisa.activate2(first, nl.prelu, x, 2.0, c, nl.multiply, nl.add, relu_param=0.25)
        nisa.activate2(
            second,
            nl.copy,
            x,
            1.0,
            None,
            nl.subtract,
            nl.bypass,
            reverse0=True,
            reduce_op=nl.maximum,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return first, second, total

    first, second, total = run(body, A, COLUMN)
    inner = A * F32(2) + COLUMN
    assert np.array_equal(first, np.where(inner >= 0, inner, inner * F32(0.25)))
    assert np.array_equal(second, F32(1) - A) and np.array_equal(total, (F32(1) - A).max(1, keepdims=True))
