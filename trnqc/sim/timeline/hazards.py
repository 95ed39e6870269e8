"""Who must wait for whom: read after write, write after read, write after write, byte by byte.

Times are those of the latest overlapping access. An engine's own earlier write costs it the dependent-instruction
overhead; any other engine's write is waited for until it is in memory and signalled. In HBM only tensors that the
program both writes and reads are tracked, and two writes conflict only on exactly the same bytes (each output element
is written once, so a runtime offset means other bytes).
"""

from __future__ import annotations

from typing import Any

from trnqc.sim.timeline.record import Operand, Tile

DMA = 5  # after tensor, vector, scalar, gpsimd, sync

Wait = tuple[float, str, int]  # until when, why, for which engine
NO_WAIT: Wait = (0.0, "none", -1)


class Bytes:
    """Accesses of one storage: writes by region, reads by region and engine."""

    __slots__ = ("before", "last", "reads", "turn", "writes")

    def __init__(self, before: tuple[int, ...]):
        self.writes: dict[tuple[Any, ...], list[Any]] = {}  # (p0, p1, b0, b1) -> [engine, end, in memory]
        self.reads: dict[tuple[Any, ...], float] = {}  # (p0, p1, b0, b1, engine) -> end
        self.last = 0.0
        self.turn = -1
        self.before = before


class Hazards:
    """All storages' accesses. ``own`` is the dependent-instruction overhead of each engine in ns."""

    def __init__(
        self,
        tiles: list[Tile],
        before: dict[int, tuple[int, ...]],
        tracked: set[int],
        semaphore: float,
        own: list[float],
    ):
        self.bytes = [Bytes(before.get(n, ())) for n in range(len(tiles))]
        self.fresh_each_turn = [t.record is not None and bool(t.record.scope) for t in tiles]
        self.tracked = tracked
        self.semaphore = semaphore
        self.own = own

    def read(self, o: Operand, me: int, wait: Wait) -> Wait:
        """The later of ``wait`` and of the writes that a read of ``o`` by engine ``me`` needs."""
        if o.space == "hbm" and o.storage not in self.tracked:
            return wait
        until = wait[0]
        p0, p1, b0, b1 = o[2:6]
        for (q0, q1, c0, c1), (who, end, there) in self.bytes[o.storage].writes.items():
            if q0 < p1 and p0 < q1 and c0 < b1 and b0 < c1:
                if who == me and me != DMA:
                    t = end + self.own[me]
                else:
                    t = there if who == DMA else there + self.semaphore
                if t > until:
                    until, wait = t, (t, "raw", who)
        return wait

    def write(self, o: Operand, me: int, turn: int, wait: Wait) -> Wait:
        """The later of ``wait`` and of the accesses that a write of ``o`` must not overtake.

        ``turn`` numbers loop passes.
        """
        if o.space == "hbm":
            return self._write_hbm(o, me, wait)
        found = self.bytes[o.storage]
        until = wait[0]
        if found.turn < 0 or (found.turn != turn and self.fresh_each_turn[o.storage]):
            for n in found.before:
                t = self.bytes[n].last + self.semaphore
                if t > until:
                    until, wait = t, (t, "war", -1)
            found.turn = turn
        p0, p1, b0, b1 = o[2:6]
        for (q0, q1, c0, c1, who), end in found.reads.items():
            if (
                end + self.semaphore > until
                and q0 < p1
                and p0 < q1
                and c0 < b1
                and b0 < c1
                and (who != me or me == DMA)
            ):
                until = end + self.semaphore
                wait = (until, "war", who)
        for (q0, q1, c0, c1), (who, _, there) in found.writes.items():
            if (who != me or me == DMA) and there > until and q0 < p1 and p0 < q1 and c0 < b1 and b0 < c1:
                until = there if who == DMA else there + self.semaphore
                wait = (until, "waw", who)
        return wait

    def _write_hbm(self, o: Operand, me: int, wait: Wait) -> Wait:
        if o.storage not in self.tracked:
            return wait
        found = self.bytes[o.storage]
        region = o[2:6]
        for (_, _, c0, c1, who), end in found.reads.items():
            if end > wait[0] and c0 < o.b1 and o.b0 < c1 and not o.dynamic:
                wait = (end, "war", who)
        same = found.writes.get(region)
        if same is not None and same[2] > wait[0] and not o.dynamic:
            wait = (same[2], "waw", same[0])
        return wait

    def did_read(self, o: Operand, me: int, end: float) -> None:
        """``me`` has read ``o`` by ``end``."""
        if o.space == "hbm" and o.storage not in self.tracked:
            return
        found = self.bytes[o.storage]
        key = (o.p0, o.p1, o.b0, o.b1, me)
        if found.reads.get(key, 0.0) < end:
            found.reads[key] = end
        if end > found.last:
            found.last = end

    def did_write(self, o: Operand, me: int, end: float, there: float) -> None:
        """``me`` writes ``o`` until ``end``; it is in memory at ``there``. Accesses that it covers are done with."""
        if o.space == "hbm" and o.storage not in self.tracked:
            return
        found = self.bytes[o.storage]
        p0, p1, b0, b1 = o[2:6]
        if found.reads:
            gone = [k for k in found.reads if p0 <= k[0] and k[1] <= p1 and b0 <= k[2] and k[3] <= b1]
            for k in gone:
                del found.reads[k]
        writes = found.writes
        key = (p0, p1, b0, b1)
        if writes and not (len(writes) == 1 and key in writes):
            for k in [k for k in writes if p0 <= k[0] and k[1] <= p1 and b0 <= k[2] and k[3] <= b1]:
                del writes[k]
        writes[key] = [me, end, there]
        if there > found.last:
            found.last = there

    def shift(self, storages: set[int], dt: float) -> None:
        """Move the accesses of ``storages`` later by ``dt``."""
        for n in storages:
            found = self.bytes[n]
            found.last += dt
            for k in found.reads:
                found.reads[k] += dt
            for entry in found.writes.values():
                entry[1] += dt
                entry[2] += dt
