"""Positions of temporaries in one arena: arrays that never live at the same time may overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def arena_offsets(sizes: Mapping[str, int], lives: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the first element of each array in a common arena; `lives` has the first and last moment of each."""
    arena = ArenaPacking([lives[name] for name in sizes])
    offsets = arena.offsets(np.array([[*sizes.values()]], float))[0].tolist()
    # Without slices an array may have more elements than 64 bits count.
    return dict(zip(sizes, map(int, offsets)))


class ArenaPacking:
    """Positions of arrays, of which `lives` has the first and last moment of each, for many sizes at once.

    Of two orders in which arrays take their places, the better is used for each row of sizes [trials, arrays]: as they
    are created, and large ones first.
    """

    def __init__(self, lives: Sequence[tuple[int, int]]) -> None:
        first, last = np.array(lives, int).reshape(-1, 2).T
        # Which arrays live at the same time, and which live when an array begins to, [arrays, arrays].
        self.meet = (first[:, None] <= last) & (first <= last[:, None])
        self.begun = self.meet & (first <= first[:, None])

    def offsets(self, sizes: np.ndarray) -> np.ndarray:
        """Return the first element of each array, [trials, arrays]."""
        created, large = self._as_created(sizes), self._large_first(sizes)
        return np.where((_ends(large, sizes) <= _ends(created, sizes))[:, None], large, created)

    def elements(self, sizes: np.ndarray) -> np.ndarray:
        """Return the elements that hold all arrays, [trials]."""
        return self._ends(sizes, self._least(sizes))

    def fits(self, sizes: np.ndarray, room: int) -> np.ndarray:
        """Return whether so many elements hold all arrays, [trials]."""
        fits = self._least(sizes) <= room
        fits[fits] = self._ends(sizes[fits], room) <= room
        return fits

    def _ends(self, sizes: np.ndarray, enough: np.ndarray | int) -> np.ndarray:
        """Return the elements of arenas, [trials]; the second order is tried where the first takes more than enough."""
        ends = _ends(self._as_created(sizes), sizes)
        (longer,) = np.nonzero(ends > enough)
        ends[longer] = np.minimum(ends[longer], _ends(self._large_first(sizes[longer]), sizes[longer]))
        return ends

    def _least(self, sizes: np.ndarray) -> np.ndarray:
        """Return the most elements that live at one moment, which any arena has."""
        return np.max(sizes @ self.begun.T, axis=1, initial=0)

    def _as_created(self, sizes: np.ndarray) -> np.ndarray:
        return self._in_order(np.broadcast_to(np.arange(sizes.shape[1]), sizes.shape), sizes)

    def _large_first(self, sizes: np.ndarray) -> np.ndarray:
        return self._in_order(np.argsort(-sizes, axis=1, kind="stable"), sizes)

    def _in_order(self, order: np.ndarray, sizes: np.ndarray) -> np.ndarray:
        """Return the offsets where each array in turn takes the lowest range that is free as long as it lives."""
        rows = np.arange(len(sizes))
        offsets = np.zeros(sizes.shape)
        for k in range(sizes.shape[1]):
            mine, before = order[:, k], order[:, :k]
            taken = self.meet[mine[:, None], before]
            somewhere = taken.any(axis=0)
            before, taken = before[:, somewhere], taken[:, somewhere]
            starts = offsets[rows[:, None], before]
            stops = starts + sizes[rows[:, None], before]
            # A free range begins at zero or at the end of another array.
            trials = np.concatenate([np.zeros((len(sizes), 1)), np.where(taken, stops, np.inf)], axis=1)[:, :, None]
            size = sizes[rows, mine][:, None, None]
            clash = taken[:, None] & (trials < stops[:, None]) & (starts[:, None] < trials + size)
            offsets[rows, mine] = np.where(clash.any(axis=2), np.inf, trials[:, :, 0]).min(axis=1)
        return offsets


def _ends(offsets: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return the end of the last array, [trials]."""
    return np.max(offsets + sizes, axis=1, initial=0)
