"""Each computing instruction of VectorE and GpSimdE against NumPy or PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nki_helpers import F32, like, run, sample

import nki.isa as nisa
import nki.language as nl

A, B = sample(128, 96), sample(128, 96, seed=1)
COLUMN = sample(128, 1, seed=2)


def tensor_tensor(a, b, op, dtype=None, **options):
    out = like(a, dtype)
    nisa.tensor_tensor(out, a, b, op, **options)
    return out


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}


@pytest.mark.parametrize("name", BINARY)
def test_tensor_tensor(name: str) -> None:
    a, b = A.copy(), B.copy()
    b[::2] = a[::2]
    a[:, ::7] = 0
    got = run(lambda x, y: tensor_tensor(x, y, getattr(nl, name)), a, b)
    assert np.array_equal(got, BINARY[name](a, b).astype(F32))


def test_power_runs_on_gpsimd() -> None:
    got = run(lambda x, y: tensor_tensor(x, y, nl.power), np.abs(A) + F32(0.5), B)
    np.testing.assert_allclose(got, (np.abs(A) + F32(0.5)) ** B, rtol=1e-6)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_results_round_once_from_float32(name: str) -> None:
    dtype = getattr(torch, name)
    a, b = torch.from_numpy(A).to(dtype), torch.from_numpy(B).to(dtype)
    got = run(lambda x, y: tensor_tensor(x, y, nl.multiply), a, b)
    assert torch.equal(got, (a.float() * b.float()).to(dtype))


def test_integers_in_float32_and_exact_on_gpsimd() -> None:
    big = np.full((128, 2), (1 << 24) + 1, np.int32)
    one = np.full((128, 2), 2, np.int32)
    exact, rounded = run(
        lambda x, y: (tensor_tensor(x, y, nl.add), tensor_tensor(x, y, nl.add, engine=nisa.engine.vector)), big, one
    )
    assert (exact == (1 << 24) + 3).all()
    assert (rounded == (1 << 24) + 2).all()  # float32 holds neither 2^24 + 1 nor 2^24 + 3
    wrapped = run(lambda x, y: tensor_tensor(x, y, nl.multiply), np.full((8, 2), 1 << 20, np.int32), big[:8])
    assert (wrapped.view(np.uint32) == ((1 << 20) * ((1 << 24) + 1)) % (1 << 32)).all()


BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("name", BITS)
def test_bit_operators(name: str, dtype: type) -> None:
    random = np.random.default_rng(0)
    bits = np.iinfo(dtype).bits
    a = random.integers(0, 1 << bits, (64, 32), dtype=np.uint64).astype(dtype)
    b = random.integers(0, bits if "shift" in name else 1 << bits, (64, 32), dtype=np.uint64).astype(dtype)
    want = BITS[name](a, b)
    assert np.array_equal(run(lambda x, y: tensor_tensor(x, y, getattr(nl, name)), a, b), want)


def test_right_shift_of_negative_numbers_brings_in_zeros() -> None:
    got = run(lambda x: nl.right_shift(x, 28), np.full((4, 2), -1, np.int32))
    assert (got == 15).all()
    assert (run(nl.invert, np.full((4, 2), 5, np.int16)) == -6).all()


def tensor_scalar(x, *arguments, dtype=None, **options):
    out = like(x, dtype)
    nisa.tensor_scalar(out, x, *arguments, **options)
    return out


def test_tensor_scalar_with_constants_columns_and_reverse() -> None:
    got = run(
        lambda x, c: (
            tensor_scalar(x, nl.multiply, 2.0, op1=nl.add, operand1=c),
            tensor_scalar(x, nl.subtract, c, reverse0=True),
            tensor_scalar(x, nl.abs, None, op1=nl.maximum, operand1=0.5),
            tensor_scalar(x, nl.multiply, c, op1=nl.subtract, operand1=1.0, reverse1=True),
            tensor_scalar(x, nl.square, 0.0),
            tensor_scalar(x, nl.relu, 0.0),
        ),
        A,
        COLUMN,
    )
    wants = (
        A * F32(2) + COLUMN,
        COLUMN - A,
        np.maximum(np.abs(A), F32(0.5)),
        F32(1) - A * COLUMN,
        A * A,
        np.maximum(A, 0),
    )
    for result, want in zip(got, wants, strict=True):
        assert np.array_equal(result, want)


def test_tensor_scalar_rsqrt_on_gpsimd_and_scalar_engine() -> None:
    positive = np.abs(A) + F32(0.1)
    got = run(lambda x: tensor_scalar(x, nl.rsqrt, 0.0, engine=nisa.engine.gpsimd), positive)
    np.testing.assert_allclose(got, 1 / np.sqrt(positive), rtol=2e-7)
    on_scalar = run(
        lambda x: tensor_scalar(x, nl.multiply, 3.0, op1=nl.add, operand1=1.0, engine=nisa.engine.scalar), A
    )
    assert np.array_equal(on_scalar, A * F32(3) + F32(1))


def test_tensor_scalar_reduce() -> None:
    def body(x, c):
        out, total, again, largest = like(x), like(c), like(c), like(c)
        nisa.tensor_scalar_reduce(out, x, nl.multiply, c, nl.add, total)
        nisa.tensor_scalar_reduce(out, x, nl.multiply, c, nl.add, again, reduce_cmd=nisa.reduce_cmd.reduce)
        nisa.tensor_scalar_reduce(
            out,
            x,
            nl.add,
            0.0,
            nl.maximum,
            largest,
            reduce_cmd=nisa.reduce_cmd.load_reduce,
            reduce_init=2.0,
            reduce_res_negate=True,
        )
        return out, total, again, largest

    out, total, again, largest = run(body, A, COLUMN)
    assert np.array_equal(out, A)
    want = (A * COLUMN).sum(1, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(total, want, atol=2e-5)
    np.testing.assert_allclose(again, 2 * want, atol=4e-5)  # the register went on
    assert np.array_equal(largest, -np.maximum(A.max(1, keepdims=True), F32(2)))


@pytest.mark.parametrize(
    ("op", "scan"), [("add", np.cumsum), ("multiply", np.cumprod), ("maximum", np.maximum.accumulate)]
)
def test_tensor_scalar_cumulative(op: str, scan) -> None:
    def body(x):
        out = like(x)
        nisa.tensor_scalar_cumulative(out, x, nl.multiply, getattr(nl, op), 0.5)
        return out

    want = scan((A * F32(0.5)).astype(F32), axis=1)
    np.testing.assert_allclose(run(body, A), want, rtol=1e-5, atol=1e-30)


def test_tensor_scalar_cumulative_goes_on_and_starts_anew() -> None:
    def body(x):
        first, second, third = like(x), like(x), like(x)
        nisa.tensor_scalar_cumulative(first, x, nl.add, nl.add, 0.0)
        nisa.tensor_scalar_cumulative(second, x, nl.add, nl.add, 0.0, reduce_cmd=nisa.reduce_cmd.reduce)
        nisa.tensor_scalar_cumulative(third, x, nl.add, nl.subtract, 0.0, 10.0, reduce_cmd=nisa.reduce_cmd.load_reduce)
        return first, second, third

    first, second, third = run(body, np.ones((4, 8), F32))
    ramp = np.arange(1, 9, dtype=F32)
    assert (first == ramp).all() and (second == ramp + 8).all() and (third == 10 - ramp).all()


def test_scalar_tensor_tensor() -> None:
    def body(x, y, c):
        first, second = like(x), like(x)
        nisa.scalar_tensor_tensor(first, x, nl.multiply, c, nl.add, y)
        nisa.scalar_tensor_tensor(second, x, nl.subtract, 1.0, nl.subtract, y, reverse0=True, reverse1=True)
        return first, second

    first, second = run(body, A, B, COLUMN)
    assert np.array_equal(first, A * COLUMN + B) and np.array_equal(second, B - (F32(1) - A))


def test_tensor_tensor_scan() -> None:
    def body(x, y, c):
        out = like(x)
        nisa.tensor_tensor_scan(out, x, y, c, nl.multiply, nl.add)
        return out

    want = np.empty_like(A)
    state = COLUMN[:, 0]
    for i in range(A.shape[1]):
        state = A[:, i] * state + B[:, i]
        want[:, i] = state
    np.testing.assert_allclose(run(body, A, B, COLUMN), want, rtol=1e-6)


def test_abs_max_and_abs_min(trn3) -> None:
    got = run(lambda x, y: (nl.abs_max(x, y), nl.abs_min(x, y)), A, B)
    assert np.array_equal(got[0], np.maximum(np.abs(A), np.abs(B)))
    assert np.array_equal(got[1], np.minimum(np.abs(A), np.abs(B)))


def test_tensor_copy_is_bit_exact_and_converts() -> None:
    bits = np.random.default_rng(0).integers(0, 1 << 32, (128, 64), dtype=np.uint64).astype(np.uint32)

    def copy(x, dtype=None, **options):
        out = like(x, dtype)
        nisa.tensor_copy(out, x, **options)
        return out

    got = run(copy, bits.view(F32))
    assert np.array_equal(got.view(np.uint32), bits)  # NaN payloads too
    numbers = np.array([[1.5, 2.5, -0.5, 300.0, -300.0, np.nan]], F32)
    assert run(lambda x: copy(x, "int8"), numbers).tolist() == [[2, 2, 0, 127, -128, 0]]
    assert run(lambda x: copy(x, "uint8", engine=nisa.engine.scalar), numbers).tolist() == [[2, 2, 0, 255, 0, 0]]
    assert run(lambda x: copy(x, nl.bool_), numbers).tolist() == [[True] * 6]
    assert np.array_equal(run(lambda x: copy(x, "float32"), np.arange(8, dtype=np.int16)[None]), [np.arange(8)])


def test_tensor_copy_predicated() -> None:
    mask = (A > 0).astype(np.uint8)

    def body(x, y, m, constant):
        kept, reverse, number = like(x), like(x), like(x)
        for out in (kept, reverse, number):
            nisa.tensor_copy(out, y)
        nisa.tensor_copy_predicated(kept, x, m)
        nisa.tensor_copy_predicated(reverse, x, m, reverse_pred=True)
        nisa.tensor_copy_predicated(number, constant, m)
        return kept, reverse, number

    kept, reverse, number = run(body, A, B, mask, -1.5)
    assert np.array_equal(kept, np.where(mask, A, B)) and np.array_equal(reverse, np.where(mask, B, A))
    assert np.array_equal(number, np.where(mask, F32(-1.5), B))


@pytest.mark.parametrize(("dtype", "value"), [("float32", 1.25), ("bfloat16", -3.0), ("int32", -7), ("uint8", 255)])
def test_memset(dtype: str, value: float) -> None:
    def body(x):
        out = like(x, dtype)
        nisa.memset(out, value)
        return nl.copy(out, "float32")

    assert (run(body, A) == value).all()


def test_reciprocal_and_exponential(trn3) -> None:
    def body(x, c):
        inverse, powers, total, more = like(x), like(x), like(c), like(c)
        nisa.reciprocal(inverse, x)
        nisa.exponential(powers, x, c, total, nisa.reduce_cmd.reset_reduce)
        nisa.exponential(powers, x, c, more, nisa.reduce_cmd.load_reduce, 1.0)
        return inverse, powers, total, more

    inverse, powers, total, more = run(body, A, COLUMN)
    assert np.array_equal(inverse, F32(1) / A)
    want = np.exp((A - COLUMN).astype(np.float64))
    np.testing.assert_allclose(powers, want, rtol=1e-7)
    np.testing.assert_allclose(total, want.sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_allclose(more, want.sum(1, keepdims=True) + 1, rtol=1e-6)


def test_select_reduce() -> None:
    mask = (B > 0).astype(np.uint8)

    def body(x, m, c):
        first, second, largest = like(x), like(x), like(c)
        nisa.select_reduce(first, m, x, c, largest, nisa.reduce_cmd.reset_reduce)
        nisa.select_reduce(second, m, x, -5.0, reverse_pred=True)
        return first, second, largest

    first, second, largest = run(body, A, mask, COLUMN)
    want = np.where(mask, A, COLUMN)
    assert np.array_equal(first, want) and np.array_equal(largest, want.max(1, keepdims=True))
    assert np.array_equal(second, np.where(mask, F32(-5), A))


def test_range_select() -> None:
    low, high = np.arange(128, dtype=F32)[:, None] / 4, np.arange(128, dtype=F32)[:, None] / 2 + 10

    def body(x, a, b):
        out, largest = like(x), like(a)
        nisa.range_select(out, x, nl.greater_equal, nl.less, a, b, reduce_res=largest, range_start=5)
        return out, largest

    out, largest = run(body, A, low, high)
    index = np.arange(96)[None] + 5
    want = np.where((index >= low) & (index < high), A, np.finfo(F32).min)
    assert np.array_equal(out, want) and np.array_equal(largest, want.max(1, keepdims=True))


def test_affine_select_makes_a_causal_mask() -> None:
    def body(x):
        out = like(x)
        nisa.affine_select(out, [[-1, x.shape[1]]], 1, x, -1e9, nl.greater_equal, offset=3)
        return out

    p, i = np.arange(128)[:, None], np.arange(96)[None]
    assert np.array_equal(run(body, A), np.where(3 + p - i >= 0, A, F32(-1e9)))


def test_iota() -> None:
    def body(dtype):
        out = nl.ndarray((64, 4, 8), dtype)
        nisa.iota(out, [[100, 4], [-2, 8]], offset=7, channel_multiplier=1000)
        return out

    p, y, x = np.arange(64)[:, None, None], np.arange(4)[:, None], np.arange(8)
    want = 7 + p * 1000 + y * 100 - 2 * x
    assert np.array_equal(run(body, "int32"), want) and np.array_equal(run(body, "float32"), want)
    assert np.array_equal(run(body, "uint8"), np.clip(want, 0, 255))


@pytest.mark.parametrize(
    ("op", "fold"), [("add", np.sum), ("maximum", np.max), ("minimum", np.min), ("multiply", np.prod)]
)
def test_tensor_reduce(op: str, fold) -> None:
    x = sample(64, 6, 5, 4)

    def body(t):
        last, two, negative = like(t, shape=(64, 6, 5)), like(t, shape=(64, 6)), like(t, shape=(64, 1))
        nisa.tensor_reduce(last, getattr(nl, op), t, -1)
        nisa.tensor_reduce(two, getattr(nl, op), t, (2, 3))
        nisa.tensor_reduce(negative, getattr(nl, op), t, [1, 2, 3], negate=True)
        return last, two, negative

    last, two, negative = run(body, x)
    np.testing.assert_allclose(last, fold(x, axis=3), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(two, fold(x, axis=(2, 3)), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(negative[:, 0], -fold(x, axis=(1, 2, 3)), rtol=1e-4, atol=1e-4)


def test_tensor_reduce_over_bits_and_a_strided_view() -> None:
    bits = np.random.default_rng(0).integers(0, 256, (16, 8), dtype=np.uint8)

    def body(t, x):
        out, strided = like(t, shape=(16, 1)), like(x, shape=(64, 3))
        nisa.tensor_reduce(out, nl.bitwise_or, t, 1)
        nisa.tensor_reduce(strided, nl.add, x.permute([0, 2, 1]), 2)
        return out, strided

    x = sample(64, 5, 3)
    got, strided = run(body, bits, x)
    assert np.array_equal(got[:, 0], np.bitwise_or.reduce(bits, axis=1))
    np.testing.assert_allclose(strided, x.sum(1), atol=1e-6)


def test_tensor_partition_reduce() -> None:
    def body(x):
        results = tuple(like(x, shape=(1, 96)) for _ in range(3))
        for out, op in zip(results, (nl.add, nl.mean, nl.maximum), strict=True):
            nisa.tensor_partition_reduce(out, op, x)
        return results

    whole = np.rint(A * 100)  # sums of whole numbers are exact
    total, mean, largest = run(body, whole)
    assert np.array_equal(total[0], whole.sum(0)) and np.array_equal(mean[0], whole.sum(0) / 128)
    assert np.array_equal(largest[0], whole.max(0))


@pytest.mark.parametrize("count", [512, 33, 1])
def test_bn_stats_and_bn_aggr_give_mean_and_variance(count: int) -> None:
    x = sample(128, count, scale=3.0) + F32(5)

    def body(t):
        stats, result = like(t, shape=(128, 6)), like(t, shape=(128, 2))
        nisa.bn_stats(stats, t)
        nisa.bn_aggr(result, stats)
        return stats, result

    stats, result = run(body, x)
    even = x[:, 0::2].astype(np.float64)
    np.testing.assert_allclose(stats[:, 0], even.shape[1])
    np.testing.assert_allclose(stats[:, 1], even.mean(1), rtol=1e-6)
    np.testing.assert_allclose(stats[:, 2], even.var(1) * even.shape[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result[:, 0], x.mean(1, dtype=np.float64), rtol=1e-6)
    np.testing.assert_allclose(result[:, 1], x.astype(np.float64).var(1), rtol=1e-4, atol=1e-6)


def test_dropout_and_random_numbers() -> None:
    def body(x):
        seed, bits, again = nl.ndarray((1, 1), nl.int32), like(x, "uint32"), like(x, "uint32")
        nisa.memset(seed, 42)
        nisa.set_rng_seed(seed)
        nisa.rng(bits)
        nisa.set_rng_seed(seed)
        nisa.rng(again)
        dropped = like(x)
        nisa.dropout(dropped, x, 0.25)
        return bits, again, dropped, nl.rand(x.shape)

    ones = np.ones((128, 256), F32)
    bits, again, dropped, uniform = run(body, ones)
    assert np.array_equal(bits, again) and len(np.unique(bits)) > 0.99 * bits.size
    for values, mean in ((bits / 2**32, 0.5), (dropped, 0.75), (uniform, 0.5)):
        assert abs(values.mean() - mean) < 0.02
    assert set(np.unique(dropped)) == {0.0, 1.0} and uniform.min() >= 0 and uniform.max() < 1


def xorwow(words: list[int], count: int) -> list[int]:
    """Marsaglia's generator, one step at a time, in Python integers."""
    *x, d = words
    out = []
    for _ in range(count):
        t = x[0] ^ (x[0] >> 2)
        x = [*x[1:], (x[4] ^ (x[4] << 4) & 0xFFFFFFFF) ^ (t ^ (t << 1) & 0xFFFFFFFF)]
        d = (d + 362437) % (1 << 32)
        out.append((x[4] + d) % (1 << 32))
    return out


def test_gpsimd_generator_is_xorwow_and_its_state_can_be_set() -> None:
    state = np.random.default_rng(0).integers(1, 1 << 32, (32, 6), dtype=np.uint64).astype(np.uint32)

    def body(s):
        drawn, after = like(s, shape=(32, 10)), like(s)
        nisa.rand_set_state(s)
        nisa.rng(drawn, engine=nisa.engine.gpsimd)
        nisa.rand_get_state(after)
        return drawn, after

    drawn, after = run(body, state)
    for row in (0, 31):
        assert drawn[row].tolist() == xorwow(state[row].tolist(), 10)
    assert not np.array_equal(after, state)


def test_rand2_lies_between_its_bounds(trn3) -> None:
    def body(low):
        out = nl.ndarray((128, 512), nl.float32)
        nisa.rand2(out, low, 3.0)
        return out

    low = np.linspace(-1, 1, 128, dtype=F32)[:, None]
    got = run(body, low)
    assert (got >= low).all() and (got < 3).all()
    np.testing.assert_allclose(got.mean(1), (low[:, 0] + 3) / 2, atol=0.25)
