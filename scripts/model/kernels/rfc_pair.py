"""The fused pair energy as the original request designed it, to compare with: one launch a pair, two products a tile.

For one ordered pair (i, j) and every tile (A, B) of 128 x 128 virtuals, T = B_i[A] B_j[B]^T and, by a second product,
U = B_j[A] B_i[B]^T = T^T; the pair's energy is sum T (2 T - U) / (e_i + e_j - e_a - e_b). Nothing is shared between
tiles or pairs: operands come from memory for every product, the virtual index is padded to 128 and all nocc^2 pairs
are launched. In its favour, operands lie with the auxiliary index first, which spares the transposing loads that the
design needs.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.lang import nisa, nki, nl

P = 128


def _load(source, k: int, first: int):
    tile = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[k : k + P, first : first + P])
    return tile


def _product(left, right, a: int, b: int):
    bank = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.psum)
    for k in range(0, left.shape[0], P):
        nisa.nc_matmul(dst=bank, stationary=_load(left, k, a), moving=_load(right, k, b), accumulate=k > 0)
    return bank


@nki.jit
def rfc_pair(bi, bj, e_col, e_row):
    """bi, bj [naux, nvir] fp32, both extents padded to multiples of 128 with zeros.

    e_col [128, nvir / 128], e_row [128, nvir]: e_i + e_j - e_a down the partitions, and -e_b on each of them, fp32.
    Returns [128, 1] fp32: the pair's energy is its sum.
    """
    nvir = bi.shape[1]
    out = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    col = nl.ndarray(e_col.shape, dtype=nl.float32, buffer=nl.sbuf)
    row = nl.ndarray(e_row.shape, dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=col, src=e_col)
    nisa.dma_copy(dst=row, src=e_row)
    nisa.memset(dst=total, value=0.0)
    for a in range(0, nvir, P):
        for b in range(0, nvir, P):
            T, U = _product(bi, bj, a, b), _product(bj, bi, a, b)
            _add_energy(T, U, col[0:P, a // P : a // P + 1], row[0:P, b : b + P], total)
    nisa.dma_copy(dst=out, src=total)
    return out


def _add_energy(T, U, col, row, total):
    delta, x, y = (nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf) for _ in range(3))
    part = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=delta, data=row, op0=nl.add, operand0=col)
    nisa.reciprocal(dst=delta, data=delta)
    nisa.tensor_scalar(dst=x, data=T, op0=nl.multiply, operand0=2.0)
    nisa.tensor_tensor(dst=x, data1=x, data2=U, op=nl.subtract)
    nisa.tensor_tensor(dst=y, data1=delta, data2=T, op=nl.multiply)
    nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
    nisa.tensor_reduce(dst=part, op=nl.add, data=x, axis=1)
    nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)


def pack_pair(B_i, B_j, e_ij: float, e_vir):
    """Arguments of ``rfc_pair`` from B_i, B_j [nvir, naux], e_i + e_j and e_vir [nvir]; Hartree."""
    nvir, naux = B_i.shape
    rows, cols = -(-naux // P) * P, -(-nvir // P) * P
    left, right = np.zeros((rows, cols), np.float32), np.zeros((rows, cols), np.float32)
    left[:naux, :nvir], right[:naux, :nvir] = B_i.T, B_j.T
    negative = np.full(cols, -1.0)
    negative[:nvir] = -e_vir
    col = (e_ij + negative).reshape(-1, P).T
    return left, right, np.ascontiguousarray(col, np.float32), np.tile(negative.astype(np.float32), (P, 1))
