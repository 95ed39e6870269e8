"""Both factorisations reproduce (ia|jb), whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.mp2.factors.metric import EIGENVALUE_CUT, CholeskyMetric, EigenMetric, factorise


def spd(n: int, seed: int = 3) -> np.ndarray:
    a = np.random.default_rng(seed).standard_normal((n, n + 3))
    return a @ a.T / n


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 521])
def test_cholesky_solves_for_the_inverse(n):
    j = spd(n)
    metric = factorise(j)
    assert isinstance(metric, CholeskyMetric)
    rows = np.random.default_rng(1).standard_normal((5, n))
    fitted = metric.fit(rows.copy())
    exact = rows @ np.linalg.solve(j, rows.T)
    np.testing.assert_allclose(fitted @ fitted.T, exact, rtol=0, atol=1e-9 * np.abs(exact).max())


def test_fit_works_in_place():
    rows = np.random.default_rng(1).standard_normal((4, 300))
    assert np.shares_memory(factorise(spd(300)).fit(rows), rows)


def test_exact_dependence_falls_back_to_eigenvalues():
    """A doubled function adds nothing: the fit equals that without the copy."""
    j = spd(30)
    index = np.append(np.arange(30), 11)
    metric = factorise(j[np.ix_(index, index)])
    assert isinstance(metric, EigenMetric)
    assert metric.naux == 30
    assert "30 of 31 kept" in metric.note
    rows = np.random.default_rng(2).standard_normal((4, 30))
    fitted, plain = metric.fit(rows[:, index].copy()), factorise(j).fit(rows.copy())
    np.testing.assert_allclose(fitted @ fitted.T, plain @ plain.T, rtol=1e-9)


def test_near_dependence_that_cholesky_would_pass_falls_back():
    j = np.diag([1.0, 1e-15])
    np.linalg.cholesky(j)
    metric = factorise(j)
    assert isinstance(metric, EigenMetric)
    assert metric.naux == 1
    assert f"{EIGENVALUE_CUT:g}" in metric.note
