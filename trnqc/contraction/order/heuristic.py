"""Good orders of large networks: a greedy or grown order is annealed, then its subtrees are optimised exactly."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trnqc.contraction.order.annealing import annealed
from trnqc.contraction.order.exact import EXACT_ORDER, connected, subsets
from trnqc.contraction.order.network import LabelNetwork, Splits
from trnqc.contraction.order.starts import best_start, greedy
from trnqc.contraction.time_limit import ORDER, out_of_time

# What is reported as not searched if the time is over.
PARTS = "orders of parts of the product"
# Number of operands of a subtree that is optimised exactly; 3^8 / 2 products take a few milliseconds.
SUBTREE = 8
# Pairs of parts that an exact search may compare: one for each multiply-add that the best order takes, so that the
# search takes tens of times as long as one run at most. The least take 20 ms.
LEAST_PAIRS, MOST_PAIRS = 1_000_000, 100_000_000


def search(network: LabelNetwork) -> Splits:
    """Return the best order found within the time limit.

    The search never returns an order worse than the greedy one, and is deterministic unless the time limit ends it. It
    is exact for connected networks as long as that is affordable.
    """
    everything = network.everything
    start = best_start(network)
    best = improve(network, min(start, annealed(network, start), key=lambda splits: network.cost(splits, everything)))
    if out_of_time(EXACT_ORDER, ORDER):
        return best
    components = network.components()
    if len(components) == 1:
        cost = network.cost(best, everything)
        return connected(network, everything, cost, min(MOST_PAIRS, max(LEAST_PAIRS, cost))) or best
    return min((best, _apart(network, components, best)), key=lambda splits: network.cost(splits, everything))


def improve(
    network: LabelNetwork, splits: Splits, subtree: int = SUBTREE, until: float = ORDER, changed: int = -1
) -> Splits:
    """Optimise subtrees exactly, one after another, until none gets cheaper or this fraction of the time is over.

    Where only the extents of the labels `changed` are new, subtrees without these are taken to be optimal already.
    """
    splits = dict(splits)
    # Subtrees of which no order is cheaper, by part and frontier.
    settled: set[tuple[int, tuple[int, ...]]] = set()
    first, improved = True, True
    while improved:
        improved = False
        for part in sorted(splits, key=lambda p: -p.bit_count()):
            if out_of_time(PARTS, until):
                return splits
            if part not in splits:
                continue
            frontier = _frontier(network, splits, part, subtree)
            key = part, tuple(sorted(frontier))
            if key in settled:
                continue
            settled.add(key)
            if first and not any(network.kept(one) & changed for one in frontier):
                continue
            before = _inside(network, splits, part, set(frontier))
            cheaper = subsets(network, frontier, before - 1, until)
            if cheaper is not None:
                _replace(splits, part, set(frontier), cheaper[1])
                improved = True
        first = False
    return splits


def _frontier(network: LabelNetwork, splits: Splits, part: int, most: int) -> list[int]:
    """Return the parts below which a subtree is left as it is; it is opened where the results are largest."""
    frontier = list(splits[part])
    while len(frontier) < most:
        inner = [p for p in frontier if p in splits]
        if not inner:
            break
        widest = max(inner, key=lambda p: (network.size(network.kept(p)), p))
        frontier.remove(widest)
        frontier += splits[widest]
    return frontier


def _inside(network: LabelNetwork, splits: Splits, part: int, frontier: set[int]) -> int:
    """Return the cost of a part down to the frontier."""
    if part in frontier:
        return 0
    left, right = splits[part]
    below = _inside(network, splits, left, frontier) + _inside(network, splits, right, frontier)
    return below + network.merge(left, right)


def _replace(splits: Splits, part: int, frontier: set[int], order: Splits) -> None:
    """Replace the order of a part down to the frontier."""
    todo = [part]
    while todo:
        gone = todo.pop()
        if gone not in frontier:
            todo += splits.pop(gone)
    splits.update(order)


def _apart(network: LabelNetwork, components: Sequence[int], best: Splits) -> Splits:
    """Return the better of `best` and the order that contracts each component first, then their results."""
    splits: Splits = {}
    for part in components:
        if part.bit_count() > 1:
            splits |= connected(network, part, math.inf) or improve(network, _restricted(network, part))
    if len(components) <= SUBTREE:
        merged = subsets(network, components)
        return splits | (merged[1] if merged else best)
    return splits | greedy(network, 0, components)


def _restricted(network: LabelNetwork, part: int) -> Splits:
    """Return the greedy order of one part."""
    return greedy(network, 0, [1 << k for k in range(len(network.operands)) if part >> k & 1])
