"""Random kernels: known answers, distributions, and that nothing but (seed, offset, index) decides a number."""

from __future__ import annotations

import math

import pytest
import torch

REALS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
N = 20000


def draw(fill, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 5) -> torch.Tensor:
    torch.manual_seed(seed)
    return fill(torch.empty(shape or (N,), dtype=dtype, device="neuron")).cpu()


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> list[int]:
    """Philox4x32-10 with Python's integers."""
    mask = 0xFFFFFFFF
    x, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
        x = [(p1 >> 32) ^ x[1] ^ k[0], p1 & mask, (p0 >> 32) ^ x[3] ^ k[1], p0 & mask]
        k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
    return x


def words(seed: int, offset: int, n: int) -> list[int]:
    """Number i of a launch, as docs/random.md says."""
    blocks = {}
    result = []
    for i in range(n):
        block, word = i // 64 * 16 + i % 16, i // 16 % 4
        if block not in blocks:
            blocks[block] = philox((block & 0xFFFFFFFF, block >> 32, offset // 4, 0), (seed & 0xFFFFFFFF, seed >> 32))
        result.append(blocks[block][word])
    return result


def test_philox_known_answers() -> None:
    """The vectors that Random123 publishes (kat_vectors) hold for the reference that the next test compares with."""
    assert philox((0, 0, 0, 0), (0, 0)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


@pytest.mark.parametrize("seed", [0, 5, (1 << 63) + 12345])
def test_uniform_is_the_documented_stream(seed: int) -> None:
    generator = torch.Generator("neuron").manual_seed(seed)
    torch.empty(3, device="neuron").uniform_(generator=generator)
    offset = generator.get_offset()
    assert offset == 4
    numbers = torch.empty(1500, device="neuron").uniform_(generator=generator).cpu()
    expected = torch.tensor([(w >> 8) * 2.0**-24 for w in words(seed, offset, 1500)])
    assert torch.equal(numbers, expected)


def test_normal_is_box_muller_of_the_documented_stream() -> None:
    generator = torch.Generator("neuron").manual_seed(9)
    numbers = torch.empty(256, device="neuron").normal_(generator=generator).cpu().double()
    stream = words(9, 0, 256)
    for i in range(256):
        first = i // 32 * 32 + i % 16
        radius = math.sqrt(-2 * math.log((stream[first] >> 1) * 2.0**-31 + 2.0**-32))
        turn = 2 * math.pi * stream[first + 16] * 2.0**-32
        expected = radius * (math.cos(turn) if i == first else math.sin(turn))
        assert abs(numbers[i] - expected) < 2e-6, i


FILLS = {
    "uniform": (lambda t: t.uniform_(-1, 3), 1.0, 4 / math.sqrt(12)),
    "normal": (lambda t: t.normal_(1, 2), 1.0, 2.0),
    "exponential": (lambda t: t.exponential_(2), 0.5, 0.5),
    "bernoulli": (lambda t: t.bernoulli_(0.3), 0.3, math.sqrt(0.21)),
    "geometric": (lambda t: t.geometric_(0.5), 2.0, math.sqrt(2.0)),
    "log_normal": (lambda t: t.log_normal_(0, 0.25), math.exp(0.03125), 0.2624),
    "random": (lambda t: t.random_(3, 9), 5.5, math.sqrt(35 / 12)),
}


@pytest.mark.parametrize("dtype", REALS, ids=str)
@pytest.mark.parametrize("name", FILLS)
def test_moments(name: str, dtype: torch.dtype) -> None:
    fill, mean, deviation = FILLS[name]
    x = draw(fill, dtype=dtype).double()
    assert x.isfinite().all()
    error = 5 * deviation / math.sqrt(N) + (0.004 * abs(mean) if dtype == torch.bfloat16 else 0)
    assert abs(x.mean().item() - mean) < error
    assert abs(x.std().item() / deviation - 1) < 0.06


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_bounds(dtype: torch.dtype) -> None:
    u = draw(lambda t: t.uniform_(), dtype=dtype)
    assert (u >= 0).all() and (u < 1).all()
    u = draw(lambda t: t.uniform_(-0.3, 0.7), dtype=dtype)
    assert (u < torch.tensor(0.7, dtype=dtype)).all()
    assert (draw(lambda t: t.exponential_(), dtype=dtype) > 0).all()
    assert (draw(lambda t: t.uniform_(2, 2), dtype=dtype) == 2).all()
    for p in (0.0, 1.0):
        assert (draw(lambda t, p=p: t.bernoulli_(p), dtype=dtype) == p).all()


def test_normal_follows_the_distribution() -> None:
    """Kolmogorov-Smirnov against the normal distribution, at a level that one seed in 10,000 would miss."""
    n = 1_000_000
    x = draw(lambda t: t.normal_(), n, seed=0).double().sort().values
    cdf = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    distance = (cdf - torch.arange(1, n + 1) / n).abs().max().item()
    assert distance < 2.23 / math.sqrt(n)
    pairs = draw(lambda t: t.normal_(), n, seed=0).view(-1, 2, 16)  # the two numbers of a Box-Muller pair
    assert abs((pairs[:, 0] * pairs[:, 1]).mean().item()) < 5 / math.sqrt(n / 2)


def test_cauchy_quartiles() -> None:
    x = draw(lambda t: t.cauchy_(1, 2)).double()
    assert abs(x.median().item() - 1) < 0.1
    assert abs((x.abs() < 1e9).double().mean().item() - 1) < 1e-3
    assert abs(((x - 1).abs() < 2).double().mean().item() - 0.5) < 0.02


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.bool], ids=str)
def test_integers(dtype: torch.dtype) -> None:
    x = draw(lambda t: t.random_(), dtype=dtype)
    low, high = (0, 1) if dtype == torch.bool else (0, torch.iinfo(dtype).max)
    assert x.min().item() >= low and x.max().item() <= high
    assert x.double().mean().item() == pytest.approx((low + high) / 2, rel=0.03)
    if dtype != torch.bool:
        y = draw(lambda t: t.random_(7, 13), dtype=dtype)
        counts = torch.bincount((y - 7).long(), minlength=6)
        assert len(counts) == 6 and (counts - N / 6).abs().max() < 5 * math.sqrt(N / 6)


def test_wide_ranges_of_integers() -> None:
    full = draw(lambda t: t.random_(-(2**63), None), dtype=torch.int64)
    assert full.min() < -(2**62) and full.max() > 2**62
    wide = draw(lambda t: t.random_(-(2**40), 2**40), dtype=torch.int64)
    assert wide.min() >= -(2**40) and wide.max() < 2**40 and wide.double().abs().mean() > 2**38


def test_numbers_do_not_depend_on_threads_strides_or_length() -> None:
    def fill(t: torch.Tensor) -> torch.Tensor:
        return t.normal_()

    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = draw(fill, 300_001)
        torch.set_num_threads(4)
        together = draw(fill, 300_001)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(alone, together)
    assert torch.equal(draw(fill, 1000), alone[:1000])
    torch.manual_seed(5)
    strided = torch.empty(40, 25, device="neuron").t().normal_().cpu()
    assert torch.equal(strided.reshape(-1), alone[:1000])


def test_numbers_do_not_depend_on_the_core_or_stream() -> None:
    generators = [torch.Generator(f"neuron:{i}").manual_seed(3) for i in (0, 1)]
    x, y = (torch.rand(100, device=g.device, generator=g).cpu() for g in generators)
    assert torch.equal(x, y)
    torch.manual_seed(3)
    with torch.neuron.stream(torch.neuron.Stream()):
        z = torch.rand(100, device="neuron")
    assert torch.equal(z.cpu(), x)


def test_numbers_are_those_of_every_machine() -> None:
    """A sum over the bits of 15,000 numbers, as the portable build without optimisation computes them."""
    torch.manual_seed(1)
    fills = (lambda t: t.normal_(), lambda t: t.exponential_(), lambda t: t.uniform_(-1, 2))
    bits = torch.cat([fill(torch.empty(5000, device="neuron")).cpu() for fill in fills]).view(torch.int32)
    total = 0
    for word in bits.tolist():
        total = (total * 1000003 + (word & 0xFFFFFFFF)) & 0xFFFFFFFFFFFFFFFF
    assert f"{total:x}" == "1c5e23fb5938fdb"


def test_every_launch_takes_its_own_numbers() -> None:
    torch.manual_seed(0)
    launches = [torch.rand(1000, device="neuron").cpu() for _ in range(3)]
    assert not torch.equal(launches[0], launches[1]) and not torch.equal(launches[1], launches[2])
    joined = torch.cat(launches)
    assert joined.unique().numel() > 2990


@pytest.mark.parametrize("dtype", REALS, ids=str)
def test_dropout(dtype: torch.dtype) -> None:
    x = torch.randn(N, device="neuron").to(dtype).requires_grad_()
    out = torch.nn.functional.dropout(x, 0.25)
    kept = (out != 0).cpu()
    assert abs(kept.double().mean().item() - 0.75) < 0.02
    wide = x.detach().cpu().double() if dtype == torch.float64 else x.detach().cpu().float()
    torch.testing.assert_close(out.detach().cpu(), (wide * kept * (1 / 0.75)).to(dtype))
    out.sum().backward()
    expected = torch.where(kept, torch.tensor(1 / 0.75, dtype=dtype), torch.tensor(0.0, dtype=dtype))
    torch.testing.assert_close(x.grad.cpu(), expected)
    for p, value in ((0.0, x), (1.0, torch.zeros_like(x))):
        assert torch.equal(torch.nn.functional.dropout(x, p), value)
    y, mask = torch.native_dropout(x, 0.5, False)
    assert torch.equal(y, x) and mask.all()


def test_sampling() -> None:
    weights = torch.tensor([1.0, 0.0, 3.0], device="neuron")
    samples = torch.multinomial(weights, 10000, replacement=True).cpu()
    counts = torch.bincount(samples, minlength=3)
    assert counts[1] == 0 and abs(counts[2] / 10000 - 0.75) < 0.02
    torch.manual_seed(2)
    first = torch.randperm(100, device="neuron")
    torch.manual_seed(2)
    assert torch.equal(torch.randperm(100, device="neuron"), first)
    assert torch.equal(first.sort().values.cpu(), torch.arange(100))
    rates = torch.full((5000,), 4.0, device="neuron")
    assert abs(torch.poisson(rates).mean().item() - 4) < 0.2
    assert abs(torch.binomial(torch.full_like(rates, 10), torch.full_like(rates, 0.3)).mean().item() - 3) < 0.15
    assert abs(torch._standard_gamma(rates).mean().item() - 4) < 0.2
    p = torch.rand(2000, device="neuron")
    assert abs((torch.bernoulli(p) - p).mean().item()) < 0.05
    assert abs(torch.normal(rates, 0.5).std().item() - 0.5) < 0.05
    leaky = torch.rrelu(-torch.ones(2000, device="neuron"), 0.1, 0.3, training=True)
    assert (leaky <= -0.1).all() and (leaky >= -0.3).all() and leaky.unique().numel() > 1000


def test_complex_numbers() -> None:
    z = torch.randn(N, dtype=torch.complex64, device="neuron").cpu()
    assert z.abs().square().mean().item() == pytest.approx(1, rel=0.05)


def test_empty_and_scalar() -> None:
    before = torch.neuron._get_rng_state_offset()
    assert torch.empty(0, device="neuron").normal_().numel() == 0
    assert torch.neuron._get_rng_state_offset() == before
    assert torch.empty((), device="neuron").normal_().isfinite()


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.uniform_(3, 1),
        lambda t: t.normal_(0, -1),
        lambda t: t.bernoulli_(2.0),
        lambda t: t.random_(5, 5),
        lambda t: t.exponential_(-1),
        lambda t: t.cauchy_(0, 0),
        lambda t: t.geometric_(1),
        lambda t: t.log_normal_(0, 0),
        lambda t: t.half().random_(0, 100_000),
        lambda t: t.half().uniform_(0, 1e6),
        lambda t: t.to(torch.int8).random_(0, 300),
        lambda t: t.to(torch.uint8).random_(-1, 3),
        lambda t: t.bool().random_(0, 3),
        lambda t: t.int().uniform_(),
        lambda t: t.int().cauchy_(),
        lambda t: torch.multinomial(t * 0, 1),
        lambda t: torch.poisson(t - 2),
    ],
)
def test_errors_are_those_of_the_cpu(call) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)) as on_cpu:
        call(torch.ones(4))
    with pytest.raises((RuntimeError, NotImplementedError)) as on_neuron:
        call(torch.ones(4, device="neuron"))
    assert type(on_neuron.value) is type(on_cpu.value)
    assert str(on_neuron.value) == str(on_cpu.value)


@pytest.mark.parametrize(
    "call",
    [
        lambda g: torch.rand(2, device="neuron", generator=g),
        lambda g: torch.empty(0, device="neuron").normal_(generator=g),
        lambda g: torch.randperm(3, device="neuron", generator=g),
        lambda g: torch.multinomial(torch.ones(3, device="neuron"), 1, generator=g),
    ],
)
def test_a_generator_of_another_device_is_refused(call) -> None:
    with pytest.raises(RuntimeError, match="Expected a 'neuron' device type for generator but found 'cpu'"):
        call(torch.Generator())


def test_a_neuron_generator_is_refused_on_the_cpu() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'neuron'"):
        torch.rand(2, generator=torch.Generator("neuron"))
    with pytest.raises(RuntimeError, match="Expected a generator of neuron:0 but found one of neuron:1"):
        torch.rand(2, device="neuron:0", generator=torch.Generator("neuron:1"))
