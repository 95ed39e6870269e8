"""Triangular systems and Cholesky factors in panels: products in one precision, diagonal blocks in another.

This is how a precision of split or rounded operands, which only products have, computes them on a backend with a BLAS.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trnqc.errors import NotPositiveDefinite

Product = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""a_t.T @ b of a_t[K, M] and b[K, N]."""
Solve = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""The solution X of l X = b."""
Factorise = Callable[[np.ndarray], np.ndarray]
"""The lower triangular l with l l.T = a, or NotPositiveDefinite."""


def solve(l: np.ndarray, b: np.ndarray, panel: int, product: Product, solve_block: Solve) -> np.ndarray:
    """The solution X[n, m] of l X = b in fp32, in panels of rows."""
    x = np.empty(b.shape, np.float32)
    for k in range(0, len(l), panel):
        rows = slice(k, k + panel)
        known = product(l[rows, :k].T, x[:k]) if k else 0.0
        x[rows] = solve_block(l[rows, rows], b[rows] - known)
    return x


def cholesky(a: np.ndarray, panel: int, product: Product, solve_block: Solve, factorise: Factorise) -> np.ndarray:
    """The lower triangular l[n, n] with l l.T = a in fp32, in panels of columns.

    Raises
    ------
    NotPositiveDefinite
        If a leading minor of a is not positive in the precision.
    """
    lower = np.zeros(a.shape, np.float32)
    for k in range(0, len(a), panel):
        rows, below = slice(k, k + panel), slice(k + panel, None)
        known = product(lower[k:, :k].T, lower[rows, :k].T) if k else 0.0
        rest = a[k:, rows] - known
        try:
            lower[rows, rows] = factorise(rest[:panel])
        except NotPositiveDefinite as error:
            raise NotPositiveDefinite(k + error.minor, len(a)) from None
        if k + panel < len(a):
            lower[below, rows] = solve_block(lower[rows, rows], rest[panel:].T).T
    return lower
