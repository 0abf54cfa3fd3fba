"""Views: each must name the same elements as the same view in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from nki_helpers import run, sample

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import NkiIndexError, NkiWarning

X = sample(64, 6, 8)


def copied(view):
    out = nl.ndarray(view.shape, view.dtype)
    nisa.tensor_copy(out, view)
    return out


@pytest.mark.parametrize(
    ("view", "want"),
    [
        (lambda t: t[:, 2], X[:, 2]),
        (lambda t: t[32:64, 1:5:2, -1], X[32:64, 1:5:2, -1]),
        (lambda t: t[0, 0, 0], X[0:1, 0, 0:1]),
        (lambda t: t[..., 3], X[..., 3]),
        (lambda t: t[32, ..., 1:3], X[32:33, :, 1:3]),
        (lambda t: t[nl.ds(32, 16), nl.ds(1, 2, 3)], X[32:48, 1:5:3]),
        (lambda t: t.permute([0, 2, 1]), X.transpose(0, 2, 1)),
        (lambda t: t.reshape(64, 48)[:, 10:20], X.reshape(64, 48)[:, 10:20]),
        (lambda t: t.reshape((64, -1, 4)), X.reshape(64, 12, 4)),
        (lambda t: t.reshape_dim(1, (2, -1)), X.reshape(64, 2, 3, 8)),
        (lambda t: t.flatten_dims(1, 2), X.reshape(64, 48)),
        (lambda t: t.expand_dim(1), X[:, None]),
        (lambda t: t[:, 1:2].squeeze_dim(1), X[:, 1]),
        (lambda t: t[:, :, 3:4].broadcast(2, 5), np.broadcast_to(X[:, :, 3:4], (64, 6, 5))),
        (lambda t: t.rearrange("p a (b c)", "p c (a b)", {"c": 2}), X.reshape(64, 24, 2).transpose(0, 2, 1)),
        (lambda t: t.rearrange(("p", "a", "b"), ("p", "b", "a")), X.transpose(0, 2, 1)),
        (lambda t: t.slice(2, 1, 7, 2), X[:, :, 1:7:2]),
        (lambda t: t.select(1, 4), X[:, 4]),
        (
            lambda t: t.ap([[48, 32], [8, 3], [2, 4]], offset=5),
            X.reshape(64, 48)[:32, [[5, 7, 9, 11], [13, 15, 17, 19], [21, 23, 25, 27]]],
        ),
        (lambda t: t[32:64].ap([[48, 8], [-1, 5]], offset=32 * 48 + 9), X.reshape(64, 48)[32:40, 9:4:-1]),
        (lambda t: t[32:64, 1].ap([[48, 8], [1, 4]]), X[32:40, 1, :4]),
    ],
)
def test_views_on_chip(view, want) -> None:
    assert np.array_equal(run(lambda t: copied(view(t)), X), want)


@pytest.mark.parametrize(
    ("view", "want"),
    [
        (lambda t: t[5], X[5]),
        (lambda t: t[5, 2], X[5, 2]),
        (lambda t: t[::8, 1], X[::8, 1]),
        (lambda t: t.permute([2, 1, 0]), X.transpose(2, 1, 0)),
        (lambda t: t.permute([1, 0, 2])[2:4], X.transpose(1, 0, 2)[2:4]),
        (lambda t: t.reshape(6, 512), X.reshape(6, 512)),
        (lambda t: t.rearrange("(a b) c d", "a (b c) d", {"b": 4}), X.reshape(16, 24, 8)),
        (lambda t: t[3:4].broadcast(0, 128), np.broadcast_to(X[3:4], (128, 6, 8))),
        (lambda t: t.expand_dim(0), X[None]),
    ],
)
def test_views_in_hbm(view, want) -> None:
    @nki.jit
    def kernel(t):
        part = view(t)
        out = nl.ndarray(part.shape, t.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part)
        return out

    assert np.array_equal(kernel(X), want)


def test_writes_through_a_view_reach_the_tensor() -> None:
    def body(t):
        nisa.memset(t[:, 1::2, 3], 7.0)
        return t

    want = X.copy()
    want[:, 1::2, 3] = 7
    assert np.array_equal(run(body, X), want)


def test_view_as_another_dtype() -> None:
    def body(t):
        return copied(t.view(nl.uint16)), copied(t.view(nl.uint8)[:, :, 3::4]), copied(t.view(nl.int32))

    halves, tops, words = run(body, X)
    assert np.array_equal(halves, X.view(np.uint16)) and np.array_equal(words, X.view(np.int32))
    assert np.array_equal(tops, X.view(np.uint8)[:, :, 3::4])


def test_attributes() -> None:
    seen = {}

    def body(t):
        part = t[32:64, 1:3, 2]
        seen["it"] = (part.shape, part.strides, part.offset, part.ndim, part.size, part.buffer, part.dtype)
        seen["pattern"] = part.get_pattern(), part.is_contiguous(), t.is_contiguous(), part.is_indirect()
        return t

    run(body, X)
    assert seen["it"] == ((32, 2), (48, 8), 32 * 48 + 8 + 2, 2, 64, "sbuf", nl.float32)
    assert seen["pattern"] == ([(48, 32), (8, 2)], False, True, False)


def test_ap_with_scalar_offset_on_chip_chooses_along_the_free_dimension() -> None:
    def body(t, index):
        out = nl.ndarray((64, 8), nl.float32)
        nisa.tensor_copy(out, t.ap([[48, 64], [1, 8]], scalar_offset=index, indirect_dim=1))
        return out

    assert np.array_equal(run(body, X, np.array([[4]], np.int32)), X[:, 4])


def test_select_by_a_register() -> None:
    def body(t, index):
        register = nisa.scalar_load(index)
        return copied(t.select(1, register)), copied(t[:, nl.ds(register, 2)])

    one, two = run(body, X, np.array([[3]], np.int32))
    assert np.array_equal(one, X[:, 3]) and np.array_equal(two, X[:, 3:5])


def test_unwritten_memory_reads_as_nan_and_four() -> None:
    def body(t):
        return copied(nl.ndarray((8, 4), nl.bfloat16)), copied(nl.ndarray((8, 4), nl.int16))

    floats, integers = run(lambda t: (nl.copy(body(t)[0], nl.float32), body(t)[1]), X)
    assert np.isnan(floats).all() and (integers == 4).all()


def random_step(random: np.random.Generator, shape: tuple[int, ...], first: int):
    """(view of an NkiTensor, the same in NumPy) for a random change of a view; dimensions below `first` stay."""
    dims = list(range(first, len(shape)))
    dim = int(random.choice(dims)) if dims else 0
    size = shape[dim]
    kind = random.choice(["slice", "int", "permute", "split", "expand", "broadcast"])
    if kind == "slice" and size > 1:
        start = int(random.integers(0, size - 1))
        piece = slice(start, int(random.integers(start + 1, size + 1)), int(random.integers(1, 3)))
        index = (*[slice(None)] * dim, piece)
        return lambda t: t[index], lambda x: x[index]
    if kind == "int" and len(shape) > max(2, first + 1):
        index = (*[slice(None)] * dim, int(random.integers(-size, size)))
        return lambda t: t[index], lambda x: x[index]
    if kind == "permute":
        order = [*range(first), *(int(d) for d in random.permutation(dims))]
        return lambda t: t.permute(order), lambda x: x.transpose(order)
    if kind == "split" and size % 2 == 0 and len(shape) < 5:
        new = (*shape[:dim], 2, size // 2, *shape[dim + 1 :])
        return lambda t: t.reshape_dim(dim, (2, -1)), lambda x: x.reshape(new)
    if kind == "expand" and len(shape) < 5:
        return lambda t: t.expand_dim(dim), lambda x: np.expand_dims(x, dim)
    if kind == "broadcast" and size == 1:
        new = (*shape[:dim], 3, *shape[dim + 1 :])
        return lambda t: t.broadcast(dim, 3), lambda x: np.broadcast_to(x, new)
    return lambda t: t, lambda x: x


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("on_chip", [False, True])
def test_random_chains_of_views(seed: int, on_chip: bool) -> None:
    random = np.random.default_rng(seed)
    base = np.arange(4 * 6 * 8, dtype=np.int32).reshape(4, 6, 8)
    want, steps = base, []
    for _ in range(6):
        view, reference = random_step(random, want.shape, int(on_chip))
        want = reference(want)
        steps.append(view)

    @nki.jit
    def kernel(x):
        part = nl.load(x) if on_chip else x
        for step in steps:
            part = step(part)
        assert part.shape == want.shape
        out = nl.ndarray(part.shape, x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, part)
        return out

    assert np.array_equal(kernel(base), want)


def test_a_tensor_is_there() -> None:
    def body(x):
        with pytest.warns(NkiWarning, match="tested for truth while the kernel is traced"):
            assert x
        return nl.copy(x)

    run(body, sample(2, 4))


def test_indirect_rows_count_in_the_shape_of_a_reshaped_tensor() -> None:
    table = sample(4, 8, 16)  # blocks of rows, addressed by row

    @nki.jit
    def rows(table, ids):
        out = nl.ndarray((ids.shape[0], 16), table.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((ids.shape[0], 16), table.dtype)
        flat = table.reshape(32, 16)
        nisa.dma_copy(tile, flat.ap([[16, ids.shape[0]], [1, 16]], vector_offset=nl.load(ids)))
        nl.store(out, tile)
        return out

    ids = np.array([[31], [0], [9]], np.int32)
    assert np.array_equal(rows(table, ids), table.reshape(32, 16)[ids[:, 0]])
    with pytest.raises(NkiIndexError, match="row index 32 .* is not in 0 to 31"):
        rows(table, np.array([[32]], np.int32))
