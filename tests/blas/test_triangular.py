"""Triangular systems against NumPy on the CPU and on the simulator, and bad input."""

from __future__ import annotations

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc import blas
from trnqc.blas import triangular
from trnqc.errors import InputError

# Residuals relative to |a| |x|: those of the products, and on a device those of the inverses of diagonal blocks.
RESIDUAL = {"fp64": 1e-14, "fp32": 2e-6, "bf16x3": 5e-5}
MACHINES = [("cpu", "fp64"), ("cpu", "fp32"), ("cpu", "bf16x3"), ("simulator", "fp32"), ("simulator", "bf16x3")]


def system(n, m, lower):
    """A matrix with a useful triangle, NaN in the other, and right-hand sides."""
    rng = np.random.default_rng([n, m])
    a = rng.standard_normal((n, n)) / n**0.5 + 2 * np.eye(n)
    triangle = np.tril if lower else np.triu
    return np.where(triangle(np.ones((n, n))) > 0, a, np.nan), rng.standard_normal((n, m))


def check(a, b, backend, precision, **options):
    lower, trans = options.get("lower", True), options.get("trans", False)
    left = options.get("side", "left") == "left"
    x = blas.trsm(a, b if left else b.T, backend=backend, precision=precision, **options)
    matrix = np.nan_to_num(a)
    if options.get("unit_diagonal"):
        matrix = matrix - np.diag(np.diag(matrix)) + np.eye(len(a))
    op = matrix.T if trans else matrix
    op = op if left else op.T
    x = x if left else x.T
    assert x.dtype == (np.float64 if precision == "fp64" else np.float32) and lower in (True, False)
    assert (abs(op @ x - b) <= RESIDUAL[precision] * (abs(op) @ abs(x) + abs(b))).all()


@pytest.mark.parametrize("backend, precision", MACHINES)
@pytest.mark.parametrize("lower, trans", list(itertools.product((True, False), repeat=2)))
def test_either_triangle_and_its_transpose(backend, precision, lower, trans):
    a, b = system(131, 5, lower)
    check(a, b, backend, precision, lower=lower, trans=trans)


@pytest.mark.parametrize("backend, precision", MACHINES)
def test_the_other_side_and_a_unit_diagonal(backend, precision):
    a, b = system(40, 7, True)
    check(a, b, backend, precision, side="right")
    np.fill_diagonal(a, np.nan)
    a = np.tril(np.nan_to_num(a) / 4, -1)
    check(a, b, backend, precision, side="right", trans=True, unit_diagonal=True)


@pytest.mark.parametrize("size", [(1, 1), (7, 13), (129, 1), (300, 3)], ids=str)
def test_sizes_on_the_simulator(size):
    check(*system(*size, True), "simulator", "fp32")


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 40), m=st.integers(1, 5), lower=st.booleans(), trans=st.booleans(), left=st.booleans())
def test_residuals_are_small(n, m, lower, trans, left):
    check(*system(n, m, lower), "cpu", "fp64", lower=lower, trans=trans, side="left" if left else "right")


def test_operands_stay_as_they_are():
    a, b = system(4, 2, True)
    before = a.copy(), b.copy()
    blas.trsm(a, b, unit_diagonal=True)
    np.testing.assert_array_equal(a, before[0])
    np.testing.assert_array_equal(b, before[1])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: blas.trsm(np.ones((3, 4)), np.ones((3, 1))), r"a must be square; found \[3, 4\]"),
        (lambda: blas.trsm(np.eye(3), np.ones((4, 1))), r"does not fit b \[4, 1\]"),
        (lambda: blas.trsm(np.eye(3), np.ones((3, 1)), side="up"), "side is 'left' or 'right'"),
        (lambda: blas.trsm(np.diag([1.0, 0.0]), np.ones((2, 1))), "a is singular: its diagonal element 1 is zero"),
        (lambda: blas.trsm(np.diag([np.inf, 1.0]), np.ones((2, 1))), "a must have finite elements"),
        (
            lambda: blas.trsm(np.eye(2) * 1e-30, np.ones((2, 1)) * 1e30, precision="fp32"),
            "the result of trsm overflows",
        ),
    ],
)
def test_bad_input_has_one_clear_error(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_examples_in_docstrings():
    result = doctest.testmod(triangular)
    assert result.attempted and not result.failed
