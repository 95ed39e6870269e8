"""Cholesky factorisation, and triangular systems of equations."""

from __future__ import annotations

from typing import Any

from trnqc.blas.calls import Asked, BlasCall
from trnqc.blas.dispatch import run
from trnqc.blas.operands import require, shape_of


def trsm(
    a: Any,
    b: Any,
    *,
    lower: bool = True,
    trans: bool = False,
    unit_diagonal: bool = False,
    side: str = "left",
    backend: str = "auto",
    precision: str | None = None,
    target_error: float | None = None,
) -> Any:
    """Solve op(a) x = b, or x op(a) = b, for a triangular matrix.

    Parameters
    ----------
    a : array or tensor
        A matrix [n, n], of which one triangle is read. op(a) is a, or its transpose if `trans` is set.
    b : array or tensor
        The right-hand sides [n, m], or [m, n] for the side "right".
    lower : bool
        Whether the lower triangle of a is read, else the upper one.
    trans : bool
        Whether op(a) is the transpose of a.
    unit_diagonal : bool
        Whether the diagonal is taken to be one, and not read.
    side : str
        On which side of x op(a) is, "left" or "right".
    backend, precision, target_error
        See `trnqc.blas.gemm`. The error is that of the products, of which the solution consists.

    Returns
    -------
    array or tensor
        x, a new matrix of the shape of b. The gradient of `a` has the elements that are read.

    Raises
    ------
    InputError
        If shapes do not fit, elements are not finite, or a is singular.
    UnsupportedPrecision, BackendUnavailable
        If the choice cannot be met.

    Notes
    -----
    On a device the inverses of diagonal blocks of up to 1024 rows are computed in fp32, and blocks of the solution are
    their products with the right-hand sides. Errors grow with the condition of these blocks.

    Examples
    --------
    >>> import numpy as np
    >>> trsm(np.array([[2.0, np.nan], [1.0, 4.0]]), np.array([[2.0], [9.0]]))
    array([[1.],
           [2.]])
    """
    n, columns = shape_of(a, "a")
    shape = shape_of(b, "b")
    require(side in ("left", "right"), f"side is 'left' or 'right'; found {side!r}")
    require(n == columns, f"a must be square; found [{n}, {columns}]")
    length = shape[0 if side == "left" else 1]
    require(n == length, f"op(a) [{n}, {n}] on the {side} of x does not fit b {list(shape)}")
    flags = bool(lower), bool(trans), bool(unit_diagonal), side == "left"
    return run(BlasCall("trsm", (a, b), (), flags), Asked(backend, precision, target_error))


def cholesky(
    a: Any,
    *,
    lower: bool = True,
    backend: str = "auto",
    precision: str | None = None,
    target_error: float | None = None,
) -> Any:
    """Factorise a symmetric positive definite matrix: a = l l.T with l lower triangular.

    Parameters
    ----------
    a : array or tensor
        A matrix [n, n], of which one triangle is read.
    lower : bool
        Whether the lower triangle of a is read and l returned, else the upper triangle of a is read and l.T returned.
    backend, precision, target_error
        See `trnqc.blas.gemm`. The error is that of the products, of which the factor consists.

    Returns
    -------
    array or tensor
        The factor, with zeros in the other triangle. The gradient of `a` has the elements that are read.

    Raises
    ------
    NotPositiveDefinite
        If a leading minor is not positive; the error names its order, and has it as the attribute ``minor``.
    InputError
        If a is not square, or elements are not finite.
    UnsupportedPrecision, BackendUnavailable
        If the choice cannot be met.

    Examples
    --------
    >>> import numpy as np
    >>> cholesky(np.array([[4.0, np.nan], [2.0, 10.0]]))
    array([[2., 0.],
           [1., 3.]])
    """
    n, columns = shape_of(a, "a")
    require(n == columns, f"a must be square; found [{n}, {columns}]")
    return run(BlasCall("cholesky", (a,), (), (bool(lower),)), Asked(backend, precision, target_error))
