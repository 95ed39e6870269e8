"""Both factorisations reproduce (ia|jb), whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.fitted.metric import LowerSolver, MetricFactor, factorise

CUT, RCOND = 1e-10, 1e-14


def factor_of(metric: np.ndarray) -> MetricFactor:
    return factorise(metric, CUT, RCOND, np.linalg.eigh)


def spd(n: int, seed: int = 3) -> np.ndarray:
    a = np.random.default_rng(seed).standard_normal((n, n + 3))
    return a @ a.T / n


@pytest.mark.parametrize("n", [1, 2, 255, 256, 257, 521])
def test_cholesky_solves_for_the_inverse(n):
    j = spd(n)
    metric = factor_of(j)
    assert metric.is_lower
    rows = np.random.default_rng(1).standard_normal((5, n))
    fitted = metric.fit_rows(rows.copy())
    exact = rows @ np.linalg.solve(j, rows.T)
    np.testing.assert_allclose(fitted @ fitted.T, exact, rtol=0, atol=1e-9 * np.abs(exact).max())


def test_fit_works_in_place():
    rows = np.random.default_rng(1).standard_normal((4, 300))
    assert np.shares_memory(factor_of(spd(300)).fit_rows(rows), rows)


def test_exact_dependence_falls_back_to_eigenvalues():
    """A doubled function adds nothing: the fit equals that without the copy."""
    j = spd(30)
    index = np.append(np.arange(30), 11)
    metric = factor_of(j[np.ix_(index, index)])
    assert not metric.is_lower
    assert metric.naux == 30
    assert "30 of 31 kept" in metric.note
    rows = np.random.default_rng(2).standard_normal((4, 30))
    fitted, plain = metric.fit_rows(rows[:, index].copy()), factor_of(j).fit_rows(rows.copy())
    np.testing.assert_allclose(fitted @ fitted.T, plain @ plain.T, rtol=1e-9)


def test_near_dependence_that_cholesky_would_pass_falls_back():
    j = np.diag([1.0, 1e-15])
    np.linalg.cholesky(j)
    metric = factor_of(j)
    assert not metric.is_lower
    assert metric.naux == 1
    assert f"{CUT:g}" in metric.note


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("shape", [(1,), (70,), (3, 0), (5, 4, 3)], ids=str)
def test_columns_are_fitted_as_rows_are(shape, dependent):
    """Both give M, and both ways back together give the inverse of the metric."""
    index = [*range(90), 17] if dependent else [*range(90)]
    metric = factor_of(spd(90)[np.ix_(index, index)])
    integrals = np.random.default_rng(4).standard_normal((90, *shape))[index]
    flat = integrals.reshape(len(index), -1) if integrals.size else np.zeros((len(index), 0))
    fitted = metric.fit(integrals.copy(), 32, 2)
    assert (metric.nfit, metric.naux, fitted.shape) == (len(index), 90, (90, *shape))
    by_rows = metric.fit_rows(flat.T.copy())
    np.testing.assert_allclose(fitted.reshape(90, flat.shape[1]), by_rows.T, rtol=0, atol=1e-10)
    solved = metric.expand(fitted.copy(), 32, 2).reshape(flat.shape)
    np.testing.assert_allclose(spd(90)[np.ix_(index, index)] @ solved, flat, rtol=0, atol=1e-9)
    np.testing.assert_allclose(metric.expand_rows(by_rows.copy()).T, solved, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("columns", ["", "0", "29", "0 3 6 9", "0 1 2 11 12 20 27 28 29", "5 6 7 8"])
def test_columns_without_integrals_are_left_out(columns, dependent):
    filled = np.isin(np.arange(30), np.array(columns.split(), int))
    index = np.arange(40) % (20 if dependent else 40)
    metric = factor_of(spd(40)[np.ix_(index, index)])
    integrals = np.random.default_rng(5).standard_normal((40, 30)) * filled
    fitted = integrals.copy()
    metric.fit_columns(fitted)
    complete = integrals.copy()
    metric._fit(complete)
    np.testing.assert_allclose(fitted[: metric.naux], complete[: metric.naux], rtol=0, atol=1e-12)
    assert not fitted[: metric.naux, ~filled].any()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 129, 600])
def test_triangular_solution_by_blocks(n):
    rng = np.random.default_rng(n)
    lower = np.tril(rng.standard_normal((n, n))) / n + 2 * np.eye(n)
    rows = rng.standard_normal((n, 7))
    solved = rows.copy()
    LowerSolver.of(lower).solve(solved)
    np.testing.assert_allclose(lower @ solved, rows, rtol=0, atol=1e-12)
