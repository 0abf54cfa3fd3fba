"""Functions of nki.language against PyTorch and NumPy. Operators and activations are in test_nki_isa_compute.py."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from nki_helpers import F32, run, sample

import nki
import nki.language as nl

A, B = sample(64, 48), sample(64, 48, seed=1)


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda x, y: nl.add(x, 1.5), A + F32(1.5)),
        (lambda x, y: nl.subtract(2.0, x), F32(2) - A),
        (lambda x, y: nl.multiply(x, y), A * B),
        (lambda x, y: nl.maximum(x, 0.0), np.maximum(A, 0)),
        (lambda x, y: nl.less(x, y), (A < B).astype(F32)),
        (lambda x, y: nl.negative(x), -A),
        (lambda x, y: nl.logical_not(nl.greater(x, 0.0)), (A <= 0).astype(F32)),
        (lambda x, y: nl.power(nl.abs(x), 2.0), np.abs(A) ** 2),
        (lambda x, y: nl.floor(nl.multiply(x, 3.0)), np.floor(A * F32(3))),
        (lambda x, y: nl.ceil(nl.multiply(x, 3.0)), np.ceil(A * F32(3))),
        (lambda x, y: nl.trunc(nl.multiply(x, 3.0)), np.trunc(A * F32(3))),
        (lambda x, y: nl.where(nl.greater(x, 0.0), x, y), np.where(A > 0, A, B)),
        (lambda x, y: nl.where(nl.greater(x, 0.0), 1.0, y), np.where(A > 0, F32(1), B)),
        (lambda x, y: nl.where(nl.greater(x, 0.0), x, -2.0), np.where(A > 0, A, F32(-2))),
        (lambda x, y: nl.copy(x), A),
        (lambda x, y: nl.reciprocal(x), F32(1) / A),
        (lambda x, y: nl.max(x, 1), A.max(1, keepdims=True)),
        (lambda x, y: nl.min(x, 1, keepdims=True), A.min(1, keepdims=True)),
        (lambda x, y: nl.all(nl.greater(x, -10.0), 1), np.ones((64, 1), F32)),
        (lambda x, y: nl.broadcast_to(nl.copy(x[:, 3:4]), (64, 48)), np.broadcast_to(A[:, 3:4], (64, 48))),
        (lambda x, y: nl.broadcast_to(nl.copy(x[0:1]), (128, 48)), np.broadcast_to(A[0:1], (128, 48))),
        (lambda x, y: nl.expand_dims(x, 2), A[:, :, None]),
        (lambda x, y: nl.transpose(x), A.T),
        (lambda x, y: nl.zeros_like(x), np.zeros_like(A)),
        (lambda x, y: nl.ones((8, 4), nl.float32, buffer=nl.psum), np.ones((8, 4), F32)),
    ],
)
def test_exact(function, want) -> None:
    assert np.array_equal(run(function, A, B), want)


@pytest.mark.parametrize(
    ("function", "want"),
    [
        (lambda x, y: nl.sum(x, 1), A.sum(1, keepdims=True)),
        (lambda x, y: nl.mean(x, 1), A.mean(1, keepdims=True)),
        (lambda x, y: nl.prod(x, 1), A.prod(1, keepdims=True)),
        (lambda x, y: nl.var(x, 1), A.var(1, keepdims=True)),
        (lambda x, y: nl.softmax(x), torch.from_numpy(A).softmax(1).numpy()),
        (lambda x, y: nl.rms_norm(x, y, 1, 48), A / np.sqrt((A * A).mean(1, keepdims=True) + 1e-6) * B),
        (
            lambda x, y: nl.rms_norm(x, nl.copy(y[0:1]), 1, 48),
            A / np.sqrt((A * A).mean(1, keepdims=True) + 1e-6) * B[0],
        ),
        (lambda x, y: nl.matmul(x, nl.copy(nl.transpose(y))), A @ B.T),
        (lambda x, y: nl.matmul(x, y, transpose_x=True), A.T @ B),
    ],
)
def test_close(function, want) -> None:
    np.testing.assert_allclose(run(function, A, B), want, rtol=2e-5, atol=2e-5)


def test_reductions_move_axes_to_the_end() -> None:
    x = sample(16, 3, 4, 5)
    got = run(lambda t: (nl.sum(t, (1, 3)), nl.max(t, 2), nl.min(t, 1, keepdims=True)), x)
    np.testing.assert_allclose(got[0], x.sum((1, 3)), atol=1e-5)
    assert np.array_equal(got[1], x.max(2)) and np.array_equal(got[2], x.min(1, keepdims=True))


@pytest.mark.parametrize(("name", "limit"), [("sin", 2e-6), ("cos", 2e-6), ("tan", 1e-3)])
def test_angles_of_any_size(name: str, limit: float) -> None:
    x = np.concatenate([np.linspace(-4, 4, 500), np.linspace(-1000, 1000, 500)]).astype(F32)[None]
    if name == "tan":
        x = x[np.abs(np.cos(x.astype(np.float64))) > 0.05][None]
    want = getattr(np, name)(x.astype(np.float64))
    # float32 angles near 1000 are 6e-5 apart; the reduction itself loses 2 pi's last bits times the turns.
    assert np.abs(run(getattr(nl, name), x) - want).max() < limit + 160 * 2**-24 * (20 if name == "tan" else 1)


def test_whole_numbers_of_any_size_stay() -> None:
    x = np.array([[1e10, -3e9, 8388609.0, 0.5, -0.5, 2.0]], F32)
    floor, ceil, trunc = run(lambda t: (nl.floor(t), nl.ceil(t), nl.trunc(t)), x)
    assert (
        np.array_equal(floor, np.floor(x)) and np.array_equal(ceil, np.ceil(x)) and np.array_equal(trunc, np.trunc(x))
    )


def test_dtypes_of_results() -> None:
    half, whole = torch.from_numpy(A).bfloat16(), torch.ones(64, 48, dtype=torch.int32)
    got = run(
        lambda f, h, i: (nl.add(f, h), nl.add(h, h), nl.add(h, i), nl.add(i, i), nl.exp(h), nl.add(h, 1.0, nl.float16)),
        torch.from_numpy(A),
        half,
        whole,
    )
    wanted = [torch.float32, torch.bfloat16, torch.bfloat16, torch.int32, torch.bfloat16, torch.float16]
    assert [result.dtype for result in got] == wanted


@pytest.mark.parametrize("shape", [(100,), (7, 5), (3, 4, 5)])
def test_load_and_store_of_any_rank(shape: tuple[int, ...]) -> None:
    x = sample(*shape)
    assert np.array_equal(run(lambda t: t, x).reshape(shape), x)


def test_load_converts_and_transposes() -> None:
    @nki.jit
    def kernel(x):
        first = nl.ndarray((48, 64), nl.float32, buffer=nl.shared_hbm)
        second = nl.ndarray((64, 48), nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(first, nl.load_transpose2d(x))
        nl.store(second, nl.load(x, nl.bfloat16))
        return first, second

    first, second = kernel(torch.from_numpy(A))
    assert np.array_equal(first.numpy(), A.T) and torch.equal(second, torch.from_numpy(A).bfloat16())


def test_creation_in_every_memory() -> None:
    @nki.jit
    def kernel(x):
        out = nl.full((3, 5), 2.5, nl.bfloat16, buffer=nl.shared_hbm)
        counts = nl.ones((4,), nl.int32, buffer=nl.shared_hbm)
        constant = nl.shared_constant(np.arange(6, dtype=np.float32).reshape(2, 3))
        copy = nl.empty_like(constant)
        nl.store(copy, nl.load(constant))
        identity = nl.ndarray((5, 5), nl.uint8, buffer=nl.shared_hbm)
        nl.store(identity, nl.shared_identity_matrix(5))
        return out, counts, copy, identity

    out, counts, copy, identity = kernel(torch.zeros(1))
    assert (out == 2.5).all() and out.dtype == torch.bfloat16 and (counts == 1).all()
    assert copy.tolist() == [[0, 1, 2], [3, 4, 5]] and torch.equal(identity, torch.eye(5, dtype=torch.uint8))


def test_constant_from_a_file(tmp_path) -> None:
    np.save(tmp_path / "table.npy", A)
    assert np.array_equal(run(lambda x: nl.load(nl.shared_constant(str(tmp_path / "table.npy"))), B), A)


@pytest.mark.parametrize(("target", "sbuf", "version"), [("trn2", 212_984, 3), ("gen4", 245_752, 4)])
def test_tile_sizes_are_those_of_the_chip(monkeypatch, target: str, sbuf: int, version: int) -> None:
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    size = nl.tile_size
    assert (size.pmax, size.psum_fmax, size.psum_bank_fmax, size.psum_num_banks) == (128, 512, 512, 8)
    assert size.psum_fmax_bytes == size.psum_bank_fmax_bytes == size.psum_min_align == 2048
    assert (size.gemm_stationary_fmax, size.gemm_moving_fmax, size.bn_stats_fmax) == (128, 512, 512)
    assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == sbuf
    assert size.sbuf_size_bytes == 128 * sbuf and size.sbuf_fmax == sbuf // 4
    assert nki.isa.get_nc_version() == version >= nki.isa.nc_version.gen3 and nki.isa.get_nc_sub_version() == 0


def test_predicates_and_ranges() -> None:
    seen = []

    def body(x):
        seen.extend([nl.is_sbuf(x), nl.is_on_chip(x), nl.is_psum(x), nl.is_hbm(x), nl.is_hbm(nl.shared_hbm)])
        seen.append(nl.is_psum(nl.transpose(x)))
        seen.append([*nl.affine_range(3), *nl.sequential_range(1, 3), *nl.static_range(0, 6, 3)])
        return x

    run(body, A)
    assert seen == [True, True, False, False, True, True, [0, 1, 2, 1, 2, 0, 3]]


def test_random_numbers_of_trn2_and_trn3(monkeypatch) -> None:
    def body(seed):
        nl.random_seed(seed)
        return nl.rand((128, 100)), nl.dropout(nl.ones((128, 100), nl.float32), 0.5)

    for target in ("trn2", "trn3"):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        first, second = (run(body, np.array([[seed]], np.int32)) for seed in (1, 2))
        again = run(body, np.array([[1]], np.int32))
        assert np.array_equal(first[0], again[0]) and not np.array_equal(first[0], second[0])
        assert first[0].min() >= 0 and first[0].max() < 1 and abs(first[0].mean() - 0.5) < 0.02
        assert abs(first[0].std() - math.sqrt(1 / 12)) < 0.01 and abs(first[1].mean() - 0.5) < 0.03
