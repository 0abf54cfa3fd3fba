"""Reductions, tile movement, products and random numbers: functions that return new tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import isa
from ..dtypes import as_dtype
from ..errors import NkiTypeError, NkiValueError
from ..source import here
from ..tensor import NkiTensor
from ..trace import MemoryBuffer, allocate, current_target
from . import _elementwise as e

Tensor = NkiTensor
PSUM = MemoryBuffer("psum")
SBUF = MemoryBuffer("sbuf")


def _fail(function: str, problem: str) -> NkiValueError:
    return NkiValueError(problem, instruction=f"nl.{function}", location=here())


# --- reductions over free axes


def _axes(x: NkiTensor, axis: Any, function: str) -> list[int]:
    axes = [axis] if isinstance(axis, int) else list(axis)
    if not axes or [a for a in axes if not isinstance(a, int) or not -x.ndim <= a < x.ndim]:
        raise _fail(function, f"axis {axis!r}: the tile has {x.ndim} dimensions")
    return sorted(a % x.ndim for a in axes)


def _reduce(x: NkiTensor, op: Any, axis: Any, dtype: Any, keepdims: bool, function: str) -> NkiTensor:
    e.tile_of(x, function)
    axes = _axes(x, axis, function)
    kept = [1 if dim in axes else size for dim, size in enumerate(x.shape)]
    shape = kept if keepdims else [size for dim, size in enumerate(x.shape) if dim not in axes]
    shape = shape if len(shape) >= 2 else [*shape, 1]
    # The engine reduces the last axes: others are moved there by the access pattern.
    view = x
    if 0 not in axes:
        view = x.permute([*(d for d in range(x.ndim) if d not in axes), *axes])
        axes = list(range(x.ndim - len(axes), x.ndim))
    out = e.new(shape, x.dtype if dtype is None else dtype)
    isa.tensor_reduce(out, op, view, axes)
    return out


def sum(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Sum over free axes, in float32."""
    return _reduce(x, e.add, axis, dtype, keepdims, "sum")


def max(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Largest element over free axes."""
    return _reduce(x, e.maximum, axis, dtype, keepdims, "max")


def min(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Smallest element over free axes."""
    return _reduce(x, e.minimum, axis, dtype, keepdims, "min")


def prod(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Product over free axes, in float32."""
    return _reduce(x, e.multiply, axis, dtype, keepdims, "prod")


def all(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """1 where no element over free axes is 0, else 0."""
    truth = e.not_equal(e.tile_of(x, "all"), 0.0, "float32")
    return _reduce(truth, e.minimum, axis, x.dtype if dtype is None else dtype, keepdims, "all")


def _count(x: NkiTensor, axis: Any, function: str) -> int:
    count = 1
    for a in _axes(x, axis, function):
        count *= x.shape[a]
    return count


def mean(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Mean over free axes."""
    total = _reduce(x, e.add, axis, "float32", keepdims, "mean")
    return e.multiply(total, 1.0 / _count(x, axis, "mean"), x.dtype if dtype is None else dtype)


def var(x: Tensor, axis: int | Sequence[int], dtype: Any = None, keepdims: bool = False) -> Tensor:
    """Variance over all free axes: the mean of the squared distances from the mean."""
    axes = _axes(e.tile_of(x, "var"), axis, "var")
    if axes != list(range(1, x.ndim)):
        raise _fail("var", f"axis {axis!r}: only all free axes together are supported")
    center = mean(x, axes, "float32")
    apart = e.new(x.shape, "float32")
    isa.tensor_scalar(apart, x, e.subtract, center)
    spread = mean(e.square(apart), axes, x.dtype if dtype is None else dtype, keepdims)
    return spread


def softmax(x: Tensor, axis: int = -1, dtype: Any = None) -> Tensor:
    """exp(x - max) / sum over the last axis of a two-dimensional tile."""
    e.tile_of(x, "softmax")
    if x.ndim != 2 or axis not in (-1, 1):
        raise _fail("softmax", f"takes two dimensions and the last axis, not {x.ndim} dimensions and axis {axis}")
    largest = e.new((x.shape[0], 1), "float32")
    isa.tensor_reduce(largest, e.maximum, x, 1, negate=True)
    powers, total = e.new(x.shape, "float32"), e.new((x.shape[0], 1), "float32")
    isa.activation_reduce(powers, e.exp, x, e.add, total, bias=largest)
    isa.reciprocal(total, total)
    out = e.new(x.shape, x.dtype if dtype is None else dtype)
    isa.tensor_scalar(out, powers, e.multiply, total)
    return out


def rms_norm(
    x: Tensor, w: Tensor, axis: int, n: int, epsilon: float = 1e-6, dtype: Any = None, compute_dtype: Any = None
) -> Tensor:
    """x / sqrt(sum(x^2) / n + epsilon) * w over the last axis of x[P, N]; w is [P, N], or [1, N] for all partitions."""
    e.tile_of(x, "rms_norm")
    if x.ndim != 2 or axis not in (-1, 1):
        raise _fail("rms_norm", f"takes two dimensions and the last axis, not {x.ndim} dimensions and axis {axis}")
    inner = as_dtype("float32" if compute_dtype is None else compute_dtype)
    squares, total = e.new(x.shape, inner), e.new((x.shape[0], 1), "float32")
    isa.activation_reduce(squares, e.square, x, e.add, total)
    isa.tensor_scalar(total, total, e.multiply, 1.0 / n, op1=e.add, operand1=epsilon)
    isa.activation(total, e.rsqrt, total)
    weights = w if w.shape[0] == x.shape[0] else broadcast_to(w, x.shape)
    out = e.new(x.shape, x.dtype if dtype is None else dtype)
    isa.scalar_tensor_tensor(out, x, e.multiply, total, e.multiply, weights)
    return out


# --- movement


def load(src: Tensor, dtype: Any = None) -> Tensor:
    """A tile in SBUF with the elements of an HBM view; its first dimension (up to 128) becomes the partition.

    A view of one dimension becomes one partition.
    """
    if not isinstance(src, NkiTensor) or src.on_chip:
        raise NkiTypeError(f"{src!r} is no tensor in HBM", instruction="nl.load", location=here())
    shape = src.shape if src.ndim > 1 else (1, *src.shape)
    out = e.new(shape, src.dtype if dtype is None else dtype)
    isa.dma_copy(out, src)
    return out


def store(dst: Tensor, value: Tensor) -> None:
    """Writes a tile to an HBM view of as many elements. From PSUM it goes through SBUF."""
    if not isinstance(dst, NkiTensor) or dst.on_chip:
        raise NkiTypeError(f"{dst!r} is no tensor in HBM", instruction="nl.store", location=here())
    tile = e.tile_of(value, "store")
    isa.dma_copy(dst, e.copy(tile) if tile.buffer == "psum" else tile)


def load_transpose2d(src: Tensor, dtype: Any = None) -> Tensor:
    """A tile [N, P] in SBUF from src[P, N] in HBM, transposed on the way."""
    out = e.new((src.shape[1], src.shape[0]), src.dtype)
    isa.dma_transpose(out, src)
    return out if dtype is None else e.copy(out, dtype)


def gather_flattened(data: Tensor, indices: Tensor, axis: int = 0, dtype: Any = None) -> Tensor:
    """out[p, i] = data[p, indices[p, i]] with the free dimensions of data flattened; indices are uint32."""
    if axis != 0:
        raise _fail("gather_flattened", f"axis {axis}: only 0 is supported")
    out = e.new(indices.shape, e.tile_of(data, "gather_flattened").dtype)
    isa.nc_n_gather(out, data, indices)
    return out if dtype is None else e.copy(out, dtype)


def transpose(x: Tensor, dtype: Any = None) -> Tensor:
    """x[P, N] as a tile [N, P] in PSUM, by TensorE; x in SBUF, up to 128x128."""
    e.tile_of(x, "transpose")
    out = allocate((x.size // x.shape[0], x.shape[0]), x.dtype, PSUM)
    isa.nc_transpose(out, x)
    return out if dtype is None else e.copy(out, dtype)


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """x with its dimensions of size 1 repeated to `shape`, in SBUF. Over partitions by a product with ones on TensorE.

    Over partitions not for 32-bit integers, which float32 cannot hold.
    """
    e.tile_of(x, "broadcast_to")
    sizes = tuple(shape)
    fits = len(sizes) == x.ndim and not [1 for a, b in zip(x.shape, sizes, strict=True) if a != b and a != 1]
    if not fits:
        raise _fail("broadcast_to", f"{x.shape} does not broadcast to {sizes}")
    view = x
    for dim in range(1, x.ndim):
        if view.shape[dim] != sizes[dim]:
            view = view.broadcast(dim, sizes[dim])
    out = e.new(sizes, x.dtype)
    if x.shape[0] == sizes[0]:
        isa.tensor_copy(out, view)
        return out
    if x.dtype.is_integer and x.dtype.itemsize == 4:
        raise _fail("broadcast_to", f"{x.dtype} cannot be repeated over partitions exactly")
    flat_out = out.reshape(sizes[0], -1)
    row = e.new((1, flat_out.shape[1]), "float32")
    isa.tensor_copy(row, view)
    ones = e.new((1, sizes[0]), "float32")
    isa.memset(ones, 1.0)
    width = current_target().psum_bank_bytes // 4
    for start in range(0, flat_out.shape[1], width):
        end = start + width if start + width < flat_out.shape[1] else flat_out.shape[1]
        part = allocate((sizes[0], end - start), "float32", PSUM)
        isa.nc_matmul(part, ones, row[:, start:end])
        isa.tensor_copy(flat_out[:, start:end], part)
    return out


def expand_dims(x: Tensor, axis: int) -> Tensor:
    """A view with a new free dimension of size 1 at `axis`."""
    return x.expand_dim(axis if axis >= 0 else axis + x.ndim + 1)


def matmul(x: Tensor, y: Tensor, transpose_x: bool = False) -> Tensor:
    """x @ y as a float32 tile in PSUM: x[M, K], y[K, N]; with `transpose_x`, x is [K, M] and saves a transpose.

    K, M <= 128, N <= 512.
    """
    e.tile_of(x, "matmul")
    left = x if transpose_x else e.copy(transpose(x))
    out = allocate((left.shape[1], y.shape[1]), "float32", PSUM)
    isa.nc_matmul(out, left, y)
    return out


# --- random numbers


def dropout(x: Tensor, rate: Any, dtype: Any = None) -> Tensor:
    """x with elements set to 0 with probability `rate`; the others are not scaled."""
    out = e.new(e.tile_of(x, "dropout").shape, x.dtype if dtype is None else dtype)
    isa.dropout(out, x, rate)
    return out


def rand(shape: Sequence[int], dtype: Any = "float32", buffer: Any = SBUF, name: str = "") -> Tensor:
    """Uniform random numbers in [0, 1): rand2 on NeuronCore-v4, before that the upper 24 bits of rng."""
    out = allocate(shape, dtype, buffer, name)
    if current_target().version >= 4:
        isa.rand2(out, 0.0, 1.0)
        return out
    bits = e.new(shape, "uint32")
    isa.rng(bits)
    isa.tensor_scalar(bits, bits, e.right_shift, 8)
    isa.tensor_scalar(out, bits, e.multiply, 1.0 / (1 << 24))
    return out


def random_seed(seed: Tensor) -> None:
    """Seeds the generators from one 32-bit integer, a tile of shape (1, 1)."""
    isa.set_rng_seed(seed)


# As operators of instructions these stand for their elementwise counterparts.
for _function, _name in ((sum, "add"), (max, "maximum"), (min, "minimum"), (mean, "mean")):
    _function.nki_op = _name  # type: ignore[attr-defined]
