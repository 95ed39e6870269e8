"""Dense linear algebra on the CPU: the BLAS of SciPy, or products of rounded operands that emulate a tensor engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack, solve_triangular

from trnqc.backends import panels
from trnqc.backends.cpu.formats import FORMATS, encode
from trnqc.errors import NotPositiveDefinite

# Rows of a block of a triangular system in an emulated precision: those of one tile of a tensor engine.
PANEL = 128


@dataclass(frozen=True)
class CpuBlas:
    """See `trnqc.backends.blas.BackendBlas`. Operands in bf16 and its splits are rounded as by a tensor engine."""

    precision: str

    def product(self, a_t: Any, b: Any, c: Any, alpha: float, beta: float) -> np.ndarray:
        total = alpha * np.matmul(*self._factors(a_t, b))
        return np.asarray(total if c is None else total + beta * self._like(c), self._dtype)

    def triangle(self, a_t: Any, c: Any, alpha: float, beta: float) -> np.ndarray:
        if self.precision not in ("fp64", "fp32"):
            return self.product(a_t, a_t, c, alpha, beta)
        syrk = blas.dsyrk if self.precision == "fp64" else blas.ssyrk
        # A C-contiguous a_t [K, n] is [n, K] in the order of Fortran, which BLAS expects, and c.T is c with the
        # triangles exchanged: BLAS computes the upper triangle of the transpose.
        rows: np.ndarray = np.ascontiguousarray(a_t, self._dtype).T
        previous: np.ndarray | None = None if c is None else np.ascontiguousarray(c, self._dtype).T
        return np.asarray(syrk(alpha, rows, beta=beta, c=previous, lower=0).T)

    def solve(self, l: Any, b: Any) -> np.ndarray:
        if self.precision in ("fp64", "fp32"):
            return self._solve(l, b)
        return panels.solve(l, b, PANEL, self._plain, self._solve)

    def cholesky(self, a: Any) -> np.ndarray:
        if self.precision in ("fp64", "fp32"):
            return self._cholesky(a)
        return panels.cholesky(a, PANEL, self._plain, self._solve, self._cholesky)

    def _plain(self, a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self.product(a_t, b, None, 1.0, 0.0)

    def _cholesky(self, a: np.ndarray) -> np.ndarray:
        factorise = lapack.dpotrf if self.precision == "fp64" else lapack.spotrf
        lower, minor = factorise(self._like(a), lower=1, clean=1)
        if minor > 0:
            raise NotPositiveDefinite(minor, len(a))
        return np.asarray(lower)

    def _solve(self, l: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(solve_triangular(self._like(l), self._like(b), lower=True, check_finite=False))

    @property
    def _dtype(self) -> type:
        return FORMATS[self.precision].dtype

    def _like(self, c: np.ndarray) -> np.ndarray:
        return np.asarray(c, self._dtype)

    def _factors(self, a_t: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both operands as factors of a product: [M, K'] and [K', N], where K' has the parts of a split."""
        form = FORMATS[self.precision]
        left, right = (encode(np.swapaxes(x, -1, -2), self.precision) for x in (a_t, b))
        return form.left_of(left), np.swapaxes(form.right_of(right), -1, -2)
