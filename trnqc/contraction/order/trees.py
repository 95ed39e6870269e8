"""The cheapest order of a tree of operands: no ring of bonds, every label in one operand or in two.

    tree ─ branches that keep no labels ─► leaves that come first or last ─► a row, which arcs solve
                                                                          ─► every bond as the last, then both sides

Relative to the elements of a part v, a step that joins X to it by a bond of extent t takes x multiply-adds and leaves
x / t elements, where x stands for the other labels of X. Of two steps in a row the one with the smaller rank 1/t - 1/x
is better first (Ibaraki and Kameda, ACM Trans. Database Syst. 9, 482, 1984). A leaf whose rank is not above that of any
X that may ever be joined to its neighbour is thus joined before all of them, and one whose rank is not below any after
them. Few trees keep more than a row then.

Outer products pay only between branches that keep no labels, by the argument in `arcs`. Which of these to multiply is a
problem of subset products, which no fast search solves; they are left to `heuristic.improve`.
"""

from __future__ import annotations

from math import inf, prod

from trnqc.contraction.order import arcs
from trnqc.contraction.order.bonds import BondTree, bond_tree, bound, extremes, last_steps
from trnqc.contraction.order.exact import EXACT_ORDER
from trnqc.contraction.order.network import LabelNetwork, Splits
from trnqc.contraction.time_limit import ORDER, out_of_time

# Trees of which each bond is tried as the last one. Each takes 0.1 to 0.5 ms; of some thousand random trees of 64
# operands none had more than 200.
BUDGET = 500
# A number of elements above which more of them make no difference to a decision.
BIG = 1 << 60
# Multiply-adds and steps (left, right) of an order.
Order = tuple[int, tuple[tuple[int, int], ...]]


class TooMany(Exception):
    """The search has tried as many trees as it may."""


def cheapest(network: LabelNetwork, least: int = 1, budget: int = BUDGET) -> Splits | None:
    """Return the order of least work without outer products; None for another network, or after the budget.

    Bonds have an extent of `least` or more.
    """
    tree = bond_tree(network, least) if len(network.operands) <= arcs.MOST else None
    if tree is None:
        return None
    core, vectors = _without_vectors(tree)
    try:
        order = _Search(network, budget).best(core, inf)
    except TooMany:
        return None
    assert order is not None
    return {left | right: (left, right) for left, right in (*vectors, *order[1])}


class _Search:
    """Searches a tree and sides of it, each once."""

    def __init__(self, network: LabelNetwork, budget: int) -> None:
        self.network, self.budget = network, budget
        self.known: dict[frozenset[int], Order] = {}
        # Multiply-adds that no order of a tree is below.
        self.least: dict[frozenset[int], float] = {}

    def best(self, tree: BondTree, limit: float) -> Order | None:
        """Return the best order of a tree; None if none is below the limit."""
        key = frozenset(tree.kept)
        order = self.known.get(key)
        if order is None:
            if bound(tree) >= limit or self.least.get(key, 0) >= limit:
                return None
            order = self._reduced(tree, limit)
            if order is None:
                self.least[key] = limit
                return None
            self.known[key] = order
        return order if order[0] < limit else None

    def _reduced(self, tree: BondTree, limit: float) -> Order | None:
        """Return the best order below the limit of a tree; leaves that come first or last are taken off."""
        before: list[tuple[int, int]] = []
        after: list[tuple[int, int]] = []
        cost = 0
        while len(tree.kept) > 2 and (found := _first_or_last(tree)):
            leaf, part, first = found
            if first:
                cost += tree.step(leaf, part)
                before.append((part, leaf))
                tree = tree.joined(leaf, part)
            else:
                cost += prod(tree.kept.values()) * tree.bonds[part][leaf]
                after.append((sum(tree.kept) - leaf, leaf))
                tree = tree.side(part, leaf)
        core = self._core(tree, limit - cost) if cost < limit else None
        return core and (cost + core[0], (*before, *core[1], *reversed(after)))

    def _core(self, tree: BondTree, limit: float) -> Order | None:
        """Return the best order below the limit of a tree none of whose leaves is known to come first or last."""
        if len(tree.kept) == 1:
            return 0, ()
        if len(tree.kept) == 2:
            one, two = tree.kept
            return tree.step(one, two), ((one, two),)
        if all(len(near) < 3 for near in tree.bonds.values()):
            return self._row(tree)
        self.budget -= 1
        if self.budget < 0 or out_of_time(EXACT_ORDER, ORDER):
            raise TooMany
        order: Order | None = None
        for least, step, v, w in sorted(last_steps(tree)):
            if least >= limit:
                break
            small, large = sorted((tree.side(v, w), tree.side(w, v)), key=lambda side: len(side.kept))
            first = self.best(small, limit - step - bound(large))
            second = first and self.best(large, limit - step - first[0])
            if first and second:
                limit = step + first[0] + second[0]
                order = limit, (*first[1], *second[1], (sum(small.kept), sum(large.kept)))
        return order

    def _row(self, tree: BondTree) -> Order:
        """Return the best order of parts in a row."""
        row = [next(part for part, near in tree.bonds.items() if len(near) == 1)]
        bonds = [1]
        for part, before in tree.outwards(row[0]):
            row.append(part)
            bonds.append(tree.bonds[before][part])
        splits = arcs.splits_of(arcs.Ring(tuple(row), tuple(bonds), tuple(tree.kept[p] for p in row)), self.network)
        if splits is None:
            raise TooMany
        steps = tuple(splits[part] for part in sorted(splits, key=int.bit_count))
        return sum(self.network.merge(*step) for step in steps), steps


def _first_or_last(tree: BondTree) -> tuple[int, int, bool] | None:
    """Return (leaf, neighbour, whether they are joined first or last) of a leaf for which one of these is best."""
    fewest, most = extremes(tree)
    ranks = {}
    for leaf, near in tree.bonds.items():
        if len(near) == 1:
            ((part, bond),) = near.items()
            ranks[leaf, part] = 1 / bond - 1 / tree.kept[leaf]
    order = sorted(ranks, key=lambda edge: ranks[edge])
    # Other leaves may be joined to the neighbour too, so only those of the least and the greatest rank can qualify.
    leaf, part = order[0]
    if all(ranks[leaf, part] <= 1 / tree.bonds[v][w] - 1 / fewest[v, w] for v, w in _away(tree, part, leaf)):
        return leaf, part, True
    leaf, part = order[-1]
    if all(ranks[leaf, part] >= 1 / tree.bonds[v][w] - 1 / most[v, w] for v, w in _away(tree, part, leaf)):
        return leaf, part, False
    for leaf, part in order:
        # Joined later, the leaf makes the first of the other steps dearer by more than what these may ever save.
        left, least = 1.0, BIG
        for p, bond in tree.bonds[part].items():
            if p != leaf:
                left *= min(bond, fewest[part, p]) / bond
                least = min(least, fewest[part, p])
        kept, bond = tree.kept[leaf], tree.bonds[leaf][part]
        if kept <= bond and kept * (1 - left) <= least * (1 - kept / bond):
            return leaf, part, True
    return None


def _away(tree: BondTree, start: int, leaf: int) -> list[tuple[int, int]]:
    """Return the directed bonds that lead away from a part, without that to the leaf."""
    edges, todo = [], [(start, leaf)]
    while todo:
        part, back = todo.pop()
        for p in tree.bonds[part]:
            if p != back:
                edges.append((part, p))
                todo.append((p, part))
    return edges


def _without_vectors(tree: BondTree) -> tuple[BondTree, list[tuple[int, int]]]:
    """Return the tree whose branches without kept labels are joined to it, and the steps of that.

    Such a branch becomes a vector, whose rank 1/t - 1 is below that of everything but other vectors. So each part first
    takes up the vectors next to it, the longest first.
    """
    root = next((part for part, n in tree.kept.items() if n > 1), 0) or _meeting(tree)
    kept, outwards = dict(tree.kept), tree.outwards(root)
    for part, parent in reversed(outwards):
        kept[parent] *= kept[part]
    branches: dict[int, list[int]] = {part: [] for part in tree.kept}
    for part, parent in outwards:
        if kept[part] == 1:
            branches[parent].append(part)
    steps, done = [], {part: part for part in tree.kept}
    for part in [*(part for part, _ in reversed(outwards)), root]:
        for branch in sorted(branches[part], key=lambda p: -tree.bonds[part][p]):
            steps.append((done[part], done[branch]))
            done[part] |= done[branch]
    core = {part for part in tree.kept if kept[part] > 1 or part == root}
    bonds = {done[part]: {done[p]: b for p, b in tree.bonds[part].items() if p in core} for part in core}
    return BondTree({done[part]: tree.kept[part] for part in core}, bonds), steps


def _meeting(tree: BondTree) -> int:
    """Return the part of a tree without kept labels at which the vectors of its branches meet at least cost."""
    branches: dict[tuple[int, int], int] = {}

    def joined(part: int, out: int) -> int:
        """Return the cost of a part with all of its branches but `out`."""
        cost, size = 0, tree.size(part)
        for bond, p in sorted(((bond, p) for p, bond in tree.bonds[part].items() if p != out), reverse=True):
            cost, size = cost + size + branches[part, p], size // bond
        return cost

    outwards = tree.outwards()
    for part, parent in reversed(outwards):
        branches[parent, part] = joined(part, parent)
    for part, parent in outwards:
        branches[part, parent] = joined(parent, part)
    return min(tree.kept, key=lambda part: joined(part, 0))
