"""What every backend that has `blas` must do; a test module adds it to the contract of all backends."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.contract import BackendContract, magnitudes
from tests.tolerances import PRODUCT
from trnqc.errors import NotPositiveDefinite, UnsupportedPrecision


class BlasContract(BackendContract):
    """Collected through subclasses only."""

    @pytest.mark.parametrize("scaled", [False, True], ids=["product", "scaled and added"])
    def test_blas_products(self, precision, scaled):
        """One matrix, a stack of matrices, and one triangle of a product with its own transpose."""
        rng = np.random.default_rng(3)
        blas, error = self.backend.blas(precision), PRODUCT[precision]
        alpha, beta = (1.5, -0.5) if scaled else (1.0, 0.0)
        for shape in ((67, 19, 130), (2, 33, 129, 7)):
            *batch, k, m, n = shape
            a_t, b, c = (rng.standard_normal((*batch, *x)) for x in ((k, m), (k, n), (m, n)))
            result = blas.product(a_t, b, c if scaled else None, alpha, beta)
            exact = alpha * np.swapaxes(a_t, -1, -2) @ b + beta * c
            assert result.dtype == (np.float64 if precision == "fp64" else np.float32)
            assert np.all(abs(result - exact) <= error * (abs(alpha) * magnitudes(a_t, b) + abs(beta * c)))
        a_t, c = rng.standard_normal((67, 131)), rng.standard_normal((131, 131))
        result = np.tril(blas.triangle(a_t, c if scaled else None, alpha, beta))
        exact = np.tril(alpha * a_t.T @ a_t + beta * c)
        assert np.all(abs(result - exact) <= error * (abs(alpha) * magnitudes(a_t, a_t) + abs(beta * c)))

    @pytest.mark.parametrize("n", [1, 131])
    def test_blas_factors(self, precision, n):
        """A Cholesky factor, and the solution of its triangular system, by their residuals."""
        blas = self.backend.blas(precision)
        if precision == "bf16x15" and self.backend.name != "cpu":
            with pytest.raises(UnsupportedPrecision, match="rounds its results to parts of eight bits"):
                blas.cholesky(np.eye(n))
            return
        rng = np.random.default_rng(n)
        x, b = rng.standard_normal((n, 2 * n)), rng.standard_normal((n, 3))
        a = x @ x.T / n
        lower = np.asarray(blas.cholesky(a), np.float64)
        assert np.all(np.triu(lower, 1) == 0)
        # Both are sums of products and of a few roundings of their own results.
        assert np.all(abs(lower @ lower.T - a) <= 4 * PRODUCT[precision] * (abs(lower) @ abs(lower).T))
        solution = np.asarray(blas.solve(lower, b), np.float64)
        scale = abs(lower) @ abs(solution) + abs(b)
        assert np.all(abs(lower @ solution - b) <= 8 * PRODUCT[precision] * scale)

    def test_blas_names_the_minor_that_is_not_positive(self, precision):
        a = np.diag([*[1.0] * 129, -1.0, 1.0])
        if precision == "bf16x15" and self.backend.name != "cpu":
            pytest.skip("these backends have no factorisation in bf16x15")
        with pytest.raises(NotPositiveDefinite, match="leading minor of order 130, of 131"):
            self.backend.blas(precision).cholesky(a)
