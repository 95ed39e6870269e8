"""Tensor trains of sparse tensors by successive singular value decompositions.

I. V. Oseledets, SIAM J. Sci. Comput. 33, 2295 (2011), algorithm 1. What is left of the tensor after a mode has a row
for each value of the last rank and a column for each set of the remaining coordinates. Only columns with elements are
stored, so that this array is never larger than the rank times the number of elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from trnqc.errors import InputError
from trnqc.sparse.decompose.models import TensorTrain
from trnqc.sparse.decompose.start import checked_rank, checked_tensor

# Elements up to which a matrix is decomposed as a dense one.
DENSE = 2**24


def tensor_train(tensor: Any, rank: int | Sequence[int], tol: float = 0.0) -> TensorTrain:
    """Return the tensor train of a sparse tensor.

    Parameters
    ----------
    tensor
        A `SparseTensor`, or an array that `contract` takes.
    rank : int or sequence of int
        The largest ranks between modes: one number for all, or ndim - 1 numbers, to which the outer ranks 1 may be
        added, as in TensorLy.
    tol : float
        Singular values are left out while the relative error of the tensor stays below this; 0 keeps `rank` of them.

    Returns
    -------
    TensorTrain
        The cores, of which all but the last have orthonormal columns, and the relative error.

    Raises
    ------
    InputError
        For ranks or a tolerance that are not as described, and for a tensor of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from trnqc import sparse
    >>> train = sparse.tensor_train(np.eye(3)[:, :, None] * np.ones(2), rank=3)
    >>> train.ranks, round(train.error, 12)
    ((1, 3, 1, 1), 0.0)
    """
    sparse = checked_tensor(tensor)
    ranks = _checked_ranks(rank, sparse.ndim)
    if not 0 <= tol < 1:
        raise InputError(f"tol is a number from 0 to less than 1; found {tol!r}")
    coordinates, values = sparse.to_coo()
    norm2 = float(np.sum(np.square(values, dtype=np.float64)))
    # The error of a train is at most the root of the sum of the squares of what its steps leave out (theorem 2.2).
    allowance = tol**2 * norm2 / (sparse.ndim - 1)
    rest, columns = values[None].astype(np.float64), coordinates
    cores, lost = [], 0.0
    for mode, most in enumerate(ranks):
        matrix, columns = _unfolded(rest, columns, sparse.shape[mode])
        left, lengths, right = _singular_values(matrix, most)
        kept = _kept(lengths, most, allowance, whole := float(np.sum(matrix.data**2)))
        lost += max(whole - float(np.sum(lengths[:kept] ** 2)), 0.0)
        cores.append(left[:, :kept].reshape(len(rest), sparse.shape[mode], kept))
        rest = lengths[:kept, None] * right[:kept]
    cores.append(_last(rest, columns[0], sparse.shape[-1]))
    return TensorTrain(tuple(cores), float(np.sqrt(lost / norm2)))


def _unfolded(rest: np.ndarray, columns: np.ndarray, extent: int) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Return [rank * extent, columns] with the first of the remaining coordinates in the rows, and the others."""
    others, place = np.unique(columns[1:], axis=1, return_inverse=True)
    rows = np.arange(len(rest))[:, None] * extent + columns[0]
    places = np.broadcast_to(place.ravel(), rows.shape)
    shape = (len(rest) * extent, others.shape[1])
    return scipy.sparse.csr_array((rest.ravel(), (rows.ravel(), places.ravel())), shape=shape), others


def _singular_values(matrix: scipy.sparse.csr_array, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the singular value decomposition, of large matrices only the `most` largest values."""
    if matrix.shape[0] * matrix.shape[1] <= DENSE or most >= min(matrix.shape):
        return tuple(np.linalg.svd(matrix.toarray(), full_matrices=False))  # type: ignore[return-value]
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    left, lengths, right = scipy.sparse.linalg.svds(matrix, k=most, v0=start)
    order = np.argsort(-lengths)
    return left[:, order], lengths[order], right[order]


def _last(rest: np.ndarray, coordinates: np.ndarray, extent: int) -> np.ndarray:
    core = np.zeros((len(rest), extent, 1))
    core[:, coordinates, 0] = rest
    return core


def _kept(lengths: np.ndarray, most: int, allowance: float, whole: float) -> int:
    """Return how many singular values the allowed error needs: at most `most`. `whole` is the sum of all squares."""
    tails = whole - np.cumsum(lengths**2)
    enough = tails <= allowance if allowance else lengths <= 1e-15 * lengths[0]
    needed = int(np.argmax(enough)) + bool(allowance) if enough.any() else len(lengths)
    return max(1, min(most, needed))


def _checked_ranks(rank: int | Sequence[int], modes: int) -> list[int]:
    if isinstance(rank, int | np.integer):
        return [checked_rank(rank)] * (modes - 1)
    ranks = [checked_rank(r) for r in rank]
    if len(ranks) == modes + 1 and ranks[0] == ranks[-1] == 1:
        ranks = ranks[1:-1]
    if len(ranks) != modes - 1:
        raise InputError(f"expected {modes - 1} ranks for {modes} modes, or with 1 at both ends; found {list(rank)}")
    return ranks
