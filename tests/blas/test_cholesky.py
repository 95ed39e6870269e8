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


def test_bad_input_has_one_clear_error():
    with pytest.raises(InputError, match=r"a must be square; found \[3, 4\]"):
        blas.cholesky(np.ones((3, 4)))
    with pytest.raises(InputError, match="a must have finite elements"):
        blas.cholesky(np.diag([1.0, np.inf]))
