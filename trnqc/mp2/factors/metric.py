"""The Coulomb metric J = (P|Q): factorised once, then divided out of three-index integrals, in fp64.

With the Cholesky factor J = L L^T, the factors are B[ia, Q] = sum_P (ia|P) (L^-T)[P, Q]. Where J is too close to
singular for that, they are B[ia, Q] = sum_P (ia|P) U[P, Q] w_Q^-1/2 over the eigenvalues of J = U w U^T that are kept.
Both give sum_Q B[ia, Q] B[jb, Q] = (ia|jb).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

# Reciprocal condition number of (P|Q) below which its Cholesky factor has no digits left.
RCOND_CHOLESKY = 1e-14
# Eigenvalues of (P|Q) up to this are dropped; PySCF's density-fitted MP2 drops the same.
EIGENVALUE_CUT = 1e-10
# Columns that are solved at once: inside a block by the inverse of its triangle, between blocks by a product.
_BLOCK = 256


@dataclass(frozen=True, eq=False)
class CholeskyMetric:
    """J = L L^T, with the inverses L[k, k]^-1 of the diagonal blocks, so that fitting consists of products only."""

    lower: np.ndarray
    inverse_diagonal: tuple[np.ndarray, ...]
    note: str = "Cholesky"

    @property
    def naux(self) -> int:
        """Columns of the fitted factors."""
        return len(self.lower)

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """Turn rows[n, P] into rows[n, Q] in place, by forward substitution over blocks of columns."""
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
    """U w^-1/2 over the eigenvalues that are kept: [P, Q] with fewer columns than rows."""

    half_inverse: np.ndarray
    note: str

    @property
    def naux(self) -> int:
        """Columns of the fitted factors."""
        return self.half_inverse.shape[1]

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """Turn rows[n, P] in place into rows[n, Q], the first columns of `rows`; the caller cuts the rest off."""
        fitted = rows[:, : self.naux]
        fitted[...] = rows @ self.half_inverse
        return fitted

    def divide_from_right(self, rows: np.ndarray) -> np.ndarray:
        """Return Σ_Q rows[n, Q] w_Q^-1/2 U[P, Q], the transpose of `fit`; the result has more columns than `rows`."""
        return rows @ self.half_inverse.T


Metric = CholeskyMetric | EigenMetric


def factorise(metric: np.ndarray) -> Metric:
    """Factorise the symmetric matrix metric[P, Q].

    By Cholesky, unless that fails or the reciprocal condition number is below RCOND_CHOLESKY; then by eigenvalues, of
    which `note` says how many were dropped.
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
