"""Conversions of element types: every code of the 8-bit types, every bfloat16, and rounding against PyTorch."""

from __future__ import annotations

import bisect
from fractions import Fraction

import numpy as np
import pytest
import torch

from nki import dtypes
from nki.dtypes import DTYPES, decode, encode
from nki.errors import NkiTypeError

EVERY_BFLOAT16 = (np.arange(1 << 16, dtype=np.uint32) << 16).view(np.float32)


def inputs() -> np.ndarray:
    """All bfloat16 values, their neighbours in float32, and random bits: ties and both sides of them."""
    below, above = EVERY_BFLOAT16.view(np.uint32) - 1, EVERY_BFLOAT16.view(np.uint32) + 1
    middle = EVERY_BFLOAT16.view(np.uint32) | 0x8000  # exactly between two bfloat16 values
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([EVERY_BFLOAT16.view(np.uint32), below, above, middle, bits]).view(np.float32)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_rounding_is_that_of_pytorch(name: str) -> None:
    values = inputs()
    want = torch.from_numpy(values.copy()).to(getattr(torch, name)).float().numpy()
    got = decode(encode(values, DTYPES[name]), DTYPES[name])
    wrong = ~same(want, got)
    assert not wrong.any(), list(zip(values[wrong][:5], want[wrong][:5], got[wrong][:5], strict=True))


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"])
def test_every_code_means_what_it_means_in_pytorch(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    want = torch.from_numpy(codes).view(getattr(torch, name)).float().numpy()
    assert same(decode(codes, DTYPES[name]), want).all()


@pytest.mark.parametrize("name", ["float8_e4m3", "float8_e4m3fn", "float8_e5m2"])
def test_every_code_survives_a_round_trip(name: str) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values = decode(codes, DTYPES[name])
    back = encode(values, DTYPES[name])
    assert np.array_equal(back[~np.isnan(values)], codes[~np.isnan(values)])
    assert np.isnan(decode(back, DTYPES[name])[np.isnan(values)]).all()


def test_legacy_e4m3_rounds_to_the_nearest_value_and_ties_to_even() -> None:
    """PyTorch has no such type: the nearest of all its finite values, by exact fractions."""
    codes = np.arange(0x78)  # the finite values without sign, in order
    table = [Fraction(float(v)) for v in decode(codes.astype(np.uint8), DTYPES["float8_e4m3"])]
    assert table[-1] == 240
    points = [(a + b) / 2 for a, b in zip(table, table[1:], strict=False)]  # ties
    points += [p + Fraction(1, 1 << 30) for p in points] + [p - Fraction(1, 1 << 30) for p in points] + table
    for point in points:
        value = np.array([float(point)], np.float32)
        exact = Fraction(float(value[0]))
        above = bisect.bisect_left(table, exact)
        around = [i for i in (above - 1, above) if 0 <= i < len(table)]
        distances = [abs(exact - table[i]) for i in around]
        nearest = [i for i, d in zip(around, distances, strict=True) if d == min(distances)]
        want = nearest[0] if len(nearest) == 1 else next(i for i in nearest if i % 2 == 0)
        assert encode(value, DTYPES["float8_e4m3"])[0] == want, float(point)
        assert encode(-value, DTYPES["float8_e4m3"])[0] == want | 0x80
    beyond = encode(np.array([247.0, 248.0, 1e9, -1e9, np.inf], np.float32), DTYPES["float8_e4m3"])
    assert beyond.tolist() == [0x77, 0x78, 0x78, 0xF8, 0x78]


def test_tfloat32_keeps_ten_bits_of_mantissa() -> None:
    values = np.array([1.0, 1 + 2**-10, 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-11 + 2**-20, -3.14159], np.float32)
    want = np.array([1.0, 1 + 2**-10, 1.0, 1 + 2**-9, 1 + 2**-10, -3.140625], np.float32)
    assert np.array_equal(encode(values, DTYPES["tfloat32"]), want)
    assert np.isnan(encode(np.array([np.nan], np.float32), DTYPES["tfloat32"])).all()


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("int8", [0, 2, 2, -2, 127, -128, 0, 127, -128]),
        ("uint8", [0, 2, 2, 0, 255, 0, 0, 255, 0]),
        ("int32", [0, 2, 2, -2, 300, -300, 0, 2147483647, -2147483648]),
        ("uint32", [0, 2, 2, 0, 300, 0, 0, 4294967295, 0]),
    ],
)
def test_integers_round_to_even_and_saturate(name: str, want: list[int]) -> None:
    values = np.array([0.5, 1.5, 2.5, -1.5, 300, -300, np.nan, np.inf, -np.inf], np.float32)
    assert encode(values, DTYPES[name]).tolist() == want


def test_packed_types_hold_their_parts_lowest_bits_first() -> None:
    dtype = DTYPES["float8_e4m3fn_x4"]
    values = np.array([[1.0, -2.0, 0.5, 448.0]], np.float32)
    packed = dtypes.pack(values, dtype)
    assert packed.view(np.uint8).tolist() == [0x38, 0xC0, 0x30, 0x7E]
    assert np.array_equal(dtypes.unpack(packed, dtype), values)
    four = DTYPES["float4_e2m1fn_x4"]
    every = np.array([[0, 0.5, 1, 1.5], [2, 3, 4, 6], [-0.5, -6, 5, 100]], np.float32)
    got = dtypes.unpack(dtypes.pack(every, four), four)
    assert got.tolist() == [[0, 0.5, 1, 1.5], [2, 3, 4, 6], [-0.5, -6, 4, 6]]  # 5 is a tie: to the even code, 4


@pytest.mark.parametrize("name", list(DTYPES))
def test_unwritten_memory_reads_as_nan_or_four(name: str) -> None:
    dtype = DTYPES[name]
    raw = np.array([dtypes.uninitialised(dtype)], dtype.storage)
    if dtype.is_integer:
        assert raw[0] == 4
    else:
        values = dtypes.unpack(raw, dtype) if dtype.kind == "packed" else decode(raw, dtype)
        assert name == "float4_e2m1fn_x4" or np.isnan(values).all()  # that one has no NaN


def test_names() -> None:
    assert dtypes.as_dtype(torch.bfloat16) is DTYPES["bfloat16"] and dtypes.as_dtype(np.float16) == "float16"
    assert DTYPES["float32"] == np.float32 and DTYPES["float32"] != np.float64 and DTYPES["int8"] != "nonsense"
    for wrong, hint in ((np.float64, "convert to int32 or float32"), ("nonsense", "nonsense is not an element type")):
        with pytest.raises(NkiTypeError, match=hint):
            dtypes.as_dtype(wrong)
