"""Slices of a tree: loops over single elements of labels, around the steps that need them and no others.

A step is inside the loop over a sliced label if its operands depend on the label, and from the step on that sums over
it no longer. Loops around common steps are nested. A step without the label of an inner loop is computed before this
loop, once for each turn of the outer ones, so that the order of the loops decides how much is computed again.

The loop over a label may have to enclose steps after the one that sums over it, since these are inside of a loop that
lies within. Partial results then pass through these steps, and the last of them adds them up. In the tree of the loops
the label is summed there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.slice_memory import fullest
from trnqc.contraction.order.network import bits, flags
from trnqc.contraction.time_limit import out_of_time
from trnqc.contraction.tree import Tree, TreeNode

# Number of sliced labels up to which all orders of their loops are tried; more are exchanged one by one.
EVERY_ORDER = 5


def sliced_loops(tree: Tree, labels: Sequence[str]) -> FusedTree:
    """Return the loops over single elements of these labels, in the order of least work.

    Labels that no temporary has need no loop and are left out.
    """
    slices = Slices(tree, labels)
    return slices.fusion(slices.best_order())


class Trial(NamedTuple):
    """One more label, the place of its loop among the others, and the scope of the loop."""

    number: int
    place: int
    scope: int


class Slices:
    """The loops over sliced labels of one tree; sets of steps are bits, in the order of `tree.nodes`."""

    def __init__(self, tree: Tree, labels: Sequence[str]) -> None:
        self.tree = tree
        held = {label for node in tree.temporaries for label in node.indices}
        self.labels = [label for label in dict.fromkeys(labels) if label in held]
        self.logarithms = np.log([tree.extent(label) for label in self.labels])
        # Steps that have each label, of which the last sums over it or is the root, and those whose results have it.
        self.having = _places(self.labels, [node.loops for node in tree.nodes])
        self.carried = _places(self.labels, [node.indices for node in tree.nodes])
        self.sizes = np.array([tree.size(node.indices) for node in tree.nodes], float)
        self.work = np.array([tree.size(node.loops) for node in tree.nodes], float)
        place = {node.name: k for k, node in enumerate(tree.nodes)}
        # For each step the steps whose results it reads.
        self.inputs = [[place[o.name] for o in node.operands if isinstance(o, TreeNode)] for node in tree.nodes]

    def scopes(self, order: Sequence[int]) -> dict[int, int]:
        """Return the steps inside the loop over each label; `order` has the numbers of the labels, outermost first.

        A loop that has a step in common with one further inside holds all steps of that one.
        """
        scopes: dict[int, int] = {}
        for number in reversed(order):
            scope, before = self.having[number], 0
            while scope != before:
                before = scope
                for other in scopes.values():
                    if other & scope:
                        scope |= other
            scopes[number] = scope
        return scopes

    def longer(self, order: Sequence[int], scopes: Mapping[int, int], number: int) -> Iterator[Trial]:
        """Yield the places of one more loop at which no other loop grows; of places with the same scope, one."""
        around = [scopes[other] for other in order]
        scope, place = self.having[number], len(around)
        # Loops further out grow unless they hold the scope or have nothing in common with it. Outside of one that would
        # grow, the new loop holds it, and all loops inside of it that have steps in common.
        while bad := [k for k in range(place) if (common := around[k] & scope) and common != scope]:
            for inner in reversed(around[bad[0] : place]):
                scope |= inner if inner & scope else 0
            place = bad[0]
        yield Trial(number, place, scope)
        for k in reversed(range(place)):
            if around[k] & scope:
                if scope != around[k]:
                    yield Trial(number, k, around[k])
                scope = around[k]

    def executed(self, scopes: Mapping[int, int]) -> float:
        """Return the multiply-adds, with each step counted as often as it is computed."""
        return float(self.step_work(scopes).sum())

    def step_work(self, scopes: Mapping[int, int]) -> np.ndarray:
        """Return the multiply-adds of each step, as often as it is computed."""
        again = self.flags([scope & ~self.having[number] for number, scope in scopes.items()])
        return np.rint(np.exp(self.logarithms[list(scopes)] @ again)) * self.work

    def elements(self, scopes: Mapping[int, int]) -> np.ndarray:
        """Return the elements that are held of the result of each step."""
        sliced = self.flags([self.carried[number] & shared(scope) for number, scope in scopes.items()])
        return np.rint(np.exp(-self.logarithms[list(scopes)] @ sliced) * self.sizes)

    def fullest(self, scopes: Mapping[int, int]) -> tuple[float, list[int]]:
        """Return the most elements that are held at one moment, and the steps whose results live then."""
        depths = self.flags([shared(scope) for scope in scopes.values()]).sum(0).astype(int)
        return fullest(self.inputs, depths.tolist(), self.elements(scopes).tolist())

    def flags(self, sets: Sequence[int]) -> np.ndarray:
        """Return sets of steps as numbers 0 and 1, [sets, steps]."""
        return flags(sets, len(self.work))

    def executed_in(self, order: Sequence[int]) -> float:
        """Return the multiply-adds with loops in this order."""
        return self.executed(self.scopes(order))

    def best_order(self) -> tuple[int, ...]:
        """Return the numbers of the labels, outermost loop first, in the order of least work that is found."""
        numbers = range(len(self.labels))
        if len(numbers) <= EVERY_ORDER:
            return min(permutations(numbers), key=self.executed_in)
        # The steps that a label does not reach are computed again in its loop unless it is an inner one.
        start = sorted(numbers, key=lambda number: -sum(self.work[place] for place in bits(self.having[number])))
        return self.exchanged(tuple(start))

    def exchanged(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """Return the order after moves of single loops, as long as one takes less work and there is time."""
        best, least = order, self.executed_in(order)
        improved = True
        while improved:
            improved = False
            for number in order:
                if out_of_time("orders of loops over slices"):
                    return best
                rest = [other for other in best if other != number]
                for place in range(len(order)):
                    trial = (*rest[:place], number, *rest[place:])
                    if (work := self.executed_in(trial)) < least:
                        best, least, improved = trial, work, True
        return best

    def fusion(self, order: Sequence[int]) -> FusedTree:
        """Return the loops in this order as fused loops over single elements."""
        scopes, nodes = self.scopes(order), self.tree.nodes
        fused = {
            node.name: frozenset(
                self.labels[number] for number, scope in scopes.items() if scope >> place & 1 and scope >> place > 1
            )
            for place, node in enumerate(nodes)
        }
        late = {
            self.labels[number]: {
                node.name for node in nodes[self.having[number].bit_length() - 1 : scope.bit_length() - 1]
            }
            for number, scope in scopes.items()
        }
        return FusedTree(_summed_later(self.tree, late), {name: labels for name, labels in fused.items() if labels})


def shared(scope: int) -> int:
    """Return the steps whose results a loop with this scope shares with their consumers: all but the last."""
    return scope & ~(1 << scope.bit_length() - 1)


def _places(labels: Sequence[str], sets: Sequence[Sequence[str]]) -> list[int]:
    """Return for each label the sets that have it, as bits."""
    places = dict.fromkeys(labels, 0)
    for place, one in enumerate(sets):
        for label in one:
            if label in places:
                places[label] |= 1 << place
    return list(places.values())


def _summed_later(tree: Tree, late: dict[str, set[str]]) -> Tree:
    """Return the tree in which results of steps keep labels; `late` has names of steps by label.

    Steps that are named beside the way from the sum to its new place do not have the label and do not get it.
    """
    if not any(late.values()) and not tree.pairs:
        return tree
    done: dict[str, TreeNode] = {}
    for node in tree.nodes:
        operands = tuple(done.pop(o.name) if isinstance(o, TreeNode) else o for o in node.operands)
        have = {label for operand in operands for label in operand.indices}
        kept = [label for label in late if node.name in late[label] and label in have and label not in node.indices]
        done[node.name] = TreeNode(node.name, (*node.indices, *kept), operands)
    return replace(tree, root=done[tree.root.name], pairs=())
