"""TensorE: products, accumulation in PSUM, transposes, and the microscaled types."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nki_helpers import F32, like, run, sample

import nki
import nki.isa as nisa
import nki.language as nl
from nki.dtypes import DTYPES, decode
from nki.errors import NkiWarning


def psum(rows: int, columns: int, dtype="float32"):
    return nl.ndarray((rows, columns), dtype, buffer=nl.psum)


@pytest.mark.parametrize(("k", "m", "n"), [(128, 128, 512), (1, 1, 1), (64, 17, 33), (32, 128, 5)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
def test_nc_matmul(k: int, m: int, n: int, dtype: str) -> None:
    a, b = (torch.from_numpy(sample(*s, seed=i)).to(getattr(torch, dtype)) for i, s in enumerate([(k, m), (k, n)]))

    def body(x, y):
        out = psum(m, n)
        nisa.nc_matmul(out, x, y)
        return out

    want = a.double().T @ b.double()
    # float32 sums of up to 128 products of numbers around 1: relative to the sum of magnitudes
    torch.testing.assert_close(run(body, a, b).double(), want, rtol=0, atol=float(k) * 2**-22)


def test_float8_of_trn3_and_wide_moving_operand(trn3) -> None:
    a = torch.from_numpy(sample(128, 64)).to(torch.float8_e4m3fn)
    b = torch.from_numpy(sample(128, 2048, seed=1)).to(torch.float8_e4m3fn)

    def body(x, y):
        wide, narrow = psum(64, 2048), psum(64, 2048, "bfloat16")
        nisa.nc_matmul(wide, x, y)
        nisa.nc_matmul(narrow, x, y)
        nisa.nc_matmul(narrow, x, y)  # adds in float32, then rounds to bfloat16
        return wide, narrow

    wide, narrow = run(body, a, b)
    want = a.float().T @ b.float()
    torch.testing.assert_close(wide, want, rtol=0, atol=1e-4)
    torch.testing.assert_close(narrow, (want.bfloat16().float() + want).bfloat16(), rtol=2**-7, atol=1e-3)


def test_accumulation_flags() -> None:
    a, b = np.eye(4, dtype=F32), np.ones((4, 8), F32)

    def body(x, y):
        tiles = [psum(4, 8) for _ in range(4)]
        for tile, flags in zip(tiles, ((None, None), (False, True), (None, False), (False, None)), strict=True):
            for flag in flags:
                nisa.nc_matmul(tile, x, y, accumulate=flag)
        return tuple(tiles)

    sums, added, replaced, then_added = run(body, a, b)
    assert (sums == 2).all() and (added == 2).all() and (replaced == 1).all() and (then_added == 2).all()


def test_only_what_a_product_has_written_is_added_to() -> None:
    """Overlapping slices, as in a convolution: each element adds where it was written and starts where it was not."""

    def body(x, y):
        out = psum(4, 12)
        nisa.nc_matmul(out[:, 0:8], x, y)
        nisa.nc_matmul(out[:, 4:12], x, y)
        return out

    got = run(body, np.eye(4, dtype=F32), np.ones((4, 8), F32))
    assert (got == [1] * 4 + [2] * 4 + [1] * 4).all()


def test_a_new_tile_at_the_same_place_starts_anew() -> None:
    def body(x, y):
        results = []
        for _ in range(3):
            out = psum(4, 8)
            nisa.nc_matmul(out, x, y)
            results.append(nl.copy(out))
        pinned = []
        for _ in range(2):
            out = nl.ndarray((4, 8), nl.float32, buffer=nl.psum, address=(0, 2048 * 5))
            nisa.nc_matmul(out, x, y)
            pinned.append(nl.copy(out))
        return tuple(results + pinned)

    for got in run(body, np.eye(4, dtype=F32), np.ones((4, 8), F32)):
        assert (got == 1).all()


def test_tensors_at_one_address_count_their_products_each_for_itself() -> None:
    def body(x, y):
        tiles = [nl.ndarray((4, 8), nl.float32, buffer=nl.psum, address=(0, 2048)) for _ in range(3)]
        results = []
        for tile in tiles:  # all allocated before the first product, as public kernels do
            nisa.nc_matmul(tile, x, y)
            nisa.nc_matmul(tile, x, y)
            results.append(nl.copy(tile))
        return tuple(results)

    for got in run(body, np.eye(4, dtype=F32), np.ones((4, 8), F32)):
        assert (got == 2).all()


def test_adding_to_unwritten_psum_warns_and_gives_nan() -> None:
    def body(x, y):
        out = psum(4, 8)
        nisa.nc_matmul(out, x, y, accumulate=True)
        return out

    with pytest.warns(NkiWarning, match="PSUM that nothing has written"):
        assert np.isnan(run(body, np.eye(4, dtype=F32), np.ones((4, 8), F32))).all()


def test_double_row_multiplies_256_rows() -> None:
    a = torch.from_numpy(sample(128, 2, 64)).to(torch.float8_e5m2)
    b = torch.from_numpy(sample(128, 2, 256, seed=1)).to(torch.float8_e5m2)

    def body(x, y):
        out = psum(64, 256)
        nisa.nc_matmul(out, x, y, perf_mode=nisa.matmul_perf_mode.double_row)
        return out

    want = torch.einsum("kim,kin->mn", a.float(), b.float())
    torch.testing.assert_close(run(body, a, b), want, rtol=0, atol=2e-4)


@pytest.mark.parametrize(("rows", "columns"), [(128, 128), (1, 128), (96, 7)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_nc_transpose_on_tensor_engine_keeps_bits(rows: int, columns: int, dtype: type) -> None:
    x = sample(rows, columns).astype(dtype)
    x[0, 0] = np.nan
    got = run(nl.transpose, x)
    assert np.array_equal(got, x.T, equal_nan=True)


def test_nc_transpose_on_vector_engine_and_by_matmul() -> None:
    x = np.arange(32 * 20, dtype=np.int32).reshape(32, 20)

    def vector(t):
        out = like(t, shape=(20, 32))
        nisa.nc_transpose(out, t)
        return out

    assert np.array_equal(run(vector, x), x.T)
    y = sample(128, 40).astype(np.float16)
    y[3, 3] = np.inf  # a product would spread NaN

    def product(t):
        identity = nl.ndarray((128, 128), nl.float16)
        nl.shared_identity_matrix(128, nl.float16, dst=identity)
        out = psum(40, 128, "float16")
        nisa.nc_matmul(out, t, identity, is_transpose=True)
        return out

    assert np.array_equal(run(product, y), y.T)


def reference_quantize(x: np.ndarray, emax: int) -> np.ndarray:
    """Scales of groups of 8 rows by 4 columns, element by element: the exponent of the largest, less emax - 1."""
    scales = np.empty((x.shape[0] // 8, x.shape[1] // 4), np.int64)
    for row in range(scales.shape[0]):
        for column in range(scales.shape[1]):
            amax = np.abs(x[row * 8 : row * 8 + 8, column * 4 : column * 4 + 4]).max()
            scales[row, column] = int(np.floor(np.log2(amax))) - (emax - 1) if amax > 0 else -127
    return scales


@pytest.mark.parametrize(("packed", "emax"), [("float8_e4m3fn_x4", 8), ("float8_e5m2_x4", 15)])
def test_quantize_mx(trn3, packed: str, emax: int) -> None:
    x = torch.from_numpy(sample(64, 16, scale=100.0)).bfloat16()
    x[8:16, 4:8] = 0

    def body(t):
        out, scale = nl.ndarray((64, 4), packed), nl.ndarray((64, 4), nl.uint8)
        nisa.memset(scale, 0)
        nisa.quantize_mx(out, t, scale)
        raw = nl.ndarray((64, 16), nl.uint8)
        nisa.tensor_copy(raw, out.view(nl.uint8))
        return raw, scale

    raw, scale = run(body, x)
    wanted = reference_quantize(x.float().numpy(), emax)
    rows = [row for row in range(64) if row % 32 < 4]
    assert np.array_equal(scale.numpy()[rows].astype(int) - 127, wanted)
    assert (scale.numpy()[[row for row in range(64) if row % 32 >= 4]] == 0).all()  # the rest is left alone
    values = decode(raw.numpy(), DTYPES[packed.removesuffix("_x4")])
    factor = np.ldexp(1.0, wanted).repeat(8, 0).repeat(4, 1)
    step = 2.0 ** (-4 if emax == 8 else -3)  # half a step of the mantissa
    np.testing.assert_allclose(values * factor, x.float().numpy(), rtol=step, atol=factor.max() * 2.0**-9)


def test_nc_matmul_mx(trn3) -> None:
    a, b = (torch.from_numpy(sample(64, c * 4, seed=c)).bfloat16() for c in (32, 40))

    def body(x, y):
        operands = []
        for t, columns in ((x, 32), (y, 40)):
            packed, scale = nl.ndarray((64, columns), nl.float8_e4m3fn_x4), nl.ndarray((64, columns), nl.uint8)
            nisa.memset(scale, 0)
            nisa.quantize_mx(packed, t, scale)
            operands.append((packed, scale))
        out = psum(32, 40)
        (p, ps), (q, qs) = operands
        nisa.nc_matmul_mx(out, p, q, ps, qs)
        nisa.nc_matmul_mx(out, p, q, ps, qs)
        return out

    got = run(body, a, b).double()
    want = 2 * torch.einsum("kmi,kni->mn", a.double().reshape(64, 32, 4), b.double().reshape(64, 40, 4))
    # Each of the 256 products carries two rounding errors of at most 2^-4 of its factors, independent of each other.
    assert (got - want).abs().max() < 5 * 2 * 2**-4 * 256**0.5
    assert torch.corrcoef(torch.stack([got.flatten(), want.flatten()]))[0, 1] > 0.999


def test_mx_scales_are_powers_of_two_for_blocks_of_partitions(trn3) -> None:
    """Ones with scale 2^k in block k: the product is the sum of 2^k over partitions and packed values."""

    def body(block):
        ones = nl.ndarray((32, 8), nl.float8_e4m3fn_x4)
        source = nl.ndarray((32, 32), nl.bfloat16)
        nisa.memset(source, 1.0)
        ignored = nl.ndarray((32, 8), nl.uint8)
        nisa.memset(ignored, 0)
        nisa.quantize_mx(ones, source, ignored)
        unit = nl.ndarray((32, 8), nl.uint8)
        nisa.memset(unit, 127 - 7)  # quantize_mx of ones stores 128 with the scale 2^-7
        out = psum(8, 8)
        nisa.nc_matmul_mx(out, ones, ones, unit, block)
        return out

    scale = np.full((32, 8), 120, np.uint8)
    scale[:4] = (np.array([120, 121, 122, 123], np.uint8))[:, None]
    assert (run(body, scale) == 8 * 4 * (1 + 2 + 4 + 8)).all()


def test_matmul_tiles_by_rows_and_columns() -> None:
    a, b = sample(32, 16), sample(32, 8, seed=1)

    def body(x, y):
        rows, both = psum(16, 8), psum(128, 8)
        nisa.nc_matmul(rows, x, y, tile_position=(32, 0), tile_size=(32, 128))
        for column in range(0, 128, 32):
            nisa.nc_matmul(both[column : column + 16], x, y, tile_position=(0, column), tile_size=(32, 32))
        return rows, both

    rows, both = run(body, a, b)
    np.testing.assert_allclose(rows, a.T @ b, atol=1e-5)
    for column in range(0, 128, 32):
        assert np.array_equal(both[column : column + 16], rows)


def test_program_of_a_product_names_its_operands() -> None:
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((a.shape[1], b.shape[1]), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.matmul(nl.load(a), nl.load(b), transpose_x=True))
        return out

    program = kernel.program(sample(128, 64), sample(128, 256))
    (product,) = [item for item in program.instructions() if item.opcode == "nc_matmul"]
    assert product.engine == "tensor" and product.operands["moving"].pattern == ((256, 128), (1, 256))
    assert product.location is not None and product.location.file == __file__
