"""Good orders of large networks: randomised greedy orders, improved by exact optimisation of their subtrees."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence

from trnqc.contraction.order.exact import EXACT_ORDER, connected, subsets
from trnqc.contraction.order.network import LabelNetwork, Splits, bits
from trnqc.contraction.time_limit import ORDER, out_of_time

# What is reported as not searched if the time is over.
PARTS = "orders of parts of the product"
# Number of greedy orders that are tried, and of the best ones that are improved.
STARTS, IMPROVED = 24, 3
# Number of operands of a subtree that is optimised exactly; 3^8 / 2 products take a few milliseconds.
SUBTREE = 8
# Pairs of parts that an exact search may compare: one for each multiply-add that the best order takes, so that the
# search takes tens of times as long as one run at most. The least take 20 ms.
LEAST_PAIRS, MOST_PAIRS = 1_000_000, 100_000_000


def search(network: LabelNetwork) -> Splits:
    """Return the best order found within the time limit.

    The search is deterministic and never returns an order worse than the greedy one. It is exact for connected networks
    as long as that is affordable.
    """
    starts: dict[int, Splits] = {}
    for seed in range(STARTS):
        if starts and out_of_time("greedy orders", ORDER):
            break
        splits = greedy(network, seed)
        starts.setdefault(network.cost(splits, network.everything), splits)
    best = min(
        (improve(network, starts[cost]) for cost in sorted(starts)[:IMPROVED]),
        key=lambda splits: network.cost(splits, network.everything),
    )
    if out_of_time(EXACT_ORDER, ORDER):
        return best
    components = network.components()
    if len(components) == 1:
        cost = network.cost(best, network.everything)
        return connected(network, network.everything, cost, min(MOST_PAIRS, max(LEAST_PAIRS, cost))) or best
    return min((best, _apart(network, components, best)), key=lambda splits: network.cost(splits, network.everything))


def greedy(network: LabelNetwork, seed: int, atoms: Sequence[int] = ()) -> Splits:
    """Return the order that always contracts the pair whose result is smallest relative to its operands.

    Seed 0 is the plain greedy order; other seeds add noise.
    """
    noise = random.Random(seed)
    heat = 0.0 if seed == 0 else noise.choice((0.1, 0.3, 1.0))
    weight = 1.0 if seed == 0 else noise.uniform(0.5, 2.0)
    parts = list(atoms) or [1 << k for k in range(len(network.operands))]
    alive = set(parts)
    near = _adjacent(network, parts)
    queue: list[tuple[float, int, int]] = []

    def offer(left: int, right: int) -> None:
        gain = network.size(network.joined(left, right)) - weight * (
            network.size(network.kept(left)) + network.size(network.kept(right))
        )
        score = math.copysign(math.log1p(abs(gain)), gain) if abs(gain) < 1e300 else math.copysign(700.0, gain)
        if heat:
            score += heat * math.log(-math.log(max(noise.random(), 1e-300)) or 1e-300)
        heapq.heappush(queue, (score, left, right))

    place = {part: k for k, part in enumerate(parts)}
    for left in parts:
        for right in sorted(near[left], key=place.__getitem__):
            if place[right] > place[left]:
                offer(left, right)
    splits: Splits = {}
    while len(alive) > 1:
        if queue:
            _, left, right = heapq.heappop(queue)
            if left not in alive or right not in alive:
                continue
        else:
            # The parts left share no labels: the smallest results come first.
            left, right = sorted(alive, key=lambda part: (network.size(network.kept(part)), part))[:2]
        part = left | right
        splits[part] = (left, right)
        alive -= {left, right}
        near[part] = (near.pop(left) | near.pop(right)) - {left, right}
        for other in sorted(near[part]):
            near[other] -= {left, right}
            near[other].add(part)
            offer(part, other)
        alive.add(part)
    return splits


def _adjacent(network: LabelNetwork, parts: Sequence[int]) -> dict[int, set[int]]:
    """Return for each of these parts the others that share a label with it."""
    owner = {k: part for part in parts for k in bits(part)}
    return {
        part: {owner[j] for k in bits(part) for j in bits(network.neighbours[k]) if j in owner} - {part}
        for part in parts
    }


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
