"""The exchange after which ranks that have computed some columns of all rows have all columns of some rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trnqc.ranks import Ranks


def from_every_rank(
    ranks: Ranks,
    leaving: Callable[[int], Sequence[np.ndarray]],
    shapes: Callable[[int], Sequence[tuple[int, ...]]],
) -> Iterator[tuple[int, Sequence[np.ndarray]]]:
    """Yield every rank, this one first, with the fp64 arrays that it has for this rank.

    `leaving(rank)` are the contiguous arrays for a rank, and `shapes(rank)` the shapes of those that it sends. In every
    step each rank sends to one rank and receives from one.
    """
    me, size = ranks.rank, ranks.size
    yield me, leaving(me)
    for step in range(1, size):
        to, source = (me + step) % size, (me - step) % size
        sent = [(to, array) for array in leaving(to)]
        arriving = [np.empty(shape) for shape in shapes(source)]
        ranks.exchange(sent, [(source, array) for array in arriving]).wait()
        yield source, arriving
