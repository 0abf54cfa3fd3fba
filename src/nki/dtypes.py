"""Element types of the chip: how they are stored, and how values are rounded into them.

NumPy has no bfloat16 and no 8-bit floating point, so an array holds their bits (`DType.storage`), and `decode` and
`encode` convert to and from float32 here, by integer operations and exact scaling, to nearest with ties to even.

What happens at the ends of a type:
* to an integer: nearest even, then saturation; NaN becomes 0
* to a type with infinity: what rounds beyond the largest value becomes infinity
* to float8_e4m3fn and float4_e2m1fn, which have none: the largest value, as in PyTorch's conversion
"""

from __future__ import annotations

import functools
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import NkiTypeError

Array = NDArray[Any]
Kind = Literal["float", "int", "uint", "packed"]


class FloatFormat(NamedTuple):
    """Bits of a floating point type. `inf` and `nan` are codes without sign; None: the type has no such value."""

    mantissa: int
    bias: int
    largest: int  # code of the largest finite value
    inf: int | None
    nan: int | None
    bits: int = 8


# Sources: OCP 8-bit floating point specification 1.0 (e4m3fn, e5m2), OCP microscaling formats 1.0 (e2m1, e8m0), and
# the NKI documentation for the legacy float8_e4m3, which is IEEE-like: infinity, largest value 240.
FORMATS: dict[str, FloatFormat] = {
    "float8_e4m3": FloatFormat(3, 7, 0x77, 0x78, 0x7C),
    "float8_e4m3fn": FloatFormat(3, 7, 0x7E, None, 0x7F),
    "float8_e5m2": FloatFormat(2, 15, 0x7B, 0x7C, 0x7E),
    "float4_e2m1fn": FloatFormat(1, 1, 0x7, None, None, 4),
}


class DType:
    """An element type. Compares equal to its name and to the NumPy or PyTorch type that it stands for."""

    __slots__ = ("elements", "itemsize", "kind", "name", "part", "storage")

    def __init__(self, name: str, kind: Kind, storage: Any, part: str | None = None, elements: int = 1) -> None:
        self.name = name
        self.kind = kind
        self.storage: np.dtype[Any] = np.dtype(storage)
        self.itemsize: int = self.storage.itemsize  # bytes
        self.part = part  # packed types: the type of one part
        self.elements = elements  # packed types: parts of one element

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self.name == other.name
        try:
            return as_dtype(other).name == self.name
        except NkiTypeError:
            return False

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy type, so that `np.zeros(shape, nl.bfloat16)` works.

        Types that NumPy lacks are those of ml_dtypes. Packed types are structured types with one field of their name.
        NkiTypeError where there is none: tfloat32, and ml_dtypes is not installed.
        """
        if self.kind == "packed":
            return np.dtype([(self.name, self.storage)])
        if self.name == "bool_":
            return np.dtype(np.bool_)
        if self.storage.name == self.name:
            return self.storage
        try:
            import ml_dtypes
        except ImportError:
            raise NkiTypeError(f"NumPy has no {self.name}: install ml_dtypes") from None
        found = getattr(ml_dtypes, self.name, None)
        if found is None:
            raise NkiTypeError(f"NumPy has no {self.name}")
        return np.dtype(found)

    @property
    def is_float(self) -> bool:
        """True for floating point types of one value an element."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, and bool_."""
        return self.kind in ("int", "uint")


_ALL = [
    DType("bool_", "uint", np.uint8),
    *(DType(f"int{bits}", "int", f"i{bits // 8}") for bits in (8, 16, 32, 64)),
    *(DType(f"uint{bits}", "uint", f"u{bits // 8}") for bits in (8, 16, 32)),
    DType("float16", "float", np.float16),
    DType("bfloat16", "float", np.uint16),
    DType("tfloat32", "float", np.float32),
    DType("float32", "float", np.float32),
    DType("float8_e4m3", "float", np.uint8),
    DType("float8_e4m3fn", "float", np.uint8),
    DType("float8_e5m2", "float", np.uint8),
    DType("float8_e8m0fnu", "float", np.uint8),
    DType("float8_e5m2_x4", "packed", np.uint32, "float8_e5m2", 4),
    DType("float8_e4m3fn_x4", "packed", np.uint32, "float8_e4m3fn", 4),
    DType("float4_e2m1fn_x4", "packed", np.uint16, "float4_e2m1fn", 4),
]
DTYPES: dict[str, DType] = {dtype.name: dtype for dtype in _ALL}
_ALIASES = {"bool": "bool_"}


def as_dtype(value: Any) -> DType:
    """The element type that `value` names: a `nl` type, a NumPy type, a PyTorch type or a name.

    NkiTypeError for a type that the chip does not have, such as float64.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str):
        name = value
    elif type(value).__module__.split(".")[0] == "torch":
        name = str(value).removeprefix("torch.")
    else:
        try:
            kind = np.dtype(value)
            name = kind.names[0] if kind.names and len(kind.names) == 1 else kind.name
        except TypeError:
            name = repr(value)
    found = DTYPES.get(_ALIASES.get(name, name))
    if found is None:
        hint = "; convert to int32 or float32 first" if name in ("int64", "uint64", "float64") else ""
        raise NkiTypeError(f"{name} is not an element type of the chip{hint}")
    return found


@functools.cache
def _table(name: str) -> Array:
    """float32 value of each code of an 8-bit or 4-bit type."""
    if name == "float8_e8m0fnu":
        with np.errstate(over="ignore"):
            values = np.ldexp(1.0, np.arange(256) - 127)
        values[255] = np.nan
        return values.astype(np.float32)
    form = FORMATS[name]
    codes = np.arange(1 << form.bits)
    magnitude = codes & ((1 << (form.bits - 1)) - 1)
    exponent, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    whole = fraction + np.where(exponent > 0, 1 << form.mantissa, 0)
    values = np.ldexp(whole.astype(np.float64), np.maximum(exponent, 1) - form.bias - form.mantissa)
    values[magnitude > form.largest] = np.nan
    if form.inf is not None:
        values[magnitude == form.inf] = np.inf
    values = np.where(codes >> (form.bits - 1) == 1, -values, values)
    return values.astype(np.float32)


def _encode_small(values: Array, form: FloatFormat) -> Array:
    """Codes of an 8-bit or 4-bit type, nearest even."""
    bits = values.view(np.uint32)
    sign = ((bits >> 31) << (form.bits - 1)).astype(np.int64)
    magnitude = np.abs(values)
    smallest = 1 - form.bias  # exponent of the smallest normal value
    exponent = np.maximum(((bits >> 23) & 0xFF).astype(np.int64) - 127, smallest)
    exponent = np.minimum(exponent, smallest + 64)  # far beyond the largest value of any of these types
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.rint(np.ldexp(magnitude.astype(np.float64), form.mantissa - exponent))
    steps = np.where(np.isfinite(steps), np.minimum(steps, 1 << 20), 1 << 20).astype(np.int64)
    # A step beyond the mantissa carries into the exponent, as the codes of the type are in order of value.
    code = ((exponent - smallest) << form.mantissa) + steps
    beyond = form.largest if form.inf is None else form.inf
    code = np.where(code > form.largest, beyond, code)
    code = np.where(np.isnan(values), form.nan or 0, code)
    return (code | sign).astype(np.uint8)


def _encode_bfloat16(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1)).astype(np.uint32)) >> 16
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def _encode_tfloat32(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = (bits + (0xFFF + ((bits >> 13) & 1)).astype(np.uint32)) & np.uint32(0xFFFFE000)
    return np.where(np.isnan(values), bits | 0x400000, rounded).astype(np.uint32).view(np.float32)


def _encode_e8m0(values: Array) -> Array:
    bits = values.view(np.uint32)
    exponent, fraction = (bits >> 23) & 0xFF, bits & 0x7FFFFF
    up = (fraction > 0x400000) | ((fraction == 0x400000) & (exponent > 0))
    code = np.where((exponent >= 254) & up, 255, exponent + up)
    return np.where(np.isnan(values) | (exponent == 255), 255, code).astype(np.uint8)


def decode(raw: Array, dtype: DType) -> Array:
    """float32 values of stored elements. Integers round to the nearest float32, as they do on their way into an engine.

    NkiTypeError for packed types, which only the instructions for microscaled types read.
    """
    name = dtype.name
    if name == "bfloat16":
        return (raw.astype(np.uint32) << 16).view(np.float32)
    if name in FORMATS or name == "float8_e8m0fnu":
        return _table(name)[raw]
    if dtype.kind == "packed":
        raise NkiTypeError(f"{name} holds {dtype.elements} values an element: no arithmetic reads it")
    return raw.astype(np.float32)


def encode(values: Array, dtype: DType) -> Array:
    """Stored elements for float32 `values`, with the rounding that the head of this module describes."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    name = dtype.name
    if name == "bfloat16":
        return _encode_bfloat16(values)
    if name == "tfloat32":
        return _encode_tfloat32(values)
    if name == "float8_e8m0fnu":
        return _encode_e8m0(values)
    if name in FORMATS:
        return _encode_small(values, FORMATS[name])
    if name == "bool_":
        return (values != 0).astype(np.uint8)
    if dtype.is_integer:
        return saturate(np.rint(values.astype(np.float64)), dtype)
    if dtype.kind == "packed":
        raise NkiTypeError(f"{name} holds {dtype.elements} values an element: only quantize_mx and copies write it")
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype.storage)


def saturate(values: Array, dtype: DType) -> Array:
    """Whole numbers (float64 or int64) as an integer type: beyond its range the nearest end, NaN is 0."""
    info = np.iinfo(dtype.storage)
    if values.dtype.kind == "f":
        values = np.nan_to_num(values, nan=0.0, posinf=float(info.max), neginf=float(info.min))
    return np.clip(values, info.min, info.max).astype(dtype.storage)


def round_to(values: Array, dtype: DType) -> Array:
    """float32 `values` after a trip through `dtype`."""
    return decode(encode(values, dtype), dtype)


def unpack(raw: Array, dtype: DType) -> Array:
    """float32 values of a packed type, with one more axis of `dtype.elements` at the end; lowest bits come first."""
    assert dtype.part is not None
    bits = dtype.itemsize * 8 // dtype.elements
    shifts = np.arange(dtype.elements, dtype=np.uint32) * bits
    codes = (raw.astype(np.uint32)[..., None] >> shifts) & ((1 << bits) - 1)
    return _table(dtype.part)[codes]


def pack(values: Array, dtype: DType) -> Array:
    """The reverse of `unpack`, rounding to nearest even; values beyond the range saturate, as in the MX formats."""
    assert dtype.part is not None
    form = FORMATS[dtype.part]
    largest = _table(dtype.part)[form.largest]
    codes = _encode_small(np.ascontiguousarray(np.clip(values, -largest, largest), dtype=np.float32), form)
    bits = dtype.itemsize * 8 // dtype.elements
    shifts = np.arange(dtype.elements, dtype=np.uint32) * bits
    return (codes.astype(np.uint32) << shifts).sum(axis=-1, dtype=np.uint32).astype(dtype.storage)


def uninitialised(dtype: DType) -> Any:
    """What unwritten memory reads as, in storage form: NaN, or 4 for integers (as in the public simulator)."""
    if dtype.is_integer:
        return dtype.storage.type(4)
    if dtype.kind == "packed" or dtype.name in FORMATS or dtype.name == "float8_e8m0fnu":
        return dtype.storage.type(np.iinfo(dtype.storage).max)
    return encode(np.array([np.nan], np.float32), dtype)[0]
