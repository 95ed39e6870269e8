"""The search for the tiles of a ladder: those of least estimated time within a limit of memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from trnqc.contraction.cost.rates import RELATIVE_RATES
from trnqc.contraction.ladder.loops import LadderLoops
from trnqc.contraction.ladder.pattern import Ladder
from trnqc.contraction.memory.tiles import doublings, even_sizes


def ladder_loops(ladder: Ladder, limit: int) -> LadderLoops | None:
    """Return the tiles of least estimated time that hold at most `limit` elements; None if no tiles do.

    If a and e have tiles of different lengths, powers of two are tried first, then each length is refined in turn.
    """
    above, below, _, _ = ladder.extents
    if not prod(ladder.extents):
        return None
    upper, lower = even_sizes(above), even_sizes(below)
    if ladder.even:
        return _best(ladder, limit, [(size, size) for size in upper])
    best = _best(ladder, limit, list(product(doublings(above), doublings(below))))
    if best:
        best = _best(ladder, limit, [(best.upper, size) for size in (best.lower, *lower)]) or best
        best = _best(ladder, limit, [(size, best.lower) for size in (best.upper, *upper)]) or best
    return best


def _best(ladder: Ladder, limit: int, sizes: Sequence[tuple[int, int]]) -> LadderLoops | None:
    trials = (
        LadderLoops(ladder, *size, held) for size in sizes for held in ((True,) if ladder.given else (True, False))
    )
    fitting = [loops for loops in trials if loops.memory <= limit]
    return min(fitting, key=lambda loops: loops.seconds(RELATIVE_RATES), default=None)
