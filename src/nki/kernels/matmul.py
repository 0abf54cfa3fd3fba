"""Matrix products, from naive to blocked. All take lhsT[K, M] and rhs[K, N] and give lhsT^T @ rhs as [M, N].

TensorE reads the left operand with K on the partitions, so it is stored transposed. Sums are float32; the result has
lhsT's dtype. Sizes need not be multiples of the tiles.
"""

from __future__ import annotations

from .. import isa as nisa
from .. import language as nl
from ..jit import jit
from ..tensor import NkiTensor
from ._common import length, need, need_float, pieces


def _check(lhsT: NkiTensor, rhs: NkiTensor) -> tuple[int, int, int]:
    need(lhsT.ndim == 2 and rhs.ndim == 2, f"matmul takes two matrices, not {lhsT.shape} and {rhs.shape}")
    need(lhsT.shape[0] == rhs.shape[0], f"matmul: lhsT has K = {lhsT.shape[0]}, rhs has K = {rhs.shape[0]}")
    need_float("lhsT", lhsT)
    need_float("rhs", rhs)
    return lhsT.shape[0], lhsT.shape[1], rhs.shape[1]


@jit
def matmul_naive(lhsT: NkiTensor, rhs: NkiTensor) -> NkiTensor:
    """Both operands are loaded again for each product: simple, and bound by the number of DMAs."""
    K, M, N = _check(lhsT, rhs)
    out = nl.ndarray((M, N), lhsT.dtype, buffer=nl.shared_hbm)
    for m in pieces(M, nl.tile_size.gemm_stationary_fmax):
        for n in pieces(N, nl.tile_size.gemm_moving_fmax):
            total = nl.ndarray((length(m), length(n)), nl.float32, buffer=nl.psum)
            for k in pieces(K, nl.tile_size.pmax):
                nisa.nc_matmul(total, nl.load(lhsT[k, m]), nl.load(rhs[k, n]))
            nl.store(out[m, n], nl.copy(total, out.dtype))
    return out


@jit
def matmul_rows(lhsT: NkiTensor, rhs: NkiTensor, block_m: int = 8, block_n: int = 2) -> NkiTensor:
    """Blocks of `block_m` x `block_n` result tiles; operands come in long rows, and lhsT's stay for all of N.

    SBUF holds K rows of both blocks: K * (128 * block_m + 512 * block_n) elements must fit.
    """
    K, M, N = _check(lhsT, rhs)
    out = nl.ndarray((M, N), lhsT.dtype, buffer=nl.shared_hbm)
    tile_m, tile_n = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax
    ks = list(pieces(K, nl.tile_size.pmax))
    for m_block in pieces(M, tile_m * block_m):
        left = [nl.load(lhsT[k, m_block]) for k in ks]
        for n_block in pieces(N, tile_n * block_n):
            right = [nl.load(rhs[k, n_block]) for k in ks]
            for m in pieces(length(m_block), tile_m):
                row = nl.ndarray((length(m), length(n_block)), out.dtype)
                for n in pieces(length(n_block), tile_n):
                    total = nl.ndarray((length(m), length(n)), nl.float32, buffer=nl.psum)
                    for x, y in zip(left, right, strict=True):
                        nisa.nc_matmul(total, x[:, m], y[:, n])
                    nisa.tensor_copy(row[:, n], total)
                start = m_block.start + m.start
                nl.store(out[start : start + length(m), n_block], row)
    return out


@jit
def matmul_blocked(lhsT: NkiTensor, rhs: NkiTensor, block_m: int = 16, block_n: int = 2, block_k: int = 8) -> NkiTensor:
    """Blocks in all three dimensions, for any K: partial sums of a result block wait in SBUF as float32."""
    K, M, N = _check(lhsT, rhs)
    out = nl.ndarray((M, N), lhsT.dtype, buffer=nl.shared_hbm)
    tile_m, tile_n, tile_k = nl.tile_size.gemm_stationary_fmax, nl.tile_size.gemm_moving_fmax, nl.tile_size.pmax
    for n_block in pieces(N, tile_n * block_n):
        for m_block in pieces(M, tile_m * block_m):
            ms = list(pieces(length(m_block), tile_m))
            sums = [nl.ndarray((length(m), length(n_block)), nl.float32) for m in ms]
            for k_block in pieces(K, tile_k * block_k):
                ks = [slice(k_block.start + k.start, k_block.start + k.stop) for k in pieces(length(k_block), tile_k)]
                left = [nl.load(lhsT[k, m_block]) for k in ks]
                right = [nl.load(rhs[k, n_block]) for k in ks]
                for m, total in zip(ms, sums, strict=True):
                    for n in pieces(length(n_block), tile_n):
                        part = nl.ndarray((length(m), length(n)), nl.float32, buffer=nl.psum)
                        for x, y in zip(left, right, strict=True):
                            nisa.nc_matmul(part, x[:, m], y[:, n])
                        if k_block.start == 0:
                            nisa.tensor_copy(total[:, n], part)
                        else:
                            nisa.tensor_tensor(total[:, n], total[:, n], part, nl.add)
            for m, total in zip(ms, sums, strict=True):
                start = m_block.start + m.start
                row = total if out.dtype == nl.float32 else nl.copy(total, out.dtype)
                nl.store(out[start : start + length(m), n_block], row)
    return out
