"""Orders of least cost by dynamic programming over sets of operands.

Labels in more than two operands, symmetry and outer products are treated exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from trnqc.contraction.order.network import LabelNetwork, Splits, bits
from trnqc.contraction.time_limit import ORDER, out_of_time

# Name of this search in the plan's list of what was not searched.
EXACT_ORDER = "exact orders"


def subsets(
    network: LabelNetwork, atoms: Sequence[int], bound: float = inf, until: float = ORDER
) -> tuple[int, Splits] | None:
    """Return (cost, order) of the cheapest way to contract disjoint parts; None if it costs more than the bound.

    Every set of atoms is split in every way: 3^n / 2 products. A set is dropped if its cost plus that of the step that
    must read its result exceeds the bound. Among orders of equal cost the one with the smaller sum of temporaries is
    taken. None too if the fraction `until` of the time for planning is over.
    """
    n = len(atoms)
    parts = [0] * (1 << n)
    for chosen in range(1, 1 << n):
        low = chosen & -chosen
        parts[chosen] = parts[chosen ^ low] | atoms[low.bit_length() - 1]
    costs: list[float | int] = [inf] * (1 << n)
    space = [0] * (1 << n)
    halves = [0] * (1 << n)
    for k in range(n):
        costs[1 << k] = 0
    top = (1 << n) - 1
    merge, size, joined = network.merge, network.size, network.joined
    # Labels of each result, if that is all that the cost of a step depends on.
    plain = not network.exchanges and all(len(network.ways(atom)) == 1 for atom in atoms)
    kept = [0] * (1 << n)
    for k in range(n):
        kept[1 << k] = network.kept(atoms[k])
    for chosen in range(3, 1 << n):
        low = chosen & -chosen
        rest = chosen ^ low
        if not rest:
            continue
        if not chosen & 255 and out_of_time(EXACT_ORDER, until):
            return None
        kept[chosen] = joined(parts[low], parts[rest])
        result = size(kept[chosen])
        limit = bound if chosen == top or network.exchanges else bound - result
        # A step takes at least as many multiply-adds as its result has elements.
        least = result if plain else 0
        best, best_space, best_half = inf, 0, 0
        half = rest
        while half:
            half = (half - 1) & rest
            left, right = half | low, rest ^ half
            below = costs[left] + costs[right]
            if below + least <= limit and below + least <= best:
                step = size(kept[left] | kept[right]) if plain else merge(parts[left], parts[right])
                cost = below + step
                held = space[left] + space[right]
                if cost <= limit and (cost < best or (cost == best and held < best_space)):
                    best, best_space, best_half = cost, held, left
        costs[chosen], space[chosen], halves[chosen] = best, best_space + result, best_half
    if costs[top] == inf:
        return None
    splits: Splits = {}
    todo = [top] if n > 1 else []
    while todo:
        chosen = todo.pop()
        pair = halves[chosen], chosen ^ halves[chosen]
        splits[parts[chosen]] = (parts[pair[0]], parts[pair[1]])
        todo += [half for half in pair if half & (half - 1)]
    return int(costs[top]), splits


class _Level:
    """All connected parts of one number of operands that may occur in an order below the bound."""

    def __init__(self, parts: np.ndarray, near: np.ndarray, labels: np.ndarray, costs: np.ndarray) -> None:
        self.parts, self.near, self.labels, self.costs = parts, near, labels, costs


NONE = _Level(np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0, np.uint64), np.zeros(0))


def connected(network: LabelNetwork, part: int, bound: float, budget: int = 100_000_000) -> Splits | None:
    """Return the cheapest order of operands `part` (bits) without outer products, below `bound` multiply-adds.

    Parts are built by size from pairs that are disjoint and share a label (Pfeifer, Haegeman, Verstraete, Phys. Rev. E
    90, 033315, 2014). The result is None if no order is that cheap, after `budget` pairs, at the time limit, or if
    labels or operands do not fit into 64 bits.
    """
    if len(network.extents) > 64 or len(network.operands) > 64 or network.exchanges:
        return None
    operands = list(bits(part))
    outside = network.output | network.union(network.everything ^ part)
    start = [network.kept(1 << k) for k in operands]
    singles = _Level(
        np.array([1 << k for k in operands], np.uint64),
        np.array([network.neighbours[k] & part for k in operands], np.uint64),
        np.array(start, np.uint64),
        np.array(
            [min(cost for labels, cost in network.bare[k] if labels == s) for k, s in zip(operands, start)], float
        ),
    )
    levels = [singles]
    holders = [(np.uint64(1 << k), _holders(network, k, part, outside)) for k in range(len(network.extents))]
    splits: dict[int, int] = {}
    for count in range(2, len(operands) + 1):
        pairs: list[Pairs] = []
        for small in range(1, count // 2 + 1):
            a, b = levels[small - 1], levels[count - small - 1]
            budget -= a.parts.size * b.parts.size
            if budget < 0:
                return None
            pairs += _pairs(network, a, b, bound)
            if out_of_time(EXACT_ORDER, ORDER):
                return None
        # Parts of this size may all exceed the bound while larger parts, built from smaller ones, do not.
        last = count == len(operands)
        levels.append(_best(network, pairs, holders, splits, bound, last) if pairs else NONE)
    return _plan(splits, part) if part in splits else None


def _holders(network: LabelNetwork, label: int, part: int, outside: int) -> np.uint64 | None:
    """Return the operands of the part that have this label; None if it is needed outside in any case."""
    if outside >> label & 1:
        return None
    return np.uint64(sum(1 << k for k in bits(part) if network.operands[k] >> label & 1))


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _pairs(network: LabelNetwork, a: _Level, b: _Level, bound: float) -> Iterator[Pairs]:
    """Yield (left, right, labels, neighbours, cost) of all products of a part of a and one of b below the bound."""
    rows = max(1, 4_000_000 // max(b.parts.size, 1))
    for start in range(0, a.parts.size, rows):
        if out_of_time(EXACT_ORDER, ORDER):
            return
        stop = slice(start, start + rows)
        meet = (a.parts[stop, None] & b.parts) == 0
        meet &= (a.near[stop, None] & b.parts) != 0
        meet &= (a.costs[stop, None] + b.costs) < bound
        i, j = np.nonzero(meet)
        i += start
        labels = a.labels[i] | b.labels[j]
        cost = a.costs[i] + b.costs[j] + _sizes(network, labels)
        keep = cost < bound
        i, j = i[keep], j[keep]
        if i.size:
            yield a.parts[i], b.parts[j], labels[keep], a.near[i] | b.near[j], cost[keep]


def _sizes(network: LabelNetwork, labels: np.ndarray) -> np.ndarray:
    """Return the products of extents of sets of labels, as floats."""
    result = np.ones(labels.shape)
    for extent in sorted(set(network.extents)):
        mask = np.uint64(sum(1 << k for k, other in enumerate(network.extents) if other == extent))
        result *= float(extent) ** np.bitwise_count(labels & mask)
    return result


def _best(
    network: LabelNetwork,
    pairs: list[Pairs],
    holders: list[tuple[np.uint64, np.uint64 | None]],
    splits: dict[int, int],
    bound: float,
    last: bool,
) -> _Level:
    """Return the parts with their cheapest splits, which are added to `splits`."""
    left, right, labels, near, cost = (np.concatenate(column) for column in zip(*pairs))
    parts = left | right
    order = np.lexsort((cost, parts))
    parts = parts[order]
    first = order[np.concatenate(([True], parts[1:] != parts[:-1]))]
    parts, left, labels, cost = left[first] | right[first], left[first], labels[first].copy(), cost[first]
    near = near[first] & ~parts
    for bit, holder in holders:
        if holder is not None:
            labels[(holder & ~parts) == 0] &= ~bit
    keep = np.full(parts.shape, True) if last else cost + _sizes(network, labels) < bound
    splits.update(zip(parts[keep].tolist(), left[keep].tolist()))
    return _Level(parts[keep], near[keep], labels[keep], cost[keep])


def _plan(halves: dict[int, int], part: int) -> Splits:
    """Return the order of a part from the left half of every part."""
    splits: Splits = {}
    todo = [part]
    while todo:
        chosen = todo.pop()
        pair = halves[chosen], chosen ^ halves[chosen]
        splits[chosen] = pair
        todo += [half for half in pair if half & (half - 1)]
    return splits
