"""From the steps of a tree to the array operations of `run.steps`.

Adjacent axes of an operand are merged by views. The orders of the groups of labels are chosen so that few elements are
copied, also by the consumer of the result. Extents only weight the choice: the same operations run on slices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import product

from trnqc.contraction.lower.steps import (
    AxisReduction,
    Labels,
    LoweredStep,
    MatrixProduct,
    Packed,
    PairLoop,
    ProductSide,
)
from trnqc.contraction.order.symmetric_pairs import Packing, packing, passes
from trnqc.contraction.tree import Pair, Tree, TreeNode, union
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index

# BLAS packs a long left operand more slowly if its summed labels come first: by this many copies of it, measured with
# OpenBLAS for 60 x 216 000 by 60 x 4 to 100 on an AMD EPYC, with AVX-512 and without. The product of the short operand
# with it, whose result has the axes the other way round, is faster.
TURNED = 0.65
# Elements that are copied in the time in which the product of one more pair of matrices is started.
START = 1000


def lower(tree: Tree) -> tuple[LoweredStep, ...]:
    """Return one operation for each step of the tree.

    Operands are expected in C order, with the last of their labels fastest.
    """
    orders: dict[str, Labels] = {}
    steps = []
    pairs = dict(tree.pairs)
    for node in tree.nodes:
        if node.name in pairs:
            chosen = pairs[node.name]
            step = (_loop if chosen[0].leads else _packed)(tree, node, orders, chosen)
        else:
            step = _sum(node, orders) if len(node.operands) == 1 else _product(tree, node, orders)
        orders[node.name] = step.order
        steps.append(step)
    return tuple(steps)


def _packed(tree: Tree, node: TreeNode, orders: Mapping[str, Labels], pairs: tuple[Pair, ...]) -> LoweredStep:
    """Return the step over pairs of labels."""
    named = [(pair.name, pair) for pair in pairs]
    indices = dict(tree.indices)
    for name, pair in named:
        symbol = f"({tree.indices[pair.first].symbol}{'<' if pair.sign < 0 else '≤'})"
        indices[name] = Index(name, passes(tree.extent(pair.first), pair.sign), symbol)
    sides = [packing(stored(operand, orders), named) for operand in node.operands]
    result = packing(node.indices, named)
    leaves = tuple(
        Leaf(f"{operand.name}.{k}", side.packed, k) for k, (operand, side) in enumerate(zip(node.operands, sides))
    )
    small = Tree(TreeNode(node.name, result.packed, leaves), indices)
    (step,) = lower(small)
    turned = [leaves.index(leaf) for leaf in step.operands]
    order: list[str] = []
    firsts = dict(named)
    for label in step.order:
        order += [firsts[label].first, firsts[label].second] if label in firsts else [label]
    result = Packing(tuple(order), step.order, tuple((n, p) for n, p in named if n in step.order))
    operation = Packed(small, step, tuple(sides[k] for k in turned), result)
    return LoweredStep(node, operation, tuple(node.operands[k] for k in turned))


def _loop(tree: Tree, node: TreeNode, orders: Mapping[str, Labels], pairs: tuple[Pair, ...]) -> LoweredStep:
    """Return the step that loops over a pair of labels with which one operand begins."""
    (pair,) = pairs
    leaves = tuple(
        Leaf(f"{operand.name}.{k}", tuple(x for x in stored(operand, orders) if x != pair.first), k)
        for k, operand in enumerate(node.operands)
    )
    labels = union((pair.second,), (x for x in node.indices if x != pair.first))
    small = Tree(TreeNode(node.name, labels, leaves), tree.indices)
    (step,) = lower(small)
    turned = [leaves.index(leaf) for leaf in step.operands]
    operation = PairLoop(small, step, pair, turned.index(pair.held.index(True)))
    return LoweredStep(node, operation, tuple(node.operands[k] for k in turned))


def stored(operand: Leaf | TreeNode, orders: Mapping[str, Labels]) -> Labels:
    """Return the labels of an operand as it lies in memory, with diagonals taken; orders: of earlier results."""
    return orders[operand.name] if isinstance(operand, TreeNode) else union(operand.indices)


def _sum(node: TreeNode, orders: Mapping[str, Labels]) -> LoweredStep:
    """Return the step that sums or copies one operand."""
    have = stored(node.operands[0], orders)
    return LoweredStep(
        node, AxisReduction(tuple(x for x in have if x not in node.indices), node.indices), node.operands
    )


def _product(tree: Tree, node: TreeNode, orders: Mapping[str, Labels]) -> LoweredStep:
    """Return the step of a product that copies least."""
    left, right = node.operands
    choices = _choices(tree, node, (left, right), orders)
    return min(choices, key=lambda choice: choice[0])[1]


def _choices(
    tree: Tree, node: TreeNode, operands: tuple[Leaf | TreeNode, Leaf | TreeNode], orders: Mapping[str, Labels]
) -> Iterator[tuple[float, LoweredStep]]:
    """Yield (elements copied, step) for the orders of the groups of labels that operands and result suggest."""
    kept = set(node.indices)
    wishes = _wishes(tree, node)
    for pair in (operands, operands[::-1]):
        have = [stored(operand, orders) for operand in pair]
        sums = [tuple(x for x in h if x not in other and x not in kept) for h, other in zip(have, have[::-1])]
        a, b = (tuple(x for x in h if x not in s) for h, s in zip(have, sums))
        both = [x for x in a if x in b]
        if all(x in kept for x in both):
            order = node.indices if wishes is None else _grouped(node.indices, wishes)
            sides = [ProductSide(s, tuple(x for x in order if x in h)) for s, h in zip(sums, have)]
            own = [tuple(x for x in order if x in h and x not in both) for h in (a, b)]
            batch = tuple(x for x in order if x in both)
            yield 0, LoweredStep(node, MatrixProduct(batch, own[0], own[1], (), sides[0], sides[1], order), pair)
            continue
        groups = {
            "batch": [x for x in both if x in kept],
            "rows": [x for x in a if x not in both],
            "columns": [x for x in b if x not in both],
            "inner": [x for x in both if x not in kept],
        }
        guides = [a, b, node.indices, *([] if wishes is None else [_grouped(node.indices, wishes)])]
        for stacked in _stacks(a, b, groups):
            left = {name: [x for x in group if x not in stacked] for name, group in groups.items()}
            for chosen in product(*(_orders(group, guides) for group in left.values())):
                yield _choice(tree, node, pair, (a, b), sums, chosen, stacked, wishes)


def _stacks(a: Labels, b: Labels, groups: Mapping[str, list[str]]) -> Iterator[Labels]:
    """Yield the labels of one operand that may be those of a stack, none first.

    A summed label in the middle, as in A[i,j,k] B[j,l], then stays where it is: A is a stack of matrices A[j,k].
    """
    yield ()
    for labels, own, other in ((a, groups["rows"], groups["columns"]), (b, groups["columns"], groups["rows"])):
        first = [x for x in labels if x not in groups["batch"]]
        count = next((n for n, x in enumerate(first) if x not in own), 0)
        if other and groups["inner"] and 0 < count < len(own):
            yield tuple(first[:count])


def _choice(
    tree: Tree,
    node: TreeNode,
    pair: tuple[Leaf | TreeNode, ...],
    have: tuple[Labels, Labels],
    sums: list[Labels],
    chosen: tuple[Labels, ...],
    stacked: Labels,
    wishes: tuple[frozenset[str], ...] | None,
) -> tuple[float, LoweredStep]:
    """Return (elements copied, step) for one order of the groups; `stacked` are labels of a stack of one operand."""
    batch, rows, columns, inner = chosen
    copied = START * tree.size((*batch, *stacked)) if stacked else 0.0
    sides = []
    for labels, summed, own in zip(have, sums, (rows, columns)):
        flipped = _flipped(labels, own, inner)
        many = (*batch, *(x for x in stacked if x in labels))
        # The matrix of the right operand is inner by columns: it is flipped where columns come first.
        order = (*many, *inner, *own) if flipped else (*many, *own, *inner)
        sides.append(ProductSide(summed, order, flipped, not _lies_ready(labels, own, inner, many)))
        copied += tree.size(labels) if sides[-1].copied else 0
    if sides[0].flipped and not sides[0].copied and tree.size(rows) > tree.size(columns):
        copied += TURNED * tree.size(have[0])
    many, order = (*batch, *stacked), (*batch, *stacked, *rows, *columns)
    copied += _later(tree, node, order, wishes)
    return copied, LoweredStep(node, MatrixProduct(many, rows, columns, inner, sides[0], sides[1], order), pair)


def _orders(group: list[str], guides: list[Labels]) -> list[Labels]:
    """Return the orders of the group in the guides that contain all labels of the group."""
    orders = [tuple(x for x in guide if x in group) for guide in guides]
    return list(dict.fromkeys(order for order in orders if len(order) == len(group)))


def _flipped(labels: Labels, own: Labels, inner: Labels) -> bool:
    """Return whether the last axis of an operand is one of its own, not an inner one."""
    last = next((x for x in reversed(labels) if x in own or x in inner), None)
    return last in own


def _run(labels: Labels, group: Labels) -> bool:
    """Return whether the group stands in the labels side by side and in this order."""
    if not group or group[0] not in labels:
        return not group
    start = labels.index(group[0])
    return labels[start : start + len(group)] == group


def _lies_ready(labels: Labels, own: Labels, inner: Labels, batch: Labels) -> bool:
    """Return whether the operand is a stack of matrices for BLAS as it lies.

    Both groups are contiguous then, and the last axis belongs to a matrix.
    """
    return _run(labels, own) and _run(labels, inner) and (not labels or labels[-1] not in batch)


def _wishes(tree: Tree, node: TreeNode) -> tuple[frozenset[str], ...] | None:
    """Return the groups (batch, own, inner) in which a temporary's consumer reads its labels; None for the root."""
    consumer = tree.consumer(node.name)
    if consumer is None:
        return None
    mine, outside = set(node.indices), set(consumer.indices)
    others: Collection[str] = {x for o in consumer.operands if o is not node for x in o.indices}
    both = mine & set(others)
    return frozenset(both & outside), frozenset(mine - both), frozenset(both - outside)


def _grouped(labels: Labels, groups: tuple[frozenset[str], ...]) -> Labels:
    """Return the labels group by group."""
    return tuple(x for group in groups for x in labels if x in group)


def _later(tree: Tree, node: TreeNode, order: Labels, wishes: tuple[frozenset[str], ...] | None) -> int:
    """Return the elements that the consumer has to copy, or the caller if the result is not in the node's order."""
    if wishes is None:
        return 0 if order == node.indices else tree.size(order)
    batch, own, inner = (tuple(x for x in order if x in group) for group in wishes)
    return 0 if _lies_ready(order, own, inner, batch) else tree.size(order)
