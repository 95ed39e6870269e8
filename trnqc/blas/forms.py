"""Operations of users in the forms that kernels have. Arrays are NumPy arrays, or tensors of a device.

gemm   op(a) op(b)        -> a_t.T @ b, contraction index first
symm   a of one triangle  -> the whole matrix, then a product
syrk   either triangle    -> the lower one
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from trnqc.arrays import is_tensor
from trnqc.backends.blas import BackendBlas


def transposed(x: Any) -> Any:
    """The transpose of a matrix, or of each matrix of a stack."""
    return x.swapaxes(-1, -2) if is_tensor(x) else np.swapaxes(x, -1, -2)


def lower_triangle(x: Any, diagonal: int = 0) -> Any:
    """The elements on and below a diagonal, zero above."""
    return sys.modules["torch"].tril(x, diagonal) if is_tensor(x) else np.tril(x, diagonal)


def triangle(x: Any, lower: bool) -> Any:
    """One triangle of a matrix with its diagonal, zero elsewhere."""
    return lower_triangle(x) if lower else transposed(lower_triangle(transposed(x)))


def whole(x: Any, lower: bool) -> Any:
    """The symmetric matrix of which one triangle is stored."""
    stored = x if lower else transposed(x)
    return lower_triangle(stored) + transposed(lower_triangle(stored, -1))


def gemm(blas: BackendBlas, a: Any, b: Any, c: Any, alpha: float, beta: float, trans_a: bool, trans_b: bool) -> Any:
    """alpha op(a) op(b) + beta c of matrices, or of stacks of matrices."""
    return blas.product(a if trans_a else transposed(a), transposed(b) if trans_b else b, c, alpha, beta)


def symm(blas: BackendBlas, a: Any, b: Any, c: Any, alpha: float, beta: float, left: bool, lower: bool) -> Any:
    """alpha a b + beta c, or alpha b a + beta c, of a symmetric matrix a."""
    full = whole(a, lower)
    if left:
        return blas.product(full, b, c, alpha, beta)
    return blas.product(transposed(b), full, c, alpha, beta)


def syrk(blas: BackendBlas, a: Any, c: Any, alpha: float, beta: float, trans: bool, lower: bool) -> Any:
    """One triangle of alpha op(a) op(a).T + beta c."""
    previous = c if c is None or lower else transposed(c)
    result = lower_triangle(blas.triangle(a if trans else transposed(a), previous, alpha, beta))
    return result if lower else transposed(result)


def read_triangle(a: Any, lower: bool, unit_diagonal: bool) -> Any:
    """The triangle that a triangular solve reads, zero elsewhere; a unit diagonal is not read."""
    stored = triangle(a, lower)
    if not unit_diagonal:
        return stored
    rows = np.arange(len(a))
    stored[rows, rows] = 1
    return stored


def cholesky(blas: BackendBlas, a: Any, lower: bool) -> Any:
    """The triangular factor of a symmetric matrix of which one triangle is stored."""
    factor = lower_triangle(blas.cholesky(whole(a, lower)))
    return factor if lower else transposed(factor)


def flipped(x: Any, axes: tuple[int, ...]) -> Any:
    """A matrix with the elements of axes in reverse order."""
    return sys.modules["torch"].flip(x, axes) if is_tensor(x) else np.flip(x, axes)


def trsm(blas: BackendBlas, a: Any, b: Any, lower: bool, trans: bool, unit_diagonal: bool, left: bool) -> Any:
    """The solution X of op(a) X = b, or of X op(a) = b, as that of a lower triangular system.

    X op(a) = b is the transpose of op(a).T X.T = b.T, and an upper triangular matrix is lower triangular if rows and
    columns are reversed.
    """
    if not left:
        return transposed(trsm(blas, a, transposed(b), lower, not trans, unit_diagonal, True))
    stored = read_triangle(a, lower, unit_diagonal)
    matrix = transposed(stored) if trans else stored
    if lower != trans:
        return blas.solve(matrix, b)
    return flipped(blas.solve(flipped(matrix, (0, 1)), flipped(b, (0,))), (0,))
