"""How a product of slices runs: which axes become matrices, and which slices are copied first.

BLAS needs matrices whose rows or columns are contiguous. `product_plan` decides from the strides alone which axes
become rows, columns and summed axes of matrices, which axes are looped over, and which slices are copied (packed)
first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from math import prod

Labels = tuple[str, ...]


# Relative times on a CPU: moving one element (the unit), one multiply-add of a large matrix product, and the
# overhead of starting a product.
MOVE, MULTIPLY_ADD, START = 1.0, 0.1, 500.0


@dataclass(frozen=True)
class LabelStrides:
    """Labels with their strides in elements.

    `changed` says that the elements must be converted first, to another dtype or to 1/x.
    """

    strides: tuple[tuple[str, int], ...]
    changed: bool = False

    @property
    def labels(self) -> Labels:
        """The labels."""
        return tuple(label for label, _ in self.strides)


def row_major(labels: Sequence[str], extents: Mapping[str, int]) -> LabelStrides:
    """Return the layout of a new array with its last label fastest."""
    strides, step = [], 1
    for label in reversed(labels):
        strides.append((label, step))
        step *= extents[label]
    return LabelStrides(tuple(reversed(strides)))


@dataclass(frozen=True)
class ProductPlan:
    """How one product runs: loops over products of matrices [rows, inner] x [inner, columns].

    Without inner labels, elements are multiplied. `packed` operands are copied first; a `buffered` result is formed in
    scratch and then moved. `scratch` is the elements of these copies, `cost` the estimated time in units of moving one
    element.
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
    result: LabelStrides,
    operands: tuple[LabelStrides, ...],
    accumulate: bool,
    room: int = 0,
) -> ProductPlan:
    """Return the plan of least estimated time for one step on slices with these lengths along each label.

    A plan within `room` elements of scratch is preferred if it is nearly as fast; `accumulate`: the product is added to
    the result.
    """
    size = dict(extents)

    def elements(labels: Sequence[str]) -> int:
        return prod(size[label] for label in labels)

    kept = [_kept(k, operands, result.labels) for k in range(len(operands))]
    must = tuple(o.changed or len(k) < len(o.labels) for o, k in zip(operands, kept))
    inner = [x for x in kept[0] if x not in result.labels] if len(operands) == 2 else []
    if not inner:
        # A single operand is summed or copied by one call. A sum that must be added is buffered first.
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
    # Dividing a product costs little, but a plan of nearly the same cost that fits is preferred.
    fitting = [plan for plan in plans if plan.scratch <= room and plan.cost < 1.2 * best.cost]
    return min(fitting, key=lambda plan: (plan.cost, plan.scratch), default=best)


def _kept(k: int, operands: tuple[LabelStrides, ...], result: Labels) -> Labels:
    """Return the labels of an operand that the result or the other operand has; the others are summed first."""
    elsewhere = {*result, *(label for j, o in enumerate(operands) if j != k for label in o.labels)}
    return tuple(label for label in operands[k].labels if label in elsewhere)


def _as_matrices(
    size: Mapping[str, int],
    result: LabelStrides,
    operands: tuple[LabelStrides, ...],
    kept: Sequence[Labels],
    packed: tuple[bool, ...],
    buffered: bool,
    lead: int,
) -> ProductPlan | None:
    """Return the plan for a choice of copies; None if BLAS could not read some matrix.

    lead: the operand whose order of summed labels is taken.
    """
    left, right = operands

    def descending(layout: LabelStrides, labels: Sequence[str]) -> list[str]:
        strides = dict(layout.strides)
        return sorted(labels, key=lambda label: -strides[label])

    inner = descending(operands[lead], [x for x in kept[0] if x not in result.labels])
    lying = [o for o, p in zip(operands, packed) if not p]
    if any(_stride(inner, size, o) is None for o in lying):
        return None

    def group(operand: LabelStrides, moved: bool, labels: list[str]) -> list[str]:
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
    # BLAS copies both operands into panels, and short sums do not fill its pipelines.
    slow = (1 + 25 / m + 25 / n) * (1 + 8 / k)
    cost = 2 * MOVE * sum(copied) + many * (START + MULTIPLY_ADD * m * n * k * slow)
    return ProductPlan(
        tuple(loops), tuple(rows), tuple(columns), tuple(inner), tuple(packed), buffered, sum(copied), cost
    )


def _stride(labels: Sequence[str], size: Mapping[str, int], layout: LabelStrides) -> int | None:
    """Return the stride of the labels as one axis; None if they do not form one, 0 for a single element."""
    strides = dict(layout.strides)
    run = [label for label in labels if size[label] > 1]
    if any(strides[one] != strides[two] * size[two] for one, two in pairwise(run)):
        return None
    return strides[run[-1]] if run else 0


def _suits(rows: Sequence[str], columns: Sequence[str], size: Mapping[str, int], layout: LabelStrides) -> bool:
    """Return whether BLAS can read the matrix: one axis is dense, and the stride of the other is not shorter."""
    m, n = (prod(size[x] for x in labels) for labels in (rows, columns))
    down, across = _stride(rows, size, layout), _stride(columns, size, layout)
    if down is None or across is None:
        return False
    by_rows = (n == 1 or across == 1) and (m == 1 or down >= n)
    by_columns = (m == 1 or down == 1) and (n == 1 or across >= m)
    return by_rows or by_columns
