"""Good plans of large networks: randomised greedy starts, then exact re-planning of one subtree after another."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence

from trnqc.contraction.order.exact import EXACT_ORDER, connected, subsets
from trnqc.contraction.order.network import Network, Splits
from trnqc.contraction.time_limit import ORDER, out_of_time

# Starts tried, starts improved, operands of a subtree planned anew: 3^8 / 2 merges take a few milliseconds.
STARTS, IMPROVED, SUBTREE = 24, 3, 8


def plan(network: Network) -> Splits:
    """Deterministic. Never above the greedy plan; exact for connected networks while the search stays affordable.

    Within a limit of time the best plan that is found until then.
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
        found = connected(network, network.everything, network.cost(best, network.everything))
        return found or best
    return min((best, _apart(network, components, best)), key=lambda splits: network.cost(splits, network.everything))


def greedy(network: Network, seed: int, atoms: Sequence[int] = ()) -> Splits:
    """Merge what shrinks most: the size of the result less those of the two. Seed 0 is plain, others are noisy."""
    noise = random.Random(seed)
    heat = 0.0 if seed == 0 else noise.choice((0.1, 0.3, 1.0))
    weight = 1.0 if seed == 0 else noise.uniform(0.5, 2.0)
    parts = list(atoms) or [1 << k for k in range(len(network.operands))]
    alive = set(parts)
    near = {part: _near(network, part) for part in parts}
    queue: list[tuple[float, int, int]] = []

    def offer(left: int, right: int) -> None:
        gain = network.size(network.joined(left, right)) - weight * (
            network.size(network.kept(left)) + network.size(network.kept(right))
        )
        score = math.copysign(math.log1p(abs(gain)), gain) if abs(gain) < 1e300 else math.copysign(700.0, gain)
        if heat:
            score += heat * math.log(-math.log(max(noise.random(), 1e-300)) or 1e-300)
        heapq.heappush(queue, (score, left, right))

    for k, left in enumerate(parts):
        for right in parts[k + 1 :]:
            if near[left] & right:
                offer(left, right)
    splits: Splits = {}
    while len(alive) > 1:
        if queue:
            _, left, right = heapq.heappop(queue)
            if left not in alive or right not in alive:
                continue
        else:
            # What is left shares nothing: smallest results first.
            left, right = sorted(alive, key=lambda part: (network.size(network.kept(part)), part))[:2]
        part = left | right
        splits[part] = (left, right)
        alive -= {left, right}
        near[part] = (near[left] | near[right]) & ~part
        for other in sorted(alive):
            if near[part] & other:
                offer(part, other)
        alive.add(part)
    return splits


def _near(network: Network, part: int) -> int:
    total = 0
    for k, mask in enumerate(network.neighbours):
        if part >> k & 1:
            total |= mask
    return total & ~part


def improve(network: Network, splits: Splits, subtree: int = SUBTREE) -> Splits:
    """Plan subtrees anew, exactly, until none gets cheaper."""
    splits = dict(splits)
    improved = True
    while improved:
        improved = False
        for part in sorted(splits, key=lambda p: -p.bit_count()):
            if out_of_time("orders of parts of the product", ORDER):
                return splits
            if part not in splits:
                continue
            frontier = _frontier(network, splits, part, subtree)
            before = _inside(network, splits, part, set(frontier))
            found = subsets(network, frontier, before - 1)
            if found is not None:
                _replace(splits, part, set(frontier), found[1])
                improved = True
    return splits


def _frontier(network: Network, splits: Splits, part: int, most: int) -> list[int]:
    """The parts at which a subtree under `part` ends when it is opened where the results are largest."""
    frontier = list(splits[part])
    while len(frontier) < most:
        inner = [p for p in frontier if p in splits]
        if not inner:
            break
        widest = max(inner, key=lambda p: (network.size(network.kept(p)), p))
        frontier.remove(widest)
        frontier += splits[widest]
    return frontier


def _inside(network: Network, splits: Splits, part: int, frontier: set[int]) -> int:
    if part in frontier:
        return 0
    left, right = splits[part]
    below = _inside(network, splits, left, frontier) + _inside(network, splits, right, frontier)
    return below + network.merge(left, right)


def _replace(splits: Splits, part: int, frontier: set[int], found: Splits) -> None:
    todo = [part]
    while todo:
        gone = todo.pop()
        if gone not in frontier:
            todo += splits.pop(gone)
    splits.update(found)


def _apart(network: Network, components: Sequence[int], best: Splits) -> Splits:
    """Every component by itself, then their results."""
    splits: Splits = {}
    for part in components:
        if part.bit_count() > 1:
            found = connected(network, part, math.inf)
            splits |= found or improve(network, _restricted(network, part))
    if len(components) <= SUBTREE:
        merged = subsets(network, components)
        return splits | (merged[1] if merged else best)
    return splits | greedy(network, 0, components)


def _restricted(network: Network, part: int) -> Splits:
    return greedy(network, 0, [1 << k for k in range(len(network.operands)) if part >> k & 1])
