"""One pairwise product as a list of copies and products of matrices that can be repeated with other values.

    values of two operands -> packed by places -> stacks of matrix products -> values, added up if needed

All copies of an operand are one gather by an array of places, so that nothing is done for each block. Only products
of large blocks that are not joined run one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from trnqc.sparse.blocks.pair import BlockPair

# Where elements are found in an array: None if they are all there in their order.
Places = np.ndarray | None
# Begin and end of a block among the elements, and its shape as a matrix, with a leading batch if it has one.
Matrix = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class StackedProducts:
    """Stacks of products of equal shapes, [number, rows, middles, columns], one after another."""

    stacks: tuple[tuple[int, int, int, int], ...]
    size: int

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return all products, one after another."""
        made = np.empty(self.size, a.dtype)
        i = j = k = 0
        for count, m, d, n in self.stacks:
            left, right = a[i : (i := i + count * m * d)], b[j : (j := j + count * d * n)]
            out = made[k : (k := k + count * m * n)].reshape(count, m, n)
            np.matmul(left.reshape(count, m, d), right.reshape(count, d, n), out=out)
        return made


@dataclass(frozen=True, eq=False)
class AddedProducts:
    """Products of single blocks, added in place to those of the result.

    Attributes
    ----------
    left, right, result
        The blocks of the operands and of the result as matrices.
    steps
        Numbers of the blocks of left, right and result, in the order of the result.
    size
        Number of elements of the result.
    """

    left: tuple[Matrix, ...]
    right: tuple[Matrix, ...]
    result: tuple[Matrix, ...]
    steps: tuple[tuple[int, int, int], ...]
    size: int

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return all blocks of the result, one after another."""
        made = np.empty(self.size, a.dtype)
        lefts, rights, results = (
            [array[begin:end].reshape(shape) for begin, end, shape in blocks]
            for array, blocks in ((a, self.left), (b, self.right), (made, self.result))
        )
        last = -1
        for x, y, z in self.steps:
            if z != last:
                np.matmul(lefts[x], rights[y], out=results[z])
                last = z
            else:
                results[z] += lefts[x] @ rights[y]
        return made


@dataclass(frozen=True, eq=False)
class BlockProduct:
    """A pairwise product, ready to run.

    Attributes
    ----------
    pair
        The operands and the result.
    way
        How blocks are joined, for the printed plan.
    left, right
        Places of the elements of the packed operands.
    products
        The products of matrices.
    result
        Places of the elements of the result, in the order of its pattern, among those of the products.
    added
        A matrix of ones that adds up the products to the result, if an element has more than one.
    """

    pair: BlockPair
    way: str
    left: Places
    right: Places
    products: StackedProducts | AddedProducts
    result: Places
    added: scipy.sparse.csr_array | None

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the products, or their sums if `added`."""
        made = self.products.run(gathered(a, self.left), gathered(b, self.right))
        return made if self.added is None else self.added @ made

    @property
    def bytes(self) -> int:
        """Memory of packed operands, products and result in float64, and of the places."""
        a, b, c = (pattern.size for pattern in (self.pair.left[1], self.pair.right[1], self.pair.result))
        packed = (a if self.left is None else len(self.left)) + (b if self.right is None else len(self.right))
        places = sum(x.nbytes for x in (self.left, self.right, self.result) if x is not None)
        if self.added is not None:
            places += self.added.data.nbytes + self.added.indices.nbytes + self.added.indptr.nbytes
        return 8 * (packed + self.products.size + c) + places


def gathered(values: np.ndarray, places: Places) -> np.ndarray:
    """Return the elements at these places."""
    return values if places is None else values.take(places)
