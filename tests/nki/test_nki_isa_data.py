"""Instructions that search, gather, shuffle and move data."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nki_helpers import F32, like, run, sample

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import NkiIndexError

A = sample(128, 96)


def test_max8_and_find_index8() -> None:
    x = A.copy()
    x[:, 40] = x[:, 80] = 9.0  # equal values: one place after the other

    def body(t):
        best, where = like(t, shape=(128, 8)), like(t, "uint32", (128, 8))
        nisa.max8(best, t)
        nisa.nc_find_index8(where, t, best)
        return best, where

    best, where = run(body, x)
    assert np.array_equal(best, -np.sort(-x, axis=1)[:, :8])
    assert (where[:, :2] == [40, 80]).all()
    assert np.array_equal(np.take_along_axis(x, where.astype(int), 1), best)


def test_find_index8_misses_are_all_ones() -> None:
    def body(t, v):
        out = like(t, "uint16", (8, 8))
        nisa.nc_find_index8(out, t, v)
        return out

    values = np.tile(np.array([0, 100, 1, 1, 1, 7, 7, 5], F32), (8, 1))
    data = np.tile(np.arange(8, dtype=F32), (8, 1))
    none = 0xFFFF
    assert (run(body, data, values) == [0, none, 1, none, none, 7, none, 5]).all()


def test_match_replace8_pairs_equal_values_from_the_last() -> None:
    def body(t, v):
        out, where = like(t), like(t, "uint32", (8, 8))
        nisa.nc_match_replace8(out, t, v, -1.0, where)
        return out, where

    data = np.tile(np.array([5, 3, 5, 4, 9, 9, 1, 0, 2], F32), (8, 1))
    values = np.tile(np.array([5, 5, 9, 42, 0, 6, 6, 6], F32), (8, 1))
    out, where = run(body, data, values)
    none = 0xFFFFFFFF
    assert (out == [-1, 3, -1, 4, -1, 9, 1, -1, 2]).all()
    assert (where == [2, 0, 4, none, 7, none, none, none]).all()


def test_stream_shuffle() -> None:
    mask = [(i + 5) % 32 for i in range(32)]
    mask[7] = 255

    def body(t, old):
        nisa.nc_stream_shuffle(old, t, mask)
        return old

    old = sample(128, 96, seed=3)
    got = run(body, A, old)
    for partition in range(128):
        quadrant, lane = divmod(partition, 32)
        want = old[partition] if lane == 7 else A[quadrant * 32 + (lane + 5) % 32]
        assert np.array_equal(got[partition], want)


@pytest.mark.parametrize("each", [1, 4])
def test_local_gather(each: int) -> None:
    x = sample(32, 64)
    index = np.random.default_rng(0).integers(0, 64 // each, (32, 3)).astype(np.uint16)

    def body(t, i):
        out = like(t, shape=(32, 40 * each))
        nisa.local_gather(out, t, i, each, 40)
        return out

    got = run(body, x, index)
    for partition in range(32):
        group = index[partition // 16 * 16 : partition // 16 * 16 + 16]
        order = [int(group[k % 16, k // 16]) for k in range(40)]  # partition by partition
        want = np.concatenate([x[partition, i * each : i * each + each] for i in order])
        assert np.array_equal(got[partition], want)


def test_n_gather() -> None:
    index = np.random.default_rng(0).integers(0, 96, (128, 200)).astype(np.uint32)
    assert np.array_equal(run(nl.gather_flattened, A, index), np.take_along_axis(A, index.astype(int), 1))


def test_nonzero_with_count() -> None:
    x = np.zeros((32, 10), F32)
    x[0, [1, 4, 9]] = [3, -2, 1]
    x[1, :] = 1  # not processed

    def body(t):
        out = nl.ndarray((32, 11), nl.int32)
        nisa.memset(out, 77)
        nisa.nonzero_with_count(out, t, index_offset=100, padding_val=-5)
        return out

    got = run(body, x)
    assert got[0].tolist() == [101, 104, 109] + [-5] * 7 + [3]
    assert got[16].tolist() == [-5] * 10 + [0] and (got[1:16] == 77).all()


def test_sequence_bounds() -> None:
    def body(t):
        out = nl.ndarray((1, 2, 8), nl.int32)
        nisa.sequence_bounds(out, t)
        return out

    got = run(body, np.array([[1, 1, 2, 2, 2, 0, 3, 0]], np.int32))
    assert got[0].tolist() == [[0, 0, 2, 2, 2, 8, 6, 8], [2, 2, 5, 5, 5, -1, 7, -1]]


def snake(matrix: np.ndarray) -> list:
    """The order in which topk reads 16 partitions."""
    order = []
    for column in range(matrix.shape[1]):
        rows = range(16) if column % 2 == 0 else range(15, -1, -1)
        order += [matrix[row, column] for row in rows]
    return order


def test_topk_reads_and_writes_a_snake() -> None:
    x = torch.from_numpy(np.random.default_rng(0).permutation(160).reshape(16, 10).astype(F32)).bfloat16()

    def body(t):
        values, index = nl.ndarray((16, 2), nl.bfloat16), nl.ndarray((16, 2), nl.uint32)
        nisa.topk(values, index, t, 150)
        return values, index

    values, index = run(body, x)
    flat = np.array(snake(x.float().numpy()))[:150]
    assert snake(values.float().numpy()) == sorted(flat)[-32:]
    assert np.array_equal(flat[np.array(snake(index.numpy()))], snake(values.float().numpy()))


# --- DMA


def test_dma_copy_between_all_memories_converts() -> None:
    @nki.jit
    def kernel(x):
        near, far = nl.ndarray(x.shape, nl.bfloat16), nl.ndarray(x.shape, nl.float32, buffer=nl.hbm)
        also = nl.ndarray(x.shape, nl.bfloat16)
        out = nl.ndarray((128 * 96,), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(near, x)
        nisa.dma_copy(also, near)
        nisa.dma_copy(far, also)
        nisa.dma_copy(out, far)  # equal numbers of elements, other shape
        return out

    want = torch.from_numpy(A).bfloat16().float().reshape(-1)
    assert torch.equal(kernel(torch.from_numpy(A)), want)


def test_dma_copy_broadcasts_and_strides() -> None:
    def body(row):
        return row

    @nki.jit
    def kernel(x):
        spread, odd = nl.ndarray((128, 96), nl.float32), nl.ndarray((128, 48), nl.float32)
        nisa.dma_copy(spread, x[5:6].broadcast(0, 128))
        nisa.dma_copy(odd, x[:, 1::2])
        first = nl.ndarray((128, 96), nl.float32, buffer=nl.shared_hbm)
        second = nl.ndarray((128, 48), nl.float32, buffer=nl.shared_hbm)
        nl.store(first, spread)
        nl.store(second, odd)
        return first, second

    first, second = kernel(A)
    assert (first == A[5]).all() and np.array_equal(second, A[:, 1::2])


def gather_kernel(mode):
    @nki.jit
    def kernel(table, index):
        rows = nl.load(index)
        out = nl.ndarray((index.shape[0], table.shape[1]), table.dtype)
        nisa.memset(out, 0)
        source = table.ap([[table.shape[1], index.shape[0]], [1, table.shape[1]]], vector_offset=rows)
        nisa.dma_copy(out, source, oob_mode=mode)
        result = nl.ndarray(out.shape, out.dtype, buffer=nl.shared_hbm)
        nl.store(result, out)
        return result

    return kernel


def test_gather_of_rows() -> None:
    index = np.random.default_rng(0).integers(0, 128, (64, 1)).astype(np.int32)
    assert np.array_equal(gather_kernel(nisa.oob_mode.error)(A, index), A[index[:, 0]])


def test_gather_out_of_bounds_raises_or_skips_whole_rows() -> None:
    index = np.array([[3], [128], [-1], [7]], np.int32)
    with pytest.raises(
        NkiIndexError, match=r"dma_copy: row index 128 \(partition 1\) .*'table' is not in 0 to 127"
    ) as e:
        gather_kernel(nisa.oob_mode.error)(A, index)
    assert e.value.location is not None and e.value.location.file == __file__
    got = gather_kernel(nisa.oob_mode.skip)(A, index)
    assert np.array_equal(got, np.stack([A[3], 0 * A[0], 0 * A[0], A[7]]))


def test_scatter_skips_and_keeps_integer_bits() -> None:
    @nki.jit
    def kernel(out, rows, values):
        where = nl.load(rows)
        nisa.dma_copy(out.vector_select(0, where), nl.load(values), oob_mode=nisa.oob_mode.skip)
        return out

    old = np.full((10, 2), 123456789, np.int32)
    kernel(old, np.array([[4], [99], [0]], np.uint32), np.full((3, 2), 987654321, np.int32))
    want = np.full((10, 2), 123456789)
    want[[0, 4]] = 987654321
    assert np.array_equal(old, want)


def test_scalar_offset_from_a_tensor_and_a_register() -> None:
    @nki.jit
    def kernel(x, which):
        out = nl.ndarray((2, 96), nl.float32, buffer=nl.shared_hbm)
        index = nl.load(which)
        pattern = [[96, 1], [1, 96]]
        first, second = nl.ndarray((1, 96), nl.float32), nl.ndarray((1, 96), nl.float32)
        nisa.dma_copy(first, x.ap(pattern, scalar_offset=index[0:1, 0:1]))
        register = nisa.register_alloc()
        nisa.register_load(register, index[0:1, 1:2])
        nisa.dma_copy(second, x[nl.ds(register + 1, 1)])
        nl.store(out[0:1], first)
        nl.store(out[1:2], second)
        return out

    assert np.array_equal(kernel(A, np.array([[100, 7]], np.int32)), A[[100, 8]])
    with pytest.raises(NkiIndexError, match="index 128 for 'x' is not in 0 to 127"):
        kernel(A, np.array([[5, 127]], np.int32))


@pytest.mark.parametrize(("shape", "axes"), [((5, 40), (1, 0)), ((3, 6, 40), (2, 1, 0)), ((2, 3, 4, 40), (3, 1, 2, 0))])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_dma_transpose(shape: tuple[int, ...], axes: tuple[int, ...], dtype: type) -> None:
    x = sample(*shape).astype(dtype)

    @nki.jit
    def kernel(t):
        near = nl.ndarray(tuple(shape[a] for a in axes), t.dtype)
        nisa.dma_transpose(near, t)
        out = nl.ndarray(near.shape, t.dtype, buffer=nl.shared_hbm)
        nl.store(out, near)
        return out

    assert np.array_equal(kernel(x), x.transpose(axes))


def test_dma_transpose_of_gathered_rows() -> None:
    x = sample(100, 32).astype(np.float16)
    index = np.random.default_rng(0).integers(0, 100, (16, 1)).astype(np.uint32)

    @nki.jit
    def kernel(t, i):
        near = nl.ndarray((32, 16), t.dtype)
        nisa.dma_transpose(near, t.vector_select(0, nl.load(i)))
        out = nl.ndarray((32, 16), t.dtype, buffer=nl.shared_hbm)
        nl.store(out, near)
        return out

    assert np.array_equal(kernel(x, index), x[index[:, 0]].T)


def test_dma_compute_adds_in_float32() -> None:
    parts = [torch.from_numpy(sample(128, 96, seed=s)).bfloat16() for s in range(3)]

    @nki.jit
    def kernel(a, b, c):
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(out, [a, b, c], nl.add, scales=[1.0, 1.0, 1.0])
        return out

    want = ((parts[0].float() + parts[1].float()) + parts[2].float()).bfloat16()
    assert torch.equal(kernel(*parts), want)


def test_dma_compute_scatter_adds_row_by_row() -> None:
    @nki.jit
    def kernel(total, rows, values):
        target = total.vector_select(0, nl.load(rows))
        nisa.dma_compute(target, [nl.load(values), target], nl.add, unique_indices=False)
        return total

    total = np.ones((6, 4), F32)
    values = sample(4, 4)
    kernel(total, np.array([[2], [5], [2], [2]], np.int32), values)
    want = np.ones((6, 4), F32)
    for row, value in zip((2, 5, 2, 2), values, strict=True):
        want[row] += value
    assert np.array_equal(total, want)
