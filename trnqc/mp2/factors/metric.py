"""The Coulomb metric (P|Q): factorised once, then divided out of three-index integrals, in fp64.

With J = L L^T the factors are B[ia, Q] = sum_P (ia|P) (L^-T)[P, Q]; where J has no usable Cholesky factor, with
J = U w U^T the factors are B[ia, Q] = sum_P (ia|P) U[P, Q] w_Q^-1/2 over the eigenvalues that are kept. Both give
sum_Q B[ia, Q] B[jb, Q] = (ia|jb).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

RCOND_CHOLESKY = 1e-14
"""Reciprocal condition number of (P|Q) below which its Cholesky factor has no digits left."""

EIGENVALUE_CUT = 1e-10
"""Eigenvalues of (P|Q) up to this are dropped in the fallback; the cut of PySCF's density-fitted MP2."""

_BLOCK = 256


@dataclass(frozen=True, eq=False)
class CholeskyMetric:
    """J = L L^T. ``inverse_diagonal`` holds L[k, k]^-1 by diagonal block of 256, so that fitting is GEMM throughout."""

    lower: np.ndarray
    inverse_diagonal: tuple[np.ndarray, ...]
    note: str = "Cholesky"

    @property
    def naux(self) -> int:
        """Columns of the fitted factors."""
        return len(self.lower)

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """rows[n, P] -> rows[n, Q], in place, by forward substitution over blocks of columns."""
        for k, inverse in enumerate(self.inverse_diagonal):
            block = slice(k * _BLOCK, k * _BLOCK + len(inverse))
            right = rows[:, block]
            if k:
                right = right - rows[:, : block.start] @ self.lower[block, : block.start].T
            rows[:, block] = right @ inverse.T
        return rows


@dataclass(frozen=True, eq=False)
class EigenMetric:
    """U w^-1/2 over the kept eigenvalues, [P, Q] with fewer columns than rows."""

    half_inverse: np.ndarray
    note: str

    @property
    def naux(self) -> int:
        """Columns of the fitted factors."""
        return self.half_inverse.shape[1]

    def fit(self, rows: np.ndarray) -> np.ndarray:
        """rows[n, P] -> the first Q columns of rows, in place; the caller cuts the rest off."""
        fitted = rows[:, : self.naux]
        fitted[...] = rows @ self.half_inverse
        return fitted


def factorise(metric: np.ndarray) -> CholeskyMetric | EigenMetric:
    """Factorise metric[P, Q] (symmetric, fp64).

    Cholesky unless it fails or the reciprocal condition number is below RCOND_CHOLESKY: then by eigenvalues, where
    those not above EIGENVALUE_CUT are dropped and counted in ``note``.
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
