"""Slices of a tree: loops over single elements of labels, around the steps that need them and no others.

A step is inside the loop over a sliced label if its operands depend on the label, and from the step on that sums over
it no longer. Loops around common steps are nested. A step without the label of an inner loop is computed before this
loop, once for each turn of the outer ones, so that the order of the loops decides how much is computed again.

The loop over a label may have to enclose steps after the one that sums over it, since these are inside of a loop that
lies within. Partial results then pass through these steps, and the last of them adds them up. In the tree of the loops
the label is summed there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.order.network import bits
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


class Slices:
    """The loops over sliced labels of one tree; sets of steps are bits, in the order of `tree.nodes`."""

    def __init__(self, tree: Tree, labels: Sequence[str]) -> None:
        self.tree = tree
        held = {label for node in tree.temporaries for label in node.indices}
        self.labels = [label for label in dict.fromkeys(labels) if label in held]
        self.logarithms = np.log([tree.extent(label) for label in self.labels])
        # Steps that have each label, of which the last sums over it or is the root, and those whose results have it.
        self.having = [_bits(label in node.loops for node in tree.nodes) for label in self.labels]
        self.carried = [_bits(label in node.indices for node in tree.nodes) for label in self.labels]
        self.sizes = np.array([tree.size(node.indices) for node in tree.nodes], float)
        self.work = np.array([tree.size(node.loops) for node in tree.nodes], float)

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

    def executed(self, scopes: Mapping[int, int]) -> float:
        """Return the multiply-adds, with each step counted as often as it is computed."""
        again = self._flags([scope & ~self.having[number] for number, scope in scopes.items()])
        return float(np.rint(np.exp(self._logarithms(scopes) @ again)) @ self.work)

    def held(self, scopes: Mapping[int, int], places: Iterable[int]) -> float:
        """Return the elements that are held of the results of these steps together."""
        # The last step of a scope ends the loop.
        sliced = [self.carried[number] & scope & ~(1 << scope.bit_length() - 1) for number, scope in scopes.items()]
        at = list(places)
        return float(np.exp(-self._logarithms(scopes) @ self._flags(sliced)[:, at]) @ self.sizes[at])

    def _logarithms(self, scopes: Mapping[int, int]) -> np.ndarray:
        return self.logarithms[list(scopes)]

    def _flags(self, sets: Sequence[int]) -> np.ndarray:
        """Return sets of steps as numbers 0 and 1, [sets, steps]."""
        length = -(-len(self.work) // 8)
        read = np.frombuffer(b"".join(steps.to_bytes(length, "little") for steps in sets), np.uint8)
        flags = np.unpackbits(read.reshape(len(sets), length), axis=1, bitorder="little")
        return flags[:, : len(self.work)].astype(float)

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


def _bits(flags: Iterable[bool]) -> int:
    return sum(1 << place for place, flag in enumerate(flags) if flag)


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
