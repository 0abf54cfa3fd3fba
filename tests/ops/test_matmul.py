"""Matrix products against the CPU: every overload, dtype, layout and the edges where kernels are chosen."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

# A few rows have a kernel of their own from 4096 elements of the matrix; 64**3 is where the library is chosen.
SIZES = [(1, 1, 1), (1, 300, 70), (2, 96, 128), (4, 129, 65), (1, 1500, 1400), (70, 70, 70), (0, 4, 3), (4, 0, 3)]
DTYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64]


def make(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape).to(dtype)
    return torch.randint(-5, 5, shape).to(dtype)


def reference(f, *args: torch.Tensor) -> torch.Tensor:
    """The exact result: computed in float64 (or integers), without the roundings of a 16-bit type."""
    wide = [a.double() if a.dtype.is_floating_point else a for a in args]
    return f(*wide)


def close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype, depth: int) -> None:
    """One rounding of the result plus float32 sums of `depth` terms."""
    assert actual.device.type == "neuron" and actual.dtype == dtype
    if not dtype.is_floating_point:
        assert torch.equal(actual.cpu(), expected)
        return
    single = torch.finfo(torch.float32).eps if dtype != torch.float64 else torch.finfo(torch.float64).eps
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=rounding, atol=4 * single * depth)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_mm_and_addmm(m: int, k: int, n: int, dtype: torch.dtype) -> None:
    a, b, bt, bias, full = (make(s, dtype) for s in ((m, k), (k, n), (n, k), (n,), (m, n)))
    on = [t.to("neuron") for t in (a, b, bt, bias, full)]
    close(on[0] @ on[1], reference(torch.mm, a, b), dtype, k)
    close(on[0] @ on[2].t(), reference(lambda x, y: x @ y.t(), a, bt), dtype, k)
    expected = reference(lambda c, x, y: torch.addmm(c, x, y.t()), bias, a, bt)
    close(torch.addmm(on[3], on[0], on[2].t()), expected, dtype, k)
    expected = reference(lambda c, x, y: torch.addmm(c, x, y, beta=2, alpha=3), full, a, b)
    close(torch.addmm(on[4], on[0], on[1], beta=2, alpha=3), expected, dtype, 3 * k + 2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batched(dtype: torch.dtype) -> None:
    a, b, c = make((6, 5, 9), dtype), make((6, 9, 4), dtype), make((6, 5, 4), dtype)
    on = [t.to("neuron") for t in (a, b, c)]
    close(torch.bmm(on[0], on[1]), reference(torch.bmm, a, b), dtype, 9)
    close(torch.bmm(on[1].mT, on[0].mT), reference(lambda x, y: torch.bmm(y.mT, x.mT), a, b), dtype, 9)
    expected = reference(lambda x, y, z: torch.baddbmm(z, x, y, alpha=2), a, b, c)
    close(torch.baddbmm(on[2], on[0], on[1], alpha=2), expected, dtype, 20)
    # The CPU library rounds a 16-bit sum after every matrix of the batch, and so does the device.
    rounding = 1e-5 if dtype == torch.float32 else 0 if not dtype.is_floating_point else 8 * torch.finfo(dtype).eps
    total = torch.addbmm(on[2][0], on[0], on[1]).cpu()
    torch.testing.assert_close(total, torch.addbmm(c[0], a, b), rtol=rounding, atol=rounding)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_out_and_in_place(dtype: torch.dtype) -> None:
    a, b, c = (make(s, dtype).to("neuron") for s in ((6, 8), (8, 5), (6, 5)))
    expected = torch.addmm(c, a, b, beta=0.5, alpha=2)
    out = torch.empty(5, 6, dtype=dtype, device="neuron").t()
    assert torch.addmm(c, a, b, beta=0.5, alpha=2, out=out) is out and torch.equal(out, expected)
    kept = c.clone()
    storage = kept.data_ptr()
    assert kept.addmm_(a, b, beta=0.5, alpha=2) is kept and torch.equal(kept, expected) and kept.data_ptr() == storage
    square = make((6, 6), dtype).to("neuron")
    product = square @ square
    assert torch.equal(torch.mm(square, square, out=square), product)  # an operand as the result
    x, y, z = (make(s, dtype).to("neuron") for s in ((3, 6, 8), (3, 8, 5), (3, 6, 5)))
    expected = torch.baddbmm(z, x, y)
    resized = torch.empty(0, dtype=dtype, device="neuron")
    assert torch.equal(torch.baddbmm(z, x, y, out=resized), expected) and resized.shape == z.shape
    assert torch.equal(z.baddbmm_(x, y), expected)
    assert torch.equal(torch.bmm(x, y, out=torch.empty_like(z)), torch.bmm(x, y))


def test_beta_zero_ignores_nan() -> None:
    for rows in (1, 3, 80):
        a, w = torch.randn(rows, 80, device="neuron"), torch.randn(80, 80, device="neuron")
        bias = torch.full((80,), float("nan"), device="neuron")
        assert torch.addmm(bias, a, w.t(), beta=0).isfinite().all()


def test_views_and_conjugates() -> None:
    a, b = torch.randn(9, 12, dtype=torch.complex64), torch.randn(9, 7, dtype=torch.complex64)
    torch.testing.assert_close((a.to("neuron").conj().t() @ b.to("neuron")).cpu(), a.conj().t() @ b)
    x = torch.randn(40, 50)[::2, 1:33]
    y = torch.randn(64, 33)[:, 1:]
    torch.testing.assert_close((x.to("neuron") @ y.to("neuron").t()).cpu(), x @ y.t())


@pytest.mark.parametrize("special", [float("inf"), float("nan"), 6e-8, 65504.0, -0.0])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_few_rows_take_special_values(special: float, dtype: torch.dtype) -> None:
    w = torch.zeros(128, 64, dtype=dtype)
    w[5, 7] = special
    x = torch.ones(1, 64, dtype=dtype)
    y = (x.to("neuron") @ w.to("neuron").t()).cpu()
    expected = (x.float() @ w.float().t()).to(dtype)
    torch.testing.assert_close(y, expected, rtol=0, atol=0, equal_nan=True)


def test_vectors() -> None:
    for dtype in (torch.float32, torch.float64, torch.int64):
        v, w, m = make((17,), dtype), make((17,), dtype), make((5, 17), dtype)
        torch.testing.assert_close(torch.dot(v.to("neuron"), w.to("neuron")).cpu(), torch.dot(v, w))
        torch.testing.assert_close(torch.mv(m.to("neuron"), v.to("neuron")).cpu(), torch.mv(m, v))
        torch.testing.assert_close(torch.outer(v.to("neuron"), w.to("neuron")).cpu(), torch.outer(v, w))
    i8 = torch.randint(-100, 100, (32, 16), dtype=torch.int8)
    j8 = torch.randint(-100, 100, (16, 24), dtype=torch.int8)
    assert torch.equal(torch._int_mm(i8.to("neuron"), j8.to("neuron")).cpu(), torch._int_mm(i8, j8))


@pytest.mark.parametrize(
    "call",
    [
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(2, 3, device=d)),
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(3, device=d)),
        lambda d: torch.mm(torch.ones(2, 3, device=d), torch.ones(3, 2, device=d, dtype=torch.bfloat16)),
        lambda d: torch.bmm(torch.ones(2, 3, 4, device=d), torch.ones(3, 4, 2, device=d)),
        lambda d: torch.addmm(torch.ones(5, device=d), torch.ones(2, 3, device=d), torch.ones(3, 4, device=d)),
        lambda d: torch.ones(4, device=d).addmm_(torch.ones(2, 3, device=d), torch.ones(3, 4, device=d)),
        lambda d: torch.mm(
            torch.ones(2, 3, device=d), torch.ones(3, 2, device=d), out=torch.ones(2, 2, device=d, dtype=torch.double)
        ),
    ],
)
def test_errors_are_those_of_the_cpu(call) -> None:
    with pytest.raises(RuntimeError) as on_cpu:
        call("cpu")
    with pytest.raises(RuntimeError) as on_neuron:
        call("neuron")
    assert str(on_neuron.value) == str(on_cpu.value)


def test_a_product_of_two_devices_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.mm(torch.ones(2, 2, device="neuron"), torch.ones(2, 2))


@pytest.mark.parametrize("choice", ["mkl", "auto", "onednn"])
def test_the_library_can_be_chosen(choice: str) -> None:
    code = "import torch; a = torch.ones(80, 80, device='neuron'); assert (a @ a == 80).all(); print('ok')"
    environment = {**os.environ, "TORCH_NEURONX_GEMM": choice}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    if choice == "onednn" and done.returncode != 0:  # a CPU that oneDNN's product refuses
        assert "does not run here" in done.stderr and "Use auto or mkl" in done.stderr
    else:
        assert done.stdout.strip() == "ok", done.stderr
