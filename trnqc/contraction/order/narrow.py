"""Orders for slices: an order of least work is changed until a few sliced labels bring its memory within a limit.

Labels are sliced one by one, as cotengra does (Gray and Kourtis, Quantum 5, 410, 2021): that one which saves most
memory for the least additional work, counted as if the whole product were repeated. After each, subtrees are optimised
again for the sliced tensors.
"""

from __future__ import annotations

from collections import defaultdict
from math import log

from trnqc.contraction.order.heuristic import improve
from trnqc.contraction.order.network import LabelNetwork, Splits, bits
from trnqc.contraction.time_limit import out_of_time

# Operands of the subtrees that are optimised after each slice; larger ones take longer than they save.
SUBTREE = 5
# Growth of the work, as a logarithm, below which labels differ by the memory that they save.
LEAST_GROWTH = 1e-3
# What is reported as not searched if the time is over.
SEARCH = "orders for slices"


def narrowed(network: LabelNetwork, splits: Splits, room: int, until: float = 1.0) -> Splits:
    """Return an order that holds at most `room` elements of temporaries in each slice over some labels.

    If this fraction of the time for planning is over, or no labels are left to slice, the order may hold more.
    """
    sliced = network
    while peak(sliced, splits) > room and not out_of_time(SEARCH, until):
        label = _label(sliced, splits)
        if label is None:
            break
        extents = [1 if k == label else extent for k, extent in enumerate(sliced.extents)]
        sliced = sliced.with_extents(extents)
        splits = improve(sliced, splits, SUBTREE, until, 1 << label)
    return splits


def _label(network: LabelNetwork, splits: Splits) -> int | None:
    """Return the label whose slices save most memory for their work; None if there is none."""
    work: defaultdict[int, float] = defaultdict(float)
    squares: defaultdict[int, float] = defaultdict(float)
    all_work, all_squares, largest = 0.0, 0.0, 0
    among = 0
    for part, (left, right) in splits.items():
        loops, kept = network.kept(left) | network.kept(right), network.kept(part)
        cost, size = float(network.size(loops)), network.size(kept)
        all_work, all_squares = all_work + cost, all_squares + float(size) ** 2
        for label in bits(loops):
            work[label] += cost
        for label in bits(kept):
            squares[label] += float(size) ** 2
        if size > largest:
            largest, among = size, 0
        among |= kept if size == largest else 0

    def score(label: int) -> float:
        extent = network.extents[label]
        growth = extent - (extent - 1) * work[label] / all_work
        saved = squares[label] / all_squares * (1 - 1 / extent**2)
        # Large results count most: squares of their sizes are summed.
        return (log(growth) + LEAST_GROWTH) / -log(max(1 - saved, 1e-300))

    return min((label for label in bits(among) if network.extents[label] > 1), key=score, default=None)


def peak(network: LabelNetwork, splits: Splits) -> int:
    """Return the most elements of results that are held at once, if of two operands the better is computed first."""
    peaks: dict[int, int] = {}

    def held(part: int) -> int:
        return network.size(network.kept(part)) if part.bit_count() > 1 else 0

    for part in sorted(splits, key=int.bit_count):
        left, right = sorted(splits[part], key=lambda half: held(half) - peaks.get(half, 0))
        during = held(left) + held(right) + held(part)
        peaks[part] = max(peaks.get(left, 0), held(left) + peaks.get(right, 0), during)
    return peaks.get(network.everything, 0)
