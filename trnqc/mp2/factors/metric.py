"""Factorisation of the Coulomb metric J = (P|Q), and the fit of three-index integrals with it, in fp64.

With the Cholesky factor J = L L^T, the factors are B[ia, Q] = sum_P (ia|P) (L^-T)[P, Q]. If J is too close to singular,
they are B[ia, Q] = sum_P (ia|P) U[P, Q] w_Q^-1/2 over the eigenvalues of J = U w U^T that are large enough. Both
satisfy sum_Q B[ia, Q] B[jb, Q] = (ia|jb).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

# Reciprocal condition number of (P|Q) below which the Cholesky factor is not accurate, because it comes close to the
# rounding of fp64, 1.1e-16.
RCOND_CHOLESKY = 1e-14
# Eigenvalues of (P|Q) in Hartree up to which functions are dropped: the threshold of PySCF's density-fitted MP2.
EIGENVALUE_CUT = 1e-10
# Columns in a block of the forward substitution. Blocks are solved with the inverse of their triangle, and eliminated
# from later blocks by a matrix product.
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class CholeskyMetric:
    """J = L L^T, with the inverses L[k, k]^-1 of the diagonal blocks, so that a fit needs matrix products only."""

    lower: np.ndarray
    inverse_diagonal: tuple[np.ndarray, ...]
    note: str = "Cholesky"

    @property
    def naux(self) -> int:
        """Number of columns of the fitted factors."""
        return len(self.lower)

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """Replace rows[n, P] by rows[n, Q] by forward substitution over blocks of columns, and return them."""
        for k, inverse in enumerate(self.inverse_diagonal):
            block = slice(k * _BLOCK, k * _BLOCK + len(inverse))
            right = rows[:, block]
            if k:
                right = right - rows[:, : block.start] @ self.lower[block, : block.start].T
            rows[:, block] = right @ inverse.T
        return rows

    def divide_from_right(self, rows: np.ndarray) -> np.ndarray:
        """Return rows[n, Q] L^-1[Q, P], the transpose of `fit`, in the memory of C-contiguous rows."""
        # x L = rows is L^T x^T = rows^T, whose matrices BLAS sees in column order.
        return scipy.linalg.blas.dtrsm(1.0, self.lower.T, rows.T, side=0, lower=0, overwrite_b=1).T


@dataclass(frozen=True, eq=False)
class EigenMetric:
    """U w^-1/2 [P, Q] over the eigenvalues that are kept; Q has a smaller range than P."""

    half_inverse: np.ndarray
    note: str

    @property
    def naux(self) -> int:
        """Number of columns of the fitted factors."""
        return self.half_inverse.shape[1]

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """Write rows[n, Q] to the first columns of rows[n, P], and return these columns."""
        fitted = rows[:, : self.naux]
        fitted[...] = rows @ self.half_inverse
        return fitted

    def divide_from_right(self, rows: np.ndarray) -> np.ndarray:
        """Return Σ_Q rows[n, Q] w_Q^-1/2 U[P, Q], the transpose of `fit`; the result has more columns than `rows`."""
        return rows @ self.half_inverse.T


Metric = CholeskyMetric | EigenMetric


def factorise(metric: np.ndarray) -> Metric:
    """Factorise the symmetric matrix metric[P, Q].

    The factorisation is that of Cholesky, unless it fails or the reciprocal condition number is below RCOND_CHOLESKY.
    In these cases it consists of eigenvalues, and `note` says how many were dropped.
    """
    try:
        lower = scipy.linalg.cholesky(metric, lower=True)
    except scipy.linalg.LinAlgError:
        return _by_eigenvalues(metric)
    rcond, _ = scipy.linalg.lapack.dpocon(lower, anorm=np.abs(metric).sum(axis=0).max(), uplo="L")
    if rcond < RCOND_CHOLESKY:
        return _by_eigenvalues(metric)
    lower = np.ascontiguousarray(lower)
    starts = range(0, len(lower), _BLOCK)
    diagonal = (lower[k : k + _BLOCK, k : k + _BLOCK] for k in starts)
    inverses = tuple(scipy.linalg.solve_triangular(block, np.eye(len(block)), lower=True) for block in diagonal)
    return CholeskyMetric(lower, inverses)


def _by_eigenvalues(metric: np.ndarray) -> EigenMetric:
    w, u = np.linalg.eigh(metric)
    keep = w > EIGENVALUE_CUT
    note = f"eigenvalues: {keep.sum()} of {len(w)} kept, those up to {EIGENVALUE_CUT:g} dropped as linearly dependent"
    return EigenMetric(u[:, keep] / np.sqrt(w[keep]), note)
