"""Running lowered steps on arrays. Every step is one call into BLAS or a vectorised loop of the array library.

An array travels with the labels of its axes as it lies; slices of operands give the slice of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import ModuleType

from trnqc.contraction.kernels import Gemm
from trnqc.contraction.order.symmetric_pairs import packed, spread
from trnqc.contraction.run.arrays import Array, diagonal, matmul, transpose
from trnqc.contraction.run.lower import Labels, Packed, Product, Side, Step, Sum
from trnqc.contraction.tree import Node
from trnqc.expression.operand import Leaf

Labelled = tuple[Array, Labels]


def run_steps(
    library: ModuleType, steps: Sequence[Step], operands: Mapping[str, Array], gemm: Gemm | None = None
) -> Array:
    """The result of the last step, its axes as the labels of its node say; operands by name.

    A temporary is dropped as soon as its consumer has run.
    """
    made: dict[str, Labelled] = {}
    for step in steps:
        taken = [made.pop(o.name) if isinstance(o, Node) else leaf(library, o, operands[o.name]) for o in step.operands]
        made[step.node.name] = apply(library, step, taken, gemm)
        del taken
    return arranged(made[steps[-1].node.name], steps[-1].node.indices)


def arranged(found: Labelled, labels: Labels) -> Array:
    """A view with its axes in the order of `labels`."""
    array, order = found
    return transpose(array, [order.index(label) for label in labels])


def leaf(library: ModuleType, found: Leaf, array: Array) -> Labelled:
    """An operand as the tree sees it: diagonals drawn, reciprocals taken."""
    array, labels = diagonal(library, array, found.indices)
    return (1 / array if found.reciprocal else array), labels


def apply(library: ModuleType, step: Step, operands: Sequence[Labelled], gemm: Gemm | None = None) -> Labelled:
    """One step on its operands."""
    operation = step.operation
    if isinstance(operation, Sum):
        return arranged(_summed(operands[0], operation.sums), operation.order), operation.order
    if isinstance(operation, Packed):
        return _by_pairs(library, operands, operation, gemm)
    left, right = (_side(x, side) for x, side in zip(operands, (operation.left, operation.right)))
    if not operation.inner:
        return _by_elements(left, right, operation)
    return _by_matrices(library, left, right, operation, gemm)


def _by_pairs(library: ModuleType, operands: Sequence[Labelled], operation: Packed, gemm: Gemm | None) -> Labelled:
    """The product of operands that keep one element of each pair, spread out where the result has the pair."""
    made = []
    summed = {name for name, _ in operation.sides[0].pairs} - set(operation.result.packed)
    for k, (found, side) in enumerate(zip(operands, operation.sides)):
        array, labels = arranged(found, side.order), list(side.order)
        for name, pair in side.pairs:
            place = labels.index(pair.first)
            # Of one operand, elements of a summed pair count as often as they stand in the sum.
            array = packed(library, array, place, pair.sign, weighted=not k and name in summed)
            labels[place : place + 2] = [name]
        made.append((array, tuple(labels)))
    array, order = apply(library, operation.step, made, gemm)
    labels = list(order)
    for name, pair in operation.result.pairs:
        place = labels.index(name)
        array = spread(library, array, place, operation.tree.extent(pair.first), pair.sign)
        labels[place : place + 1] = [pair.first, pair.second]
    return array, tuple(labels)


def _summed(found: Labelled, labels: Labels) -> Labelled:
    if not labels:
        return found
    array, have = found
    left = tuple(x for x in have if x not in labels)
    return array.sum(tuple(axis for axis, x in enumerate(have) if x in labels)), left


def _side(found: Labelled, side: Side) -> Array:
    return arranged(_summed(found, side.sums), side.order)


def _by_elements(left: Array, right: Array, operation: Product) -> Labelled:
    """The product with the axes of both put where the result has them, 1 where one has none."""
    shaped = []
    for array, side in ((left, operation.left), (right, operation.right)):
        extents = dict(zip(side.order, array.shape))
        shaped.append(array.reshape(tuple(extents.get(label, 1) for label in operation.order)))
    return shaped[0] * shaped[1], operation.order


def _by_matrices(library: ModuleType, left: Array, right: Array, operation: Product, gemm: Gemm | None) -> Labelled:
    n = len(operation.batch)
    extents = dict(zip(operation.left.order, left.shape)) | dict(zip(operation.right.order, right.shape))
    stack = tuple(left.shape[:n])
    rows, columns, inner = (
        prod(extents[x] for x in group) for group in (operation.rows, operation.columns, operation.inner)
    )
    a_t = _matrices(left, stack, rows, inner, operation.left.flipped)
    b = _matrices(right, stack, columns, inner, operation.right.flipped)
    if gemm is None:
        result = matmul(library, a_t.swapaxes(-1, -2), b)
    else:
        result = gemm(a_t.reshape(prod(stack), inner, rows), b.reshape(prod(stack), inner, columns))
    return result.reshape(tuple(extents[x] for x in operation.order)), operation.order


def _matrices(array: Array, stack: tuple[int, ...], own: int, inner: int, flipped: bool) -> Array:
    """The operand as a stack of matrices [inner, own]; a view where its axes allow it."""
    if flipped:
        return array.reshape((*stack, inner, own))
    return array.reshape((*stack, own, inner)).swapaxes(-1, -2)
