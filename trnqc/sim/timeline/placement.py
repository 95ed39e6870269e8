"""Addresses of on-chip tiles. A new tile must wait for the last users of the bytes that it reuses.

Tiles are placed in the order of their first use. With ``rotate_addresses`` each tile takes the next free bytes after
the previously placed tile and wraps around at the end of the memory, so that loads can run ahead. Without it each tile
takes the lowest free bytes. Tiles with an address chosen by the kernel keep that address. If fragmentation leaves no
room, a tile overlaps live tiles; this can only add waits.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from trnqc.sim.machine.targets import PSUM_BANK_BYTES, PSUM_BANKS, Target
from trnqc.sim.timeline.record import Tile


class Placement:
    """Byte address within the partition, and the storages whose bytes are reused (``before``), by storage number."""

    def __init__(self) -> None:
        self.address: dict[int, int] = {}
        self.before: dict[int, tuple[int, ...]] = {}


def place(tiles: list[Tile], target: Target, rotate: bool) -> Placement:
    """Place every on-chip tile that the program uses. ``rotate`` selects wrap-around over lowest-address placement."""
    placement = Placement()
    for space, size in (("sbuf", target.sbuf_usable), ("psum", PSUM_BANKS * PSUM_BANK_BYTES)):
        grain = PSUM_BANK_BYTES if space == "psum" else 1
        used = [(t.record.first, n) for n, t in enumerate(tiles) if t.space == space and t.record.first >= 0]
        _place_space(placement, tiles, sorted(used), size, grain, rotate)
        _close_circles(placement, tiles, [n for _, n in used], grain)
    return placement


def _close_circles(placement: Placement, tiles: list[Tile], used: list[int], grain: int) -> None:
    """A tile allocated in a loop body is reallocated in each pass, so it waits for every tile that shares its bytes."""
    spans = [(placement.address[n], placement.address[n] + -(-tiles[n].size // grain) * grain, n) for n in used]
    for start, end, n in spans:
        if tiles[n].record.scope:
            placement.before[n] = tuple(m for s, e, m in spans if m != n and s < end and start < e)


def _place_space(
    placement: Placement, tiles: list[Tile], used: list[tuple[int, int]], size: int, grain: int, rotate: bool
) -> None:
    live: list[tuple[int, int, int]] = []  # (start, end, last use), sorted
    deaths: list[tuple[int, int, int]] = []  # (last use, start, end), sorted
    occupants: list[tuple[int, int, int]] = []  # (start, end, storage) of the latest tile on each byte, sorted
    cursor = 0
    for first, number in used:
        tile = tiles[number]
        while deaths and deaths[0][0] < first:
            last, start, end = deaths.pop(0)
            del live[bisect_left(live, (start, end, last))]
        need = -(-tile.size // grain) * grain
        start = tile.address if tile.address is not None else _gap(live, need, size, cursor if rotate else 0)
        if tile.address is None:
            cursor = start + need
        insort(live, (start, start + need, tile.record.last))
        insort(deaths, (tile.record.last, start, start + need))
        placement.address[number] = start
        placement.before[number] = _take_over(occupants, start, start + need, number)


def _gap(live: list[tuple[int, int, int]], need: int, size: int, cursor: int) -> int:
    """Return the start of the first gap of ``need`` bytes at or after ``cursor``, wrapping to 0.

    If no gap is large enough, the result is ``cursor`` where the tile fits there, otherwise 0.
    """
    for begin, stop in ((cursor, size), (0, size)):
        at = begin
        for start, end, _ in live:
            if end <= at:
                continue
            if start - at >= need:
                break
            at = end
        if at + need <= stop:
            return at
    return cursor if cursor + need <= size else 0


def _take_over(occupants: list[tuple[int, int, int]], start: int, end: int, number: int) -> tuple[int, ...]:
    """Make ``number`` the occupant of [start, end) and return the previous occupants."""
    lo = bisect_left(occupants, (start, -1, -1))
    if lo and occupants[lo - 1][1] > start:
        lo -= 1
    hi = lo
    kept: list[tuple[int, int, int]] = []
    gone = []
    while hi < len(occupants) and occupants[hi][0] < end:
        s, e, n = occupants[hi]
        gone.append(n)
        if s < start:
            kept.append((s, start, n))
        if e > end:
            kept.append((end, e, n))
        hi += 1
    occupants[lo:hi] = sorted([*kept, (start, end, number)])
    return tuple(dict.fromkeys(gone))
