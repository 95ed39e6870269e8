"""A network as products of dense matrices by NumPy's BLAS, which is fastest if few elements are zero.

tree -> pairs of operands, each one (batched) matrix product -> array
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.network.tree import Tree, contractions

# Seconds that a call takes longer than one of a compiled nest, beside its arithmetic: dense copies of operands, setting
# the threads of the BLAS. Calls of small nests are kept, see `run.repeated`, and those of matrices are not. Measured
# with matrices of 10 x 10 on an EPYC: a kept call takes 8 microseconds, `run` of a plan with form="dense" 50.
CALL_SECONDS = 5e-5

Labelled = tuple[Indices, np.ndarray]


def by_matrices(network: Network, tree: Tree, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Compute a network by products of dense matrices, as float64 in C order.

    Operands are float64, with axes in the order of their subscripts.
    """
    tensors: list[Labelled] = list(zip(network.inputs, arrays))
    for node in contractions(network, tree):
        parts = [tensors[t] for t in node.operands]
        while len(parts) > 1:
            kept = {*node.kept, *(x for labels, _ in parts[2:] for x in labels)}
            left, right = (_summed(part, {*kept, *other[0]}) for part, other in (parts[:2], parts[1::-1]))
            parts = [_product(left, right, kept), *parts[2:]]
        tensors.append(_summed(parts[0], set(node.kept)))
    labels, array = tensors[-1]
    result = np.asarray(array.transpose([labels.index(x) for x in network.output]), order="C")
    return result.copy() if len(arrays) == 1 and np.may_share_memory(result, arrays[0]) else result


def bytes_of_matrices(network: Network, tree: Tree) -> int:
    """Return the bytes of all operands and of the results of all products, as dense arrays."""
    results = [node.kept for node in contractions(network, tree)]
    return sum(8 * math.prod(network.shape(labels)) for labels in (*network.inputs, *results))


def multiply_adds(network: Network, tree: Tree) -> int:
    """Return the number of multiply-adds of all products of the tree."""
    return sum(math.prod(network.shape(node.loops)) for node in contractions(network, tree))


def _summed(part: Labelled, kept: set[str]) -> Labelled:
    """Sum an array over the indices that no other tensor needs."""
    labels, array = part
    axes = tuple(n for n, x in enumerate(labels) if x not in kept)
    return tuple(x for x in labels if x in kept), array.sum(axes) if axes else array


def _product(left: Labelled, right: Labelled, kept: set[str]) -> Labelled:
    """Multiply two tensors. The larger one is not copied if its summed axes are adjacent."""
    if left[1].size < right[1].size:
        left, right = right, left
    both = [x for x in left[0] if x in right[0]]
    summed = [x for x in both if x not in kept]
    if not summed:
        return _elementwise(left, right)
    first = left[0].index(summed[0])
    if summed == both and list(left[0][first : first + len(summed)]) == summed:
        return _stacked(left, right, first, len(summed))
    return _batched(left, right, [x for x in both if x in kept], summed)


def _elementwise(left: Labelled, right: Labelled) -> Labelled:
    labels = (*left[0], *(x for x in right[0] if x not in left[0]))
    x, y = (
        array.transpose([own.index(x) for x in labels if x in own])[
            tuple(slice(None) if x in own else None for x in labels)
        ]
        for own, array in (left, right)
    )
    return labels, x * y


def _stacked(left: Labelled, right: Labelled, first: int, count: int) -> Labelled:
    """Multiply left [outer, summed, inner] by right as [columns, summed] to [outer, columns, inner]."""
    (a, x), (b, y) = left, right
    summed, columns = a[first : first + count], tuple(x for x in b if x not in a)
    rest = a[first + count :]
    extents = dict(zip((*a, *b), (*x.shape, *y.shape)))
    shape = [math.prod(extents[index] for index in group) for group in (a[:first], summed, rest)]
    matrix = _matrix(right, (columns, summed), extents)
    product = matrix @ x.reshape(shape) if rest else x.reshape(shape[:2]) @ matrix.T
    labels = (*a[:first], *columns, *rest)
    return labels, product.reshape([extents[index] for index in labels])


def _batched(left: Labelled, right: Labelled, batch: Sequence[str], summed: Sequence[str]) -> Labelled:
    """Multiply left as [batch, rows, summed] by right as [batch, summed, columns]."""
    a, b = left[0], right[0]
    rows, columns = [x for x in a if x not in b], [x for x in b if x not in a]
    extents = dict(zip((*a, *b), (*left[1].shape, *right[1].shape)))
    x = _matrix(left, (batch, rows, summed), extents)
    y = _matrix(right, (batch, summed, columns), extents)
    labels = (*batch, *rows, *columns)
    return labels, (x @ y).reshape([extents[index] for index in labels])


def _matrix(part: Labelled, groups: Sequence[Sequence[str]], extents: dict[str, int]) -> np.ndarray:
    labels, array = part
    axes = [labels.index(x) for group in groups for x in group]
    return array.transpose(axes).reshape([math.prod(extents[x] for x in group) for group in groups])
