"""Random numbers: the device's Philox stream, so that a module and the device draw the same numbers.

A module that draws has one more argument, the generator's seed and offset as four 32-bit words. Launch k of the module
takes its numbers at offset + 4 * k, as launch k on the device does. Which number an element gets is in docs/random.md.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from torch_neuronx.lowering.registry import lowers
from torch_neuronx.lowering.stablehlo import Value

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_LANES = 16
_GROUP = 4 * _LANES
_DIGITS = {torch.bfloat16: 8, torch.float16: 11}  # bits of a uniform number; float32 has 24
_LARGEST_COUNT = {torch.float32: 1 << 24, torch.float16: 1 << 11, torch.bfloat16: 1 << 8, torch.bool: 1}
U32 = torch.uint32


def _u32(cx: Any, value: int) -> Value:
    return cx.constant(value & 0xFFFFFFFF, U32)


def _multiply_wide(cx: Any, x: Value, factor: int) -> tuple[Value, Value]:
    """(high, low) halves of the 64-bit product, from 16-bit pieces: Trainium has no 64-bit integers."""
    low, high = factor & 0xFFFF, factor >> 16
    mask, sixteen = _u32(cx, 0xFFFF), _u32(cx, 16)
    x_low = cx.binary("and_", x, mask)
    x_high = cx.binary("shift_right_logical", x, sixteen)
    ll, lh = cx.multiply(x_low, _u32(cx, low)), cx.multiply(x_low, _u32(cx, high))
    hl, hh = cx.multiply(x_high, _u32(cx, low)), cx.multiply(x_high, _u32(cx, high))
    middle = cx.add(hl, cx.binary("shift_right_logical", ll, sixteen))
    carry = cx.add(lh, cx.binary("and_", middle, mask))
    top = cx.add(hh, cx.binary("shift_right_logical", middle, sixteen))
    top = cx.add(top, cx.binary("shift_right_logical", carry, sixteen))
    return top, cx.multiply(x, _u32(cx, factor))


def words(cx: Any, count: int) -> Value:
    """The first `count` 32-bit numbers of the next launch, as uint32[count]."""
    launch = cx.random_launches
    cx.random_launches += 1
    seed_low, seed_high, offset_low, offset_high = (
        cx.reshape(cx.slice_dim(cx.philox, 0, i, i + 1), ()) for i in range(4)
    )
    # offset / 4 + launch, as two words
    two, thirty = _u32(cx, 2), _u32(cx, 30)
    quarter = cx.binary("shift_right_logical", offset_low, two)
    quarter = cx.binary("or_", quarter, cx.binary("shift_left", offset_high, thirty))
    place = cx.add(quarter, _u32(cx, launch))
    overflow = cx.convert(cx.compare("LT", place, quarter), U32)
    place_high = cx.add(cx.binary("shift_right_logical", offset_high, two), overflow)

    groups = max(1, -(-count // _GROUP))
    shape = (groups, _LANES)
    block = cx.add(cx.multiply(cx.iota(shape, 0, U32), _u32(cx, _LANES)), cx.iota(shape, 1, U32))
    x0, x1 = block, cx.constant(0, U32, shape)
    x2, x3 = cx.expand(place, shape), cx.expand(place_high, shape)
    key0, key1 = seed_low, seed_high
    for _ in range(_ROUNDS):
        high0, low0 = _multiply_wide(cx, x0, _MULTIPLIERS[0])
        high1, low1 = _multiply_wide(cx, x2, _MULTIPLIERS[1])
        x0, x2 = (
            cx.binary("xor", cx.binary("xor", high1, x1), key0),
            cx.binary("xor", cx.binary("xor", high0, x3), key1),
        )
        x1, x3 = low1, low0
        key0, key1 = cx.add(key0, _u32(cx, _WEYL[0])), cx.add(key1, _u32(cx, _WEYL[1]))
    stacked = cx.concatenate([cx.reshape(x, (groups, 1, _LANES)) for x in (x0, x1, x2, x3)], 1)
    return cx.slice_dim(cx.reshape(stacked, (groups * _GROUP,)), 0, 0, count)


def _float_of(cx: Any, x: Value) -> Value:
    """uint32 below 2^31 as float32."""
    return cx.convert(cx.bitcast(x, torch.int32), torch.float32)


def _shift_right(cx: Any, x: Value, bits: int) -> Value:
    return cx.binary("shift_right_logical", x, _u32(cx, bits))


def _open_unit(cx: Any, x: Value) -> Value:
    """(0, 1] with 31 bits."""
    return cx.shift(cx.scale(_float_of(cx, _shift_right(cx, x, 1)), 2.0**-31), 2.0**-32)


def _empty(cx: Any) -> bool:
    """A launch without elements takes no numbers."""
    return math.prod(cx.shape) == 0


def _shaped(cx: Any, flat: Value) -> Value:
    return cx.convert(cx.reshape(flat, cx.shape), cx.dtype)


def uniform_values(cx: Any, low: float, high: float) -> Value:
    if _empty(cx):
        return cx.constant(0, cx.dtype, cx.shape)
    digits = _DIGITS.get(cx.dtype, 24)
    raw = words(cx, math.prod(cx.shape))
    made = cx.scale(_float_of(cx, _shift_right(cx, raw, 32 - digits)), 2.0**-digits)
    if (low, high) == (0.0, 1.0):
        return _shaped(cx, made)
    made = _shaped(cx, cx.shift(cx.scale(made, high - low), low))
    # Rounding may reach the excluded end.
    top = cx.constant(high, cx.dtype)
    return cx.select(cx.compare("LT", made, top), made, cx.constant(low, cx.dtype))


def normal_values(cx: Any, mean: float, std: float) -> Value:
    """Box-Muller: of each 32 numbers the first 16 are radii and the others angles."""
    if _empty(cx):
        return cx.constant(0, cx.dtype, cx.shape)
    count = math.prod(cx.shape)
    pairs = -(-count // (2 * _LANES))
    raw = cx.reshape(words(cx, pairs * 2 * _LANES), (pairs, 2, _LANES))
    first = cx.reshape(cx.slice_dim(raw, 1, 0, 1), (pairs, _LANES))
    turns = cx.reshape(cx.slice_dim(raw, 1, 1, 2), (pairs, _LANES))
    radius = cx.unary("sqrt", cx.scale(cx.unary("log", _open_unit(cx, first)), -2.0))
    angle = cx.scale(_signed_turns(cx, turns), 2 * math.pi * 2.0**-32)
    made = [cx.multiply(radius, cx.unary(f, angle)) for f in ("cosine", "sine")]
    both = cx.concatenate([cx.reshape(m, (pairs, 1, _LANES)) for m in made], 1)
    flat = cx.slice_dim(cx.reshape(both, (pairs * 2 * _LANES,)), 0, 0, count)
    return _shaped(cx, cx.shift(cx.scale(flat, std), mean))


def _signed_turns(cx: Any, x: Value) -> Value:
    """A full turn is 2^32; the result is in [-2^31, 2^31)."""
    return cx.convert(cx.bitcast(x, torch.int32), torch.float32)


def exponential_values(cx: Any, rate: float) -> Value:
    if _empty(cx):
        return cx.constant(0, cx.dtype, cx.shape)
    unit = _open_unit(cx, words(cx, math.prod(cx.shape)))
    log = cx.select(
        cx.compare_with("GT", unit, 1.0 - 2.0**-24), cx.constant(-(2.0**-24), unit.dtype), cx.unary("log", unit)
    )
    return _shaped(cx, cx.scale(cx.unary("negate", log), 1.0 / rate))


def below(cx: Any, p: float, count: int) -> Value:
    """Flat mask: True with probability p, resolved to 2^-32."""
    raw = words(cx, count)
    limit = int(math.ldexp(p, 32))
    if limit > 0xFFFFFFFF:
        return cx.constant(True, torch.bool, (count,))
    return cx.compare("LT", raw, cx.constant(limit, U32))


def integer_values(cx: Any, low: int, high: int) -> Value:
    """[low, high): number * range / 2^32; larger ranges than 2^16 take 64-bit numbers, which modules have not."""
    span = high - low
    if _empty(cx):
        return cx.constant(0, cx.dtype, cx.shape)
    if span > 1 << 16:
        return _wide_integers(cx, low, span)
    raw = words(cx, math.prod(cx.shape))
    top, _ = _multiply_wide(cx, raw, span)
    made = cx.add(cx.bitcast(top, torch.int32), cx.constant(low, torch.int32))
    return _shaped(cx, made)


def _wide_integers(cx: Any, low: int, span: int) -> Value:
    """The upper 64 of the 128 bits of (64-bit number) * range, for ranges below 2^32."""
    if span > 1 << 32 or not -(2**31) <= low <= low + span - 1 <= 2**31 - 1:
        raise cx.unsupported(f"random integers from {low} to {low + span - 1} do not fit into int32")
    count = math.prod(cx.shape)
    pairs = -(-count // _LANES)
    raw = cx.reshape(words(cx, pairs * 2 * _LANES), (pairs, 2, _LANES))
    low_half, high_half = (cx.reshape(cx.slice_dim(raw, 1, i, i + 1), (pairs * _LANES,)) for i in (0, 1))
    low_half, high_half = cx.slice_dim(low_half, 0, 0, count), cx.slice_dim(high_half, 0, 0, count)
    if span == 1 << 32:
        top = high_half
    else:
        carried, _ = _multiply_wide(cx, low_half, span)
        top, bottom = _multiply_wide(cx, high_half, span)
        total = cx.add(bottom, carried)
        top = cx.add(top, cx.convert(cx.compare("LT", total, bottom), U32))
    made = cx.add(cx.bitcast(top, torch.int32), cx.constant(low, torch.int32))
    return _shaped(cx, made)


# --- operators --------------------------------------------------------------------------------------------------------
@lowers("rand", "rand_like", "rand.generator", "rand_like.generator")
def rand(cx: Any, *_: Any, **__: Any) -> Value:
    return uniform_values(cx, 0.0, 1.0)


@lowers("randn", "randn_like", "randn.generator", "randn_like.generator")
def randn(cx: Any, *_: Any, **__: Any) -> Value:
    return normal_values(cx, 0.0, 1.0)


@lowers("uniform")
def uniform(cx: Any, x: Value, low: float = 0.0, high: float = 1.0, **_: Any) -> Value:
    return uniform_values(cx, low, high)


@lowers("normal_functional")
def normal_functional(cx: Any, x: Value, mean: float = 0.0, std: float = 1.0, **_: Any) -> Value:
    return normal_values(cx, mean, std)


@lowers("normal.float_float")
def normal_numbers(cx: Any, mean: float, std: float, *_: Any, **__: Any) -> Value:
    return normal_values(cx, mean, std)


@lowers("exponential")
def exponential(cx: Any, x: Value, rate: float = 1.0, **_: Any) -> Value:
    return exponential_values(cx, rate)


@lowers("bernoulli.p")
def bernoulli(cx: Any, x: Value, p: float = 0.5, **_: Any) -> Value:
    if _empty(cx):
        return cx.constant(0, cx.dtype, cx.shape)
    return _shaped(cx, below(cx, p, math.prod(cx.shape)))


@lowers("randint", "randint_like")
def randint(cx: Any, *args: Any, **_: Any) -> Value:
    return integer_values(cx, 0, args[0] if not isinstance(args[0], Value) else args[1])


@lowers("randint.low", "randint_like.low_dtype")
def randint_low(cx: Any, *args: Any, **_: Any) -> Value:
    low, high = args[:2] if not isinstance(args[0], Value) else args[1:3]
    return integer_values(cx, low, high)


@lowers("random.from", "random.to")
def random_from(cx: Any, x: Value, *bounds: Any, **_: Any) -> Value:
    low, high = (0, bounds[0]) if len(bounds) == 1 else bounds
    if high is None:
        high = _LARGEST_COUNT.get(cx.dtype, 2**31 - 1) + 1
    return integer_values(cx, low, high)


@lowers("random")
def random(cx: Any, x: Value, **_: Any) -> Value:
    top = _LARGEST_COUNT.get(cx.dtype)
    if top is None:
        if cx.dtype == torch.int64:
            raise cx.unsupported("random_() fills int64 with numbers beyond int32, as which int64 runs")
        top = torch.iinfo(cx.dtype).max
    return integer_values(cx, 0, top + 1)


@lowers("native_dropout")
def native_dropout(cx: Any, x: Value, p: float, train: bool | None) -> tuple[Value, Value]:
    """(x / (1 - p) where it is kept, the mask): a number below p * 2^32 drops its element."""
    if train is False or p == 0.0 or not x.numel:
        cx.random_launches += int(train is not False)  # the device takes numbers even where it needs none
        return x, cx.constant(True, torch.bool, x.shape)
    wide = cx.convert(x, cx.wide)
    keep = cx.reshape(cx.logical_not(below(cx, p, x.numel)), x.shape)
    factor = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    zero = cx.constant(0, wide.dtype, x.shape)
    return cx.convert(cx.select(keep, cx.scale(wide, factor), zero), cx.dtype), keep


@lowers("log_normal")
def log_normal(cx: Any, x: Value, mean: float = 1.0, std: float = 2.0, **_: Any) -> Value:
    drawn = cx.convert(normal_values(cx, mean, std), cx.wide)
    return cx.convert(cx.unary("exponential", drawn), cx.dtype)


def _high_words(cx: Any) -> Value:
    """The upper halves of 64-bit numbers: of each 32 numbers of a launch the second 16."""
    count = math.prod(cx.shape)
    pairs = -(-count // _LANES)
    raw = cx.reshape(words(cx, pairs * 2 * _LANES), (pairs, 2, _LANES))
    return cx.slice_dim(cx.reshape(cx.slice_dim(raw, 1, 1, 2), (pairs * _LANES,)), 0, 0, count)


@lowers("cauchy", note="32 random bits an element, where the device uses 53")
def cauchy(cx: Any, x: Value, median: float = 0.0, sigma: float = 1.0, **_: Any) -> Value:
    """median + sigma * tan(pi * (u - 1/2)), as the cotangent of the distance to the nearer end of (0, 1]."""
    if _empty(cx):
        return x
    raw = _high_words(cx)
    upper = cx.compare_with("LT", cx.bitcast(raw, torch.int32), 0)
    near = cx.bitcast(cx.select(upper, cx.unary("not_", raw), raw), torch.int32)
    angle = cx.scale(cx.shift(cx.convert(near, torch.float32), 0.5), math.pi * 2.0**-32)
    cotangent = cx.divide(cx.unary("cosine", angle), cx.unary("sine", angle))
    made = cx.select(upper, cotangent, cx.unary("negate", cotangent))
    return _shaped(cx, cx.shift(cx.scale(made, sigma), median))


@lowers("geometric", note="32 random bits an element, where the device uses 53")
def geometric(cx: Any, x: Value, p: float, **_: Any) -> Value:
    """ceil(log(u) / log(1 - p)), at least 1."""
    if _empty(cx):
        return x
    raw = _high_words(cx)
    unit = cx.scale(cx.shift(cx.convert(raw, torch.float32), 0.5), 2.0**-32)
    made = cx.unary("ceil", cx.scale(cx.unary("log", unit), 1.0 / math.log1p(-p)))
    return _shaped(cx, cx.binary("maximum", made, cx.constant(1, torch.float32)))
