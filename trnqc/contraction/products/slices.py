"""Products of slices, written straight into a slice of the result without hidden copies.

Copies that a `ProductPlan` requires lie in the scratch buffer of the caller; if it is too small, the product is divided
in halves until they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from trnqc.contraction.kernels import Gemm
from trnqc.contraction.products.product_plan import Labels, LabelStrides, ProductPlan, product_plan

# Elements of scratch that suffice for any product: one element of each operand and of the result.
LEAST_SCRATCH = 3


@dataclass(frozen=True)
class Slice:
    """A view with the label of each axis; with `reciprocal` it stands for 1/x of each element."""

    array: np.ndarray
    labels: Labels
    reciprocal: bool = False

    def part(self, label: str, start: int, stop: int) -> Slice:
        """Return the slice cut along one label; itself if it lacks the label."""
        if label not in self.labels:
            return self
        cut = tuple(slice(start, stop) if x == label else slice(None) for x in self.labels)
        return Slice(self.array[cut], self.labels, self.reciprocal)


def multiply(
    result: Slice, operands: Sequence[Slice], accumulate: bool, scratch: np.ndarray, gemm: Gemm | None = None
) -> None:
    """Write or add the product of one or two slices, summed over the labels that the result lacks.

    All copies lie in `scratch`, at least LEAST_SCRATCH elements of the result's dtype; `gemm` replaces NumPy's product
    of stacked matrices, its own memory not counted.
    """
    extents = {x: n for s in operands for x, n in zip(s.labels, s.array.shape)}
    lone = next((x for x in _inverted_and_summed(result, operands) if extents[x] > 1), None)
    if lone is not None:
        for k in range(extents[lone]):
            multiply(result, [s.part(lone, k, k + 1) for s in operands], accumulate or k > 0, scratch, gemm)
        return
    plan = _plan_of(extents, result, operands, accumulate, scratch.size)
    if plan.scratch <= scratch.size:
        _run(plan, extents, result, operands, accumulate, scratch, gemm)
        return

    def need(label: str) -> tuple[int, bool, int]:
        half = extents | {label: -(-extents[label] // 2)}
        again = accumulate or label not in result.labels
        parts = [s.part(label, 0, half[label]) for s in (result, *operands)]
        return (
            _plan_of(half, parts[0], parts[1:], again, scratch.size).scratch,
            label not in result.labels,
            -half[label],
        )

    label = min((x for x, n in extents.items() if n > 1), key=need)
    middle = -(-extents[label] // 2)
    for start, stop in ((0, middle), (middle, extents[label])):
        parts = [s.part(label, start, stop) for s in operands]
        again = accumulate or (start > 0 and label not in result.labels)
        multiply(result.part(label, start, stop), parts, again, scratch, gemm)


def exchange(result: Slice, inner: Slice, other: Slice, scratch: np.ndarray, gemm: Gemm | None = None) -> None:
    """Write the product of `inner` and `other`, where `inner` lies in the memory of the result and is overwritten.

    `inner` has the labels of the result on the same axes, except for one axis with a summed label. Its blocks are
    copied to `scratch`, which needs room for that axis beyond `multiply`'s, multiplied and written back.
    """
    cut = next((x for x, n in zip(inner.labels, inner.array.shape) if x in result.labels and n > 1), None)
    if cut and 2 * inner.array.size > scratch.size:
        length = inner.array.shape[inner.labels.index(cut)]
        middle = -(-length // 2)
        for start, stop in ((0, middle), (middle, length)):
            one, two, three = (s.part(cut, start, stop) for s in (result, inner, other))
            exchange(one, two, three, scratch, gemm)
        return
    aside = scratch[: inner.array.size].reshape(inner.array.shape)
    np.copyto(aside, inner.array)
    multiply(result, [Slice(aside, inner.labels), other], False, scratch[inner.array.size :], gemm)


def _inverted_and_summed(result: Slice, operands: Sequence[Slice]) -> list[str]:
    """Return the labels over which reciprocals are summed; a copy cannot invert and sum at the same time."""
    return [
        x
        for k, s in enumerate(operands)
        if s.reciprocal
        for x in s.labels
        if x not in result.labels and not any(x in o.labels for j, o in enumerate(operands) if j != k)
    ]


def _plan_of(
    extents: Mapping[str, int], result: Slice, operands: Sequence[Slice], accumulate: bool, room: int
) -> ProductPlan:
    """Return the plan of a product of slices."""
    dtype = result.array.dtype
    layouts = tuple(_layout(s, s.reciprocal or s.array.dtype != dtype) for s in operands)
    return product_plan(tuple(extents.items()), _layout(result, False), layouts, accumulate, room)


def _layout(operand: Slice, changed: bool) -> LabelStrides:
    """Return the layout of a slice."""
    itemsize = operand.array.itemsize
    strides = tuple((x, s // itemsize) for x, s in zip(operand.labels, operand.array.strides))
    # Strides of fields of records need not be multiples of the element; such operands are copied.
    return LabelStrides(strides, changed or any(s % itemsize for s in operand.array.strides))


def _run(
    plan: ProductPlan,
    extents: Mapping[str, int],
    result: Slice,
    operands: Sequence[Slice],
    accumulate: bool,
    scratch: np.ndarray,
    gemm: Gemm | None,
) -> None:
    """Run a planned product whose copies fit into the scratch."""
    taken = 0

    def buffer(labels: Labels) -> Slice:
        nonlocal taken
        shape = tuple(extents[x] for x in labels)
        array = scratch[taken : taken + prod(shape)].reshape(shape)
        taken += prod(shape)
        return Slice(array, labels)

    target = buffer((*plan.loops, *plan.rows, *plan.columns)) if plan.buffered else result
    if len(operands) == 1:
        _sum_one(operands[0], target, buffer if plan.packed[0] else None, add=accumulate and not plan.buffered)
    else:
        groups = ((*plan.rows, *plan.inner), (*plan.inner, *plan.columns))
        sides = []
        for k, (operand, own) in enumerate(zip(operands, groups)):
            if plan.packed[k]:
                own = own if plan.inner else tuple(x for x in plan.loops if x in operand.labels)
                loops = tuple(x for x in plan.loops if x in operand.labels and x not in own)
                operand = _packed(operand, buffer((*loops, *own)))
            sides.append(operand)
        if plan.inner:
            left, right = (
                _matrices(side, plan.loops, one, two, extents)
                for side, one, two in zip(sides, (plan.rows, plan.inner), (plan.inner, plan.columns))
            )
            into = _matrices(target, plan.loops, plan.rows, plan.columns, extents)
            if gemm is None:
                np.matmul(left, right, out=into)
            else:
                stacked = left.swapaxes(-1, -2).reshape(-1, *left.shape[:-3:-1]), right.reshape(-1, *right.shape[-2:])
                into[...] = gemm(*stacked).reshape(into.shape)
        else:
            one, two = (_spread(side, target.labels) for side in sides)
            np.multiply(one, two, out=target.array)
    if plan.buffered:
        order = [target.labels.index(x) for x in result.labels]
        if accumulate:
            np.add(result.array, target.array.transpose(order), out=result.array)
        else:
            np.copyto(result.array, target.array.transpose(order))


def _sum_one(operand: Slice, target: Slice, buffer: Callable[[Labels], Slice] | None, add: bool) -> None:
    """Sum, copy or add a single operand."""
    if buffer is not None:
        operand = _packed(operand, buffer(operand.labels))
    gone = tuple(axis for axis, x in enumerate(operand.labels) if x not in target.labels)
    left = [x for x in operand.labels if x in target.labels]
    into = target.array.transpose([target.labels.index(x) for x in left])
    if add:
        np.add(into, operand.array, out=into)
    elif gone:
        np.add.reduce(operand.array, axis=gone, out=into)
    else:
        np.copyto(into, operand.array)


def _packed(operand: Slice, into: Slice) -> Slice:
    """Copy the operand into a buffer, summed over the labels that the buffer lacks."""
    gone = tuple(axis for axis, x in enumerate(operand.labels) if x not in into.labels)
    left = [x for x in operand.labels if x in into.labels]
    target = into.array.transpose([into.labels.index(x) for x in left])
    if operand.reciprocal:
        one = operand.array[tuple(0 if axis in gone else slice(None) for axis in range(operand.array.ndim))]
        np.divide(1, one, out=target, casting="same_kind")
    elif gone:
        np.add.reduce(operand.array, axis=gone, out=target, dtype=target.dtype)
    else:
        np.copyto(target, operand.array, casting="same_kind")
    return into


def _matrices(side: Slice, loops: Labels, one: Labels, two: Labels, extents: Mapping[str, int]) -> np.ndarray:
    """Return a view as a stack of matrices over the loops, broadcast where the slice lacks one."""
    step = dict(zip(side.labels, side.array.strides))
    shape = [extents[x] for x in loops]
    strides = [step.get(x, 0) for x in loops]
    counts = [prod(extents[x] for x in labels) for labels in (one, two)]
    inner = [next((step[x] for x in reversed(labels) if extents[x] > 1), 0) for labels in (one, two)]
    dense = side.array.itemsize
    # The stride of an axis of one element is arbitrary; BLAS needs one for which the other axis is dense.
    for here, there in ((0, 1), (1, 0)):
        if counts[here] == 1:
            inner[here] = dense if inner[there] not in (0, dense) else max(counts[there], 1) * dense
    if counts == [1, 1]:
        inner = [dense, dense]
    return as_strided(side.array, (*shape, *counts), (*strides, *inner))


def _spread(side: Slice, labels: Labels) -> np.ndarray:
    """Return the slice with its axes in the order of `labels`, of length one where it lacks a label."""
    have = [x for x in labels if x in side.labels]
    array = side.array.transpose([side.labels.index(x) for x in have])
    return array[tuple(slice(None) if x in have else None for x in labels)]
