"""The search for nests of fused loops, ranked by their estimated time.

trees, least work first -> fusions, smallest workspaces first (Z3) -> orders of the other loops, formats, workspaces
-> estimates -> nests, fastest first

Smaller workspaces save memory but not always time, so that larger ones are tried as well. A fixed number of fusions is
tried, so that the result does not depend on the speed of the search. If the time limit is reached, the search ends with
the best nest so far.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trnqc.sparse.network.nest import Format, Nest
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.network.tree import Contraction, Tree, contractions, greedy, trees
from trnqc.sparse.search.cost import CostModel
from trnqc.sparse.search.estimate import Estimate, estimate
from trnqc.sparse.search.formats import Choices, Formats, Out
from trnqc.sparse.search.loop_orders import Nests, listed
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.statistics import Counted, Statistics

# Number of operands up to which all trees of pairs are tried, and up to which trees with wider nodes are tried too.
ALL_TREES, WIDEST = 5, 4
# Number of fusions that are tried in total, and for one tree.
FUSIONS, OF_A_TREE = 120, 60
# Number of the best nests for which lists of written elements are tried in place of plain arrays.
LISTED = 20
# A tree is skipped if its multiply-adds alone take this many times as long as the best nest so far.
PATIENCE = 3.0
# The same for a tree whose best nest is not tried with levels that skip empty coordinates.
CLOSE = 2.0
# Factor on the time of a nest whose outermost loop cannot be divided among threads, when nests are ranked.
SERIAL = 1.1


@dataclass(frozen=True)
class Candidate:
    """A nest, the order of contractions that it follows, its cost, and seconds for packing operands and result anew."""

    nest: Nest
    tree: Tree
    estimate: Estimate
    packing: float = 0.0

    @property
    def rank(self) -> tuple[float, int, int, str]:
        """Sort key: seconds, then copies of operands, then bytes, then the text, which makes the order unique."""
        outermost = {a.loops[0] for a in self.nest.assignments if a.loops}
        serial = bool(outermost - set(self.nest.network.output))
        seconds = self.estimate.seconds * (SERIAL if serial else 1.0) + self.packing
        return seconds, self.copies, self.estimate.bytes, repr(self.nest)

    @property
    def copies(self) -> int:
        """Number of packed copies of operands; a tensor that is an operand twice may need two."""
        network = self.nest.network
        packed = zip(network.same, network.inputs, self.nest.formats)
        return len({(t, tuple(labels.index(x) for x in f.order), f.kinds) for t, labels, f in packed})


def candidates(
    network: Network,
    operands: Sequence[Counted],
    rates: WorkRates,
    *,
    tree: Tree | None = None,
    out: Out = "auto",
    time_limit: float = 0.8,
    dense_workspace: int = 2**22,
    given: Sequence[Format] = (),
    wanted: Indices | None = None,
) -> tuple[Candidate, ...]:
    """Return different nests for a network, the one of least estimated time first.

    Parameters
    ----------
    network, operands
        The product, and the stored elements of its operands.
    rates
        The speed of the machine, by which nests are ranked.
    tree
        The only order of contractions to consider.
    out
        Storage of the result.
    time_limit
        CPU seconds of this thread, not counting those spent on counting stored elements.
    dense_workspace
        Elements of the largest workspace that is an array rather than a hash table.
    given
        The formats of the operands, for a product that is computed once: the time in which they are packed in others
        counts. By default it does not.
    wanted
        The order of levels to which a sparse result is converted. By default it is not.

    Raises
    ------
    ExpressionError
        If the tree does not contain every operand once.
    """
    statistics = Statistics(network, operands)
    began = time.thread_time()

    def seconds_left() -> float:
        return began + time_limit + statistics.seconds - time.thread_time()

    model, formats = CostModel(statistics, rates), Formats(statistics, given, wanted)
    choices = Choices(out=out, dense_workspace=dense_workspace)
    compared: dict[Nest, Candidate] = {}
    searches: dict[Tree, Nests] = {}

    def best() -> list[Candidate]:
        return sorted(compared.values(), key=lambda candidate: candidate.rank)

    def compare(nests: Iterable[Nest], tree: Tree) -> None:
        for nest in nests:
            if nest not in compared:
                compared[nest] = Candidate(nest, tree, estimate(nest, model), formats.moving(nest))

    left = FUSIONS
    for each, lowest in _trees(statistics, tree, rates):
        if compared and (not left or lowest > PATIENCE * min(c.estimate.seconds for c in compared.values())):
            break
        search = searches[each] = Nests(model, formats, each, choices)
        for fusion in search.fusions(min(left, OF_A_TREE), seconds_left()):
            left -= 1
            compare(search.of(fusion), each)
            if seconds_left() < 0:
                left = 0
                break
    # Estimates tell the kinds of a level apart better than nests that share other loops, so that of these only the best
    # one of each tree is compared with nests that skip empty coordinates.
    of_tree: dict[Tree, Candidate] = {}
    for found in best():
        of_tree.setdefault(found.tree, found)
    for found in of_tree.values():
        if found.estimate.seconds <= CLOSE * best()[0].estimate.seconds:
            compare(searches[found.tree].skipping(found.nest), found.tree)
    for found in best()[:LISTED]:
        compare(listed(found.nest), found.tree)
    return tuple(best())


def _trees(statistics: Statistics, tree: Tree | None, rates: WorkRates) -> list[tuple[Tree, float]]:
    """Return trees with the seconds of their multiply-adds alone, the fastest first."""
    count = len(statistics.network.inputs)

    def lowest(each: Tree) -> float:
        return _work(statistics, contractions(statistics.network, each)) * rates.row_element

    if tree is not None:
        return [(tree, lowest(tree))]
    if count > ALL_TREES:
        pair = greedy(count, lambda a, b: _matches(statistics, a + b))
        return [(pair, lowest(pair))]
    every = trees(count, WIDEST if count <= WIDEST else 2)
    return sorted(((each, lowest(each)) for each in every), key=lambda pair: pair[1])


def _work(statistics: Statistics, nodes: Sequence[Contraction]) -> float:
    """Return the multiply-adds over stored elements, without fusion."""
    below: list[tuple[int, ...]] = [(t,) for t in range(len(statistics.network.inputs))]
    work = 0.0
    for node in nodes:
        below.append(tuple(sorted(leaf for t in node.operands for leaf in below[t])))
        work += statistics.count(below[-1], frozenset(node.loops))
    return work


def _matches(statistics: Statistics, operands: tuple[int, ...]) -> float:
    labels = frozenset(index for t in operands for index in statistics.network.inputs[t])
    return statistics.count(tuple(sorted(operands)), labels)
