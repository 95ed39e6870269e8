"""Sparse tensors with the statistics of recorded data: few popular coordinates, many rare ones, fibres of all lengths.

Coordinates follow a power law, x = extent * u^exponent with u uniform in [0, 1); exponents from 2 to 3 are those of
knowledge bases and tag collections. Equal arguments give equal tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trnqc.errors import InputError
from trnqc.sparse.tensors.storage import SparseTensor, from_coo


def skewed(shape: Sequence[int], nnz: int, exponent: float | Sequence[float] = 2.5, seed: int = 0) -> SparseTensor:
    """`nnz` distinct elements, every coordinate drawn by the power law; values from a standard normal distribution.

    Modes may have different exponents; 1 is the uniform distribution.
    """
    rng = np.random.default_rng(seed)
    return from_coo(shape, distinct(rng, shape, nnz, exponent), rng.standard_normal(nnz))


def fibred(
    shape: Sequence[int], fibres: int, zipf: float = 1.45, longest: int = 1000, exponent: float = 2.5, seed: int = 0
) -> SparseTensor:
    """Elements in `fibres` fibres along the last mode, with lengths from Zipf's distribution cut at `longest`.

    Fibres lie by the power law, coordinates within one uniformly; a long one loses elements that coincide.
    """
    rng = np.random.default_rng(seed)
    heads = distinct(rng, shape[:-1], fibres, exponent)
    lengths = np.minimum(rng.zipf(zipf, fibres), min(longest, shape[-1]))
    coordinates = np.vstack([np.repeat(heads, lengths, axis=1), rng.integers(0, shape[-1], lengths.sum())])
    kept = np.array(np.unravel_index(_set(np.ravel_multi_index(coordinates, shape)), shape))
    return from_coo(shape, kept, rng.standard_normal(kept.shape[1]))


def distinct(
    rng: np.random.Generator, shape: Sequence[int], count: int, exponent: float | Sequence[float]
) -> np.ndarray:
    """Coordinates [modes, count], no two alike. Errors: InputError for more than half of all elements."""
    places = math.prod(shape)
    if 2 * count > places:
        raise InputError(f"at most half of {places} elements can be drawn; found {count}")
    laws = list(zip(shape, np.broadcast_to(exponent, len(shape)).tolist(), strict=True))
    kept = np.empty(0, np.int64)
    while len(kept) < count:
        draws = [np.minimum((extent * rng.random(count) ** law).astype(np.int64), extent - 1) for extent, law in laws]
        kept = _set(np.concatenate([kept, np.ravel_multi_index(draws, shape)]))
    kept = kept[np.sort(rng.permutation(len(kept))[:count])]
    return np.array(np.unravel_index(kept, shape))


def _set(keys: np.ndarray) -> np.ndarray:
    """Sorted, each once: many times faster than numpy.unique."""
    keys = np.sort(keys)
    return keys[np.append(True, keys[1:] != keys[:-1])] if len(keys) else keys
