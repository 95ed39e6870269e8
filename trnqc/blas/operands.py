"""Checks of operands: real matrices whose shapes fit, with finite elements that the precision can represent."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from trnqc.arrays import host_array, is_tensor
from trnqc.errors import ArgumentError, InputError

# The largest finite number of each precision: that of bf16 parts is less than that of fp32, because the lowest bits
# of a number near the limit round up to infinity.
_LARGEST = {
    "fp64": float(np.finfo(np.float64).max),
    "fp32": float(np.finfo(np.float32).max),
    "bf16": float(ml_dtypes.finfo(ml_dtypes.bfloat16).max),
}


def shape_of(x: Any, name: str, stacked: bool = False) -> tuple[int, ...]:
    """The shape of a matrix, or of a stack of matrices.

    Raises
    ------
    InputError
        If it has another rank, or no elements.
    """
    shape = tuple(x.shape) if is_tensor(x) else np.shape(x)
    expected = "a stack of matrices [Z, rows, columns]" if stacked else "a matrix [rows, columns]"
    if len(shape) != (3 if stacked else 2):
        raise InputError(f"{name} must be {expected}; found the shape {shape}")
    if 0 in shape:
        raise InputError(f"{name} must be {expected} with at least one element; found the shape {shape}")
    return shape


def require(rule: bool, message: str) -> None:
    """Raise InputError if a rule about arguments is broken."""
    if not rule:
        raise InputError(message)


def scaled(alpha: Any, beta: Any, c: Any, shape: tuple[int, ...]) -> tuple[Any, float, float]:
    """c, alpha and beta of a result of a shape; c is None if beta is 0.

    Raises
    ------
    ArgumentError
        If alpha or beta is not a finite real number.
    InputError
        If there is no c for a beta, or if it has another shape.
    """
    alpha, beta = _scalar(alpha, "alpha"), _scalar(beta, "beta")
    if beta == 0.0:
        return None, alpha, beta
    require(c is not None, f"beta is {beta:g}, and there is no c that it multiplies")
    found = shape_of(c, "c", stacked=len(shape) == 3)
    require(found == tuple(shape), f"c must have the shape of the result, {list(shape)}; found {list(found)}")
    return c, alpha, beta


def _scalar(value: Any, name: str) -> float:
    if is_tensor(value) or not isinstance(value, int | float | np.integer | np.floating) or not math.isfinite(value):
        raise ArgumentError(f"{name} must be a finite real number, without a gradient; found {value!r}")
    return float(value)


def matrix(x: Any, name: str, precision: str) -> np.ndarray:
    """The NumPy array of an operand, with elements that are finite in a precision.

    Raises
    ------
    InputError
        If elements are no real numbers, or not finite, or too large for the precision.
    """
    array = host_array(x, name, "NumPy arrays have no gradients")
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise InputError(f"{name} must hold real numbers; found {array.dtype}")
    if array.dtype.kind in "iu" or array.dtype.name == "bfloat16":
        array = array.astype(np.float64)
    _require_finite(array, name)
    limit = _LARGEST.get(precision, _LARGEST["bf16"])
    largest = float(max(array.max(), -array.min()))
    if largest > limit:
        raise InputError(
            f"{name} overflows in {precision}: its largest element is {largest:.4g}, and the largest number is "
            f"{limit:.4g}. Scale the matrix, or take fp64"
        )
    return array


def _require_finite(array: np.ndarray, name: str) -> None:
    # A sum is finite if all terms are, unless it overflows, and it is faster than a look at every element.
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()):
            return
    wrong = np.argwhere(~np.isfinite(array))
    if len(wrong):
        place = ", ".join(map(str, wrong[0]))
        raise InputError(f"{name} must have finite elements; found {array[tuple(wrong[0])]} at [{place}]")


def require_diagonal(a: np.ndarray) -> None:
    """Raise InputError if a triangular matrix is singular, which means that there is a zero on its diagonal."""
    zeros = np.flatnonzero(np.diagonal(a) == 0.0)
    require(len(zeros) == 0, f"a is singular: its diagonal element {zeros[0] if len(zeros) else 0} is zero")


def result(array: np.ndarray, what: str) -> np.ndarray:
    """A result that has not overflowed.

    Raises
    ------
    InputError
        If it has.
    """
    with np.errstate(all="ignore"):
        if np.isfinite(array.sum()) or np.isfinite(array).all():
            return array
    raise InputError(f"the result of {what} overflows in {array.dtype}: scale the operands, or take fp64")
