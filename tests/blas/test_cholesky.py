"""Cholesky factorisation against NumPy on the CPU and on the simulator, and matrices that are not positive definite."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc import blas
from trnqc.errors import InputError, NotPositiveDefinite

# |l l.T - a| relative to |l| |l.T|.
RESIDUAL = {"fp64": 1e-14, "fp32": 2e-6, "bf16x3": 5e-5}
MACHINES = [("cpu", "fp64"), ("cpu", "fp32"), ("cpu", "bf16x3"), ("simulator", "fp32"), ("simulator", "bf16x3")]


def positive(n):
    x = np.random.default_rng(n).standard_normal((n, 2 * n))
    return x @ x.T / n


def check(a, backend, precision, lower):
    triangle = np.tril if lower else np.triu
    stored = np.where(triangle(np.ones(a.shape)) > 0, a, np.nan)
    factor = blas.cholesky(stored, lower=lower, backend=backend, precision=precision)
    assert factor.dtype == (np.float64 if precision == "fp64" else np.float32)
    np.testing.assert_array_equal(factor, triangle(factor))
    left = factor if lower else factor.T
    assert (abs(left @ left.T - a) <= RESIDUAL[precision] * (abs(left) @ abs(left).T)).all()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("backend, precision", MACHINES)
def test_either_triangle(backend, precision, lower):
    check(positive(131), backend, precision, lower)


@pytest.mark.parametrize("n", [1, 7, 128])
def test_sizes_on_the_simulator(n):
    check(positive(n), "simulator", "fp32", True)


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), lower=st.booleans())
def test_residuals_are_small(n, lower):
    check(positive(n), "cpu", "fp64", lower)


@pytest.mark.parametrize("minor", [1, 100, 130])
@pytest.mark.parametrize("backend, precision", MACHINES)
def test_the_first_minor_that_is_not_positive_is_named(backend, precision, minor):
    a = positive(131)
    a[minor - 1, minor - 1] = -1.0
    with pytest.raises(NotPositiveDefinite, match=f"leading minor of order {minor}, of 131") as raised:
        blas.cholesky(a, backend=backend, precision=precision)
    assert raised.value.minor == minor


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("graded", [False, True])
def test_ill_conditioned_matrices_on_the_simulator(condition, graded):
    """Residuals relative to the roots of the diagonal do not grow with the condition, or with the scale of rows."""
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((140, 140)))[0]
    a = (vectors * np.geomspace(1.0, 1.0 / condition, 140)) @ vectors.T
    scale = 10.0 ** rng.uniform(-6, 6, 140) if graded else np.ones(140)
    a = a * scale[:, None] * scale
    factor = blas.cholesky(a, backend="simulator", precision="fp32").astype(np.float64)
    root = np.sqrt(np.diag(a))
    assert abs((factor @ factor.T - a) / root[:, None] / root).max() < 5e-6


def test_a_matrix_that_is_singular_in_fp32_is_refused():
    """The eigenvalue 1e-9 of a matrix of ones is far below the rounding of its elements."""
    with pytest.raises(NotPositiveDefinite, match="of 128"):
        blas.cholesky(np.ones((128, 128)) + 1e-9 * np.eye(128), backend="simulator")


def test_bad_input_has_one_clear_error():
    with pytest.raises(InputError, match=r"a must be square; found \[3, 4\]"):
        blas.cholesky(np.ones((3, 4)))
    with pytest.raises(InputError, match="a must have finite elements"):
        blas.cholesky(np.diag([1.0, np.inf]))
