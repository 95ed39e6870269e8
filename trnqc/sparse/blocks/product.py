"""One pairwise product that can be repeated with other values: copies and products of matrices.

values of two operands -> packed -> stacks of matrix products -> values of the result, added up if needed
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse

from trnqc.sparse.blocks.homes import BlockCopy, BlockHomes
from trnqc.sparse.blocks.pair import BlockPair

# Begin and end of a block among the elements, and its shape as a matrix, with a leading batch if it has one.
Matrix = tuple[int, int, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class StackedProducts:
    """Stacks of products of equal shapes, one after another.

    Attributes
    ----------
    stacks
        Number of products, and their rows, middles and columns.
    turned
        Whether the matrices of the left and of the right operand are packed as their transposes.
    size
        Number of elements of all products.
    """

    stacks: tuple[tuple[int, int, int, int], ...]
    turned: tuple[bool, bool]
    size: int

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return all products, one after another."""
        made = np.empty(self.size, a.dtype)
        i = j = k = 0
        for count, m, d, n in self.stacks:
            left = _matrices(a[i : (i := i + count * m * d)], (count, m, d), self.turned[0])
            right = _matrices(b[j : (j := j + count * d * n)], (count, d, n), self.turned[1])
            out = made[k : (k := k + count * m * n)]
            if count == 1:
                # For two matrices np.dot starts sooner than np.matmul.
                np.dot(left[0], right[0], out=out.reshape(m, n))
            else:
                np.matmul(left, right, out=out.reshape(count, m, n))
        return made


def _matrices(values: np.ndarray, shape: tuple[int, int, int], turned: bool) -> np.ndarray:
    count, m, n = shape
    return values.reshape(count, n, m).transpose(0, 2, 1) if turned else values.reshape(shape)


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
        How the operands are packed.
    products
        The products of matrices.
    added
        A matrix of ones that adds up the products to the result, if an element has more than one.
    result
        Where the blocks of the result lie among the products, or among their sums.
    seconds
        The estimated time on one thread, copies included.
    """

    pair: BlockPair
    way: str
    left: BlockCopy
    right: BlockCopy
    products: StackedProducts | AddedProducts
    added: scipy.sparse.csr_array | None
    result: BlockHomes
    seconds: float = 0.0

    def run(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the products of packed operands, or their sums if `added`."""
        made = self.products.run(a, b)
        return made if self.added is None else self.added @ made

    @property
    def bytes(self) -> int:
        """Memory of packed operands, products and sums in float64, and of places of elements."""
        total = self.left.bytes + self.right.bytes + 8 * self.products.size
        if self.added is not None:
            total += 8 * self.pair.result.size
            total += self.added.data.nbytes + self.added.indices.nbytes + self.added.indptr.nbytes
        return total
