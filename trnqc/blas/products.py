"""Products of matrices: general ones, stacks of them, and those with symmetric matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trnqc.blas.calls import Asked, BlasCall
from trnqc.blas.dispatch import run
from trnqc.blas.operands import require, scaled, shape_of


def gemm(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    trans_a: bool = False,
    trans_b: bool = False,
    backend: str = "auto",
    precision: str | None = None,
    target_error: float | None = None,
) -> Any:
    """Multiply two matrices: alpha op(a) op(b) + beta c.

    Parameters
    ----------
    a, b : array or tensor
        Real matrices. op(x) is x, or its transpose where `trans_a` or `trans_b` is set.
    alpha, beta : float
        Factors of the product and of `c`.
    c : array or tensor, optional
        A matrix of the shape of the result. It is not changed, and not read if `beta` is 0.
    trans_a, trans_b : bool
        Whether the operand is transposed.
    backend, precision, target_error
        Where and how exactly to compute; see `trnqc.blas.choose`.

    Returns
    -------
    array or tensor
        A new matrix, in fp64 for the precision fp64, else in fp32. It is a tensor if an operand is one, with
        gradients of any order with respect to a, b and c.

    Raises
    ------
    InputError
        If shapes do not fit, or elements are not finite or overflow.
    UnsupportedPrecision, BackendUnavailable
        If the choice cannot be met.

    Notes
    -----
    Each element has an error of at most ``promised_error(precision)`` times the same element of ``|op(a)| |op(b)|``.
    Elements of tensors on a device are not checked, because that would wait for the device.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.arange(6.0).reshape(2, 3)
    >>> gemm(a, a, trans_b=True, alpha=2.0, beta=1.0, c=np.eye(2))
    array([[ 11.,  28.],
           [ 28., 101.]])
    >>> gemm(a, a, trans_b=True, backend="simulator", target_error=1e-4)
    array([[ 5., 14.],
           [14., 50.]], dtype=float32)
    """
    M, K = _sides(shape_of(a, "a"), trans_a)
    L, N = _sides(shape_of(b, "b"), trans_b)
    require(K == L, f"op(a) [{M}, {K}] and op(b) [{L}, {N}] do not fit: columns of op(a) must be rows of op(b)")
    call = BlasCall("gemm", (a, b), scaled(alpha, beta, c, (M, N)), (bool(trans_a), bool(trans_b)))
    return run(call, Asked(backend, precision, target_error))


def batched_gemm(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    trans_a: bool = False,
    trans_b: bool = False,
    backend: str = "auto",
    precision: str | None = None,
    target_error: float | None = None,
) -> Any:
    """Multiply the matrices of two stacks: alpha op(a[z]) op(b[z]) + beta c[z] for every z.

    Parameters
    ----------
    a, b : array or tensor
        Stacks of real matrices, [Z, rows, columns].
    alpha, beta, trans_a, trans_b, backend, precision, target_error
        See `gemm`.
    c : array or tensor, optional
        A stack of the shape of the result.

    Returns
    -------
    array or tensor
        A new stack [Z, M, N]; see `gemm`.

    Raises
    ------
    InputError, UnsupportedPrecision, BackendUnavailable
        See `gemm`.

    Examples
    --------
    >>> import numpy as np
    >>> batched_gemm(np.ones((2, 1, 3)), np.ones((2, 3, 1)))[:, 0, 0]
    array([3., 3.])
    """
    (Z, *of_a), (Y, *of_b) = shape_of(a, "a", stacked=True), shape_of(b, "b", stacked=True)
    (M, K), (L, N) = _sides(of_a, trans_a), _sides(of_b, trans_b)
    require(
        (Z, K) == (Y, L),
        f"op(a) [{Z}, {M}, {K}] and op(b) [{Y}, {L}, {N}] do not fit: both need the same number of matrices, and "
        "columns of op(a) must be rows of op(b)",
    )
    call = BlasCall("gemm", (a, b), scaled(alpha, beta, c, (Z, M, N)), (bool(trans_a), bool(trans_b)))
    return run(call, Asked(backend, precision, target_error))


def symm(
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    side: str = "left",
    lower: bool = True,
    backend: str = "auto",
    precision: str | None = None,
    target_error: float | None = None,
) -> Any:
    """Multiply a symmetric matrix with another matrix: alpha a b + beta c, or alpha b a + beta c.

    Parameters
    ----------
    a : array or tensor
        A symmetric matrix [n, n], of which one triangle is read.
    b : array or tensor
        A matrix [n, N], or [M, n] for the side "right".
    alpha, beta, c, backend, precision, target_error
        See `gemm`.
    side : str
        On which side of b the symmetric matrix is, "left" or "right".
    lower : bool
        Whether the lower triangle of `a` is read, else the upper one.

    Returns
    -------
    array or tensor
        A new matrix of the shape of b. The gradient of `a` has the elements of the triangle that is read.

    Raises
    ------
    InputError, UnsupportedPrecision, BackendUnavailable
        See `gemm`.

    Examples
    --------
    >>> import numpy as np
    >>> symm(np.array([[1.0, np.pi], [2.0, 3.0]]), np.eye(2))
    array([[1., 2.],
           [2., 3.]])
    """
    n, m = shape_of(a, "a")
    shape = shape_of(b, "b")
    require(side in ("left", "right"), f"side is 'left' or 'right'; found {side!r}")
    require(n == m, f"a must be square; found [{n}, {m}]")
    length = shape[0 if side == "left" else 1]
    require(n == length, f"a [{n}, {n}] on the {side} of b {list(shape)} does not fit")
    call = BlasCall("symm", (a, b), scaled(alpha, beta, c, shape), (side == "left", bool(lower)))
    return run(call, Asked(backend, precision, target_error))


def syrk(
    a: Any,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    c: Any = None,
    trans: bool = False,
    lower: bool = True,
    backend: str = "auto",
    precision: str | None = None,
    target_error: float | None = None,
) -> Any:
    """Multiply a matrix with its own transpose, one triangle of alpha op(a) op(a).T + beta c.

    Parameters
    ----------
    a : array or tensor
        A matrix [n, k], or [k, n] if `trans` is set.
    alpha, beta, backend, precision, target_error
        See `gemm`.
    c : array or tensor, optional
        A matrix [n, n], of which the same triangle is used.
    trans : bool
        Whether op(a) is the transpose of a.
    lower : bool
        Whether the lower triangle is computed, else the upper one.

    Returns
    -------
    array or tensor
        A new matrix [n, n] with zeros in the other triangle; see `gemm`.

    Raises
    ------
    InputError, UnsupportedPrecision, BackendUnavailable
        See `gemm`.

    Examples
    --------
    >>> import numpy as np
    >>> syrk(np.arange(4.0).reshape(2, 2))
    array([[ 1.,  0.],
           [ 3., 13.]])
    """
    n, _ = _sides(shape_of(a, "a"), trans)
    call = BlasCall("syrk", (a,), scaled(alpha, beta, c, (n, n)), (bool(trans), bool(lower)))
    return run(call, Asked(backend, precision, target_error))


def _sides(shape: Sequence[int], trans: bool) -> tuple[int, int]:
    """Rows and columns of op(x)."""
    rows, columns = shape
    return (columns, rows) if trans else (rows, columns)
