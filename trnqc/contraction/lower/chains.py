"""Pairs of steps in turns: the result of the first is read by the second before it has left the cache.

    T1[r,s,q,i] = sum(p) A[r,s,q,p] B[p,i]      in turns over r, with T1[s,q,i] of one turn only:
    T2[r,s,i,a] = sum(q) T1[r,s,q,i] C[q,a]     A[r] -> T1 -> T2[r]

A large tensor times several small matrices, as in a transformation of integrals to molecular orbitals or a Tucker
decomposition, takes as long as its intermediates take to be written and read. In turns, every other one never is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnqc.contraction.lower.lowering import lower, stored
from trnqc.contraction.lower.steps import Labels, LoweredStep, MatrixProduct, PairLoop
from trnqc.contraction.tree import Pair, Tree, TreeNode
from trnqc.expression.operand import Leaf

# Elements of an intermediate from which on it does not stay in the cache, and up to which that of a turn does.
LARGE, SMALL = 2**20, 2**18
# Multiply-adds of a turn from which on its calls take little time.
WORK = 2**20
# Elements that lie side by side in a slice of an operand at least, so that it is not read one cache line an element.
SIDE_BY_SIDE = 16


@dataclass(frozen=True)
class StepChain:
    """Two steps in turns over a label that the results of both have.

    Attributes
    ----------
    label, pair
        The label. With a pair, of which it is the first, each turn runs over the second one from it on.
    names
        The names of the two steps.
    sources
        The operands of both steps but the result of the first, by a name that each has once.
    operands
        These names with the labels of the whole operands as they lie in memory.
    reads
        The names of the operands of both steps, the result of the first among them.
    between, order
        The labels of a slice of the result of the first step, and those of the result of the second.
    """

    label: str
    pair: Pair | None
    names: tuple[str, str]
    sources: tuple[tuple[str, Leaf | TreeNode], ...]
    operands: tuple[tuple[str, Labels], ...]
    reads: tuple[tuple[str, ...], tuple[str, ...]]
    between: Labels
    order: Labels

    def __str__(self) -> str:
        over = self.pair.name if self.pair else self.label
        return f"{self.names[0]} and {self.names[1]} in turns over {over}, without the whole of {self.names[0]}"


def chains(tree: Tree, steps: tuple[LoweredStep, ...]) -> tuple[StepChain, ...]:
    """Return the pairs of steps that run in turns, none of them in two pairs, those with most between them first."""
    by_name = {step.node.name: step for step in steps}
    orders = {step.node.name: step.order for step in steps}
    candidates = [
        (by_name[operand.name], step) for step in steps for operand in step.operands if isinstance(operand, TreeNode)
    ]
    found: dict[str, StepChain] = {}
    for first, second in sorted(candidates, key=lambda both: -tree.size(both[0].node.indices)):
        names = (first.node.name, second.node.name)
        if not found.keys() & set(names) and (label := _label(tree, first, second, orders)):
            found |= dict.fromkeys(names, _chain(tree, first, second, label, orders))
    return tuple(dict.fromkeys(found.values()))


def _label(tree: Tree, first: LoweredStep, second: LoweredStep, orders: Mapping[str, Labels]) -> str | None:
    """Return the label over which two steps run in turns; None if they do not, or if that would not be faster."""
    pair, whole = _pair(first, second), tree.size(first.node.indices)
    if whole < LARGE or not (pair or all(isinstance(step.operation, MatrixProduct) for step in (first, second))):
        return None
    largest = max(first.operands, key=lambda operand: tree.size(stored(operand, orders)))
    work = min(tree.size(step.node.loops) for step in (first, second))
    operands = [operand for operand in (*first.operands, *second.operands) if operand.name != first.node.name]
    for label in (pair.first,) if pair else second.order:
        kept = all(label in labels for labels in (first.node.indices, second.node.indices, largest.indices))
        fits = whole <= SMALL * tree.extent(label) and work >= WORK * tree.extent(label)
        sliced = all(_can_be_sliced(tree, operand, label, orders) for operand in operands)
        if kept and fits and sliced and _sliced_well(tree, second.order, label):
            return label
    return None


def _chain(tree: Tree, first: LoweredStep, second: LoweredStep, label: str, orders: Mapping[str, Labels]) -> StepChain:
    """Return two steps in turns over a label."""
    sources: dict[str, Leaf | TreeNode] = {}
    reads: list[tuple[str, ...]] = []
    node: TreeNode | None = None
    for step, labels in ((first, first.node.indices), (second, second.order)):
        operands: list[Leaf | TreeNode] = []
        for operand in step.operands:
            if node and operand.name == node.name:
                operands.append(node)
                continue
            name = f"{operand.name}.{len(sources)}"
            operands.append(Leaf(name, _without(stored(operand, orders), label), len(sources)))
            sources[name] = operand
        node = TreeNode(step.node.name, _without(labels, label), tuple(operands))
        reads.append(tuple(x.name for x in operands))
    assert node is not None
    return StepChain(
        label=label,
        pair=_pair(first, second),
        names=(first.node.name, second.node.name),
        sources=tuple(sources.items()),
        operands=tuple((name, stored(operand, orders)) for name, operand in sources.items()),
        reads=(reads[0], reads[1]),
        between=lower(Tree(node, tree.indices))[0].order,
        order=second.order,
    )


def _pair(first: LoweredStep, second: LoweredStep) -> Pair | None:
    """Return the pair over which both steps loop."""
    one, two = (step.operation.pair if isinstance(step.operation, PairLoop) else None for step in (first, second))
    return one if one and two and (one.first, one.second, one.sign) == (two.first, two.second, two.sign) else None


def _can_be_sliced(tree: Tree, operand: Leaf | TreeNode, label: str, orders: Mapping[str, Labels]) -> bool:
    """Whether an operand has whole rows as slices, or stays in the cache, and nothing is to be done with it before."""
    labels = stored(operand, orders)
    if isinstance(operand, Leaf) and (operand.cost or operand.reciprocal or labels != operand.indices):
        return False
    return _sliced_well(tree, labels, label) and (label in labels or tree.size(labels) <= SMALL)


def _sliced_well(tree: Tree, labels: Labels, label: str) -> bool:
    return label not in labels or tree.size(labels[labels.index(label) + 1 :]) >= SIDE_BY_SIDE


def _without(labels: Labels, label: str) -> Labels:
    return tuple(x for x in labels if x != label)
