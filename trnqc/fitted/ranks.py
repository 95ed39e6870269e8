"""The exchange after which ranks that have computed some columns of all rows have all columns of some rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest

import numpy as np

from trnqc.ranks import Message, Pending, Ranks

# Bytes of one message. While it is under way, the one before is copied to its place, and new memory is not needed for
# the whole array: the page faults of a new array take as long as its message.
PIECE = 1 << 22
# Bytes of the messages of a rank that are under way: two that it sends, and two that it receives.
UNDER_WAY = 4 * PIECE


def fill_from_every_rank(
    ranks: Ranks, leaving: Callable[[int], Iterable[np.ndarray]], places: Callable[[int], Iterable[np.ndarray]]
) -> None:
    """Fill `places(rank)` of this rank, for every rank, with the arrays `leaving(this rank)` of that rank.

    The shapes of what leaves one rank and of its places on the other are the same, and all arrays are in fp64. Neither
    need be contiguous. In every step each rank sends to one rank and receives from one.
    """
    me, size = ranks.rank, ranks.size
    for place, array in zip(places(me), leaving(me), strict=True):
        place[...] = array
    for step in range(1, size):
        to, source = (me + step) % size, (me - step) % size
        under_way: tuple[Pending, np.ndarray, np.ndarray] | None = None
        for out, place in zip_longest(_pieces(leaving(to)), _pieces(places(source))):
            sent: list[Message] = [] if out is None else [(to, np.ascontiguousarray(out))]
            received: list[Message] = [] if place is None else [(source, np.empty(place.shape))]
            pending = ranks.exchange(sent, received)
            _arrive(under_way)
            under_way = (pending, place, received[0][1]) if received else (pending, np.empty(0), np.empty(0))
        _arrive(under_way)


def _arrive(under_way: tuple[Pending, np.ndarray, np.ndarray] | None) -> None:
    """Wait for a message and copy it to its place."""
    if under_way:
        pending, place, arrived = under_way
        pending.wait()
        place[...] = arrived


def _pieces(arrays: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield ranges of rows of arrays, each of about PIECE bytes, or of one row."""
    for array in arrays:
        rows = max(1, PIECE // max(1, 8 * array[:1].size))
        yield from (array[first : first + rows] for first in range(0, len(array), rows))
