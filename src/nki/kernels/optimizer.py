"""One step of AdamW."""

from __future__ import annotations

from collections.abc import Iterator

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import need, need_float

BLOCK = 2048  # elements of a partition at a time: 8 KiB of float32, which DMA moves at full rate


def _tiles(count: int) -> Iterator[tuple[int, int, int]]:
    """(start, rows, columns) of tiles that cover `count` elements in order."""
    start = 0
    while start < count:
        left = count - start
        columns = min(BLOCK, left)
        rows = min(nl.tile_size.pmax, left // columns)
        yield start, rows, columns
        start += rows * columns


@jit
def adamw(
    parameter: NkiTensor,
    gradient: NkiTensor,
    average: NkiTensor,
    square_average: NkiTensor,
    rates: NkiTensor,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.01,
) -> None:
    """Changes parameter, average and square_average in place, as torch.optim.AdamW does. Any shape, the same for all.

    `rates` is float32 [3]: the learning rate, 1 - beta1^step and 1 - beta2^step. They are a tensor and no constants so
    that one trace serves all steps. The averages are float32; everything is computed in float32.
    """
    need_float("parameter", parameter)
    for name, tensor in (("gradient", gradient), ("average", average), ("square_average", square_average)):
        need(tensor.shape == parameter.shape, f"{name} has shape {tensor.shape}, parameter has {parameter.shape}")
        need_float(name, tensor)
    need(rates.shape == (3,), f"rates has shape {rates.shape}, it takes (3,)")
    for name, beta in (("beta1", beta1), ("beta2", beta2)):
        need(0.0 <= beta < 1.0, f"{name} is {beta}, it takes 0 up to 1")
    factors = _factors(rates, weight_decay)
    flat = [tensor.reshape(tensor.size) for tensor in (parameter, gradient, average, square_average)]
    for start, rows, columns in _tiles(parameter.size):
        views = [tensor[start : start + rows * columns].reshape(rows, columns) for tensor in flat]
        value, slope, mean, square = (nl.load(view, nl.float32) for view in views)
        decay, step, root = (factor[0:rows] for factor in factors)
        scaled, denominator = nl.ndarray(value.shape, nl.float32), nl.ndarray(value.shape, nl.float32)
        nisa.tensor_scalar(scaled, slope, nl.multiply, 1.0 - beta1)
        nisa.scalar_tensor_tensor(mean, mean, nl.multiply, beta1, nl.add, scaled)
        nisa.tensor_tensor(scaled, slope, slope, nl.multiply)
        nisa.tensor_scalar(scaled, scaled, nl.multiply, 1.0 - beta2)
        nisa.scalar_tensor_tensor(square, square, nl.multiply, beta2, nl.add, scaled)
        nisa.activation(denominator, nl.sqrt, square)
        nisa.tensor_scalar(denominator, denominator, nl.multiply, root, op1=nl.add, operand1=eps)
        nisa.reciprocal(denominator, denominator)
        nisa.scalar_tensor_tensor(scaled, mean, nl.multiply, step, nl.multiply, denominator)
        nisa.scalar_tensor_tensor(value, value, nl.multiply, decay, nl.subtract, scaled)
        for view, tile in ((views[0], value), (views[2], mean), (views[3], square)):
            nl.store(view, tile if view.dtype == nl.float32 else nl.copy(tile, view.dtype))


def _factors(rates: NkiTensor, weight_decay: float) -> tuple[NkiTensor, NkiTensor, NkiTensor]:
    """In every partition: 1 - rate * weight_decay, rate / (1 - beta1^step), 1 / sqrt(1 - beta2^step)."""
    loaded = nl.load(rates.reshape(1, 3).broadcast(0, nl.tile_size.pmax), nl.float32)
    rate, first, second = (loaded[:, index : index + 1] for index in range(3))
    decay, step, root = (nl.ndarray((nl.tile_size.pmax, 1), nl.float32) for _ in range(3))
    nisa.tensor_scalar(decay, rate, nl.multiply, -weight_decay, op1=nl.add, operand1=1.0)
    nisa.reciprocal(step, first)
    nisa.tensor_tensor(step, step, rate, nl.multiply)
    nisa.activation(root, nl.sqrt, second)
    nisa.reciprocal(root, root)
    return decay, step, root
