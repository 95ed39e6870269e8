"""What goes wrong, for all functions of trnqc.blas alike: one clear error each."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc import blas
from trnqc.backends.neuron.backend import Neuron
from trnqc.errors import BackendUnavailable, InputError, UnsupportedPrecision

MATRIX = np.eye(3) + 0.1
# Calls with a matrix `a`, of which the element [1, 0] is read, and options.
CALLS = {
    "gemm": lambda a, **options: blas.gemm(a, MATRIX, **options),
    "batched_gemm": lambda a, **options: blas.batched_gemm(a[None], MATRIX[None], **options),
    "symm": lambda a, **options: blas.symm(a, MATRIX, **options),
    "syrk": lambda a, **options: blas.syrk(a, **options),
    "trsm": lambda a, **options: blas.trsm(a, MATRIX, **options),
    "cholesky": lambda a, **options: blas.cholesky(a, **options),
}
MACHINES = [("cpu", "fp64"), ("simulator", "fp32"), ("simulator", "bf16x3")]

every_function = pytest.mark.parametrize("function", CALLS)


def spoiled(value):
    a = MATRIX.copy()
    a[1, 0] = value
    return a


@every_function
@pytest.mark.parametrize("backend, precision", MACHINES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_elements_that_are_not_finite(function, backend, precision, value):
    with pytest.raises(InputError, match=rf"a must have finite elements; found {value} at \[.*1, 0\]"):
        CALLS[function](spoiled(value), backend=backend, precision=precision)


@every_function
@pytest.mark.parametrize("precision", ["bf16", "bf16x3"])
def test_numbers_that_bf16_cannot_hold(function, precision):
    """3.4e38 is a finite number in fp32, and rounds to infinity in bf16."""
    with pytest.raises(InputError, match=f"a overflows in {precision}: its largest element is 3.4e"):
        CALLS[function](spoiled(3.4e38), backend="simulator", precision=precision)


@pytest.mark.parametrize("function", ["gemm", "batched_gemm", "symm", "syrk"])
def test_products_that_overflow(function):
    """Both operands fit fp32, and the result does not."""
    with pytest.raises(InputError, match=r"the result of \w+ overflows in float32"):
        CALLS[function](spoiled(3e38), alpha=100.0, backend="cpu", precision="fp32")


def test_solutions_that_overflow():
    with pytest.raises(InputError, match="the result of trsm overflows in float32"):
        blas.trsm(1e-30 * MATRIX, 1e30 * MATRIX, backend="cpu", precision="fp32")


@every_function
def test_precisions_that_a_backend_does_not_have(function):
    with pytest.raises(UnsupportedPrecision, match="precision 'fp64' was asked for"):
        CALLS[function](MATRIX, backend="simulator", precision="fp64")
    with pytest.raises(InputError, match=r"precision is one of .*; found 'fp16'"):
        CALLS[function](MATRIX, precision="fp16")


@every_function
@pytest.mark.skipif(Neuron().status().usable, reason="needs a machine without Trainium")
def test_machines_without_a_device(function):
    with pytest.raises(BackendUnavailable, match="backend 'neuron' cannot run here: "):
        CALLS[function](MATRIX, backend="neuron", precision="fp32")


@every_function
def test_arguments_that_are_no_matrices(function):
    with pytest.raises(InputError, match=r"must be a (matrix|stack of matrices) \["):
        CALLS[function](np.ones(3))
    with pytest.raises(InputError, match="must hold real numbers; found complex128"):
        CALLS[function](MATRIX * 1j)
