"""Product of a matrix with its own transpose: the lower triangle only.

    out = alpha a_t.T @ a_t + beta c        on and below the diagonal

Blocks that the diagonal crosses multiply the tiles on and below it only, so that the number of products is that of the
tiles of a triangle. A block on the diagonal loads one operand, because the other one is the same.

Elements above the diagonal are undefined, and those of c are not used. For parts, work list and limits see
``blas_gemm``.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.blas.blas_gemm import run_kinds, scale_of
from nki_kernels.blas.blocks import matrix, work
from nki_kernels.blas.plan import triangle_kinds
from nki_kernels.lang import nki, nl
from nki_kernels.precision.splits import sum_of_products


@nki.jit
def blas_syrk(a_t, c, items, factors, rows, cols, depth, update):
    """a_t[parts, K, n], c [n, n] fp32; returns [n, n] fp32.

    items [n, 3] int32, factors [n, 3] fp32: as ``plan.triangle_list`` returns them; rows, cols, depth: as
    ``plan.block_sizes`` does. update: 1 if c is read, else 0, and c may have any shape.
    """
    parts, K, n = a_t.shape
    out = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.shared_hbm)
    column = out.reshape((n * n, 1))
    previous = c.reshape((n * n, 1)) if update == 1 else column
    left, right = matrix(a_t, min(rows, n)), matrix(a_t, min(cols, n))
    mem = work(left, right, parts, previous, column, n, items, factors, rows, cols)
    run_kinds(mem, triangle_kinds(n, rows, cols), 1, K, depth, 1, update)
    return out


def reference_blas_syrk(a_t, c, items, factors, rows, cols, depth, update):
    """The same sums in NumPy: fp64 arithmetic on the given (rounded) parts, rounded once to fp32; NaN above."""
    total = sum_of_products(a_t, a_t)
    alpha, beta = scale_of(factors)
    out = alpha * total + beta * c if update else alpha * total
    return np.where(np.tri(len(out), dtype=bool), out, np.nan).astype(np.float32)
