"""Every nest of a tree by exhaustive enumeration, for small trees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product

from trnqc.sparse.network.nest import Assignment, Nest
from trnqc.sparse.network.network import Network
from trnqc.sparse.network.tree import Contraction, Tree, contractions
from trnqc.sparse.search.cost import CostModel
from trnqc.sparse.search.estimate import Estimate, estimate
from trnqc.sparse.search.formats import Choices, Formats, sharing
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.statistics import Counted, Statistics


def sequences(nodes: Sequence[Contraction], count: int) -> Iterator[tuple[int, ...]]:
    """Every order of contractions in which makers come before readers."""
    for sequence in permutations(range(len(nodes))):
        at = {k: place for place, k in enumerate(sequence)}
        if all(at[t - count] < at[k] for k in sequence for t in nodes[k].operands if t >= count):
            yield sequence


def least_order(network: Network, tree: Tree) -> int:
    """The smallest order that a nest of the tree has, by the definition: over all sequences and orders of loops, the
    indices of an intermediate less the run of outermost loops that its maker, its reader and all between have alike."""
    count, nodes = len(network.inputs), contractions(network, tree)
    reader = {t - count: k for k, node in enumerate(nodes) for t in node.operands if t >= count}
    least = len(network.sizes)
    for sequence in sequences(nodes, count):
        spans = [
            (sequence.index(k), sequence.index(r), set(nodes[k].kept), len(nodes[k].kept)) for k, r in reader.items()
        ]
        for loops in product(*(permutations(nodes[k].loops) for k in sequence)):
            order = 0
            for first, last, kept, rest in spans:
                for alike in zip(*loops[first : last + 1]):
                    if alike[0] not in kept or any(index != alike[0] for index in alike):
                        break
                    rest -= 1
                order = max(order, rest)
            least = min(least, order)
    return least


def nests(
    network: Network, operands: Sequence[Counted], tree: Tree, choices: Choices
) -> Iterator[tuple[Nest, Estimate]]:
    """Every sequence and order of loops, each sharing as much as it can."""
    count, nodes = len(network.inputs), contractions(network, tree)
    statistics = Statistics(network, operands)
    layouts, model = Formats(statistics), CostModel(statistics, WorkRates())
    for sequence in sequences(nodes, count):
        number = {t: t for t in range(count)} | {count + k: count + at for at, k in enumerate(sequence)}
        for loops in product(*(permutations(nodes[k].loops) for k in sequence)):
            assignments = tuple(
                Assignment(count + at, tuple(number[t] for t in nodes[k].operands), loops[at])
                for at, k in enumerate(sequence)
            )
            nest = layouts.lay_out(sharing(Nest(network, assignments, (), (), ())), choices)
            yield nest, estimate(nest, model)
