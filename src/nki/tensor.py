"""Tensors of a kernel: shapes and access patterns over storage. No data moves here, and none is here."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from . import ir
from .dtypes import DType, as_dtype
from .errors import NkiIndexError, NkiNotImplementedError, NkiTypeError, NkiValueError, NkiWarning
from .source import here

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class ds:
    """`size` elements from `start` on, as an index: `t[nl.ds(start, size)]`. `start` may be a register.

    With size 0 the result is a view of nothing, which no instruction takes.
    """

    start: Any
    size: int
    step: int = 1


class Scalar:
    """A 32-bit register of the sequencer: a value known only while the kernel runs.

    + - * with integers and registers give new registers, and wrap around at 32 bits.
    """

    def __init__(self, number: int) -> None:
        self.register = ir.Register(number)

    def __repr__(self) -> str:
        return f"register {self.register.number}"

    def _compute(self, op: str, left: Any, right: Any) -> Scalar:
        from .registers import compute

        return compute(op, left, right)

    def __add__(self, other: Any) -> Scalar:
        return self._compute("add", self, other)

    def __radd__(self, other: Any) -> Scalar:
        return self._compute("add", other, self)

    def __sub__(self, other: Any) -> Scalar:
        return self._compute("subtract", self, other)

    def __rsub__(self, other: Any) -> Scalar:
        return self._compute("subtract", other, self)

    def __mul__(self, other: Any) -> Scalar:
        return self._compute("multiply", self, other)

    def __rmul__(self, other: Any) -> Scalar:
        return self._compute("multiply", other, self)

    def __bool__(self) -> bool:
        raise NkiTypeError(f"{self} is known only while the kernel runs: Python cannot branch on it", location=here())

    def __index__(self) -> int:
        raise NkiTypeError(f"{self} is known only while the kernel runs: Python cannot use its value", location=here())


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for index in range(len(shape) - 2, -1, -1):
        strides[index] = strides[index + 1] * shape[index + 1]
    return tuple(strides)


class NkiTensor:
    """A view of a tensor in HBM, SBUF or PSUM.

    `shape` and `strides` are in elements of `dtype`; element (i, j, ...) is at `offset` + sum(stride * index) of the
    storage. The first dimension of a tensor on chip is the partition. Made by `nl.ndarray` and by indexing.
    """

    def __init__(
        self,
        storage: ir.Tensor,
        dtype: DType,
        shape: Sequence[int],
        strides: Sequence[int],
        offset: int = 0,
        dynamic: tuple[ir.Dynamic, ...] = (),
        rows: tuple[ir.Access, int, int] | None = None,
    ) -> None:
        self._storage = storage
        self.dtype = dtype
        self.shape = tuple(shape)
        self.strides = tuple(strides)
        self.offset = offset
        self._dynamic = dynamic
        self._rows = rows  # starts of the rows, elements of one step, number of rows

    @classmethod
    def whole(cls, storage: ir.Tensor) -> NkiTensor:
        """All of a tensor."""
        return cls(storage, as_dtype(storage.dtype), storage.shape, _contiguous_strides(storage.shape))

    # --- what it is

    @property
    def buffer(self) -> str:
        """Memory that holds it: "sbuf", "psum", "private_hbm" or "shared_hbm"."""
        return self._storage.buffer

    @property
    def name(self) -> str:
        """Name of the tensor that this is a view of."""
        return self._storage.name

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def on_chip(self) -> bool:
        """In SBUF or PSUM."""
        return self._storage.on_chip

    @property
    def storage_elements(self) -> int:
        """Elements of `dtype` in the storage."""
        return self._storage.elements * as_dtype(self._storage.dtype).itemsize // self.dtype.itemsize

    @property
    def storage_free(self) -> int:
        """Elements of `dtype` in one partition of the storage, on chip."""
        return self._storage.free_elements * as_dtype(self._storage.dtype).itemsize // self.dtype.itemsize

    def is_contiguous(self) -> bool:
        """True when the elements follow each other in storage."""
        return _merge(self.get_pattern(), self.size) is not None

    def is_indirect(self) -> bool:
        """True when a part of the address is known only while the kernel runs."""
        return bool(self._dynamic) or self._rows is not None

    def get_pattern(self) -> list[tuple[int, int]]:
        """(stride, count) of each dimension, outermost first."""
        return list(zip(self.strides, self.shape, strict=True))

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        return f"tensor {self.name!r} [{dims}] {self.dtype} in {self.buffer}"

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Any]:
        raise self._error(NkiTypeError, "cannot be iterated over: use a loop over indices")

    def __bool__(self) -> bool:
        """True, with a warning: public kernels test optional arguments so. `is not None` says it better."""
        warnings.warn(
            NkiWarning(
                f"{self!r} is tested for truth while the kernel is traced: that says that it is there ({here()})"
            ),
            stacklevel=2,
        )
        return True

    def __setitem__(self, index: Any, value: Any) -> None:
        raise self._error(NkiTypeError, "is written by instructions with dst=, such as nisa.tensor_copy, not by =")

    def _error(self, kind: type[Exception], problem: str) -> Exception:
        return kind(f"{self!r} {problem}", location=here())  # type: ignore[call-arg]

    def _view(self, shape: Sequence[int], strides: Sequence[int], offset: int | None = None, **rest: Any) -> NkiTensor:
        options: dict[str, Any] = {"dtype": self.dtype, "dynamic": self._dynamic, "rows": self._rows} | rest
        offset = self.offset if offset is None else offset
        return NkiTensor(self._storage, shape=shape, strides=strides, offset=offset, **options)

    def access(self) -> ir.Access:
        """The access pattern of this view, for an instruction."""
        rows, scale, limit = self._rows or (None, 0, 0)
        pattern = tuple(zip(self.strides, self.shape, strict=True))
        return ir.Access(self._storage.number, self.dtype.name, self.offset, pattern, self._dynamic, rows, scale, limit)

    # --- indexing

    def __getitem__(self, index: Any) -> NkiTensor:
        """Integers, slices, `nl.ds`, Ellipsis and registers. On chip, the result keeps at least two dimensions."""
        parts = list(index) if isinstance(index, tuple) else [index]
        if sum(part is Ellipsis for part in parts) > 1:
            raise self._error(NkiIndexError, "takes one Ellipsis in an index")
        missing = self.ndim - sum(part is not Ellipsis for part in parts)
        if missing < 0:
            raise self._error(NkiIndexError, f"has {self.ndim} dimensions, the index has {self.ndim - missing}")
        at = next((i for i, part in enumerate(parts) if part is Ellipsis), len(parts))
        parts[at : at + 1] = [slice(None)] * missing

        offset, dynamic = self.offset, list(self._dynamic)
        shape: list[int] = []
        strides: list[int] = []
        dropped: list[bool] = []
        for dim, part in enumerate(parts):
            size, stride = self.shape[dim], self.strides[dim]
            start, count, step, drop = self._part(part, dim, size)
            if isinstance(start, ir.Register | ir.Access):
                dynamic.append(ir.Dynamic(start, stride, size - (count - 1) * step))
            else:
                offset += start * stride
            if step != 1 and dim == 0 and self.on_chip and count > 1:
                raise self._error(NkiIndexError, f"cannot be indexed with step {step} over partitions")
            shape.append(count)
            strides.append(stride * step)
            dropped.append(drop)
        if self.on_chip:
            dropped[0] = False
            if len(shape) - sum(dropped) < 2:
                dropped[-1] = False
        elif all(dropped):
            dropped[-1] = False
        keep = [i for i, drop in enumerate(dropped) if not drop]
        return self._view([shape[i] for i in keep], [strides[i] for i in keep], offset, dynamic=tuple(dynamic))

    def _part(self, part: Any, dim: int, size: int) -> tuple[Any, int, int, bool]:
        """(start, count, step, whether the dimension goes) of one part of an index."""
        if isinstance(part, ds):
            start = _dynamic_source(part.start)
            if start is not None:
                return start, part.size, part.step, False
            last = part.start + (part.size - 1) * part.step
            if part.size == 0 and 0 <= part.start <= size:  # the share of a core that has nothing to do
                return part.start, 0, part.step, False
            if part.size < 1 or part.start < 0 or last >= size:
                raise self._error(
                    NkiIndexError, f"has {size} elements in dimension {dim}, ds({part.start}, {part.size}) does not fit"
                )
            return part.start, part.size, part.step, False
        if isinstance(part, slice):
            if any(isinstance(bound, Scalar | NkiTensor) for bound in (part.start, part.stop, part.step)):
                raise self._error(NkiIndexError, "takes nl.ds(start, size) for a start that is a register, not a slice")
            for bound in (part.start, part.stop):
                if bound is not None and not -size <= bound <= size:
                    raise self._error(
                        NkiIndexError, f"has {size} elements in dimension {dim}, {bound} is out of bounds"
                    )
            indices = range(*part.indices(size))
            if indices.step < 1 or len(indices) == 0:
                raise self._error(NkiIndexError, f"has nothing at {part.start}:{part.stop}:{part.step} of dim {dim}")
            return indices.start, len(indices), indices.step, False
        start = _dynamic_source(part)
        if start is not None:
            return start, 1, 1, True
        if isinstance(part, bool) or not hasattr(part, "__index__"):
            raise self._error(NkiTypeError, f"cannot be indexed with {type(part).__name__} {part!r}")
        at = part.__index__()
        if not -size <= at < size:
            raise self._error(NkiIndexError, f"has {size} elements in dimension {dim}, {at} is out of bounds")
        return at % size, 1, 1, True

    # --- views

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """Dimensions in another order. On chip the partition stays first."""
        if sorted(dims) != list(range(self.ndim)) or (self.on_chip and dims[0] != 0):
            raise self._error(NkiValueError, f"cannot be permuted by {tuple(dims)}")
        return self._view([self.shape[d] for d in dims], [self.strides[d] for d in dims])

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """Dimension `dim` of size 1 repeated `size` times, without copies. Not over partitions."""
        dim = self._dim(dim)
        if self.shape[dim] != 1 or (dim == 0 and self.on_chip):
            raise self._error(NkiValueError, f"cannot be broadcast over dimension {dim}")
        return self._view(_put(self.shape, dim, (size,)), _put(self.strides, dim, (0,)))

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new dimension of size 1 before `dim`. On chip not before the partition."""
        if not (1 if self.on_chip else 0) <= dim <= self.ndim:
            raise self._error(NkiValueError, f"cannot have a new dimension at {dim}")
        return self._view((*self.shape[:dim], 1, *self.shape[dim:]), (*self.strides[:dim], 0, *self.strides[dim:]))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """Without dimension `dim`, which has size 1."""
        dim = self._dim(dim)
        if self.shape[dim] != 1 or (self.on_chip and (dim == 0 or self.ndim == 2)):
            raise self._error(NkiValueError, f"cannot lose dimension {dim}")
        return self._view(_put(self.shape, dim, ()), _put(self.strides, dim, ()))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """Dimension `dim` split into `shape`; one size may be -1. On chip not the partition."""
        dim = self._dim(dim)
        sizes = list(shape)
        if sizes.count(-1) == 1 and self.shape[dim] % -math.prod(sizes) == 0:
            sizes[sizes.index(-1)] = self.shape[dim] // -math.prod(sizes)
        if math.prod(sizes) != self.shape[dim] or (dim == 0 and self.on_chip and len(sizes) > 1):
            raise self._error(NkiValueError, f"cannot have dimension {dim} split into {tuple(shape)}")
        strides = [stride * self.strides[dim] for stride in _contiguous_strides(sizes)]
        return self._view(_put(self.shape, dim, sizes), _put(self.strides, dim, strides))

    def flatten_dims(self, start: int, end: int) -> NkiTensor:
        """Dimensions `start` to `end` (included) as one; their elements must be evenly spaced."""
        start, end = self._dim(start), self._dim(end)
        pattern = self.get_pattern()[start : end + 1]
        merged = _merge(pattern, None)
        if start > end or merged is None or (start == 0 and end > 0 and self.on_chip):
            raise self._error(NkiValueError, f"cannot have dimensions {start} to {end} flattened")
        stride, size = merged
        return self._view(
            (*self.shape[:start], size, *self.shape[end + 1 :]),
            (*self.strides[:start], stride, *self.strides[end + 1 :]),
        )

    def reshape(self, *shape: Any) -> NkiTensor:
        """The same elements in another shape; one size may be -1. The view must be evenly spaced.

        On chip the partition dimension stays as it is.
        """
        sizes = list(shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)
        if sizes.count(-1) == 1:
            sizes[sizes.index(-1)] = self.size // max(1, -math.prod(sizes))
        first = 1 if self.on_chip else 0
        same_partition = not self.on_chip or (len(sizes) >= 2 and sizes[0] == self.shape[0])
        if math.prod(sizes) != self.size or not same_partition:
            raise self._error(NkiValueError, f"cannot be reshaped to {tuple(shape)}")
        merged = _merge(self.get_pattern()[first:], None)
        if merged is None:
            raise self._error(NkiValueError, f"is not evenly spaced: it cannot be reshaped to {tuple(sizes)}")
        strides = [merged[0] * stride for stride in _contiguous_strides(sizes[first:])]
        return self._view(sizes, (*self.strides[:first], *strides))

    def rearrange(
        self,
        src: Sequence[Any] | str,
        dst: Sequence[Any] | str,
        fixed_sizes: Mapping[str, int] | None = None,
    ) -> NkiTensor:
        """Splits, permutes and joins named dimensions: `t.rearrange("p (a b)", "p b a", {"a": 4})`.

        Both sides are strings as here or tuples such as ("p", ("a", "b")). Sizes that do not follow are in
        `fixed_sizes`.
        """
        source, target = _names(src), _names(dst)
        sizes = dict(fixed_sizes or {})
        view = self
        if len(source) != self.ndim or sorted(sum(source, ())) != sorted(sum(target, ())):
            raise self._error(NkiValueError, f"cannot be rearranged from {src!r} to {dst!r}")
        for dim in range(self.ndim - 1, -1, -1):
            view = view.reshape_dim(dim, [sizes.get(name, -1) for name in source[dim]])
        flat = list(sum(source, ()))
        view = view.permute([flat.index(name) for name in sum(target, ())])
        for dim, names in enumerate(target):
            if len(names) > 1:
                view = view.flatten_dims(dim, dim + len(names) - 1)
        return view

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements `start` to `end` (excluded) of dimension `dim`."""
        index: list[Any] = [slice(None)] * self._dim(dim)
        return self[tuple([*index, slice(start, end, step)])]

    def select(self, dim: int, index: Any) -> NkiTensor:
        """One element of dimension `dim`: an integer, a register, or a 1x1 tensor in SBUF."""
        before: list[Any] = [slice(None)] * self._dim(dim)
        return self[tuple([*before, index])]

    def vector_select(self, dim: int, offsets: NkiTensor) -> NkiTensor:
        """Rows of an HBM tensor by an index tensor of shape (P, 1) in SBUF: shape (P, ...). `dim` is 0."""
        if dim != 0 or self.on_chip:
            raise self._error(NkiValueError, "takes vector_select over dimension 0 of a tensor in HBM only")
        rows = _index_vector(self, offsets)
        scale, limit = self.strides[0], self.shape[0]
        return self._view((offsets.shape[0], *self.shape[1:]), self.strides, rows=(rows, scale, limit))

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """Gather along the free dimension by a compute engine (NeuronCore-v4). Not implemented."""
        raise NkiNotImplementedError("NkiTensor.indirect is not implemented; use nisa.nc_n_gather", location=here())

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes as another type; the last dimension, which is contiguous, is rescaled."""
        to = as_dtype(dtype)
        old, new = self.dtype.itemsize, to.itemsize
        if old == new:
            return self._view(self.shape, self.strides, dtype=to)
        scaled = [*self.strides[:-1], self.offset, *(d.scale for d in self._dynamic)]
        fits = self.shape[-1] * old % new == 0 and all(value * old % new == 0 for value in scaled)
        if self.strides[-1] != 1 or not fits or self._rows is not None:
            raise self._error(NkiValueError, f"cannot be viewed as {to}: bytes do not line up")
        dynamic = tuple(dataclasses.replace(d, scale=d.scale * old // new) for d in self._dynamic)
        strides = [*(stride * old // new for stride in self.strides[:-1]), 1]
        shape = (*self.shape[:-1], self.shape[-1] * old // new)
        return self._view(shape, strides, self.offset * old // new, dtype=to, dynamic=dynamic)

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """A raw access pattern over the storage, in elements of `dtype`: [[stride, count], ...].

        It replaces the pattern of this view; without `offset`, the start of this view stays. On chip, the first entry
        is the partition and its stride is the size of the storage in one partition. `scalar_offset` (register or 1x1
        tensor) times the size of what follows `indirect_dim` is added to the start. `vector_offset` (P, 1) gives each
        row of an HBM tensor its start; the first stride then means nothing.
        """
        if scalar_offset is not None and vector_offset is not None:
            raise self._error(NkiValueError, "takes scalar_offset or vector_offset, not both")
        to = self.dtype if dtype is None else as_dtype(dtype)
        base = NkiTensor.whole(self._storage)
        base = base if base.dtype.itemsize == to.itemsize else base.view(to)
        if offset is None:
            offset = self.offset * self.dtype.itemsize // to.itemsize
        strides, shape = [int(entry[0]) for entry in pattern], [int(entry[1]) for entry in pattern]
        if not shape or min(shape) < 1:
            raise self._error(NkiValueError, f"cannot take the pattern {pattern}: counts are at least 1")
        view = NkiTensor(self._storage, to, shape, strides, offset)
        rows = self._rows_of(base)
        inner = math.prod(rows[indirect_dim + 1 :])
        limit = math.prod(rows[: indirect_dim + 1])
        if scalar_offset is not None:
            source = _dynamic_source(scalar_offset)
            if source is None:
                raise self._error(NkiTypeError, f"takes a register or a 1x1 tensor as scalar_offset: {scalar_offset!r}")
            view._dynamic = (ir.Dynamic(source, inner, limit),)
        if vector_offset is not None:
            if indirect_dim != 0 or self.on_chip:
                raise self._error(NkiValueError, "takes vector_offset over dimension 0 of a tensor in HBM only")
            starts = _index_vector(self, vector_offset)
            if vector_offset.shape[0] != shape[0]:
                raise self._error(
                    NkiValueError, f"has {vector_offset.shape[0]} row offsets for {shape[0]} rows in the pattern"
                )
            view._rows = (starts, inner, limit)
        if self.on_chip:
            row = view.storage_free
            if strides[0] != row and shape[0] > 1:
                raise self._error(NkiValueError, f"has {row} elements in one partition: the first stride is not {row}")
            view.strides = (row, *strides[1:])
        return view

    def _rows_of(self, base: NkiTensor) -> tuple[int, ...]:
        """The shape that counts rows for an indirect access: that of the tensor, or of a reshaped view of all of it."""
        whole = self.dtype == base.dtype and self.offset == 0 and self.size == base.size and self.is_contiguous()
        return self.shape if whole and not self.is_indirect() else base.shape

    def _dim(self, dim: int) -> int:
        if not -self.ndim <= dim < self.ndim:
            raise self._error(NkiIndexError, f"has no dimension {dim}")
        return dim % self.ndim


def _put(values: Sequence[_T], at: int, new: Sequence[_T]) -> tuple[_T, ...]:
    return (*values[:at], *new, *values[at + 1 :])


def _merge(pattern: Sequence[tuple[int, int]], contiguous: int | None) -> tuple[int, int] | None:
    """One (stride, count) for a pattern, or None. With `contiguous` the stride must be 1."""
    stride, count = 1, 1
    for inner_stride, inner_count in reversed(pattern):
        if inner_count == 1:
            continue
        if count == 1:
            stride = inner_stride
        elif inner_stride != stride * count:
            return None
        count *= inner_count
    return None if contiguous is not None and count > 1 and stride != 1 else (stride, count)


def collapse(pattern: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pattern with evenly spaced neighbours joined and dimensions of size 1 left out."""
    merged: list[tuple[int, int]] = []
    for stride, count in pattern:
        if count == 1:
            continue
        if merged and merged[-1][0] == stride * count:
            merged[-1] = (stride, merged[-1][1] * count)
        else:
            merged.append((stride, count))
    return merged


def _names(side: Sequence[Any] | str) -> list[tuple[str, ...]]:
    if isinstance(side, str):
        groups: list[tuple[str, ...]] = []
        for number, piece in enumerate(side.replace(")", "(").split("(")):
            names = piece.split()
            groups += [tuple(names)] if number % 2 else [(name,) for name in names]
        return groups
    return [(item,) if isinstance(item, str) else tuple(item) for item in side]


def _dynamic_source(value: Any) -> ir.Register | ir.Access | None:
    """The register or one-element access that `value` is, or None."""
    if isinstance(value, Scalar):
        return value.register
    if isinstance(value, NkiTensor):
        if value.size != 1 or value.dtype.name not in ("int32", "uint32"):
            raise value._error(NkiTypeError, "is no index: that takes one element of int32 or uint32")
        return value.access()
    return None


def _index_vector(tensor: NkiTensor, offsets: NkiTensor) -> ir.Access:
    ok = isinstance(offsets, NkiTensor) and offsets.buffer == "sbuf" and offsets.dtype.name in ("int32", "uint32")
    if not ok or offsets.size != offsets.shape[0]:
        raise tensor._error(NkiTypeError, f"takes row offsets of shape (P, 1), int32 or uint32 in SBUF: {offsets!r}")
    return offsets.access()
