"""The Tucker decomposition of sparse tensors by higher-order orthogonal iteration (HOOI).

A sweep is one TTMc for each mode (the tensor times all factors but one), a plan of this room, and the leading singular
vectors of the result: T. G. Kolda and B. W. Bader, SIAM Rev. 51, 455 (2009), figure 4.4.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.sparse.decompose.models import Tucker
from trnqc.sparse.decompose.start import checked_rank, checked_tensor
from trnqc.sparse.decompose.sweeps import Rules, best_descent, mode_plans, others


def tucker_hooi(
    tensor: Any,
    rank: int | Sequence[int],
    n_iter_max: int = 100,
    init: str | Sequence[np.ndarray] = "svd",
    tol: float = 1e-8,
    random_state: int | np.random.Generator | None = None,
    restarts: int = 1,
    threads: int = 1,
) -> Tucker:
    """Return the Tucker decomposition by higher-order orthogonal iteration.

    Parameters
    ----------
    rank : int or sequence of int
        The rank of each mode; one number stands for all modes, up to their extents.
    tensor, n_iter_max, init, tol, random_state, restarts, threads
        See `cp_als`. First factors are orthonormalised.

    Returns
    -------
    Tucker
        The core and factors of orthonormal columns, and the course of the error.

    Raises
    ------
    InputError
        For a rank beyond the extent of its mode or the product of the other ranks; else see `cp_als`.
    """
    sparse = checked_tensor(tensor)
    ranks = _checked_ranks(rank, sparse.shape)
    plans = mode_plans(sparse, ranks, ttmc_subscripts)
    norm2 = float(np.sum(np.square(sparse.to_coo()[1])))

    def sweep(factors: list[np.ndarray]) -> tuple[float, np.ndarray]:
        factors[:] = [np.linalg.qr(factor)[0] for factor in factors]
        for n, products in enumerate(plans):
            product = products.run(sparse, *others(factors, n), threads=threads)
            factors[n] = np.linalg.svd(product.reshape(len(product), -1), full_matrices=False)[0][:, : ranks[n]]
        # The last product has its own mode first and the ranks of the others after it.
        core = np.moveaxis(np.tensordot(factors[-1], product, axes=(0, 0)), 0, -1)
        return float(np.sqrt(abs(norm2 - float(np.sum(core**2))) / norm2)), core

    rules = Rules(n_iter_max, tol, restarts, random_state)
    best, ends, seconds = best_descent(sparse, ranks, init, sweep, rules, "Tucker")
    return Tucker(best.errors, best.converged, ends, seconds, best.more, tuple(best.factors))


def ttmc_subscripts(modes: int, mode: int) -> str:
    """Return the subscripts of the tensor times the factors of all other modes: "ijk,jb,kc->ibc" for mode 0."""
    letters, ranks = string.ascii_lowercase[:modes], string.ascii_uppercase[:modes]
    others = [n for n in range(modes) if n != mode]
    inputs = [letters, *(letters[n] + ranks[n] for n in others)]
    return ",".join(inputs) + "->" + letters[mode] + "".join(ranks[n] for n in others)


def _checked_ranks(rank: int | Sequence[int], shape: Sequence[int]) -> list[int]:
    if isinstance(rank, int | np.integer):
        return [min(checked_rank(rank), extent) for extent in shape]
    ranks = [checked_rank(r) for r in rank]
    if len(ranks) != len(shape):
        raise InputError(f"expected one rank for each of the {len(shape)} modes; found {len(ranks)}")
    for n, (r, extent) in enumerate(zip(ranks, shape)):
        most = min(extent, int(np.prod([x for m, x in enumerate(ranks) if m != n])))
        if r > most:
            raise InputError(
                f"the rank of mode {n} is at most {most}, its extent or the product of the others; found {r}"
            )
    return ranks
