"""A computation in two: what depends on bound inputs alone, once, and the rest in every run.

    R[a,b] = g[a,c] * t[c,d] * x[d,b], with g and t bound:
    K1[a,d] = sum(c) g[a,c] * t[c,d]           once
    R[a,b]  = sum(d) K1[a,d] * x[d,b]          in every run

Whole targets are computed once, and so are steps of a product whose operands are all bound, and such terms of a sum.
Fused loops of a memory limit are not taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Generic, TypeVar

from trnqc.contraction.computation import Computation, Part, SumAssignment
from trnqc.contraction.order.block_sparsity import Cut
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.terms import is_identity

AnyComputation = TypeVar("AnyComputation", bound=Computation)


@dataclass(frozen=True)
class Split(Generic[AnyComputation]):
    """`once` computes the arrays `kept`, which are inputs of `each`; None if there is nothing to compute once."""

    once: AnyComputation | None
    each: AnyComputation
    kept: tuple[str, ...]

    @property
    def kept_elements(self) -> int:
        """Elements of the arrays that are kept."""
        return sum(prod(self.each.shapes[name]) for name in self.kept)


def split(plan: AnyComputation, bound: Sequence[str]) -> Split[AnyComputation]:
    """Return the computation in two, for inputs `bound` that do not change."""
    divided = _Divided(plan, bound)
    # A fused kernel of pair energies has no intermediates that could be kept.
    if not (plan.pairs and plan.kernels.pairs):
        divided.divide()
    read = {name for a in divided.each for part in a.parts for name in part.names}
    kept = {name: labels for name, labels in divided.kept.items() if name in read}
    if not kept:
        return Split(None, plan, ())
    inputs = _read(plan, divided.once), (*_read(plan, divided.each), *kept.items())
    once = replace(plan, assignments=tuple(divided.once), inputs=inputs[0], outputs=tuple(kept), pairs=())
    each = replace(plan, assignments=tuple(divided.each), inputs=inputs[1], pairs=())
    if plan.blocked:
        cuts = {name: _whole(tuple(divided.extents[x] for x in labels), name) for name, labels in kept.items()}
        once = replace(once, blocked=replace(plan.blocked, targets=cuts))
        each = replace(each, blocked=replace(plan.blocked, inputs={**plan.blocked.inputs, **cuts}))
    return Split(once, each, tuple(kept))


def _whole(shape: tuple[int, ...], name: str) -> Cut:
    """Return an array that is one block."""
    return Cut(shape, ((tuple(slice(0, n) for n in shape), name),))


class _Divided:
    """The assignments of a plan that run once and in each run; `kept` has the labels of what is computed once."""

    def __init__(self, plan: Computation, bound: Sequence[str]) -> None:
        self.plan = plan
        self.extents = {label: index.extent for tree in plan.trees for label, index in tree.indices.items()}
        self.inputs = _arrays(plan, [name for name, _ in plan.inputs])
        self.targets = {assignment.target for assignment in plan.assignments}
        # An input that the program changes has several values.
        self.constant = _arrays(plan, bound) - self.targets
        steps = {node.name for tree in plan.trees for node in tree.nodes}
        self.taken = {*self.inputs, *self.targets, *steps, *dict(plan.inputs)}
        self.once: list[SumAssignment] = []
        self.each: list[SumAssignment] = list(plan.assignments)
        self.kept: dict[str, tuple[str, ...]] = {}

    def divide(self) -> None:
        """Divide the assignments in order."""
        assignments, self.each = self.plan.assignments, []
        last = {assignment.target: k for k, assignment in enumerate(assignments)}
        # What is computed once is computed before all else: not tensors that are read before their last value. Outputs
        # are assigned in every run, from what is kept.
        varying = self.inputs | self.plan.kept
        reads = [(k, name) for k, a in enumerate(assignments) for part in a.parts for name in part.names]
        varying |= {name for k, name in reads if last.get(name, -1) >= k}
        for k, assignment in enumerate(assignments):
            target = assignment.target
            parts = [part for a in assignments if a.target == target for part in a.parts]
            if target in varying or not all(self._is_constant(part) for part in parts):
                self.each.append(self._divided(assignment))
                continue
            self.once.append(assignment)
            if k == last[target]:
                self.constant.add(target)
                self.kept[target] = assignment.labels

    def _is_constant(self, part: Part) -> bool:
        return all(map(self._is_known, part.names))

    def _is_known(self, name: str) -> bool:
        return name in self.constant or is_identity(name)

    def _divided(self, assignment: SumAssignment) -> SumAssignment:
        """Return an assignment without what is computed once."""
        constant = [part for part in assignment.parts if self._is_constant(part)]
        rest = [part for part in assignment.parts if part not in constant]
        # A term that only reads an operand is as cheap to read again.
        if len(constant) > 1 or any(len(part.tree.leaves) > 1 or part.in_loops for part in constant):
            leaf = self._kept(SumAssignment(self._name(), assignment.labels, tuple(constant)))
            indices = constant[0].tree.indices
            name = constant[0].tree.root.name
            constant = [Part(Fraction(1), Tree(TreeNode(name, assignment.labels, (leaf,)), indices))]
        return replace(assignment, parts=(*constant, *map(self._varying, rest)))

    def _varying(self, part: Part) -> Part:
        """Return a part in which the results of steps on constant operands are operands."""
        if part.in_loops:
            return part
        orders = {step.node.name: step.order for step in part.steps}
        known: dict[str, bool] = {}
        rebuilt: dict[str, TreeNode] = {}
        for node in part.tree.nodes:
            flags = [known[o.name] if isinstance(o, TreeNode) else self._is_known(o.name) for o in node.operands]
            known[node.name] = all(flags)
            if known[node.name]:
                continue
            operands: list[Leaf | TreeNode] = []
            for operand, is_known in zip(node.operands, flags):
                if isinstance(operand, TreeNode):
                    # The result keeps the axes that it has in memory, which a loop over a pair relies on.
                    operand = (
                        self._step(part.tree, operand, orders[operand.name]) if is_known else rebuilt[operand.name]
                    )
                operands.append(operand)
            rebuilt[node.name] = replace(node, operands=tuple(operands))
        root = rebuilt[part.tree.root.name]
        if root == part.tree.root:
            return part
        return Part(part.coefficient, _tree(part.tree, root))

    def _step(self, tree: Tree, node: TreeNode, order: tuple[str, ...]) -> Leaf:
        """Compute a step, with the steps that it needs, once, and return it as an operand."""
        once = Part(Fraction(1), _tree(tree, replace(node, indices=order)))
        return self._kept(SumAssignment(self._name(), order, (once,)))

    def _kept(self, assignment: SumAssignment) -> Leaf:
        self.once.append(assignment)
        self.kept[assignment.target] = assignment.labels
        return Leaf(assignment.target, assignment.labels, len(self.inputs) + len(self.kept))

    def _name(self) -> str:
        number = len(self.kept) + 1
        while f"K{number}" in self.taken:
            number += 1
        self.taken.add(f"K{number}")
        return f"K{number}"


def _arrays(plan: Computation, names: Sequence[str]) -> set[str]:
    """Return the names by which assignments read inputs: those of their blocks, if there are any."""
    if not plan.blocked:
        return set(names)
    return {block for name in names for _, block in plan.blocked.inputs[name].blocks}


def _read(plan: Computation, assignments: Sequence[SumAssignment]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the inputs, with their labels, that assignments read."""
    names = {name for assignment in assignments for name in assignment.reads}
    return tuple((name, labels) for name, labels in plan.inputs if names & _arrays(plan, [name]))


def _tree(tree: Tree, root: TreeNode) -> Tree:
    """Return the tree of a root, with the pairs of its steps."""
    steps = {node.name for node in Tree(root, tree.indices).nodes}
    return Tree(root, tree.indices, tuple((name, pairs) for name, pairs in tree.pairs if name in steps))
