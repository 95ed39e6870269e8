"""Slices of a tree: loops over single elements of labels, around the steps that need them and no others.

A step is inside the loop over a sliced label if its operands depend on the label, and from the step on that sums over
it no longer. Loops around common steps are nested. A step without the label of an inner loop is computed before this
loop, once for each turn of the outer ones, so that the order of the loops decides how much is computed again.

The loop over a label may have to enclose steps after the one that sums over it, since these are inside of a loop that
lies within. Partial results then pass through these steps, and the last of them adds them up. In the tree of the loops
the label is summed there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.tree import Tree, TreeNode

# Number of sliced labels up to which all orders of their loops are tried; more are exchanged one by one.
EVERY_ORDER = 5


def sliced_loops(tree: Tree, labels: Sequence[str]) -> FusedTree:
    """Return the loops over single elements of these labels, in the order of least work.

    Labels that no temporary has need no loop and are left out.
    """
    slices = Slices(tree, labels)
    return slices.fusion(slices.best_order())


class Slices:
    """The loops over sliced labels of one tree; sets of steps are rows of booleans, in the order of `tree.nodes`."""

    def __init__(self, tree: Tree, labels: Sequence[str]) -> None:
        self.tree = tree
        held = {label for node in tree.temporaries for label in node.indices}
        self.labels = [label for label in dict.fromkeys(labels) if label in held]
        self.extents = [tree.extent(label) for label in self.labels]
        # Steps that have each label, [labels, steps]; the last of them sums over it or is the root.
        self.having = np.array([[label in node.loops for node in tree.nodes] for label in self.labels], bool)
        self.work = np.array([tree.size(node.loops) for node in tree.nodes], float)

    def scopes(self, order: Sequence[int]) -> dict[int, np.ndarray]:
        """Return the steps inside the loop over each label; `order` has the numbers of the labels, outermost first.

        A loop that has a step in common with one further inside holds all steps of that one.
        """
        scopes: dict[int, np.ndarray] = {}
        for number in reversed(order):
            scope, inside = self.having[number], list(scopes.values())
            while meeting := [other for other in inside if (other & scope).any()]:
                scope = np.logical_or.reduce([scope, *meeting])
                inside = [other for other in inside if not any(other is one for one in meeting)]
            scopes[number] = scope
        return scopes

    def executed(self, order: Sequence[int]) -> float:
        """Return the multiply-adds, with each step counted as often as it is computed."""
        work = self.work.copy()
        for number, scope in self.scopes(order).items():
            work[scope & ~self.having[number]] *= self.extents[number]
        return float(work.sum())

    def best_order(self) -> tuple[int, ...]:
        """Return the numbers of the labels, outermost loop first, in the order of least work that is found."""
        numbers = range(len(self.labels))
        if len(numbers) <= EVERY_ORDER:
            return min(permutations(numbers), key=self.executed)
        # The steps that a label does not reach are computed again in its loop unless it is an inner one.
        start = sorted(numbers, key=lambda number: -float(self.work[self.having[number]].sum()))
        return self.exchanged(tuple(start))

    def exchanged(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """Return the order after moves of single loops, as long as one takes less work."""
        best, least = order, self.executed(order)
        improved = True
        while improved:
            improved = False
            for number in order:
                rest = [other for other in best if other != number]
                for place in range(len(order)):
                    trial = (*rest[:place], number, *rest[place:])
                    if (work := self.executed(trial)) < least:
                        best, least, improved = trial, work, True
        return best

    def fusion(self, order: Sequence[int]) -> FusedTree:
        """Return the loops in this order as fused loops over single elements."""
        scopes = self.scopes(order)
        nodes = self.tree.nodes
        # The last step of a scope ends the loop.
        last = {number: int(np.flatnonzero(scope)[-1]) for number, scope in scopes.items()}
        fused = {
            node.name: frozenset(self.labels[i] for i, scope in scopes.items() if scope[place] and place < last[i])
            for place, node in enumerate(nodes)
        }
        late = {
            self.labels[i]: {nodes[k].name for k in range(int(np.flatnonzero(self.having[i])[-1]), last[i])}
            for i in scopes
        }
        return FusedTree(_summed_later(self.tree, late), {name: labels for name, labels in fused.items() if labels})


def _summed_later(tree: Tree, late: dict[str, set[str]]) -> Tree:
    """Return the tree in which results of steps keep labels; `late` has names of steps by label.

    Steps that are named beside the way from the sum to its new place do not have the label and do not get it.
    """
    done: dict[str, TreeNode] = {}
    for node in tree.nodes:
        operands = tuple(done.pop(o.name) if isinstance(o, TreeNode) else o for o in node.operands)
        have = {label for operand in operands for label in operand.indices}
        kept = [label for label in late if node.name in late[label] and label in have and label not in node.indices]
        done[node.name] = TreeNode(node.name, (*node.indices, *kept), operands)
    return replace(tree, root=done[tree.root.name], pairs=())
