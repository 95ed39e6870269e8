"""A kernel that shows what a device makes of products, sums and transposes: one launch on operands with known results.

    a, b of a precision  -->  products of single elements, sums over K in PSUM, a transpose by the tensor engine

The host compares the results with fp64 (`trnqc.backends.nki.accuracy`). The instructions are those of the kernels that
multiply: `nc_matmul` in accumulation groups over the parts of split operands and blocks of K, and `nc_transpose`.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.lang import nisa, nki, nl
from nki_kernels.precision.splits import products_of, sum_of_products

P = 128  # partitions, and rows and columns of all results


def _operand(source):
    """All blocks of 128 rows of an operand [parts, K, 128] on chip: a list over parts of [128, blocks, 128]."""
    tiles = []
    for p in range(source.shape[0]):
        tile = nl.ndarray((P, source.shape[1] // P, P), dtype=source.dtype, buffer=nl.sbuf)
        for k in range(source.shape[1] // P):
            nisa.dma_copy(dst=tile[:, k, :], src=source[p, k * P : (k + 1) * P, :])
        tiles.append(tile)
    return tiles


def _sum(bank, left, right, blocks: int, height: int):
    """bank = the sum of products over ``blocks`` blocks, of each the first ``height`` rows."""
    pairs = products_of(len(left), len(right))
    for k in range(blocks):
        for x in range(len(pairs)):
            p, q = pairs[x]
            stationary, moving = left[p][0:height, k, :], right[q][0:height, k, :]
            nisa.nc_matmul(dst=bank, stationary=stationary, moving=moving, accumulate=(k > 0 or x > 0))


@nki.jit
def probe(a, b, square):
    """The results [3, 128, 128] fp32: products of the first rows, sums over all rows, the transpose of a square.

    a, b [parts, K, 128]: the parts of split operands, K a multiple of 128; square [128, 128] fp32.
    """
    out = nl.ndarray((3, P, P), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right = _operand(a), _operand(b)
    data = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=data, src=square)
    banks = []
    for _ in range(3):
        banks.append(nl.ndarray((P, P), dtype=nl.float32, buffer=nl.psum))
    _sum(banks[0], left, right, 1, 1)
    _sum(banks[1], left, right, a.shape[1] // P, P)
    nisa.nc_transpose(dst=banks[2], data=data, engine=nisa.engine.tensor)
    for x in range(3):
        result = nl.ndarray((P, P), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=banks[x], engine=nisa.engine.vector)
        nisa.dma_copy(dst=out[x, :, :], src=result)
    return out


def reference_probe(a, b, square):
    """The same in NumPy: sums in fp64 of the given parts, rounded once to fp32."""
    products = sum_of_products(a[:, :1], b[:, :1]), sum_of_products(a, b)
    return np.stack([*products, square.T]).astype(np.float32)
