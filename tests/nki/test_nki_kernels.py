"""The kernel library against PyTorch in float64, in several shapes and dtypes, and with inputs that cannot be."""

from __future__ import annotations

import pytest
import torch
from nki_helpers import sample

from nki import kernels
from nki.errors import NkiCapacityError, NkiError, NkiIndexError

# Largest relative error of one rounding: 2^-p for p bits of significand.
ROUNDING = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}
DTYPES = list(ROUNDING)


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.from_numpy(sample(*shape, seed=seed, scale=scale)).to(dtype)


def close(got: torch.Tensor, want: torch.Tensor, steps: float = 1.0, atol: float = 0.0) -> None:
    """`got` is `want` (float64) rounded to its dtype, up to `steps` roundings of the result and `atol` from float32."""
    torch.testing.assert_close(got.double(), want, rtol=steps * ROUNDING[got.dtype], atol=atol)


@pytest.mark.parametrize("kernel", [kernels.matmul_naive, kernels.matmul_rows, kernels.matmul_blocked])
@pytest.mark.parametrize("shape", [(128, 128, 512), (256, 300, 700), (1, 1, 1), (200, 129, 513)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_matmul(kernel, shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    k, m, n = shape
    a, b = tensor(k, m, dtype=dtype), tensor(k, n, dtype=dtype, seed=1)
    # float32 sums of k products of numbers around 1: each of the k steps rounds a sum of magnitude sqrt(k).
    close(kernel(a, b), a.double().T @ b.double(), steps=2, atol=k * 2.0**-22)


def test_matmul_blocked_adds_blocks_of_k() -> None:
    a, b = tensor(640, 300), tensor(640, 1100, seed=1)
    close(kernels.matmul_blocked(a, b, 2, 1, 2), a.double().T @ b.double(), steps=4, atol=640 * 2.0**-22)


def test_the_matmuls_move_fewer_bytes_step_by_step() -> None:
    a, b = tensor(256, 2048, dtype=torch.bfloat16), tensor(256, 2048, dtype=torch.bfloat16)

    def loaded(kernel) -> int:
        program = kernel.program(a, b)
        copies = [item for item in program.instructions() if item.opcode == "dma_copy"]
        inputs = [item.operands["src"] for item in copies if item.operands["src"].tensor in program.inputs]
        return sum(access.pattern[0][1] * access.pattern[1][1] for access in inputs)

    naive, rows = loaded(kernels.matmul_naive), loaded(kernels.matmul_rows)
    once = a.numel() + b.numel()
    assert naive == 256 * 2048 * (4 + 16)  # lhsT for each of 4 columns of tiles, rhs for each of 16 rows
    assert rows == a.numel() + 2 * b.numel() and once < rows < naive


@pytest.mark.parametrize("shape", [(128, 512), (300, 1000), (1, 1), (129, 33)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = tensor(*shape, dtype=dtype, scale=5.0)
    # exp of an argument near -30 carries 30 * 2^-24 of the float32 subtraction
    close(kernels.softmax(x), x.double().softmax(-1), steps=1 + 48 * 2.0**-24 / ROUNDING[dtype], atol=2.0**-25)


def test_softmax_of_extremes() -> None:
    x = torch.tensor([[1e30, 0.0, -1e30], [float("-inf"), 0.0, 0.0], [88.0, 89.0, 90.0]])
    torch.testing.assert_close(kernels.softmax(x), x.softmax(-1))
    assert kernels.softmax(torch.tensor([[float("nan"), 1.0]])).isnan().all()


@pytest.mark.parametrize("shape", [(128, 512), (200, 768), (5, 1), (129, 1030)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms(shape: tuple[int, int], dtype: torch.dtype) -> None:
    x, w, b = (
        tensor(*shape, dtype=dtype) + 0.5,
        tensor(shape[1], dtype=dtype, seed=1),
        tensor(shape[1], seed=2).to(dtype),
    )
    double = [t.double() for t in (x, w, b)]
    close(
        kernels.rms_norm(x, w, 1e-6), torch.nn.functional.rms_norm(double[0], shape[1:], double[1], 1e-6), 8, 2.0**-20
    )
    want = torch.nn.functional.layer_norm(double[0], shape[1:], double[1], double[2], 1e-5)
    close(kernels.layer_norm(x, w, b, 1e-5), want, 8, 2.0**-18)


@pytest.mark.parametrize("shape", [(64, 4, 64), (130, 1, 2), (128, 8, 128)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rope(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    x = tensor(*shape, dtype=dtype)
    angles = torch.arange(shape[0])[:, None] / 10000 ** (torch.arange(shape[2] // 2) / shape[2] * 2)
    cos, sin = angles.cos().to(dtype), angles.sin().to(dtype)
    a, b = x.double().chunk(2, -1)
    c, s = cos.double()[:, None], sin.double()[:, None]
    close(kernels.rope(x, cos, sin), torch.cat([a * c - b * s, b * c + a * s], -1), 2, 2.0**-21)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("count", [1, 128, 300])
def test_embedding(dtype: torch.dtype, count: int) -> None:
    table = (tensor(1000, 40) * 100).to(dtype)
    ids = torch.randint(0, 1000, (count,), generator=torch.Generator().manual_seed(0)).int()
    assert torch.equal(kernels.embedding(table, ids), table[ids.long()])


@pytest.mark.parametrize("shape", [(128, 256, 384), (130, 64, 100), (1, 200, 520)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(shape: tuple[int, int, int], dtype: torch.dtype) -> None:
    tokens, size, inner = shape
    x = tensor(tokens, size, dtype=dtype)
    gate, up = (tensor(size, inner, dtype=dtype, seed=s, scale=size**-0.5) for s in (1, 2))
    down = tensor(inner, size, dtype=dtype, seed=3, scale=inner**-0.5)
    d = [t.double() for t in (x, gate, up, down)]
    want = (torch.nn.functional.silu(d[0] @ d[1]) * (d[0] @ d[2])) @ d[3]
    # The hidden layer is rounded once to the dtype: inner terms of size inner^-0.5 with independent errors.
    close(kernels.swiglu_mlp(x, gate, up, down), want, 2, 8 * ROUNDING[dtype] + 2.0**-19)


def test_on_the_device() -> None:
    x = tensor(64, 100).to("neuron")
    got = kernels.softmax(x)
    assert got.device == x.device
    torch.testing.assert_close(got.cpu(), x.cpu().softmax(-1))


F = torch.float32


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kernels.matmul_naive(torch.ones(4, 4), torch.ones(5, 4)), NkiError, "lhsT has K = 4, rhs has K = 5"),
        (lambda: kernels.matmul_rows(torch.ones(4), torch.ones(5, 4)), NkiError, "takes two matrices"),
        (lambda: kernels.matmul_blocked(torch.ones(4, 4).int(), torch.ones(4, 4)), NkiError, "lhsT is int32"),
        (lambda: kernels.matmul_naive(torch.ones(4, 4), torch.ones(4, 4).half()), NkiError, "moving is float16"),
        (lambda: kernels.matmul_rows(torch.ones(8192, 1024), torch.ones(8192, 1024)), NkiCapacityError, "SBUF is full"),
        (lambda: kernels.softmax(torch.ones(4)), NkiError, "softmax takes two dimensions"),
        (lambda: kernels.softmax(torch.ones(4, 4).int()), NkiError, "x is int32, it takes floating point"),
        (lambda: kernels.softmax(torch.ones(1, 60_000)), NkiError, "240000 bytes of a partition, sbuf has 212984"),
        (
            lambda: kernels.rms_norm(torch.ones(4, 4), torch.ones(5)),
            NkiError,
            r"weight has shape \(5,\), it takes \(4,\)",
        ),
        (lambda: kernels.layer_norm(torch.ones(4, 4), torch.ones(4), torch.ones(1, 4)), NkiError, "bias has shape"),
        (lambda: kernels.rope(torch.ones(4, 2, 3), torch.ones(4, 1), torch.ones(4, 1)), NkiError, "even size"),
        (lambda: kernels.rope(torch.ones(4, 2, 4), torch.ones(4, 4), torch.ones(4, 2)), NkiError, "cos has shape"),
        (
            lambda: kernels.embedding(torch.ones(4, 4), torch.tensor([1, 4], dtype=torch.int32)),
            NkiIndexError,
            "row index 4",
        ),
        (
            lambda: kernels.embedding(torch.ones(4, 4), torch.tensor([-1], dtype=torch.int32)),
            NkiIndexError,
            "row index -1",
        ),
        (lambda: kernels.embedding(torch.ones(4, 4), torch.ones(2)), NkiError, "ids is float32"),
        (lambda: kernels.embedding(torch.ones(4, 4), torch.ones(2, dtype=torch.int64)), NkiError, "int64"),
        (lambda: kernels.swiglu_mlp(*[torch.ones(4, 4)] * 3, torch.ones(4, 5)), NkiError, "w_down has shape"),
        (lambda: kernels.swiglu_mlp(torch.ones(4, 4), *[torch.ones(4, 4).half()] * 3), NkiError, "w_gate is float16"),
    ],
)
def test_inputs_that_cannot_be(call, error, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
