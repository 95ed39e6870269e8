"""Reservation calendars of exclusive resources: ports, PSUM banks, DMA engines and descriptor generators.

Instructions are placed in program order, which is not chronological. A calendar lets a later instruction use a gap
that an earlier instruction left free.
"""

from __future__ import annotations

from typing import Any

# Number of most recent busy intervals that a calendar keeps; no booking is possible before them.
_KEPT = 64


class Calendar:
    """Busy intervals [start, end, owner] in chronological order. Times are in ns."""

    __slots__ = ("busy", "past")

    def __init__(self) -> None:
        self.busy: list[list[Any]] = []
        self.past = 0.0  # no booking is possible before this time

    def book(self, ready: float, length: float, owner: object) -> float:
        """Book the first interval of ``length`` at or after ``ready`` free of other owners and return its start."""
        busy = self.busy
        start = self.probe(ready, length, owner)
        begin, end = start, start + length
        where = len(busy)
        while where and busy[where - 1][0] > start:
            where -= 1
        stop = where
        if where and busy[where - 1][2] == owner and busy[where - 1][1] >= start:
            where -= 1
            begin, end = busy[where][0], max(end, busy[where][1])
        # Merge the bookings of the same owner that the new interval touches, so that the ends stay sorted.
        while stop < len(busy) and busy[stop][2] == owner and busy[stop][0] <= end:
            end = max(end, busy[stop][1])
            stop += 1
        busy[where:stop] = [[begin, end, owner]]
        self._forget()
        return start

    def probe(self, ready: float, length: float, owner: object) -> float:
        """Return the start that ``book`` would return, without booking."""
        start = max(ready, self.past)
        busy = self.busy
        if not busy or start >= busy[-1][1]:
            return start
        for begin, end, who in busy:
            if end <= start or who == owner:
                continue
            if begin - start >= length:
                break
            start = end
        return start

    def _forget(self) -> None:
        if len(self.busy) > _KEPT:
            self.past = max(self.past, self.busy.pop(0)[1])

    def fill(self, ready: float, length: float) -> tuple[float, float]:
        """Book ``length`` of free time at or after ``ready``, split over gaps if necessary.

        Returns the start of the first piece and the end of the last.
        """
        busy = self.busy
        ready = max(ready, self.past)
        if not busy or ready > busy[-1][1]:
            busy.append([ready, ready + length, None])
            self._forget()
            return ready, ready + length
        last = busy[-1]
        if ready >= last[0]:
            start = last[1]
            last[1] = start + length
            return start, last[1]
        return self._fill_gaps(ready, length)

    def _fill_gaps(self, ready: float, length: float) -> tuple[float, float]:
        busy, left, at, first, last = self.busy, length, ready, -1.0, ready
        k = len(busy)
        while k and busy[k - 1][1] > ready:
            k -= 1
        merged = busy[:k]
        for begin, end, _ in [*busy[k:], [float("inf"), float("inf"), None]]:
            if left > 0 and begin > at:
                take = min(left, begin - at)
                first = at if first < 0 else first
                last = at + take
                left -= take
                _join(merged, at, last)
            if begin < float("inf"):
                _join(merged, begin, end)
                at = max(at, end)
        self.busy = merged
        while len(self.busy) > _KEPT:
            self._forget()
        return max(first, ready), last

    def cover(self, start: float, end: float) -> float:
        """Book [start, end) regardless of other bookings and return how much of it was free."""
        busy = self.busy
        start = max(start, self.past)
        if end <= start:
            return 0.0
        if not busy or start > busy[-1][1]:
            busy.append([start, end, None])
            self._forget()
            return end - start
        k = len(busy)
        while k and busy[k - 1][1] >= start:
            k -= 1
        stop, low, high, taken = k, start, end, 0.0
        while stop < len(busy) and busy[stop][0] <= end:
            begin, until, _ = busy[stop]
            taken += min(until, end) - max(begin, start)
            low, high = min(low, begin), max(high, until)
            stop += 1
        busy[k:stop] = [[low, high, None]]
        self._forget()
        return end - start - taken

    def shift(self, dt: float) -> None:
        """Delay all bookings by ``dt``."""
        self.past += dt
        for interval in self.busy:
            interval[0] += dt
            interval[1] += dt


def _join(merged: list[list[Any]], start: float, end: float) -> None:
    if merged and merged[-1][1] >= start:
        merged[-1][1] = max(merged[-1][1], end)
    else:
        merged.append([start, end, None])
