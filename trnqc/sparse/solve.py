"""From a network and what is known of its operands to nests of fused loops, the fastest by estimate first.

trees, most promising first -> fusions, smallest workspaces first (Z3) -> the rest of the loops, formats, workspaces
-> estimates -> nests, ranked

The smallest order of workspaces is a bound that a nest is allowed to exceed: it is memory, not time. Every fusion of a
tree is tried, within a number that is fixed, so that the answer does not depend on the machine's speed; the clock ends
the search only where it runs out, with the best nest so far.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

from trnqc.sparse.estimate import RATES, Estimate, Model, Place, Rates, Walk, estimate
from trnqc.sparse.fusion import Fusion, Fusions
from trnqc.sparse.layout import Choices, Out, lay_out, may_be_dense
from trnqc.sparse.nest import Assignment, Nest
from trnqc.sparse.network import Indices, Network
from trnqc.sparse.statistics import Counted, Statistics
from trnqc.sparse.tree import Contraction, Tree, contractions, greedy, trees

# Networks of so many operands have all their trees looked at; nodes of three and more children are tried up to WIDEST.
ALL_TREES, WIDEST = 5, 4
# Fusions tried in all, and of one tree; loops of an assignment whose every order is tried.
FUSIONS, OF_A_TREE, EVERY_ORDER = 400, 120, 6
# A tree that would take so much longer than the best nest, though nothing but multiply-adds were counted, is left out.
PATIENCE = 4.0
# A nest that cannot be divided among threads by its outermost loop must be so much faster.
SERIAL = 1.1


@dataclass(frozen=True)
class Candidate:
    nest: Nest
    tree: Tree
    estimate: Estimate

    @property
    def rank(self) -> tuple[float, int, str]:
        """By seconds, then bytes; text last, so that equals have one order."""
        outermost = {a.loops[0] for a in self.nest.assignments if a.loops}
        serial = bool(outermost - set(self.nest.network.output))
        return self.estimate.seconds * (SERIAL if serial else 1.0), self.estimate.bytes, repr(self.nest)


def solve(
    network: Network,
    operands: Sequence[Counted],
    *,
    tree: Tree | None = None,
    out: Out = "auto",
    time_limit: float = 1.0,
    dense_workspace: int = 2**22,
) -> Nest:
    """The nest with the least estimated time.

    tree: the only one to consider. out: storage of the result. time_limit: seconds. dense_workspace: elements of the
    largest workspace that is an array rather than a hash table.

    Errors: ExpressionError for a tree that does not have every operand once.
    """
    limits = {"out": out, "time_limit": time_limit, "dense_workspace": dense_workspace}
    return candidates(network, operands, tree=tree, **limits)[0].nest  # type: ignore[arg-type]


def candidates(
    network: Network,
    operands: Sequence[Counted],
    *,
    tree: Tree | None = None,
    out: Out = "auto",
    time_limit: float = 1.0,
    dense_workspace: int = 2**22,
    rates: Rates = RATES,
) -> tuple[Candidate, ...]:
    """Different nests, the one with the least estimated time first; arguments as for `solve`."""
    until = time.monotonic() + time_limit
    statistics = Statistics(network, operands)
    found: dict[Nest, Candidate] = {}
    left = FUSIONS
    for each, lowest in _trees(statistics, tree, rates):
        if found and (not left or lowest > PATIENCE * min(c.estimate.seconds for c in found.values())):
            break
        search = _Tree(statistics, each, Choices(out=out, dense_workspace=dense_workspace), rates)
        for fusion in search.fusions(min(left, OF_A_TREE), until):
            left -= 1
            for nest in search.nests(fusion):
                if nest not in found:
                    found[nest] = Candidate(nest.check(), each, estimate(nest, statistics, rates))
            if time.monotonic() > until:
                left = 0
                break
    return tuple(sorted(found.values(), key=lambda candidate: candidate.rank))


def _trees(statistics: Statistics, tree: Tree | None, rates: Rates) -> list[tuple[Tree, float]]:
    """(tree, seconds of its multiply-adds alone), the least first."""
    count = len(statistics.network.inputs)

    def lowest(each: Tree) -> float:
        return _work(statistics, contractions(statistics.network, each)) * rates.lane

    if tree is not None:
        return [(tree, lowest(tree))]
    if count > ALL_TREES:
        pair = greedy(count, lambda a, b: _matches(statistics, a + b))
        return [(pair, lowest(pair))]
    listed = trees(count, WIDEST if count <= WIDEST else 2)
    return sorted(((each, lowest(each)) for each in listed), key=lambda pair: pair[1])


def _work(statistics: Statistics, nodes: Sequence[Contraction]) -> float:
    """Multiply-adds over stored elements, each node by itself."""
    below: list[tuple[int, ...]] = [(t,) for t in range(len(statistics.network.inputs))]
    work = 0.0
    for node in nodes:
        below.append(tuple(sorted(leaf for t in node.operands for leaf in below[t])))
        work += statistics.count(below[-1], frozenset(node.loops))
    return work


def _matches(statistics: Statistics, operands: tuple[int, ...]) -> float:
    labels = frozenset(index for t in operands for index in statistics.network.inputs[t])
    return statistics.count(tuple(sorted(operands)), labels)


class _Tree:
    """Nests of one tree."""

    def __init__(self, statistics: Statistics, tree: Tree, choices: Choices, rates: Rates) -> None:
        self.statistics, self.network, self.tree = statistics, statistics.network, tree
        self.count = len(self.network.inputs)
        self.nodes = contractions(self.network, tree)
        self.model = Model(statistics, rates)
        optional = [t for t in range(self.count) if may_be_dense(statistics, t)]
        sets = [frozenset(s) for size in range(min(len(optional), 3) + 1) for s in combinations(optional, size)]
        self.choices = [replace(choices, dense=dense) for dense in sets]
        self._orders: dict[tuple[object, ...], Indices] = {}

    def fusions(self, limit: int, until: float) -> Iterator[Fusion]:
        """Fusions by order, and at the end, were there none in time, the one that shares nothing."""
        none = Fusion(
            max((len(node.kept) for node in self.nodes[:-1]), default=0),
            tuple(range(len(self.nodes))),
            ((),) * (len(self.nodes) - 1),
        )
        found = False
        if len(self.nodes) > 1:
            for fusion in Fusions(self.nodes, self.count).smallest_first(limit, max(until - time.monotonic(), 0.0)):
                found = True
                yield fusion
        if not found:
            yield none

    def nests(self, fusion: Fusion) -> Iterator[Nest]:
        """One for each choice of storage: the loops that are not fused in the order that is best for them."""
        nest = self._assigned(fusion)
        for choices in self.choices:
            yield self._ordered(lay_out(nest, self.statistics, choices), choices)

    def _assigned(self, fusion: Fusion) -> Nest:
        """Assignments in sequence, each with the loops that it shares outermost, then the others as they come."""
        numbers = {t: t for t in range(self.count)} | {
            self.count + k: self.count + at for at, k in enumerate(fusion.sequence)
        }
        made: list[Assignment] = []
        for k in fusion.sequence:
            node = self.nodes[k]
            first = self._carried(fusion, k)
            loops = first + tuple(index for index in node.loops if index not in first)
            made.append(Assignment(self.count + len(made), tuple(numbers[t] for t in node.operands), loops))
        return Nest(self.network, tuple(made), (0,) * (len(made) - 1), (), ())

    def _carried(self, fusion: Fusion, k: int) -> Indices:
        """The longest run of loops that some fusion asks of a contraction."""
        at = {number: place for place, number in enumerate(fusion.sequence)}
        asked: list[Indices] = [()]
        for maker, fused in enumerate(fusion.fused):
            reader = next(r for r, node in enumerate(self.nodes) if self.count + maker in node.operands)
            if at[maker] <= at[k] <= at[reader]:
                asked.append(fused)
        return max(asked, key=len)

    def _ordered(self, nest: Nest, choices: Choices) -> Nest:
        """With the loops inside the shared ones in their best order, readers before makers."""
        walk = Walk(nest, self.model)
        for k in reversed(range(len(nest.assignments))):
            place = walk.places[k]
            rest = nest.assignments[k].loops[len(place.loops) :]
            if len(rest) < 2:
                continue
            best = min(_orders(rest), key=lambda order: self._seconds(nest, k, place, order, choices))
            nest = _with_loops(nest, k, (*place.loops, *best))
        return lay_out(nest, self.statistics, choices)

    def _seconds(self, nest: Nest, k: int, place: Place, order: Indices, choices: Choices) -> float:
        tried = lay_out(_with_loops(nest, k, (*place.loops, *order)), self.statistics, choices)
        walk = Walk(tried, self.model)
        return self.model.alone(place, order, walk.reads(k), walk.target(k))[0]


def _orders(rest: Indices) -> Iterator[Indices]:
    """All orders of loops; of many, those that differ in what is innermost."""
    if len(rest) <= EVERY_ORDER:
        yield from permutations(rest)
        return
    for index in rest:
        yield (*(other for other in rest if other != index), index)


def _with_loops(nest: Nest, k: int, loops: Indices) -> Nest:
    changed = replace(nest.assignments[k], loops=loops)
    return replace(nest, assignments=(*nest.assignments[:k], changed, *nest.assignments[k + 1 :]))
