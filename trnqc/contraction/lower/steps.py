"""The array operations that steps become: batched matrix products, products of elements and sums.

The labels of a product fall into four groups: batch (both operands and the result), rows (left and result), columns
(right and result) and inner (both operands, summed). Labels of one operand may be in batch too: the other one is then
the same for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trnqc.contraction.order.symmetric_pairs import Packing
from trnqc.contraction.tree import Pair, Tree, TreeNode, union
from trnqc.expression.operand import Leaf

Labels = tuple[str, ...]


@dataclass(frozen=True)
class ProductSide:
    """How an operand enters a product.

    Labels in `sums` are summed first; the axes are then batch, own labels, inner, or if `flipped` batch, inner, own
    labels. `copied` says that the operand must be copied to have this order.
    """

    sums: Labels
    order: Labels
    flipped: bool = False
    copied: bool = False


@dataclass(frozen=True)
class MatrixProduct:
    """result[batch, rows, columns] = sum over inner of left[batch, rows, inner] right[batch, inner, columns].

    `order` has the labels of the result, axis by axis. Without inner labels, elements are multiplied, and the axes of
    both sides are in the same order.
    """

    batch: Labels
    rows: Labels
    columns: Labels
    inner: Labels
    left: ProductSide
    right: ProductSide
    order: Labels

    @property
    def kind(self) -> str:
        """ "gemm", "gemv", "dot" or "multiply"."""
        if not self.inner:
            return "multiply"
        if self.rows and self.columns:
            return "gemm"
        return "gemv" if self.rows or self.columns else "dot"

    def stacks(self, extent: Callable[[str], int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the extents of the stacks of the left and the right matrices, 1 for labels that the side lacks."""
        left, right = (
            tuple(extent(label) if label in side.order else 1 for label in self.batch)
            for side in (self.left, self.right)
        )
        return left, right


@dataclass(frozen=True)
class AxisReduction:
    """One operand summed over `sums`, with its other axes in `order`."""

    sums: Labels
    order: Labels

    @property
    def kind(self) -> str:
        """ "sum", or "copy" if nothing is summed."""
        return "sum" if self.sums else "copy"


@dataclass(frozen=True)
class Packed:
    """A product that runs over pairs of labels once; in `step` and `tree` one label stands for each pair."""

    tree: Tree
    step: LoweredStep
    sides: tuple[Packing, ...]
    result: Packing

    @property
    def order(self) -> Labels:
        """Labels of the result."""
        return self.result.order

    @property
    def kind(self) -> str:
        """ "packed"."""
        return "packed"


@dataclass(frozen=True)
class PairLoop:
    """A product whose operand number `holder` has the labels of `pair` first, and so has its result.

    Each turn of the loop over the first label runs `step` for the elements of the second that are not below it. In
    `step` and `tree` the first label is left out.
    """

    tree: Tree
    step: LoweredStep
    pair: Pair
    holder: int

    @property
    def name(self) -> str:
        """The pair, as x≤y or x<y."""
        return self.pair.name

    @property
    def order(self) -> Labels:
        """Labels of the result."""
        return union((self.pair.first, self.pair.second), self.step.order)

    @property
    def kind(self) -> str:
        """ "loop"."""
        return "loop"


@dataclass(frozen=True)
class LoweredStep:
    """A node with its operation, and its operands in the order left, right of the operation."""

    node: TreeNode
    operation: MatrixProduct | AxisReduction | Packed | PairLoop
    operands: tuple[Leaf | TreeNode, ...]

    @property
    def order(self) -> Labels:
        """Labels of the result as it lies in memory."""
        return self.operation.order

    @property
    def workspace(self) -> tuple[Labels, ...]:
        """Labels of the arrays that the step creates beside its result: copies, sums and reciprocals of operands."""
        if not isinstance(self.operation, MatrixProduct):
            return ()
        sides = zip((self.operation.left, self.operation.right), self.operands)
        return tuple(
            side.order for side, o in sides if side.copied or side.sums or (isinstance(o, Leaf) and o.reciprocal)
        )

    def copies(self, tree: Tree) -> int:
        """Return the elements of these arrays; for a packed step also of packed operands and of the packed result.

        A loop over a pair holds the result of one turn.
        """
        if isinstance(self.operation, PairLoop):
            turn = self.operation
            return turn.step.copies(turn.tree) + turn.tree.size(turn.step.order)
        if not isinstance(self.operation, Packed):
            return sum(tree.size(labels) for labels in self.workspace)
        inner = self.operation
        total = inner.step.copies(inner.tree)
        for packed in (*inner.sides, inner.result):
            # Pairs are packed or spread one after the other; each time an array of the intermediate size is created.
            labels = list(packed.packed)
            for name, pair in packed.pairs:
                total += inner.tree.size(labels)
                position = labels.index(name)
                labels[position : position + 1] = [pair.first, pair.second]
        turned = [p.order for p, o in zip(inner.sides, inner.step.operands) if p.pairs]
        return total + sum(tree.size(labels) for labels in turned)
