"""A network as products of SciPy's sparse matrices, for machines without a C compiler.

tree -> pairs of operands, each one product of two sparse matrices -> coordinates and values

Each product takes as many multiply-adds as pairs of stored elements meet. Nothing is fused: the results of all pairs
are stored, so a network whose fused loops are fast because they avoid a large intermediate is slow here.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse

from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.network.tree import Tree, contractions
from trnqc.sparse.tensors.levels import join
from trnqc.sparse.tensors.storage import SparseTensor, from_coo


class _Elements(NamedTuple):
    """Coordinates [indices, n] and values [n] of a tensor with these indices."""

    labels: Indices
    coordinates: np.ndarray
    values: np.ndarray

    def rows(self, labels: Sequence[str]) -> np.ndarray:
        return self.coordinates[[self.labels.index(x) for x in labels]]


def by_coordinates(network: Network, tree: Tree, tensors: Sequence[SparseTensor]) -> SparseTensor:
    """Compute a network by products of SciPy's sparse matrices, in float64.

    The result has a stored element wherever stored elements met. Modes of operands have the order of their subscripts.
    """
    extents = network.extents
    parts = [_Elements(labels, *tensor.elements()) for labels, tensor in zip(network.inputs, tensors)]
    for node in contractions(network, tree):
        waiting = [parts[t] for t in node.operands]
        while len(waiting) > 1:
            kept = {*node.kept, *(x for part in waiting[2:] for x in part.labels)}
            waiting = [_product(waiting[0], waiting[1], kept, extents), *waiting[2:]]
        parts.append(_summed(waiting[0], set(node.kept), extents))
    result = parts[-1]
    return from_coo(network.shape(network.output), result.rows(network.output), result.values)


def _summed(part: _Elements, kept: set[str], extents: dict[str, int]) -> _Elements:
    """Sum over the indices that are not kept."""
    labels = tuple(x for x in part.labels if x in kept)
    if labels == part.labels:
        return part
    (ids,), coordinates = _numbered([part.rows(labels)], labels, extents)
    return _Elements(labels, coordinates, np.bincount(ids, part.values, coordinates.shape[1]))


def _product(left: _Elements, right: _Elements, kept: set[str], extents: dict[str, int]) -> _Elements:
    """Multiply two tensors. A shared index that is kept is an index of the rows, too."""
    left, right = (_summed(a, {*kept, *b.labels}, extents) for a, b in ((left, right), (right, left)))
    shared = tuple(x for x in left.labels if x in right.labels)
    outer = tuple(x for x in left.labels if x in kept)
    inner = tuple(x for x in right.labels if x not in shared)
    (rows,), outer_coordinates = _numbered([left.rows(outer)], outer, extents)
    (columns,), inner_coordinates = _numbered([right.rows(inner)], inner, extents)
    between, met = _numbered([left.rows(shared), right.rows(shared)], shared, extents)
    size = met.shape[1]
    first = scipy.sparse.csr_array((left.values, (rows, between[0])), (outer_coordinates.shape[1], size))
    second = scipy.sparse.csr_array((right.values, (between[1], columns)), (size, inner_coordinates.shape[1]))
    product = (first @ second).tocoo()
    coordinates = np.concatenate([outer_coordinates[:, product.row], inner_coordinates[:, product.col]])
    return _Elements((*outer, *inner), coordinates, product.data)


def _numbered(
    groups: Sequence[np.ndarray], labels: Indices, extents: dict[str, int]
) -> tuple[list[np.ndarray], np.ndarray]:
    """Number the distinct coordinates of several arrays [labels, n]: the numbers for each array, and the coordinates.

    Without labels there is one, even if the arrays are empty.
    """
    together = np.concatenate(groups, axis=1)
    ends = np.cumsum([group.shape[1] for group in groups])[:-1]
    if not labels:
        return np.split(np.zeros(together.shape[1], np.int64), ends), np.zeros((0, 1), np.int64)
    keys, _ = join(together, [extents[x] for x in labels])
    _, places, ids = np.unique(keys, return_index=True, return_inverse=True)
    return np.split(ids, ends), together[:, places]


@functools.cache
def say_no_compiler(reason: str) -> None:
    """Warn, once in a process, that SciPy computes the results."""
    words = f"sparse contractions are computed by SciPy, without fused loops: {reason}"
    warnings.warn(words, RuntimeWarning, stacklevel=6)
