"""Arrays that become whole on all ranks, and sums over ranks, in messages of limited size.

A rank holds the range `cut(extent, ranks, rank)` of one axis. To gather an array, every rank sends its range to all
others. To add arrays over ranks, every rank receives the others' elements of its range, and adds them in the order of
the ranks. Bits thus do not depend on which rank adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from math import prod

import numpy as np

from trnqc.contraction.shares.local_parts import cut
from trnqc.ranks import Message, Ranks

# Slices of all axes of an array.
Box = tuple[slice, ...]


class RankExchange:
    """The messages of one run on one rank.

    Attributes
    ----------
    received : int
        Bytes of array elements that this rank has received.
    """

    def __init__(self, ranks: Ranks, piece: int) -> None:
        self.ranks, self.piece, self.received = ranks, piece, 0
        self.others = [rank for rank in range(ranks.size) if rank != ranks.rank]

    def gathered(self, own: np.ndarray, axis: int, extent: int) -> np.ndarray:
        """Return the whole array from the ranges `own` of all ranks along an axis."""
        shape = (*own.shape[:axis], extent, *own.shape[axis + 1 :])
        whole = np.empty(shape, own.dtype)
        boxes = [self._box(shape, axis, rank) for rank in range(self.ranks.size)]
        whole[boxes[self.ranks.rank]] = own
        for pieces in zip_longest(*(self._pieces(whole[box].shape) for box in boxes)):
            sent, received, late = [], [], []
            if (mine := pieces[self.ranks.rank]) is not None:
                part = np.ascontiguousarray(own[mine])
                sent = [(rank, part) for rank in self.others]
            for rank in self.others:
                if (theirs := pieces[rank]) is not None:
                    place = whole[boxes[rank]][theirs]
                    buffer = place if place.flags.c_contiguous else np.empty_like(place, order="C")
                    received.append((rank, buffer))
                    late += [] if buffer is place else [(place, buffer)]
            self._exchange(sent, received)
            for place, buffer in late:
                place[...] = buffer
        return whole

    def added(self, array: np.ndarray, axis: int) -> np.ndarray:
        """Return this rank's range along an axis of the sum of all ranks' arrays."""
        shape = array.shape
        boxes = [self._box(shape, axis, rank) for rank in range(self.ranks.size)]
        own = np.empty(array[boxes[self.ranks.rank]].shape, array.dtype)
        for pieces in zip_longest(*(self._pieces(array[box].shape) for box in boxes)):
            mine = pieces[self.ranks.rank]
            sent = [
                (rank, np.ascontiguousarray(array[boxes[rank]][pieces[rank]]))
                for rank in self.others
                if pieces[rank] is not None
            ]
            received: list[Message] = []
            if mine is not None:
                here = array[boxes[self.ranks.rank]][mine]
                received = [(rank, np.empty(here.shape, here.dtype)) for rank in self.others]
            self._exchange(sent, received)
            if mine is not None:
                terms = dict(received) | {self.ranks.rank: here}
                own[mine] = terms[0]
                for rank in range(1, self.ranks.size):
                    own[mine] += terms[rank]
        return own

    def total(self, array: np.ndarray) -> np.ndarray:
        """Return the sum of all ranks' arrays, whole on every rank."""
        flat = np.ascontiguousarray(array).reshape(-1)
        return self.gathered(self.added(flat, 0), 0, flat.size).reshape(array.shape)[()]

    def _box(self, shape: tuple[int, ...], axis: int, rank: int) -> Box:
        own = cut(shape[axis], self.ranks.size, rank)
        return tuple(own if k == axis else slice(0, extent) for k, extent in enumerate(shape))

    def _pieces(self, shape: tuple[int, ...]) -> Iterator[Box]:
        """Yield boxes of at most `piece` elements that make up an array without elements left out."""
        if not prod(shape):
            return
        rest = prod(shape[1:])
        if rest > self.piece:
            for row in range(shape[0]):
                for piece in self._pieces(shape[1:]):
                    yield (slice(row, row + 1), *piece)
            return
        length = max(1, self.piece // rest)
        for start in range(0, shape[0], length):
            yield (slice(start, min(start + length, shape[0])), *(slice(0, extent) for extent in shape[1:]))

    def _exchange(self, sent: list[Message], received: list[Message]) -> None:
        self.ranks.exchange(sent, received).wait()
        self.received += sum(array.nbytes for _, array in received)
