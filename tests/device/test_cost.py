"""The cost model: values worked out by hand, the compiled formulas against the Python ones, and measurements."""

from __future__ import annotations

import math
import random

import pytest

from torch_neuronx import _C, chips
from torch_neuronx.chips.cost import KINDS, Cost, Work, cost

TRN2 = chips.CHIPS["trn2"]
MIB = 1 << 20

# One launch's fixed part, in ns: load 1,210 + DMA to engine 310 + store 860.
FIXED = 2_380
# One LNC 2 core of trn2, in units a nanosecond.
HBM = 630.75  # bytes: 2,900 GB/s * 2/8 cores * 0.87
MACS = 74_711.04  # 128*128 * 2.4 GHz * 2 cores * 0.95
VECTOR = 245.76  # elements: 128 lanes * 0.96 GHz * 2 cores
SCALAR = 307.2  # elements: 128 * 1.2 GHz * 2 cores
HOST = 14  # bytes

# What is asked -> engine that limits, its time, and the fixed part. Times by hand from the rates above.
BY_HAND = [
    # views and synchronisation: no time on the device
    (Work(kind="none"), {}, 0),
    # an empty tensor is still launched
    (Work(kind="vector"), {}, FIXED),
    # c = a + b, 1024 x 1024 float32: 3 * 4 MiB; 12,582,912 / 630.75 = 19,949.1; 1,048,576 / 245.76 = 4,266.7
    (
        Work(kind="vector", read_bytes=8 * MIB, write_bytes=4 * MIB, elements=MIB),
        {"dma": 19_950, "vector": 4_267},
        FIXED,
    ),
    # the same in bfloat16: half the bytes, and VectorE takes two elements a cycle
    (
        Work(kind="vector", element_bytes=2, read_bytes=4 * MIB, write_bytes=2 * MIB, elements=MIB),
        {"dma": 9_975, "vector": 2_134},
        FIXED,
    ),
    # layer norm, 1024 x 1024 bfloat16, three passes in float32: 3 * 1,048,576 / 245.76 = 12,800 exactly
    (
        Work(kind="vector", element_bytes=2, read_bytes=2 * MIB, write_bytes=2 * MIB, elements=MIB, passes=3),
        {"dma": 6_650, "vector": 12_800},
        FIXED,
    ),
    # int64 addition: elements count twice; 2 * 1,048,576 / 245.76 = 8,533.3
    (
        Work(kind="vector", element_bytes=8, read_bytes=16 * MIB, write_bytes=8 * MIB, elements=MIB),
        {"dma": 39_899, "vector": 8_534},
        FIXED,
    ),
    # exp, 1024 x 1024 float32: 1,048,576 / 307.2 = 3,413.3; the function's table is loaded first
    (
        Work(kind="scalar", read_bytes=4 * MIB, write_bytes=4 * MIB, elements=MIB),
        {"dma": 13_300, "scalar": 3_414},
        FIXED + 1_280,
    ),
    # 4096^3 bfloat16: 68,719,476,736 / 74,711.04 = 919,803.5; 96 MiB / 630.75 = 159,593.02
    (
        Work(kind="tensor", element_bytes=2, read_bytes=64 * MIB, write_bytes=32 * MIB, macs=4096**3),
        {"tensor": 919_804, "dma": 159_594},
        FIXED,
    ),
    # the same in float32: four passes
    (
        Work(kind="tensor", float32_matmul=True, read_bytes=128 * MIB, write_bytes=64 * MIB, macs=4096**3),
        {"tensor": 3_679_215, "dma": 319_187},
        FIXED,
    ),
    # in one-byte types: twice the rate
    (
        Work(kind="tensor", element_bytes=1, read_bytes=32 * MIB, write_bytes=32 * MIB, macs=4096**3),
        {"tensor": 459_902, "dma": 106_396},
        FIXED,
    ),
    # a matrix by a vector is bound by memory: 4096 * 4096 / 74,711.04 = 224.6
    (
        Work(kind="tensor", element_bytes=2, read_bytes=32 * MIB + 8192, write_bytes=8192, macs=4096**2),
        {"tensor": 225, "dma": 53_224},
        FIXED,
    ),
    # copy of 64 MiB inside HBM: read and written
    (Work(kind="move", read_bytes=64 * MIB, write_bytes=64 * MIB), {"dma": 212_791}, 1_210),
    # 1 MiB to the device: 1,048,576 / 14 = 74,898.3 on the link; HBM is touched once
    (Work(kind="host_copy", read_bytes=MIB), {"link": 74_899, "dma": 1_663}, 1_210),
    (Work(kind="host_copy", read_bytes=MIB, write_bytes=MIB), {"link": 74_899, "dma": 1_663}, 1_210),
    # gather of 65,536 single elements: 65,536 * 5.715 ns
    (
        Work(kind="gather", read_bytes=768 << 10, write_bytes=256 << 10, elements=65_536, descriptors=65_536),
        {"gpsimd": 374_539, "dma": 1_663},
        FIXED,
    ),
    # embedding of 1,024 rows of 4 KiB from a table of 200 MiB: only these rows are read, and the indices;
    # (2 * 4,194,304 + 8 * 1,024) / 630.75 = 13,312.4. Few descriptors, so memory decides
    (
        Work(kind="gather", read_bytes=200 * MIB, write_bytes=4 * MIB, elements=50 * MIB, descriptors=1024),
        {"gpsimd": 5_853, "dma": 13_313},
        FIXED,
    ),
    # its backward: 1,024 rows of gradient in, the whole gradient of the table out; 213,917,696 / 630.75 = 339,148.2
    (
        Work(kind="gather", read_bytes=4 * MIB + 8192, write_bytes=200 * MIB, elements=50 * MIB, descriptors=1024),
        {"gpsimd": 5_853, "dma": 339_149},
        FIXED,
    ),
    # sort: no descriptors, elements go through GpSimdE: 1,048,576 / (128 * 1.2 * 2)
    (
        Work(kind="gather", read_bytes=4 * MIB, write_bytes=4 * MIB, elements=MIB),
        {"gpsimd": 3_414, "dma": 13_300},
        FIXED,
    ),
]


@pytest.mark.parametrize(("work", "engines", "fixed"), BY_HAND)
def test_by_hand(work: Work, engines: dict[str, int], fixed: int) -> None:
    expected = Cost(dispatch=60_000, total=fixed + max(engines.values(), default=0), **engines)
    assert cost(work, TRN2, 2) == expected


def test_rates_used_by_hand_are_the_published_ones() -> None:
    assert pytest.approx(2900 / 4 * 0.87) == HBM  # GB/s of one stack, which two cores share
    assert pytest.approx(78.64e3 / 2 * 2 * 0.95, rel=1e-3) == MACS  # 78.64 TFLOPS a core, two operations each
    assert pytest.approx(128 * 0.96 * 2) == VECTOR
    assert pytest.approx(128 * 1.2 * 2) == SCALAR
    for work, engines, _ in BY_HAND:
        if work.kind == "move":
            assert engines["dma"] == math.ceil((work.read_bytes + work.write_bytes) / HBM)
        if "link" in engines:
            assert engines["link"] == math.ceil(work.read_bytes / HOST)
        if engines.get("tensor") and work.element_bytes == 2:
            assert engines["tensor"] == math.ceil(work.macs / MACS)


def compiled(work: Work, chip: str, lnc: int) -> Cost:
    return Cost(**_C.cost(vars(work), chip, lnc))


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("chip", list(chips.CHIPS))
def test_compiled_formulas_are_the_same(chip: str, lnc: int) -> None:
    for work, _, _ in BY_HAND:
        assert compiled(work, chip, lnc) == cost(work, chips.CHIPS[chip], lnc)
    numbers = random.Random(0)

    def size() -> int:
        return numbers.choice([0, 1, numbers.randrange(1 << 12), numbers.randrange(1 << 40), (1 << 64) - 1])

    for _ in range(2000):
        work = Work(
            kind=numbers.choice(KINDS),
            element_bytes=numbers.choice([0, 1, 2, 3, 4, 8, 16]),
            float32_matmul=numbers.random() < 0.5,
            read_bytes=size(),
            write_bytes=size(),
            elements=size(),
            passes=numbers.choice([1, 2, 5, (1 << 32) - 1]),
            macs=size(),
            descriptors=size(),
        )
        assert compiled(work, chip, lnc) == cost(work, chips.CHIPS[chip], lnc), work


def test_default_is_this_process_s_chip() -> None:
    topology = _C.topology()
    for work, _, _ in BY_HAND:
        assert Cost(**_C.cost(vars(work))) == compiled(work, topology["chip"], topology["lnc"])


@pytest.mark.parametrize(("chip", "lnc"), [("trn3", 2), ("trn2", 1)])
def test_cost_follows_the_environment(fresh, chip: str, lnc: int) -> None:
    work = Work(kind="vector", read_bytes=1 << 30, write_bytes=1 << 30, elements=1 << 28)
    code = f"import torch_neuronx; result = torch_neuronx._C.cost({vars(work)!r})"
    answer = fresh(code, NEURON_PLATFORM_TARGET_OVERRIDE=chip, NEURON_LOGICAL_NC_CONFIG=str(lnc))
    assert Cost(**answer) == cost(work, chips.CHIPS[chip], lnc)


def test_half_a_core_and_the_next_chip() -> None:
    work = Work(kind="tensor", element_bytes=2, macs=10**12)
    assert cost(work, TRN2, 1).tensor == pytest.approx(2 * cost(work, TRN2, 2).tensor, abs=1)
    move = Work(kind="move", read_bytes=1 << 30, write_bytes=1 << 30)
    assert cost(move, TRN2, 1).dma == pytest.approx(2 * cost(move, TRN2, 2).dma, abs=1)
    # trn3: 1,225 GB/s a stack * 0.87 = 1,065 is more than the DMA engines of two cores carry, 2 * 528
    assert cost(move, chips.CHIPS["trn3"], 2).dma == math.ceil((2 << 30) / 1056)
    narrow = Work(kind="scalar", element_bytes=2, elements=1 << 30)
    assert cost(narrow, chips.CHIPS["trn3"], 2).scalar == pytest.approx(cost(narrow, TRN2, 2).scalar / 2, abs=1)


# Public measurements on one LNC 2 core of a trn2.3xlarge (docs/device-time.md): shape, what was measured, and how far
# the model may be from it. Ratios of model time to measured time.
@pytest.mark.parametrize(
    ("what", "work", "measured_us", "low", "high"),
    [
        (
            "bfloat16 product at 149.4 TFLOPS, 8192^3",
            Work(kind="tensor", element_bytes=2, read_bytes=256 * MIB, write_bytes=128 * MIB, macs=8192**3),
            2 * 8192**3 / 149.4e6,
            0.97,
            1.03,
        ),
        (
            "float32 product at 36.9 TFLOPS, 8192^3",
            Work(kind="tensor", float32_matmul=True, read_bytes=512 * MIB, write_bytes=256 * MIB, macs=8192**3),
            2 * 8192**3 / 36.9e6,
            0.95,
            1.03,
        ),
        (
            "bfloat16 1024 x 4096 x 4096 in 276.8 us",
            Work(kind="tensor", element_bytes=2, read_bytes=40 * MIB, write_bytes=8 * MIB, macs=1024 * 4096 * 4096),
            276.8,
            0.80,
            1.0,
        ),
        (
            "addition at 600 GB/s",
            Work(kind="vector", read_bytes=512 * MIB, write_bytes=256 * MIB, elements=64 * MIB),
            768 * MIB / 600e3,
            0.93,
            1.03,
        ),
        (
            "copy at 649 GB/s",
            Work(kind="move", read_bytes=256 * MIB, write_bytes=256 * MIB),
            512 * MIB / 649e3,
            0.97,
            1.05,
        ),
        (
            "sum at 639 GB/s",
            Work(kind="vector", read_bytes=256 * MIB, write_bytes=4, elements=64 * MIB),
            256 * MIB / 639e3,
            0.97,
            1.05,
        ),
        (
            "embedding rows at 631 GB/s",
            Work(kind="gather", read_bytes=256 * MIB, write_bytes=256 * MIB, descriptors=65_536),
            512 * MIB / 631e3,
            0.97,
            1.03,
        ),
        (
            "gather of single float32 elements at 1.4 GB/s",
            Work(kind="gather", read_bytes=8 * MIB, write_bytes=4 * MIB, descriptors=MIB),
            8 * MIB / 1.4e3,
            0.97,
            1.03,
        ),
    ],
)
def test_against_measurements(what: str, work: Work, measured_us: float, low: float, high: float) -> None:
    assert low <= cost(work, TRN2, 2).total / 1000 / measured_us <= high, what


def test_errors() -> None:
    with pytest.raises(ValueError, match="kind 'matmul' is not one of none, move, host_copy"):
        cost(Work(kind="matmul"), TRN2, 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="kind 'matmul' is not one of none, move, host_copy"):
        _C.cost({"kind": "matmul"})
    with pytest.raises(ValueError, match="work has no 'flops'"):
        _C.cost({"flops": 1})
    for function in (lambda: cost(Work(), TRN2, 3), lambda: _C.cost({}, "trn2", 3)):
        with pytest.raises(ValueError, match="lnc is 1 or 2, not 3"):
            function()
