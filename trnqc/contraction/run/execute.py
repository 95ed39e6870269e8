"""Running lowered steps on arrays: every step is one call of BLAS or one vectorised loop of the array library.

An array is passed on with the labels of its axes in memory. The same steps run on slices of operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from operator import mul
from types import ModuleType

import numpy as np

from trnqc.arrays import transform_of
from trnqc.contraction.kernels import Gemm
from trnqc.contraction.lower.chains import StepChain
from trnqc.contraction.lower.steps import (
    AxisReduction,
    Labels,
    LoweredStep,
    MatrixProduct,
    Packed,
    PairLoop,
    ProductSide,
)
from trnqc.contraction.order.symmetric_pairs import packed, spread
from trnqc.contraction.products.arrays import Array, diagonal, is_other, matmul, reshaped, summed, swapped, transpose
from trnqc.contraction.run.chain import run_chain
from trnqc.contraction.semiring import Semiring
from trnqc.contraction.tree import TreeNode
from trnqc.expression.operand import Leaf

# An array with the label of each axis as it lies in memory.
Labelled = tuple[Array, Labels]


def run_steps(
    library: ModuleType,
    steps: Sequence[LoweredStep],
    operands: Mapping[str, Array],
    gemm: Gemm | None = None,
    semiring: Semiring | None = None,
    chains: Sequence[StepChain] = (),
) -> Array:
    """Return the result of the last step with its axes in the order of its node.

    `operands` are arrays by name of leaf; in a semiring they are NumPy's, and so they are for `chains`, the steps that
    run in turns. A temporary is dropped as soon as its consumer has run.
    """
    results: dict[str, Labelled] = {}
    firsts, by_last = {chain.names[0] for chain in chains}, {chain.names[1]: chain for chain in chains}
    for step in steps:
        if step.node.name in firsts:
            continue
        if chain := by_last.get(step.node.name):
            arrays = {
                name: results.pop(o.name)[0] if isinstance(o, TreeNode) else operands[o.name]
                for name, o in chain.sources
            }
            results[step.node.name] = run_chain(chain, arrays), chain.order
            continue
        taken = [
            results.pop(o.name) if isinstance(o, TreeNode) else leaf(library, o, operands[o.name])
            for o in step.operands
        ]
        results[step.node.name] = apply(library, step, taken, gemm, semiring)
        del taken
    return arranged(results[steps[-1].node.name], steps[-1].node.indices)


def arranged(labelled: Labelled, labels: Labels) -> Array:
    """Return a view with its axes in the order of `labels`."""
    array, order = labelled
    return transpose(array, [order.index(label) for label in labels])


def leaf(library: ModuleType, operand: Leaf, array: Array) -> Labelled:
    """Return an operand after taking diagonals and reciprocals."""
    array, labels = diagonal(library, array, operand.indices)
    return (1 / array if operand.reciprocal else array), labels


def apply(
    library: ModuleType,
    step: LoweredStep,
    operands: Sequence[Labelled],
    gemm: Gemm | None = None,
    semiring: Semiring | None = None,
) -> Labelled:
    """Return the result of one step on its operands."""
    operation = step.operation
    if isinstance(operation, AxisReduction):
        return arranged(_summed(operands[0], operation.sums, semiring), operation.order), operation.order
    if isinstance(operation, Packed):
        return _by_pairs(library, operands, operation, gemm)
    if isinstance(operation, PairLoop):
        return _in_turns(library, operands, operation, gemm)
    left, right = (_side(x, side, semiring) for x, side in zip(operands, (operation.left, operation.right)))
    if not operation.inner:
        return _by_elements(left, right, operation, semiring)
    return _by_matrices(library, left, right, operation, semiring.matmul if semiring else gemm)


def _by_pairs(library: ModuleType, operands: Sequence[Labelled], operation: Packed, gemm: Gemm | None) -> Labelled:
    """Multiply operands packed over pairs of labels, and spread the result where it has a pair."""
    sides = []
    summed = {name for name, _ in operation.sides[0].pairs} - set(operation.result.packed)
    for k, (operand, side) in enumerate(zip(operands, operation.sides)):
        array, labels = arranged(operand, side.order), list(side.order)
        for name, pair in side.pairs:
            place = labels.index(pair.first)
            # In one operand, elements of a summed pair are multiplied by their number of occurrences in the sum.
            array = packed(library, array, place, pair.sign, weighted=not k and name in summed)
            labels[place : place + 2] = [name]
        sides.append((array, tuple(labels)))
    array, order = apply(library, operation.step, sides, gemm)
    labels = list(order)
    for name, pair in operation.result.pairs:
        place = labels.index(name)
        array = spread(library, array, place, operation.tree.extent(pair.first), pair.sign)
        labels[place : place + 1] = [pair.first, pair.second]
    return array, tuple(labels)


def _in_turns(library: ModuleType, operands: Sequence[Labelled], operation: PairLoop, gemm: Gemm | None) -> Labelled:
    """Multiply slices of the operand that begins with a pair of labels, one for each element of the first label."""
    pair, holder, order = operation.pair, operation.holder, operation.order
    array, labels = operands[holder]
    extent, above = array.shape[0], int(pair.sign < 0)
    # Arrays of other libraries may not be written to, and neither may those that carry derivatives.
    in_place = not is_other(library) and not any(transform_of(x) for x, _ in operands)
    blocks, whole = [], None
    for turn in range(extent - above):
        sides = list(operands)
        sides[holder] = array[turn, turn + above :], labels[1:]
        block = arranged(apply(library, operation.step, sides, gemm), order[1:])
        if not in_place:
            blocks.append(block)
            continue
        if whole is None:
            shape, kind = (extent, extent, *block.shape[1:]), {"dtype": block.dtype}
            whole = library.zeros(shape, **kind | ({} if library is np else {"device": block.device}))
        whole[turn, turn + above :] = block
        whole[turn + above :, turn] = block if pair.sign > 0 else -block
    if whole is None:
        whole = spread(library, library.concat(blocks, axis=0), 0, extent, pair.sign)
    return whole, order


def _summed(operand: Labelled, labels: Labels, semiring: Semiring | None) -> Labelled:
    """Sum an operand over labels."""
    if not labels:
        return operand
    array, have = operand
    left = tuple(x for x in have if x not in labels)
    axes = tuple(axis for axis, x in enumerate(have) if x in labels)
    return (semiring.sum if semiring else summed)(array, axes), left


def _side(operand: Labelled, side: ProductSide, semiring: Semiring | None) -> Array:
    """Return an operand as it enters a product."""
    return arranged(_summed(operand, side.sums, semiring), side.order)


def _by_elements(left: Array, right: Array, operation: MatrixProduct, semiring: Semiring | None) -> Labelled:
    """Multiply elements, with axes of length 1 where one operand lacks a label of the result."""
    shaped = []
    for array, side in ((left, operation.left), (right, operation.right)):
        extents = dict(zip(side.order, array.shape))
        shaped.append(reshaped(array, tuple(extents.get(label, 1) for label in operation.order)))
    return (semiring.multiply if semiring else mul)(*shaped), operation.order


def _by_matrices(
    library: ModuleType, left: Array, right: Array, operation: MatrixProduct, gemm: Gemm | None
) -> Labelled:
    """Multiply stacked matrices."""
    extents = dict(zip(operation.left.order, left.shape)) | dict(zip(operation.right.order, right.shape))
    rows, columns, inner = (
        prod(extents[x] for x in group) for group in (operation.rows, operation.columns, operation.inner)
    )
    stacks = operation.stacks(extents.__getitem__)
    a_t = _matrices(left, stacks[0], rows, inner, operation.left.flipped)
    b = _matrices(right, stacks[1], columns, inner, operation.right.flipped)
    result = matmul(library, swapped(a_t), b) if gemm is None else _by_gemm(gemm, a_t, b)
    return reshaped(result, tuple(extents[x] for x in operation.order)), operation.order


def _by_gemm(gemm: Gemm, a_t: Array, b: Array) -> Array:
    """Multiply stacks of matrices, one of which may be the same along some axes of the stack."""
    stack = np.broadcast_shapes(tuple(a_t.shape[:-2]), tuple(b.shape[:-2]))
    own = [axis for axis, (m, n) in enumerate(zip(a_t.shape, b.shape[:-2])) if m != n]
    if own and a_t.shape[own[0]] == 1:
        return swapped(_by_gemm(gemm, b, a_t))
    # Axes that the right side lacks become rows of the left one.
    shared, first = [axis for axis in range(len(stack)) if axis not in own], len(stack)
    many, rows = [stack[axis] for axis in shared], [*(stack[axis] for axis in own), a_t.shape[-1]]
    left = reshaped(transpose(a_t, [*shared, first, *own, first + 1]), (prod(many), a_t.shape[-2], prod(rows)))
    result = gemm(left, reshaped(b, (prod(many), *b.shape[-2:])))
    back = [*np.argsort([*shared, *own]).tolist(), first, first + 1]
    return transpose(reshaped(result, (*many, *rows, b.shape[-1])), back)


def _matrices(array: Array, stack: tuple[int, ...], own: int, inner: int, flipped: bool) -> Array:
    """Return the operand as a stack of matrices [inner, own]; a view where its axes allow it."""
    if flipped:
        return reshaped(array, (*stack, inner, own))
    return swapped(reshaped(array, (*stack, own, inner)))
