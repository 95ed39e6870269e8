"""Orders that are found at once, from which other searches start.

Greedy orders grow many parts at a time, and suit networks whose bonds have no places in space. A part that grows from
one end of a network keeps as few bonds as a cut through it, and suits lattices and circuits.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterator, Sequence

from trnqc.contraction.order.network import LabelNetwork, Splits, bits
from trnqc.contraction.time_limit import ORDER, out_of_time

# Number of greedy orders that are tried.
GREEDY = 8


def best_start(network: LabelNetwork) -> Splits:
    """Return the cheapest of some greedy and grown orders; only the plain greedy one if there is no time for more."""
    best, least = greedy(network, 0), math.inf
    for splits in _starts(network, best):
        cost = network.cost(splits, network.everything)
        if cost < least:
            best, least = splits, cost
        if out_of_time("greedy orders", ORDER):
            break
    return best


def _starts(network: LabelNetwork, first: Splits) -> Iterator[Splits]:
    yield first
    end = _farthest(network, 0)
    yield grown(network, end)
    yield grown(network, _farthest(network, end))
    for seed in range(1, GREEDY):
        yield greedy(network, seed)


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


def grown(network: LabelNetwork, first: int) -> Splits:
    """Return the order that takes up the operands one by one, from the operand `first` on.

    The next one is that neighbour with which the result is smallest; of equal ones, that which was reached first.
    """
    part = 1 << first
    splits: Splits = {}
    left = network.everything ^ part
    # Neighbours of the part, with the numbers of the steps at which they were reached.
    reached = dict.fromkeys(bits(network.neighbours[first]), 0)
    while left:
        if not reached:
            # Another component of the network begins.
            reached = {next(bits(left)): 0}
        sizes = {k: network.size(network.joined(part, 1 << k)) for k in reached}
        chosen = min(reached, key=lambda k: (sizes[k], reached[k]))
        splits[part | 1 << chosen] = part, 1 << chosen
        part, left = part | 1 << chosen, left ^ 1 << chosen
        del reached[chosen]
        for k in bits(network.neighbours[chosen] & left):
            reached.setdefault(k, len(splits))
    return splits


def _farthest(network: LabelNetwork, first: int) -> int:
    """Return an operand that is most steps from neighbour to neighbour away from the operand `first`."""
    order, seen = [first], 1 << first
    for operand in order:
        near = network.neighbours[operand] & ~seen
        order += bits(near)
        seen |= near
    return order[-1]
