"""Convolution over one dimension, as a sum of matrix products."""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces


@jit
def conv1d(
    x: NkiTensor,
    weight: NkiTensor,
    bias: NkiTensor | None = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
) -> NkiTensor:
    """torch.nn.functional.conv1d for x[B, C, T], weight[O, C, K] of the same dtype, bias[O]; one group.

    Each place of the filter is a product of [O, C] and a strided view of the input, summed in PSUM: nothing is copied.
    """
    need(
        x.ndim == 3 and weight.ndim == 3, f"conv1d takes x[B, C, T] and weight[O, C, K], not {x.shape}, {weight.shape}"
    )
    need_float("x", x)
    need(weight.dtype == x.dtype, f"weight is {weight.dtype}, x is {x.dtype}")
    (batch, channels, times), (outputs, inputs, taps) = x.shape, weight.shape
    need(inputs == channels, f"weight takes {inputs} channels, x has {channels}: there is one group only")
    need(bias is None or bias.shape == (outputs,), f"bias has another shape than ({outputs},)")
    for name, value, least in (("stride", stride, 1), ("padding", padding, 0), ("dilation", dilation, 1)):
        need(value >= least, f"{name} is {value}, it takes {least} or more")
    reach = dilation * (taps - 1) + 1
    steps = (times + 2 * padding - reach) // stride + 1
    need(steps >= 1, f"conv1d: {times} elements with padding {padding} are shorter than the filter, {reach}")
    out = nl.ndarray((batch, outputs, steps), x.dtype, buffer=nl.shared_hbm)
    parts = list(pieces(channels, nl.tile_size.pmax))
    for features in pieces(outputs, nl.tile_size.gemm_stationary_fmax):
        filters = [[nl.load(weight[features, part, tap].permute([1, 0])) for tap in range(taps)] for part in parts]
        shift = None if bias is None else nl.load(bias.reshape(outputs, 1)[features], nl.float32)
        for item in range(batch):
            for moment in pieces(steps, nl.tile_size.gemm_moving_fmax):
                total = nl.ndarray((length(features), length(moment)), nl.float32, buffer=nl.psum)
                for part, columns in zip(parts, filters, strict=True):
                    window = _window(x[item, part], moment, stride, padding, reach)
                    for tap, column in enumerate(columns):
                        first = tap * dilation
                        view = window[:, first : first + (length(moment) - 1) * stride + 1 : stride]
                        nisa.nc_matmul(total, column, view)
                result = nl.ndarray(total.shape, x.dtype)
                if shift is None:
                    nisa.tensor_copy(result, total)
                else:
                    nisa.tensor_scalar(result, total, nl.add, shift)
                nl.store(out[item, features, moment], result)
    return out


def _window(x: NkiTensor, moment: slice, stride: int, padding: int, reach: int) -> NkiTensor:
    """The columns of x[C, T] that the outputs `moment` read, with zeros where they lie outside."""
    start = moment.start * stride - padding
    size = (length(moment) - 1) * stride + reach
    first, last = max(start, 0), min(start + size, x.shape[1])
    tile = nl.ndarray((x.shape[0], size), x.dtype)
    if last - first < size:
        nisa.memset(tile, 0.0)
    if first < last:
        nisa.dma_copy(tile[:, first - start : last - start], x[:, first:last])
    return tile
