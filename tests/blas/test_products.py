"""Products against NumPy on the CPU and on the simulator, bad input, and properties on the CPU."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import PRODUCT
from trnqc import blas
from trnqc.backends import statuses
from trnqc.errors import ArgumentError, BackendUnavailable, InputError, UnsupportedPrecision

MACHINES = [("cpu", "fp64"), ("cpu", "fp32"), ("cpu", "bf16x3"), ("simulator", "fp32"), ("simulator", "bf16x3")]
SIZES = [(1, 1, 1), (7, 13, 5), (129, 3, 131)]


def random(*shape, seed=0):
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def close(actual, expected, magnitude, precision):
    """Errors relative to the sum of the magnitudes of the terms; c and the result are rounded besides."""
    assert actual.dtype == (np.float64 if precision == "fp64" else np.float32)
    assert (abs(actual - expected) <= PRODUCT[precision] * magnitude).all()


@pytest.mark.parametrize("trans_a, trans_b", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize("backend, precision", MACHINES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gemm(size, backend, precision, trans_a, trans_b):
    M, N, K = size
    a, b, c = random(M, K), random(K, N, seed=1), random(M, N, seed=2)
    result = blas.gemm(
        a.T if trans_a else a, b.T if trans_b else b, alpha=1.5, beta=-0.5, c=c, trans_a=trans_a, trans_b=trans_b,
        backend=backend, precision=precision,
    )  # fmt: skip
    close(result, 1.5 * a @ b - 0.5 * c, 1.5 * abs(a) @ abs(b) + abs(c), precision)


@pytest.mark.parametrize("backend, precision", MACHINES)
def test_batched_gemm(backend, precision):
    a, b, c = random(5, 7, 30), random(5, 3, 30, seed=1), random(5, 7, 3)
    result = blas.batched_gemm(a, b, c=c, beta=2.0, trans_b=True, backend=backend, precision=precision)
    b = b.swapaxes(1, 2)
    close(result, a @ b + 2 * c, abs(a) @ abs(b) + 2 * abs(c), precision)


def triangle(x, lower):
    return np.tril(x) if lower else np.triu(x)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("backend, precision", MACHINES)
def test_symm_reads_one_triangle(backend, precision, lower):
    n = 130
    stored = triangle(random(n, n), lower)
    s = stored + stored.T - np.diag(np.diag(stored))
    half = np.where(triangle(np.ones((n, n)), lower) > 0, s, np.nan)
    b, c = random(n, 3), random(n, 3, seed=1)
    options = {"lower": lower, "backend": backend, "precision": precision}
    close(blas.symm(half, b, c=c, beta=1.0, **options), s @ b + c, abs(s) @ abs(b) + abs(c), precision)
    close(blas.symm(half, b.T, side="right", alpha=-1.0, **options), -b.T @ s, abs(b.T) @ abs(s), precision)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("trans", [True, False])
@pytest.mark.parametrize("backend, precision", MACHINES)
def test_syrk_computes_one_triangle(backend, precision, trans, lower):
    n, k = 131, 9
    a = random(n, k)
    c = np.where(triangle(np.ones((n, n)), lower) > 0, random(n, n), np.nan)
    result = blas.syrk(
        a.T if trans else a, alpha=2.0, beta=0.5, c=c, trans=trans, lower=lower, backend=backend, precision=precision
    )
    c = np.where(np.isnan(c), 0.0, c)
    close(result, triangle(2 * a @ a.T, lower) + 0.5 * c, triangle(2 * abs(a) @ abs(a.T), lower) + abs(c), precision)


def test_operands_stay_as_they_are():
    a, c = random(4, 4), random(4, 4, seed=1)
    before = a.copy(), c.copy()
    for run in (blas.gemm, blas.symm):
        run(a, a, c=c, beta=1.0)
    blas.syrk(a, c=c, beta=1.0)
    np.testing.assert_array_equal((a, c), before)


def test_views_integers_and_lists_are_operands():
    a = random(8, 6)[::2, ::-1]
    np.testing.assert_allclose(blas.gemm(a, a, trans_b=True), a @ a.T, rtol=1e-14)
    np.testing.assert_array_equal(blas.gemm([[1, 2]], [[3], [4]]), [[11.0]])


def test_c_is_not_read_without_beta():
    np.testing.assert_array_equal(blas.gemm(np.eye(2), np.eye(2), c=np.full((9, 9), np.nan)), np.eye(2))


A = np.ones((3, 4))
WRONG = [
    (lambda: blas.gemm(A, A), InputError, r"op\(a\) \[3, 4\] and op\(b\) \[3, 4\] do not fit"),
    (lambda: blas.gemm(A, A[:0].T), InputError, r"b must be .* at least one element; found the shape \(4, 0\)"),
    (lambda: blas.gemm(A[0], A), InputError, r"a must be a matrix .*found the shape \(4,\)"),
    (lambda: blas.batched_gemm(A, A), InputError, "a must be a stack of matrices"),
    (lambda: blas.batched_gemm(np.ones((2, 3, 4)), np.ones((3, 4, 5))), InputError, "same number of matrices"),
    (lambda: blas.symm(A, A), InputError, r"a must be square; found \[3, 4\]"),
    (lambda: blas.symm(np.eye(4), A), InputError, r"a \[4, 4\] on the left of b \[3, 4\]"),
    (lambda: blas.symm(np.eye(3), A, side="top"), InputError, "side is 'left' or 'right'; found 'top'"),
    (lambda: blas.gemm(A * np.nan, A.T), InputError, r"a must have finite elements; found nan at \[0, 0\]"),
    (lambda: blas.gemm(A, A.T * np.inf), InputError, "b must have finite elements; found inf"),
    (lambda: blas.gemm(A * 3.4e38, A.T, precision="bf16"), InputError, r"a overflows in bf16: .* 3.4e\+38, .* 3.39e"),
    (lambda: blas.gemm(A * 1e39, A.T, precision="fp32"), InputError, "a overflows in fp32"),
    (lambda: blas.gemm(A * 1e30, A.T * 1e30, precision="fp32"), InputError, "the result of gemm overflows in float32"),
    (lambda: blas.gemm(A + 1j, A.T), InputError, "a must hold real numbers; found complex128"),
    (lambda: blas.gemm(A, A.T, beta=1.0), InputError, "there is no c"),
    (lambda: blas.gemm(A, A.T, beta=1.0, c=A), InputError, r"shape of the result, \[3, 3\]; found \[3, 4\]"),
    (lambda: blas.gemm(A, A.T, alpha="2"), ArgumentError, "alpha must be a finite real number.*found '2'"),
    (lambda: blas.gemm(A, A.T, beta=np.nan, c=A), ArgumentError, "beta must be a finite real number"),
    (lambda: blas.gemm(A, A.T, precision="fp16"), InputError, "precision is one of .*; found 'fp16'"),
    (lambda: blas.gemm(A, A.T, precision="fp32", target_error=1.0), InputError, "found both"),
    (lambda: blas.gemm(A, A.T, target_error=-1.0), InputError, "target_error is a positive number"),
    (lambda: blas.gemm(A, A.T, backend="tpu"), InputError, "no backend is called 'tpu'"),
    (lambda: blas.gemm(A, A.T, backend="simulator", precision="fp64"), UnsupportedPrecision, "'fp64' was asked for"),
    (lambda: blas.gemm(A, A.T, backend="simulator", target_error=1e-9), UnsupportedPrecision, "its best is fp32"),
]


@pytest.mark.skipif(statuses()["cuda"].usable, reason="there is a GPU")
def test_without_a_gpu_the_reason_is_told():
    with pytest.raises(BackendUnavailable, match="cuda"):
        blas.gemm(A, A.T, backend="cuda")


@pytest.mark.parametrize("call, error, message", WRONG, ids=[message[:40] for *_, message in WRONG])
def test_bad_input_has_one_clear_error(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("target_error, precision", [(0.1, "bf16"), (1e-4, "bf16x3"), (1e-5, "fp32"), (1e-12, "fp64")])
def test_the_cheapest_precision_that_meets_an_error_is_taken(target_error, precision):
    assert blas.choose("cpu", target_error=target_error).precision == precision
    assert blas.promised_error(precision) <= target_error


@settings(max_examples=25, deadline=None)
@given(
    size=st.tuples(*[st.integers(1, 40)] * 3),
    precision=st.sampled_from(["bf16", "bf16x3", "fp32", "fp64"]),
    scale=st.floats(1e-3, 1e3),
)
def test_promises_hold(size, precision, scale):
    M, N, K = size
    a, b = random(M, K) * scale, random(K, N, seed=1)
    error = abs(blas.gemm(a, b, precision=precision) - a @ b)
    assert (error <= blas.promised_error(precision) * (abs(a) @ abs(b))).all()


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 30), k=st.integers(1, 30), lower=st.booleans())
def test_syrk_and_symm_agree_with_gemm(n, k, lower):
    a, b = random(n, k), random(n, 3)
    half = blas.syrk(a, lower=lower)
    full = blas.gemm(a, a, trans_b=True)
    np.testing.assert_allclose(half, triangle(full, lower), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(blas.symm(half, b, lower=lower), full @ b, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", ["choice", "products"])
def test_examples_in_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"trnqc.blas.{name}"))
    assert result.attempted and not result.failed
