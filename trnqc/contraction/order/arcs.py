"""The cheapest order of a chain or a ring of operands, from all of its arcs.

Every operand of a ring shares labels with two others only, and no label that two operands share is kept. A chain is
a ring in which one bond, that between its ends, has extent one. An arc is a number of operands in a row. Its result has
the bonds at its two ends and the kept labels inside.

No other order takes less work if all bonds are two or more. An outer product of two parts P and Q that is then
multiplied by R pays only if R takes up all labels of both: with p, q and r for the elements of each that are left, and
s for the labels that P and R share, it pays if q + q r (1 - 1/s) < r, so that q = 1, and p = 1 for the same reason. The
parts of a chain that this is true of are those at its two ends, which is an arc across the bond of extent one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.contraction.order.bonds import bonds_in_pairs
from trnqc.contraction.order.network import LabelNetwork, Splits

# Largest number of operands for which all arcs are tried, which takes n^3 / 2 products.
MOST = 128


@dataclass(frozen=True)
class Ring:
    """Parts of a network in a row.

    `bonds` has the extent between each part and the one before it, `kept` the elements of the other labels of each.
    """

    parts: tuple[int, ...]
    bonds: tuple[int, ...]
    kept: tuple[int, ...]


def cheapest(network: LabelNetwork, least: int = 1) -> Splits | None:
    """Return the order of least work of a chain or ring of at least three operands; None for another network.

    Bonds have an extent of `least` or more.
    """
    ring = _ring_of(network, least)
    return splits_of(ring, network) if ring else None


def splits_of(ring: Ring, network: LabelNetwork) -> Splits | None:
    """Return the order of least work, and of least temporaries among these; None if numbers exceed fp64.

    Parts with labels of their own that nothing keeps must be operands of the network.
    """
    n = len(ring.parts)
    bonds = np.array(ring.bonds * 2, float)
    summed = [k for k, part in enumerate(ring.parts) if len(network.ways(part)) > 1]
    starts = np.arange(n)
    # By number of parts and first part: elements of the kept labels, cost, sum of temporaries, and the first cut.
    kept = np.ones((n + 1, n))
    cost, held, cuts = np.zeros((n + 1, n)), np.zeros((n + 1, n)), np.zeros((n + 1, n), int)
    with np.errstate(over="ignore", invalid="ignore"):
        for length in range(1, n + 1):
            kept[length] = kept[length - 1] * np.array(ring.kept * 2, float)[starts + length - 1]
            if length == 1:
                continue
            lefts = np.arange(1, length)
            rest = (starts[:, None] + lefts) % n
            outside = kept[length] * bonds[:n] * (bonds[starts + length] if length < n else 1.0)
            step = outside[:, None] * bonds[rest]
            for k in summed:
                first = (k + 1 - length) % n
                step[k, 0] = network.merge(ring.parts[k], _arc(ring, k + 1, length - 1))
                step[first, -1] = network.merge(_arc(ring, first, length - 1), ring.parts[k])
            total = cost[lefts, starts[:, None]] + cost[length - lefts, rest] + step
            below = held[lefts, starts[:, None]] + held[length - lefts, rest]
            cost[length] = total.min(1)
            chosen = np.where(total == cost[length][:, None], below, np.inf).argmin(1)
            held[length] = below[starts, chosen] + outside
            cuts[length] = chosen + 1
    if not np.isfinite(cost[n]).all():
        return None
    splits: Splits = {}
    todo = [(int(np.lexsort((held[n], cost[n]))[0]), n)]
    while todo:
        start, length = todo.pop()
        if length > 1:
            left = int(cuts[length, start])
            middle = (start + left) % n
            splits[_arc(ring, start, length)] = (_arc(ring, start, left), _arc(ring, middle, length - left))
            todo += [(start, left), (middle, length - left)]
    return splits


def _arc(ring: Ring, start: int, length: int) -> int:
    """Return an arc as one part."""
    n = len(ring.parts)
    return sum(ring.parts[(start + k) % n] for k in range(length))


def _ring_of(network: LabelNetwork, least: int) -> Ring | None:
    """Return the operands from one end of a chain to the other, or around a ring; None for another network."""
    n, near = len(network.operands), network.neighbours
    degrees = [others.bit_count() for others in near]
    ends = [k for k, degree in enumerate(degrees) if degree == 1]
    if not 2 < n <= MOST or not set(degrees) <= {1, 2} or len(ends) not in (0, 2) or not bonds_in_pairs(network, least):
        return None
    order, seen = [ends[0] if ends else 0], 1 << (ends[0] if ends else 0)
    while left := near[order[-1]] & ~seen:
        order.append((left & -left).bit_length() - 1)
        seen |= left & -left
    if len(order) < n:
        return None
    sets = [network.operands[k] for k in order]
    bonds = [network.size(labels & before) for before, labels in zip([sets[-1], *sets], sets)]
    kept = [network.size(labels & network.output) for labels in sets]
    return Ring(tuple(1 << k for k in order), tuple(bonds), tuple(kept))
