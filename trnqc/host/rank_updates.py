"""Products that SciPy's BLAS adds to matrices in place, without the interpreter's lock, so that threads run together.

SciPy's own functions for these routines keep the lock. It publishes their addresses for Cython, which are used here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

# The first letter of the routines by type.
LETTERS = {np.dtype(np.float64): ("d", ctypes.c_double), np.dtype(np.float32): ("s", ctypes.c_float)}


@cache
def _routine(name: str, arguments: int) -> Callable[..., None]:
    """Return a routine of BLAS that takes addresses only."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name]
    title, address = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    title.restype, title.argtypes = ctypes.c_char_p, [ctypes.py_object]
    address.restype, address.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address(capsule, title(capsule)))


def add_product(c: np.ndarray, a: np.ndarray, factor: float = 1.0) -> None:
    """Add factor a a^T to the lower triangle of c.

    Parameters
    ----------
    c : ndarray [n, n]
        The sum. Its upper triangle is neither read nor written.
    a : ndarray [n, k]
        The rows. Both arrays are C-contiguous, of the same type, f64 or f32.
    factor : float
        The factor.
    """
    n, k = a.shape
    if n and k:
        letter, real = LETTERS[c.dtype]
        add, rows = _routine(f"{letter}syrk", 10), (_at(a), _by(_int, k))
        add(*_head(n, k), _by(real, factor), *rows, _one(real), _at(c), _by(_int, n))


def add_gram_matrix(c: np.ndarray, a: np.ndarray) -> None:
    """Add a^T a to the lower triangle of c [n, n], for the columns of a [k, n]; see `add_product`."""
    k, n = a.shape
    if n and k:
        letter, real = LETTERS[c.dtype]
        sizes, columns = (_by(_int, n), _by(_int, k)), (_at(a), _by(_int, n))
        _routine(f"{letter}syrk", 10)(b"U", b"N", *sizes, _one(real), *columns, _one(real), _at(c), _by(_int, n))


def add_products(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Add a b^T + b a^T to the lower triangle of c; see `add_product`."""
    n, k = a.shape
    if n and k:
        letter, real = LETTERS[c.dtype]
        rows = _at(a), _by(_int, k), _at(b), _by(_int, k)
        _routine(f"{letter}syr2k", 12)(*_head(n, k), _one(real), *rows, _one(real), _at(c), _by(_int, n))


def add_general_product(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Add a b to c.

    Parameters
    ----------
    c : ndarray [m, n]
        The sum. The elements of a row are consecutive in memory.
    a, b : ndarray [m, k], [k, n]
        The factors, of the type of c, f64 or f32. The elements of a row, or those of a column, are consecutive in
        memory, so that blocks of larger matrices and their transposes are not copied.
    """
    (m, k), n = a.shape, b.shape[1]
    if m and n and k:
        letter, real = LETTERS[c.dtype]
        # Fortran reads arrays in C order transposed: c^T = b^T a^T.
        (flag_b, step_b), (flag_a, step_a) = _layout(b), _layout(a)
        sizes = (_by(_int, n), _by(_int, m), _by(_int, k))
        factors = _at(b), _by(_int, step_b), _at(a), _by(_int, step_a)
        result = _at(c), _by(_int, _layout(c)[1])
        _routine(f"{letter}gemm", 13)(flag_b, flag_a, *sizes, _one(real), *factors, _one(real), *result)


def _layout(matrix: np.ndarray) -> tuple[bytes, int]:
    """Return whether BLAS has to transpose a matrix that it reads as a transposed one, and the distance of its rows.

    NumPy gives an axis of one element any stride, which BLAS would refuse.
    """
    (rows, columns), steps = matrix.shape, [step // matrix.itemsize for step in matrix.strides]
    if steps[1] == 1 or columns == 1:
        return b"N", max(steps[0], columns) if rows > 1 else columns
    return b"T", max(steps[1], rows)


_int = ctypes.c_int


def _head(n: int, k: int) -> tuple[Any, ...]:
    """Return the first arguments. Fortran reads an array in C order transposed: its lower triangle is the upper one."""
    return b"U", b"T", _by(_int, n), _by(_int, k)


def _by(kind: Any, value: float) -> Any:
    return ctypes.byref(kind(value))


def _one(kind: Any) -> Any:
    return _by(kind, 1)


def _at(array: np.ndarray) -> int:
    return array.ctypes.data
