"""Microscaled FP8 on trn3: quantisation, and a matrix product of quantised operands.

A block of 32 neighbours along K shares one scale, a power of two. In SBUF, element k of a column is part k % 4 of the
packed element in partition k / 4, so that a block is 4 parts of 8 partitions.
"""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces

PARTS = 4  # values of a packed element
BLOCK = 32  # values that share a scale: OCP microscaling formats 1.0
STEP = 128  # K comes in multiples of this: 32 partitions, the smallest tile of TensorE, times 4
FORMATS = ("float8_e4m3fn_x4", "float8_e5m2_x4")


def _check(name: str, x: NkiTensor, format: str) -> None:
    need(x.ndim == 2, f"{name} takes two dimensions, not {x.shape}")
    need_float(name, x)
    need(x.dtype.itemsize == 2, f"{name} is {x.dtype}: quantisation takes bfloat16 and float16")
    need(x.shape[0] % STEP == 0, f"{name} has K = {x.shape[0]}, which is no multiple of {STEP}")
    need(format in FORMATS, f"format {format!r} is not one of {', '.join(FORMATS)}")


def _quantised(x: NkiTensor, rows: slice, columns: slice, format: str) -> tuple[NkiTensor, NkiTensor]:
    """Rows and columns of x[K, N] as packed elements [rows / 4, N] and their scales, in SBUF."""
    count, width = length(rows) // PARTS, length(columns)
    tile = nl.ndarray((count, width, PARTS), x.dtype)
    nisa.dma_copy(tile, x[rows, columns].reshape_dim(0, (count, PARTS)).permute([0, 2, 1]))
    packed, scale = nl.ndarray((count, width), format), nl.ndarray((count, width), nl.uint8)
    nisa.memset(scale, 0)
    nisa.quantize_mx(packed, tile.reshape(count, width * PARTS), scale)
    return packed, scale


@jit
def mx_quantize(x: NkiTensor, format: str = "float8_e4m3fn_x4") -> tuple[NkiTensor, NkiTensor]:
    """x[K, N] in 16-bit floating point as FP8 codes, uint8 [K, N], and exponents of the scales, uint8 [K / 32, N].

    A value is code * 2^(exponent - 127). K is a multiple of 128.
    """
    _check("x", x, format)
    rows, columns = x.shape
    codes = nl.ndarray((rows, columns), nl.uint8, buffer=nl.shared_hbm)
    scales = nl.ndarray((rows // BLOCK, columns), nl.uint8, buffer=nl.shared_hbm)
    for part in pieces(rows, nl.tile_size.pmax * PARTS):
        for block in pieces(columns, nl.tile_size.gemm_moving_fmax):
            packed, scale = _quantised(x, part, block, format)
            count = length(part) // PARTS
            view = codes[part, block].reshape_dim(0, (count, PARTS)).permute([0, 2, 1])
            nisa.dma_copy(view, packed.view(nl.uint8).reshape(count, length(block), PARTS))
            for quadrant in range(0, count, BLOCK):  # each keeps the scales of its 32 partitions in its first four
                first = (part.start // PARTS + quadrant) // 8
                nl.store(scales[first : first + 4, block], scale[quadrant : quadrant + 4])
    return codes, scales


@jit
def mx_matmul(lhsT: NkiTensor, rhs: NkiTensor, format: str = "float8_e4m3fn_x4") -> NkiTensor:
    """lhsT^T @ rhs for 16-bit lhsT[K, M] and rhs[K, N], quantised on the way, as float32 [M, N].

    K is a multiple of 128 and M is even.
    """
    _check("lhsT", lhsT, format)
    _check("rhs", rhs, format)
    need(lhsT.shape[0] == rhs.shape[0], f"lhsT has K = {lhsT.shape[0]}, rhs has K = {rhs.shape[0]}")
    need(lhsT.shape[1] % 2 == 0, f"M is {lhsT.shape[1]}, the stationary operand takes an even number of columns")
    (inner, rows), columns = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((rows, columns), nl.float32, buffer=nl.shared_hbm)
    parts = list(pieces(inner, nl.tile_size.pmax * PARTS))
    for n in pieces(columns, nl.tile_size.gemm_moving_fmax):
        right = [_quantised(rhs, part, n, format) for part in parts]
        for m in pieces(rows, nl.tile_size.gemm_stationary_fmax):
            total = nl.ndarray((length(m), length(n)), nl.float32, buffer=nl.psum)
            for part, (moving, moving_scale) in zip(parts, right, strict=True):
                stationary, stationary_scale = _quantised(lhsT, part, m, format)
                nisa.nc_matmul_mx(total, stationary, moving, stationary_scale, moving_scale)
            nl.store(out[m, n], total)
    return out
