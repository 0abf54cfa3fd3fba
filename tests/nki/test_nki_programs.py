"""What programs do: loops on the device and registers, the layout of memory, two cores."""

from __future__ import annotations

import numpy as np
import pytest
from nki_helpers import F32, run, sample

import nki
import nki.isa as nisa
import nki.language as nl
from nki import layout
from nki.errors import NkiCapacityError, NkiError, NkiValueError

A = sample(64, 32)


# --- loops on the device and registers


def test_fori_loop_over_tiles_with_bounds_in_registers() -> None:
    x = sample(8 * 16, 24)

    @nki.jit
    def kernel(x, bounds):
        out = nl.full(x.shape, -1.0, x.dtype, buffer=nl.shared_hbm)
        limits = nl.load(bounds)
        low, high = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(low, limits[:, 0:1])
        nisa.register_load(high, limits[:, 1:2])

        def body(i):
            rows = nl.ds(i * 16, 16)
            nl.store(out[rows], nl.multiply(nl.load(x[rows]), 2.0))

        nl.fori_loop(low, high, body, step=2)
        return out

    got = kernel(x, np.array([[1, 6]], np.int32))
    want = np.full_like(x, -1)
    for i in range(1, 6, 2):
        want[i * 16 : i * 16 + 16] = x[i * 16 : i * 16 + 16] * 2
    assert np.array_equal(got, want)
    assert sum(1 for item in kernel.program(x, np.zeros((1, 2), np.int32)).instructions() if item.opcode == "for") == 1


def test_while_loop_and_register_arithmetic() -> None:
    @nki.jit
    def kernel(start):
        out = nl.ndarray((1, 2), nl.int32, buffer=nl.shared_hbm)
        tile = nl.zeros((1, 2), nl.int32)
        left = nisa.scalar_load(nl.load(start))
        count = nisa.register_alloc(0)

        def body():
            nisa.register_move(left, left - 1)
            nisa.register_move(count, 2 + count * 3 - 1)
            return left

        nl.while_loop(left, body)
        nisa.register_store(tile[:, 0:1], left)
        nisa.scalar_store(tile[:, 1:2], count)
        nl.store(out, tile)
        return out

    count = 0
    for _ in range(25):
        count = (1 + 3 * count) % (1 << 32)
    got = kernel(np.array([[25]], np.int32))
    assert got[0, 0] == 0 and got.view(np.uint32)[0, 1] == count  # 3^25 is far beyond 32 bits


def test_dynamic_range() -> None:
    @nki.jit
    def kernel(x, n):
        out = nl.zeros(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.dynamic_range(nisa.scalar_load(nl.load(n))):
            nl.store(out[i], nl.load(x[i]))
        return out

    got = kernel(A, np.array([[5]], np.int32))
    assert np.array_equal(got[:5], A[:5]) and (got[5:] == 0).all()

    @nki.jit
    def broken(x):
        for _ in nl.dynamic_range(3):
            break

    with pytest.raises(NkiError, match="cannot be left early"):
        broken(A)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (lambda: nl.fori_loop(0, 4, lambda i: i), "must return None"),
        (lambda: nl.fori_loop(0, 4, lambda i: None, step=0), "step 0 is not a positive integer"),
        (lambda: nl.fori_loop(0, 4.5, lambda i: None), "4.5 is neither an integer nor a register"),
        (lambda: nl.fori_loop(0, 1 << 40, lambda i: None), "does not fit into a 32-bit register"),
        (lambda: nl.while_loop(1, lambda: None), "the body returned None, not a register"),
        (lambda: nl.fori_loop(0, 4, lambda i: range(i)), "known only while the kernel runs"),
        (lambda: nl.fori_loop(0, 4, lambda i: print("odd") if i else None), "Python cannot branch on it"),
    ],
)
def test_loops_that_cannot_be(body, message: str) -> None:
    with pytest.raises(NkiError, match=message):
        nki.jit(lambda x: body())(A)


# --- memory


def test_tensors_share_memory_over_time_but_not_at_one_time() -> None:
    @nki.jit
    def kernel(x, copies, together):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tiles = []
        for i in range(copies):
            tile = nl.ndarray((128, 30_000), nl.float32)  # 120 kB of a partition
            nisa.memset(tile, float(i))
            tiles.append(tile)
        for tile in tiles if together else tiles[-1:]:
            nl.store(out, tile[0:64, 0:32])
        return out

    assert (kernel(A, 5, False) == 4).all()
    program = kernel.program(A, 5, False)
    assert program.sbuf_peak == 120_000
    with pytest.raises(NkiCapacityError) as caught:
        kernel(A, 2, True)
    text = str(caught.value)
    for part in (
        "SBUF is full",
        "needs 120000 bytes",
        "120000 of 212984",
        "[128, 30000] float32",
        "test_nki_programs",
    ):
        assert part in text, text


def test_psum_tiles_stay_in_a_bank_and_overflow() -> None:
    def body(count):
        def kernel(x):
            tiles = [nl.ndarray((128, 300), nl.float32, buffer=nl.psum) for _ in range(count)]
            for tile in tiles:
                nisa.memset(tile, 1.0)
            out = nl.ndarray((128, 300), nl.float32, buffer=nl.shared_hbm)
            for tile in tiles:
                nl.store(out, tile)
            return out

        return nki.jit(kernel)

    program = body(8).program(A)
    starts = [t.address for t in program.tensors if t.buffer == "psum"]
    assert starts == [2048 * bank for bank in range(8)]
    with pytest.raises(NkiCapacityError, match="PSUM is full.* 1200 bytes"):
        body(9)(A)


def test_a_tensor_used_in_a_loop_lives_until_the_loop_ends() -> None:
    @nki.jit
    def kernel(x):
        out = nl.ndarray((64, 32), nl.float32, buffer=nl.shared_hbm)
        kept = nl.load(x)

        def body(i):
            value = nl.copy(kept)  # read in every round, also after `other` was written
            other = nl.full((64, 32), 5.0, nl.float32)
            nl.store(out, nl.add(value, other))

        nl.fori_loop(0, 3, body)
        return out

    assert np.array_equal(kernel(A), A + F32(5))


def test_explicit_addresses_alias_as_on_the_chip() -> None:
    def body(x):
        base = nl.ndarray((64, 32), nl.float32, address=(0, 4096))
        nisa.tensor_copy(base, x)
        window = nl.ndarray((32, 16), nl.float32, address=(32, 4096 + 64))
        return nl.copy(window)

    assert np.array_equal(run(body, A), A[32:64, 16:32])


def test_automatic_tensors_keep_clear_of_explicit_ones() -> None:
    def body(x):
        pinned = nl.ndarray((64, 32), nl.float32, address=(0, 0))
        nisa.tensor_copy(pinned, x)
        for _ in range(4):
            nl.full((128, 64), 9.0, nl.float32)
        return nl.copy(pinned)

    assert np.array_equal(run(body, A), A)


def test_layout_never_overlaps_what_lives_together() -> None:
    random = np.random.default_rng(0)

    def kernel(x):
        alive = []
        for _ in range(60):
            alive.append(nl.full((8, int(random.integers(1, 3000))), 1.0, nl.float32))
            if len(alive) > 5:
                nl.copy(alive.pop(int(random.integers(0, 5))))
        return None

    program = nki.jit(kernel).program(A)
    lives = layout._lifetimes(program.cores[0])
    tensors = [t for t in program.tensors if t.number in lives and t.buffer == "sbuf"]
    assert len(tensors) > 100
    for a in tensors:
        for b in tensors:
            (s, e), (u, v) = lives[a.number], lives[b.number]
            if a.number < b.number and s <= v and u <= e:
                end_a, end_b = a.address + 4 * a.free_elements, b.address + 4 * b.free_elements
                assert end_a <= b.address or end_b <= a.address


# --- two cores


def test_two_cores_share_the_work_and_meet() -> None:
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        rows = x.shape[0] // nl.num_programs(0)
        mine = nl.ds(nl.program_id(0) * rows, rows)
        nl.store(out[mine], nl.multiply(nl.load(x[mine]), float(nl.program_id(0) + 1)))
        assert nl.program_ndim() == 1
        return out

    assert np.array_equal(kernel[2](A), np.concatenate([A[:32], A[32:] * 2]))
    assert np.array_equal(kernel[1](A), A) and np.array_equal(kernel[(2,)](A), kernel[2](A))
    with pytest.raises(NkiValueError, match="1 or 2 cores"):
        kernel[3]


def test_sendrecv_and_barrier() -> None:
    @nki.jit
    def kernel(x):
        me = nl.program_id(0)
        out = nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
        scratch = nl.ndarray((2, *x.shape), x.dtype, buffer=nl.shared_hbm)
        mine, theirs = nl.multiply(nl.load(x), float(me + 1)), nl.ndarray(x.shape, x.dtype)
        nisa.sendrecv(mine, theirs, 1 - me, 1 - me, 0)
        nl.store(scratch[me], theirs)
        nisa.core_barrier(scratch)
        nl.store(out[me], nl.load(scratch[1 - me]))
        return out

    got = kernel[2](A)
    assert np.array_equal(got[0], A) and np.array_equal(got[1], A * 2)  # sent, and read back crosswise
    with pytest.raises(NkiError, match=r"sendrecv: needs two cores: launch the kernel as kernel\[2\]"):
        kernel(A)


def test_a_barrier_on_one_core_waits_for_nothing() -> None:
    def kernel(x, cores):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        nisa.core_barrier(out, cores)
        return out

    for cores in (0, (0,), (0, 1), [0, 1]):
        assert np.array_equal(nki.jit(kernel)(A, cores), A)
    assert np.array_equal(nki.jit(mode="auto")(kernel)[2](A, (0, 1)), A)
    for count, cores in ((1, 1), (1, (1, 0)), (2, 0)):
        with pytest.raises(NkiValueError, match="core_barrier: cores is"):
            nki.jit(kernel)[count](A, cores)


def test_cores_that_do_not_meet() -> None:
    @nki.jit
    def lonely(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.core_barrier(out)
        return out

    with pytest.raises(NkiError, match="core_barrier: the other core has ended"):
        lonely[2](A)

    @nki.jit
    def uneven(x):
        return nl.ndarray((2 + nl.program_id(0), 2), x.dtype, buffer=nl.shared_hbm)

    with pytest.raises(NkiValueError, match="both cores must allocate the same shared HBM"):
        uneven[2](A)


def test_small_tensors_share_bytes_when_sbuf_would_overflow() -> None:
    columns = 212984 // 4 // 3  # a third of a partition in float32

    @nki.jit
    def kernel(x):
        tiles = [nl.load(x[part]) for part in (slice(0, 64), slice(64, 128), slice(128, 160), slice(160, 192))]
        tiles += [nl.load(x[192:224]), nl.load(x[224:256])]
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        start = 0
        for tile in tiles:
            nl.store(out[start : start + tile.shape[0]], tile)
            start += tile.shape[0]
        return out

    x = np.arange(256 * columns, dtype=F32).reshape(256, columns)
    program = kernel.program(x)
    places = [(t.partition, t.address) for t in program.tensors if t.buffer == "sbuf"]
    assert len(set(places)) == 6 and {at for _, at in places} == {0, columns * 4, columns * 8}
    assert np.array_equal(kernel(x), x)
    small = kernel.program(x[:, :100])
    assert all(t.partition == 0 for t in small.tensors)


def test_a_share_of_nothing() -> None:
    @nki.jit
    def kernel(x, size):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        part = x[nl.ds(4, size)]
        assert part.shape == (size, 8)
        nl.store(out, nl.load(x) if size == 0 else nl.load(part))
        return out

    assert np.array_equal(kernel(sample(4, 8), 0), sample(4, 8))

    @nki.jit
    def loads_nothing(x):
        return nl.store(x[nl.ds(0, 0)], nl.load(x[0:1]))

    with pytest.raises(NkiValueError, match=r"dma_copy: dst has shape \(0, 8\): there is nothing in it"):
        loads_nothing(sample(4, 8))
