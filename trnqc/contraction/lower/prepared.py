"""A product of NumPy arrays as a list of calls of NumPy, whose axes and shapes are worked out once.

The steps of a plan run on any array library and on slices. `run_steps` therefore looks up labels in every call, which
takes longer than the arithmetic of small arrays. For NumPy arrays of known shapes the same steps are calls with
constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from string import ascii_letters
from typing import Any

import numpy as np

from trnqc.contraction.lower.steps import (
    AxisReduction,
    Labels,
    LoweredStep,
    MatrixProduct,
    Packed,
    PairLoop,
    ProductSide,
)
from trnqc.contraction.products.arrays import diagonal, for_blas
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf

Unary = Callable[[np.ndarray], np.ndarray]
Binary = Callable[[np.ndarray, np.ndarray], np.ndarray]
Run = Callable[[Sequence[np.ndarray]], np.ndarray]


def prepared(tree: Tree, steps: Sequence[LoweredStep], names: Sequence[str]) -> Run | None:
    """Return a function that computes the last step from arrays of the operands `names`, in this order.

    The arrays are plain NumPy arrays of one type with the shapes of the tree. None if a step runs over pairs of labels
    once, or if an operand divides: these run in `run_steps` only.
    """
    if any(isinstance(step.operation, Packed | PairLoop) or any(_divides(o) for o in step.operands) for step in steps):
        return None
    places = {name: place for place, name in enumerate(names)}
    orders: dict[str, Labels] = {}
    calls = []
    for step in steps:
        have = [orders[o.name] if isinstance(o, TreeNode) else o.indices for o in step.operands]
        calls.append((_call(tree, step, have), tuple(places[o.name] for o in step.operands)))
        places[step.node.name], orders[step.node.name] = len(places), step.order
    last = _arranged(steps[-1].order, ProductSide((), steps[-1].node.indices))
    first = len(names)

    def run(arrays: Sequence[np.ndarray]) -> np.ndarray:
        values: list[Any] = list(arrays)
        for call, operands in calls:
            values.append(call(*(values[place] for place in operands)))
            for place in operands:
                if place >= first:
                    values[place] = None
        result = values[-1]
        return last(result) if last else result

    return run


def _divides(operand: Leaf | TreeNode) -> bool:
    return isinstance(operand, Leaf) and operand.reciprocal


def _call(tree: Tree, step: LoweredStep, have: Sequence[Labels]) -> Callable[..., np.ndarray]:
    """Return the function of one step; `have` are the labels of its operands as they lie in memory."""
    operation = step.operation
    have_all, diagonals = have, [_diagonal(labels) for labels in have]
    have = [tuple(dict.fromkeys(labels)) for labels in have]
    if isinstance(operation, AxisReduction):
        return _chained(diagonals[0], _arranged(have[0], ProductSide(operation.sums, operation.order))) or _same
    assert isinstance(operation, MatrixProduct)
    if _is_read_once(operation):
        return _loop(step, have_all)
    sides = (operation.left, operation.right)
    a, b = (_chained(d, _arranged(labels, side)) for d, labels, side in zip(diagonals, have, sides))
    return _matrices(tree, operation, a, b) if operation.inner else _elements(tree, operation, a, b)


def _is_read_once(operation: MatrixProduct) -> bool:
    """Whether a matrix times a vector would copy the matrix, which takes longer than the product."""
    sides = ((operation.left, operation.rows), (operation.right, operation.columns))
    return operation.kind in ("gemv", "dot") and any(side.copied and (own or not operation.rows) for side, own in sides)


def _loop(step: LoweredStep, have: Sequence[Labels]) -> Binary:
    """Return a step as one loop over all labels."""
    letters = dict(zip(dict.fromkeys(label for labels in have for label in labels), ascii_letters))
    inputs, output = (["".join(letters[x] for x in labels) for labels in group] for group in (have, [step.order]))
    text = f"{','.join(inputs)}->{output[0]}"
    return lambda a, b: np.asarray(np.einsum(text, a, b))


def _elements(tree: Tree, operation: MatrixProduct, first: Unary | None, second: Unary | None) -> Binary:
    """Return the product of elements, with axes of length 1 where one operand lacks a label of the result."""
    left, right = (
        tuple(tree.extent(label) if label in side.order else 1 for label in operation.order)
        for side in (operation.left, operation.right)
    )

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = first(a) if first else a, second(b) if second else b
        return np.multiply(a.reshape(left), b.reshape(right))

    return multiply


def _matrices(tree: Tree, operation: MatrixProduct, first: Unary | None, second: Unary | None) -> Binary:
    """Return the product of stacked matrices."""
    stacks = operation.stacks(tree.extent)
    rows, columns, inner = (
        prod(tree.extent(label) for label in group) for group in (operation.rows, operation.columns, operation.inner)
    )
    turned, flipped = operation.left.flipped, operation.right.flipped
    left = (*stacks[0], inner, rows) if turned else (*stacks[0], rows, inner)
    right = (*stacks[1], inner, columns) if flipped else (*stacks[1], columns, inner)
    shape = tuple(tree.extent(label) for label in operation.order)

    def multiply(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a = (first(a) if first else a).reshape(left)
        b = (second(b) if second else b).reshape(right)
        if turned:
            a = a.swapaxes(-1, -2)
        if not flipped:
            b = b.swapaxes(-1, -2)
        return np.matmul(for_blas(a), for_blas(b)).reshape(shape)

    return multiply


def _arranged(labels: Labels, side: ProductSide) -> Unary | None:
    """Return the function that sums an array over labels and turns the others into the order of a side.

    None if nothing is to be done.
    """
    sums = tuple(axis for axis, label in enumerate(labels) if label in side.sums)
    left = [label for label in labels if label not in side.sums]
    axes = tuple(left.index(label) for label in side.order)
    summed: Unary | None = (lambda x: x.sum(sums)) if sums else None
    return _chained(summed, (lambda x: x.transpose(axes)) if axes != tuple(range(len(axes))) else None)


def _diagonal(labels: Labels) -> Unary | None:
    """Return the function that takes the diagonal of axes of equal labels; None if all labels differ."""
    return (lambda x: diagonal(np, x, labels)[0]) if len(set(labels)) < len(labels) else None


def _chained(first: Unary | None, second: Unary | None) -> Unary | None:
    """Return x -> second(first(x)), where None stands for the function that returns its argument."""
    if first is None or second is None:
        return second if first is None else first
    inner, outer = first, second
    return lambda x: outer(inner(x))


def _same(x: np.ndarray) -> np.ndarray:
    return x
