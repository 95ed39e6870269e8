"""Products of slices straight into a slice of the result, with no hidden copies: all memory that is used is given.

BLAS wants matrices whose rows or columns lie together. `product_plan` decides from the strides alone which axes become
rows, columns and summed axes of matrices, which axes are looped over, and which slices must be copied first (packed).
Copies live in the scratch buffer of the caller; if it is too small the product is cut in halves until they fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod

import numpy as np
from numpy.lib.stride_tricks import as_strided

from trnqc.contraction.kernels import Gemm

Labels = tuple[str, ...]

# Relative times on a CPU: moving one element, one multiply-add of a large matrix product, starting one product.
MOVE, MULTIPLY_ADD, START = 1.0, 0.1, 500.0

# Elements with which any product runs, if need be element by element: two operands and the result.
LEAST_SCRATCH = 3


@dataclass(frozen=True)
class Slice:
    """A view with the label of each axis. reciprocal: 1/x of each element is meant."""

    array: np.ndarray
    labels: Labels
    reciprocal: bool = False

    def part(self, label: str, start: int, stop: int) -> Slice:
        """The slice cut along one label; itself if it does not have it."""
        if label not in self.labels:
            return self
        cut = tuple(slice(start, stop) if x == label else slice(None) for x in self.labels)
        return Slice(self.array[cut], self.labels, self.reciprocal)


@dataclass(frozen=True)
class Layout:
    """Labels with their strides in elements. changed: not usable as it lies (another dtype, or 1/x is meant)."""

    strides: tuple[tuple[str, int], ...]
    changed: bool = False

    @property
    def labels(self) -> Labels:
        return tuple(label for label, _ in self.strides)


def row_major(labels: Sequence[str], extents: Mapping[str, int]) -> Layout:
    """The layout of a new array with its last label fastest."""
    strides, step = [], 1
    for label in reversed(labels):
        strides.append((label, step))
        step *= extents[label]
    return Layout(tuple(reversed(strides)))


@dataclass(frozen=True)
class ProductPlan:
    """How one product runs: loops x [rows, inner] x [inner, columns]; no inner labels: element by element.

    packed: which operands are copied first; buffered: the result is made in scratch and then moved. scratch: elements
    for that. cost: estimated time in moves of an element.
    """

    loops: Labels
    rows: Labels
    columns: Labels
    inner: Labels
    packed: tuple[bool, ...]
    buffered: bool
    scratch: int
    cost: float


@lru_cache(maxsize=20_000)
def product_plan(
    extents: tuple[tuple[str, int], ...],
    result: Layout,
    operands: tuple[Layout, ...],
    accumulate: bool,
    room: int = 0,
) -> ProductPlan:
    """The cheapest way to run one step on slices of these extents and layouts. room: elements of scratch there are."""
    size = dict(extents)

    def elements(labels: Sequence[str]) -> int:
        return prod(size[label] for label in labels)

    kept = [_kept(k, operands, result.labels) for k in range(len(operands))]
    must = tuple(o.changed or len(k) < len(o.labels) for o, k in zip(operands, kept))
    inner = [x for x in kept[0] if x not in result.labels] if len(operands) == 2 else []
    if not inner:
        # A single operand is summed or copied by one call; only where that must be added is it buffered.
        if len(operands) == 1:
            must = (operands[0].changed,)
        buffered = accumulate and not (len(operands) == 1 and len(kept[0]) == len(operands[0].labels))
        scratch = sum(elements(k) for k, m in zip(kept, must) if m) + buffered * elements(result.labels)
        if len(operands) == 1 and must[0]:
            scratch = elements(operands[0].labels) + buffered * elements(result.labels)
        return ProductPlan(result.labels, (), (), (), must, buffered, scratch, elements(list(size)) * MOVE)
    plans = []
    for packed in product(*([True] if m else [False, True] for m in must)):
        for buffered in (True,) if accumulate else (False, True):
            for lead in (0, 1):
                plan = _as_matrices(size, result, operands, kept, packed, buffered, lead)
                if plan is not None:
                    plans.append(plan)
    best = min(plans, key=lambda plan: (plan.cost, plan.scratch))
    # Cutting costs little, but a plan that is nearly as good and needs no cut is better.
    fitting = [plan for plan in plans if plan.scratch <= room and plan.cost < 1.2 * best.cost]
    return min(fitting, key=lambda plan: (plan.cost, plan.scratch), default=best)


def _kept(k: int, operands: tuple[Layout, ...], result: Labels) -> Labels:
    """Labels of an operand that the result or the other operand has; the others are summed beforehand."""
    elsewhere = {*result, *(label for j, o in enumerate(operands) if j != k for label in o.labels)}
    return tuple(label for label in operands[k].labels if label in elsewhere)


def _as_matrices(
    size: Mapping[str, int],
    result: Layout,
    operands: tuple[Layout, ...],
    kept: Sequence[Labels],
    packed: tuple[bool, ...],
    buffered: bool,
    lead: int,
) -> ProductPlan | None:
    """The plan under the given choice of copies; None if some matrix would not suit BLAS. lead: whose order of summed
    labels is taken."""
    left, right = operands

    def descending(layout: Layout, labels: Sequence[str]) -> list[str]:
        strides = dict(layout.strides)
        return sorted(labels, key=lambda label: -strides[label])

    inner = descending(operands[lead], [x for x in kept[0] if x not in result.labels])
    lying = [o for o, p in zip(operands, packed) if not p]
    if any(_stride(inner, size, o) is None for o in lying):
        return None

    def group(operand: Layout, moved: bool, labels: list[str]) -> list[str]:
        """The largest run of labels that is one axis both in the operand and in the result, where these stay."""
        layouts = ([] if moved else [operand]) + ([] if buffered else [result])
        ordered = descending(layouts[0] if layouts else operand, labels)
        runs = [ordered[i:j] for i in range(len(ordered)) for j in range(i + 1, len(ordered) + 1)]
        fitting = [run for run in runs if all(_stride(run, size, layout) is not None for layout in layouts)]
        return max(fitting, key=lambda run: prod(size[x] for x in run), default=[])

    rows = group(left, packed[0], [x for x in kept[0] if x in result.labels and x not in kept[1]])
    columns = group(right, packed[1], [x for x in kept[1] if x in result.labels and x not in kept[0]])
    matrices = [(left, rows, inner), (right, inner, columns)]
    if not all(moved or _suits(one, two, size, layout) for (layout, one, two), moved in zip(matrices, packed)):
        return None
    if not buffered and not _suits(rows, columns, size, result):
        return None
    loops = [x for x in result.labels if x not in rows and x not in columns]
    m, n, k = (prod(size[x] for x in labels) for labels in (rows, columns, inner))
    copied = [prod(size[x] for x in labels) for labels, moved in zip(kept, packed) if moved]
    if buffered:
        copied.append(prod(size[x] for x in result.labels))
    many = prod(size[x] for x in loops)
    # BLAS copies both operands into panels of its own, and a short sum does not fill its pipelines.
    slow = (1 + 25 / m + 25 / n) * (1 + 8 / k)
    cost = 2 * MOVE * sum(copied) + many * (START + MULTIPLY_ADD * m * n * k * slow)
    return ProductPlan(
        tuple(loops), tuple(rows), tuple(columns), tuple(inner), tuple(packed), buffered, sum(copied), cost
    )


def _stride(labels: Sequence[str], size: Mapping[str, int], layout: Layout) -> int | None:
    """The stride of the labels as one axis; None if they do not lie as one; 0 if there is one element only."""
    strides = dict(layout.strides)
    run = [label for label in labels if size[label] > 1]
    if any(strides[one] != strides[two] * size[two] for one, two in pairwise(run)):
        return None
    return strides[run[-1]] if run else 0


def _suits(rows: Sequence[str], columns: Sequence[str], size: Mapping[str, int], layout: Layout) -> bool:
    """Whether BLAS takes the matrix as it lies: one axis dense, the other not shorter than it."""
    m, n = (prod(size[x] for x in labels) for labels in (rows, columns))
    down, across = _stride(rows, size, layout), _stride(columns, size, layout)
    if down is None or across is None:
        return False
    by_rows = (n == 1 or across == 1) and (m == 1 or down >= n)
    by_columns = (m == 1 or down == 1) and (n == 1 or across >= m)
    return by_rows or by_columns


def multiply(
    result: Slice, operands: Sequence[Slice], accumulate: bool, scratch: np.ndarray, gemm: Gemm | None = None
) -> None:
    """result = (or +=) the product of one or two slices, summed over the labels that the result lacks.

    scratch: LEAST_SCRATCH or more elements of the result's dtype; not more than it holds is ever copied here. gemm:
    takes the place of NumPy's product of stacked matrices; what it holds itself is its own.
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
    """result = inner times other, where inner lies in the memory of the result and is lost.

    inner: all labels of the result but one, in the same places, and for that one another that is summed. Blocks of it
    are copied to the scratch, multiplied and written back. scratch: as of `multiply`, and inner's summed axis.
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
    """Labels of which sums of reciprocals are meant: no buffer takes reciprocals and sums in one go."""
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
    dtype = result.array.dtype
    layouts = tuple(_layout(s, s.reciprocal or s.array.dtype != dtype) for s in operands)
    return product_plan(tuple(extents.items()), _layout(result, False), layouts, accumulate, room)


def _layout(found: Slice, changed: bool) -> Layout:
    strides = tuple((x, s // found.array.itemsize) for x, s in zip(found.labels, found.array.strides))
    # A stride of half an element, of a field of a record, suits nobody.
    return Layout(strides, changed or any(s % found.array.itemsize for s in found.array.strides))


def _run(
    plan: ProductPlan,
    extents: Mapping[str, int],
    result: Slice,
    operands: Sequence[Slice],
    accumulate: bool,
    scratch: np.ndarray,
    gemm: Gemm | None,
) -> None:
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
    """The operand in a buffer, with the labels that the buffer lacks summed."""
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
    """A stack of matrices over the loops, broadcast where the slice lacks one; always a view."""
    step = dict(zip(side.labels, side.array.strides))
    shape = [extents[x] for x in loops]
    strides = [step.get(x, 0) for x in loops]
    counts = [prod(extents[x] for x in labels) for labels in (one, two)]
    found = [next((step[x] for x in reversed(labels) if extents[x] > 1), 0) for labels in (one, two)]
    dense = side.array.itemsize
    # An axis of one element has any stride; the one that makes the other axis look dense suits BLAS.
    for here, there in ((0, 1), (1, 0)):
        if counts[here] == 1:
            found[here] = dense if found[there] not in (0, dense) else max(counts[there], 1) * dense
    if counts == [1, 1]:
        found = [dense, dense]
    return as_strided(side.array, (*shape, *counts), (*strides, *found))


def _spread(side: Slice, labels: Labels) -> np.ndarray:
    """The slice with its axes in the order of `labels`, one element long where it has none."""
    have = [x for x in labels if x in side.labels]
    array = side.array.transpose([side.labels.index(x) for x in have])
    return array[tuple(slice(None) if x in have else None for x in labels)]
