"""The interface of dense linear algebra on a backend, in the form that kernels have; `trnqc.blas` is that of users."""

from __future__ import annotations

from typing import Any, Protocol


class BackendBlas(Protocol):
    """Products of real matrices in one precision, which `Backend.blas` returns.

    Arrays are NumPy arrays, or the tensors of a device. Their shapes fit, and their elements are finite. Results are
    fp64 for the precision fp64, else fp32.
    """

    def product(self, a_t: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        """alpha a_t.T @ b + beta c of a_t[K, M], b[K, N] and c[M, N], or of stacks of them; c is None if beta is 0."""
        ...

    def triangle(self, a_t: Any, c: Any, alpha: float, beta: float) -> Any:
        """alpha a_t.T @ a_t + beta c of a_t[K, n] and c[n, n]. Elements above the diagonal are undefined."""
        ...

    def solve(self, l: Any, b: Any) -> Any:
        """The solution X of l X = b, for l[n, n] with zeros above its diagonal and none on it, and b[n, m]."""
        ...

    def cholesky(self, a: Any) -> Any:
        """The lower triangular l with l l.T = a, zero above its diagonal, of a symmetric a[n, n].

        Raises
        ------
        NotPositiveDefinite
            If a leading minor is not positive in the precision.
        """
        ...
