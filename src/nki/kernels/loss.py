"""Cross-entropy of rows of logits, forward and backward."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..errors import NkiTypeError
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces

BLOCK = 2048  # columns at a time: DMA moves 4 KiB of a partition at full rate, and 2-byte logits have that here
LOWEST = -3.4028235e38  # the smallest float32


def _check(logits: NkiTensor, labels: NkiTensor) -> tuple[int, int]:
    need(logits.ndim == 2, f"cross_entropy takes logits[N, V], not {logits.shape}")
    need_float("logits", logits)
    need(labels.shape == logits.shape[:1], f"labels has shape {labels.shape}, it takes {logits.shape[:1]}")
    if labels.dtype.name != "int32":
        raise NkiTypeError(f"labels is {labels.dtype}, it takes int32")
    need(logits.shape[1] <= 1 << 24, f"V is {logits.shape[1]}: labels are compared in float32, which holds 2^24")
    return logits.shape[0], logits.shape[1]


def _column(count: int, value: float | None = None) -> NkiTensor:
    tile = nl.ndarray((count, 1), nl.float32)
    if value is not None:
        nisa.memset(tile, value)
    return tile


def _at_label(label: NkiTensor, columns: slice) -> NkiTensor:
    """uint8 [P, columns]: 1 where the column is the label of the row."""
    numbers = nl.ndarray((label.shape[0], length(columns)), nl.float32)
    nisa.iota(numbers, [[1, length(columns)]], offset=columns.start)
    mask = nl.ndarray(numbers.shape, nl.uint8)
    nisa.tensor_scalar(mask, numbers, nl.equal, label)
    return mask


def _valid(label: NkiTensor, ignore_index: int) -> NkiTensor:
    valid = _column(label.shape[0])
    nisa.tensor_scalar(valid, label, nl.not_equal, float(ignore_index))
    return valid


@jit
def cross_entropy(logits: NkiTensor, labels: NkiTensor, ignore_index: int = -100) -> tuple[NkiTensor, NkiTensor]:
    """(log(sum(exp(logits))) - logits[label], log(sum(exp(logits)))) of each row of logits[N, V], as float32 [N].

    labels[N] is int32. The loss of a row whose label is `ignore_index` is 0; that of a label that is neither this nor
    a column is the logarithm alone. Any V: rows are read in blocks, once.
    """
    rows, columns = _check(logits, labels)
    loss = nl.ndarray((rows, 1), nl.float32, buffer=nl.shared_hbm)
    sums = nl.ndarray((rows, 1), nl.float32, buffer=nl.shared_hbm)
    for part in pieces(rows, nl.tile_size.pmax):
        count = length(part)
        label = nl.load(labels.reshape(rows, 1)[part], nl.float32)
        largest, total, found = _column(count, LOWEST), _column(count, 0.0), _column(count, 0.0)
        for block in pieces(columns, BLOCK):
            tile = nl.load(logits[part, block], nl.float32)
            before, here, negative = largest, _column(count), _column(count)
            largest, added, correction = _column(count), _column(count), _column(count)
            nisa.tensor_reduce(here, nl.maximum, tile, 1)
            nisa.tensor_tensor(largest, before, here, nl.maximum)
            nisa.tensor_scalar(negative, largest, nl.multiply, -1.0)
            powers = nl.ndarray(tile.shape, nl.float32)
            nisa.activation_reduce(powers, nl.exp, tile, nl.add, added, bias=negative)
            nisa.activation(correction, nl.exp, before, bias=negative)
            nisa.scalar_tensor_tensor(total, total, nl.multiply, correction, nl.add, added)
            picked, one = nl.ndarray(tile.shape, nl.float32), _column(count)
            nisa.memset(picked, 0.0)
            nisa.tensor_copy_predicated(picked, tile, _at_label(label, block))
            nisa.tensor_reduce(one, nl.add, picked, 1)
            nisa.tensor_tensor(found, found, one, nl.add)
        log_sum = _column(count)
        nisa.activation(log_sum, nl.log, total)
        nisa.tensor_tensor(log_sum, log_sum, largest, nl.add)
        nisa.tensor_tensor(found, log_sum, found, nl.subtract)
        nisa.tensor_tensor(found, found, _valid(label, ignore_index), nl.multiply)
        nl.store(loss[part], found)
        nl.store(sums[part], log_sum)
    return loss.reshape(rows), sums.reshape(rows)


@jit
def cross_entropy_backward(
    logits: NkiTensor, labels: NkiTensor, log_sums: NkiTensor, gradient: NkiTensor, ignore_index: int = -100
) -> NkiTensor:
    """The gradient of logits, (softmax - one at the label) * gradient[N]; `log_sums` is what `cross_entropy` gave."""
    rows, columns = _check(logits, labels)
    for name, vector in (("log_sums", log_sums), ("gradient", gradient)):
        need(vector.shape == (rows,), f"{name} has shape {vector.shape}, it takes ({rows},)")
    out = nl.ndarray(logits.shape, logits.dtype, buffer=nl.shared_hbm)
    for part in pieces(rows, nl.tile_size.pmax):
        label = nl.load(labels.reshape(rows, 1)[part], nl.float32)
        factor, negative = _column(length(part)), _column(length(part))
        weight = nl.load(gradient.reshape(rows, 1)[part], nl.float32)
        nisa.tensor_tensor(factor, weight, _valid(label, ignore_index), nl.multiply)
        nisa.tensor_scalar(negative, nl.load(log_sums.reshape(rows, 1)[part], nl.float32), nl.multiply, -1.0)
        for block in pieces(columns, BLOCK):
            tile = nl.load(logits[part, block], nl.float32)
            result = nl.ndarray(tile.shape, logits.dtype)
            nisa.activation(tile, nl.exp, tile, bias=negative)
            nisa.tensor_tensor(tile, tile, _at_label(label, block), nl.subtract)
            nisa.tensor_scalar(result, tile, nl.multiply, factor)
            nl.store(out[part, block], result)
    return out
