"""The first factors of a decomposition, and the checks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from trnqc.errors import InputError
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.storage import SparseTensor

INITS = ("svd", "random")


def checked_tensor(tensor: Any) -> SparseTensor:
    """Return a real tensor of at least two modes with finite elements, not all zero.

    Raises InputError for any other tensor.
    """
    sparse = as_tensor(tensor)
    if is_complex(sparse):
        raise InputError(f"decompositions are those of real tensors; found {sparse.dtype}")
    values = sparse.to_coo()[1]
    if sparse.ndim < 2 or not np.any(values) or not np.all(np.isfinite(values)):
        raise InputError(f"expected a tensor of two or more modes with finite elements, not all zero; found {sparse}")
    return sparse


def checked_rank(rank: Any, name: str = "rank") -> int:
    """Return a rank. Raises InputError unless it is a positive whole number."""
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise InputError(f"{name} is a positive whole number; found {rank!r}")
    return int(rank)


def unfolded(tensor: SparseTensor, mode: int) -> scipy.sparse.csr_array:
    """Return the unfolding of a mode, with a column for each set of other coordinates that has an element."""
    coordinates, values = tensor.to_coo()
    others = np.delete(coordinates, mode, axis=0)
    columns = np.unique(others, axis=1, return_inverse=True)[1].ravel()
    shape = (tensor.shape[mode], int(columns.max()) + 1)
    return scipy.sparse.csr_array((values.astype(np.float64), (coordinates[mode], columns)), shape=shape)


def leading_vectors(matrix: scipy.sparse.csr_array, rank: int, rng: np.random.Generator) -> np.ndarray:
    """Return the leading left singular vectors [rows, rank] of a sparse matrix.

    Where it has fewer than `rank`, the other columns are random numbers between 0 and 1.
    """
    rows, columns = matrix.shape
    most = min(rank, rows, columns)
    if min(rows, columns) <= max(2 * most, 32):
        vectors = np.linalg.svd((matrix @ matrix.T).toarray(), hermitian=True)[0][:, :most]
    else:
        vectors, lengths, _ = scipy.sparse.linalg.svds(matrix, k=most, v0=rng.standard_normal(min(matrix.shape)))
        vectors = vectors[:, np.argsort(-lengths)]
    return np.hstack([vectors, rng.random((rows, rank - most))])


def first_factors(tensor: SparseTensor, ranks: Sequence[int], init: Any, rng: np.random.Generator) -> list[np.ndarray]:
    """Return factors [extent, rank] for each mode.

    `init` is "svd" for the leading singular vectors of the unfoldings, "random" for numbers between 0 and 1, or
    factors. Raises InputError for another word, and for factors of other shapes or with elements that are not finite.
    """
    if isinstance(init, str):
        if init not in INITS:
            raise InputError(f"init is one of {', '.join(INITS)}, or a list of factors; found {init!r}")
        if init == "random":
            return [rng.random((extent, rank)) for extent, rank in zip(tensor.shape, ranks)]
        return [leading_vectors(unfolded(tensor, n), rank, rng) for n, rank in enumerate(ranks)]
    factors = [np.array(factor, dtype=np.float64) for factor in init]
    expected = list(zip(tensor.shape, ranks))
    if [factor.shape for factor in factors] != expected or not all(np.all(np.isfinite(x)) for x in factors):
        raise InputError(f"init has finite factors of the shapes {expected}; found {[x.shape for x in factors]}")
    return factors
