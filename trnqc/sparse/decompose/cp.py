"""Canonical polyadic decompositions (CP, PARAFAC) of sparse tensors.

A sweep is one MTTKRP for each mode, a plan of this room. All else is small and dense. Equations are those of
T. G. Kolda and B. W. Bader, SIAM Rev. 51, 455 (2009), section 3.4.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.sparse.decompose.models import CP
from trnqc.sparse.decompose.start import checked_rank, checked_tensor
from trnqc.sparse.decompose.sweeps import Rules, best_descent, mode_plans, others
from trnqc.sparse.tensors.storage import SparseTensor

# Smallest factor in a multiplicative update, which could not leave zero.
FLOOR = 1e-12
# Passes over the columns of a factor in hierarchical least squares (N. Gillis and F. Glineur, Neural Comput. 24, 1085
# (2012)), and the sum of squared changes, relative to that of the first pass, at which they end earlier; both are those
# of TensorLy 0.10.
PASSES, SETTLED = 5, 1e-8
# Takes the factor of a mode, its MTTKRP [extent, rank] and the product of the other Gram matrices; returns the new
# factor.
Update = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]


def cp_als(
    tensor: Any,
    rank: int,
    n_iter_max: int = 100,
    init: str | Sequence[np.ndarray] = "svd",
    tol: float = 1e-8,
    random_state: int | np.random.Generator | None = None,
    restarts: int = 1,
    threads: int = 1,
) -> CP:
    """Return the canonical polyadic decomposition by alternating least squares.

    Parameters
    ----------
    tensor
        A `SparseTensor`, or an array that `contract` takes.
    rank : int
        The number of terms.
    n_iter_max, tol
        Sweeps stop after this number, or when the relative error changes by less than `tol`.
    init : "svd", "random" or sequence of array
        The first factors: leading singular vectors of the unfoldings, random numbers between 0 and 1, or given.
    random_state : int or numpy.random.Generator, optional
        The source of random numbers.
    restarts : int
        The number of starts, of which the best result is returned; all after the first are random.
    threads : int
        Threads of the products with the tensor.

    Returns
    -------
    CP
        The factors and weights (all 1), and the course of the error.

    Raises
    ------
    InputError
        For ranks, factors or options that are not as described, and for a tensor of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from trnqc import sparse
    >>> x = np.zeros((3, 4, 5))
    >>> x[1, 2, 3] = 6.0
    >>> round(sparse.cp_als(x, rank=1).error, 6)
    0.0
    """
    rules = Rules(n_iter_max, tol, restarts, random_state)
    return _decomposed(checked_tensor(tensor), checked_rank(rank), init, rules, _least_squares, threads, "CP-ALS")


def nonneg_cp(
    tensor: Any,
    rank: int,
    n_iter_max: int = 100,
    init: str | Sequence[np.ndarray] = "random",
    tol: float = 1e-8,
    random_state: int | np.random.Generator | None = None,
    restarts: int = 1,
    threads: int = 1,
    method: str = "hals",
) -> CP:
    """Return a canonical polyadic decomposition whose factors have no negative element.

    Parameters
    ----------
    method : "hals" or "mu"
        Hierarchical alternating least squares (A. Cichocki and A.-H. Phan, IEICE Trans. Fundam. E92-A, 708 (2009)) with
        several passes over the columns of a factor in each sweep, as TensorLy's ``non_negative_parafac_hals``, or
        multiplicative updates (D. D. Lee and H. S. Seung, Adv. Neural Inf. Process. Syst. 13, 556 (2001)), which take
        more sweeps.
    tensor, rank, n_iter_max, init, tol, random_state, restarts, threads
        See `cp_als`. Negative elements of first factors are replaced by their magnitudes.

    Returns
    -------
    CP

    Raises
    ------
    InputError
        See `cp_als`.
    """
    updates: dict[str, Update] = {"hals": _hierarchical, "mu": _multiplicative}
    if method not in updates:
        raise InputError(f"method is one of {', '.join(updates)}; found {method!r}")
    sparse, rules = checked_tensor(tensor), Rules(n_iter_max, tol, restarts, random_state)
    return _decomposed(sparse, checked_rank(rank), init, rules, updates[method], threads, "nonnegative CP", abs)


def mttkrp_subscripts(modes: int, mode: int) -> str:
    """Return the subscripts of the tensor times the Khatri-Rao product of other factors: "ijk,jr,kr->ir" for mode 0."""
    letters = string.ascii_lowercase[:modes]
    others = [f"{letter}z" for letter in letters if letter != letters[mode]]
    return ",".join([letters, *others]) + f"->{letters[mode]}z"


def _decomposed(
    tensor: SparseTensor,
    rank: int,
    init: Any,
    rules: Rules,
    update: Update,
    threads: int,
    name: str,
    prepare: Callable[[np.ndarray], np.ndarray] | None = None,
) -> CP:
    plans = mode_plans(tensor, [rank] * tensor.ndim, mttkrp_subscripts)
    norm2 = float(np.sum(np.square(tensor.to_coo()[1])))

    def sweep(factors: list[np.ndarray]) -> tuple[float, None]:
        if prepare:
            factors[:] = [prepare(factor) for factor in factors]
        grams = [factor.T @ factor for factor in factors]
        for n, products in enumerate(plans):
            product = products.run(tensor, *others(factors, n), threads=threads)
            gram = np.prod(others(grams, n), axis=0)
            factors[n] = update(factors[n], product, gram)
            grams[n] = factors[n].T @ factors[n]
        # <X, X'> and <X', X'> follow from the product of the last mode, so that the model itself is never formed.
        change2 = norm2 - 2 * float(np.sum(product * factors[-1])) + float(np.sum(gram * grams[-1]))
        return float(np.sqrt(abs(change2) / norm2)), None

    best, ends, seconds = best_descent(tensor, [rank] * tensor.ndim, init, sweep, rules, name)
    return CP(best.errors, best.converged, ends, seconds, np.ones(rank), tuple(best.factors))


def _least_squares(factor: np.ndarray, product: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Solve factor gram = product. Of a singular system the solution of least norm is taken."""
    try:
        lower = np.linalg.cholesky(gram)
        if np.ptp(np.log(np.diag(lower))) < 16:  # else the factorisation has lost about half of the digits
            return np.asarray(np.linalg.solve(gram, product.T).T)
    except np.linalg.LinAlgError:
        pass
    return np.asarray(np.linalg.lstsq(gram, product.T, rcond=None)[0].T)


def _hierarchical(factor: np.ndarray, product: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Minimise over one column after the other, in several passes, which cost little beside the product.

    The passes end as those of TensorLy do: after `PASSES`, or when the columns change by less than `SETTLED`.
    """
    factor, first = factor.copy(), 0.0
    for number in range(PASSES):
        change = 0.0
        for r in np.flatnonzero(np.diag(gram) > 0):
            column = np.maximum(factor[:, r] + (product[:, r] - factor @ gram[:, r]) / gram[r, r], 0.0)
            change += float(np.sum(np.square(column - factor[:, r])))
            factor[:, r] = column
        first = first if number else change
        if change <= SETTLED * first:
            break
    return factor


def _multiplicative(factor: np.ndarray, product: np.ndarray, gram: np.ndarray) -> np.ndarray:
    """Multiply by the ratio of the parts of the gradient, which keeps signs and decreases the error."""
    return factor * np.maximum(product, FLOOR) / np.maximum(factor @ gram, FLOOR)
