"""Data hazards between instructions: read after write (RAW), write after read (WAR) and write after write (WAW).

Hazards are resolved byte by byte, and the latest overlapping access decides. If an engine depends on its own earlier
write, it pays the dependent-instruction overhead. If it depends on a write of another engine, it waits until the data
are in memory and the semaphore has been signalled. In HBM only tensors that the program both writes and reads are
tracked. Two HBM writes conflict only if they cover exactly the same bytes: every output element is written once, so a
runtime offset addresses other bytes.
"""

from __future__ import annotations

from typing import Any

from trnqc.sim.timeline.record import Operand, Tile

DMA = 5  # after tensor, vector, scalar, gpsimd, sync

Wait = tuple[float, str, int]  # (time in ns until which to wait, cause, engine waited for or -1)
NO_WAIT: Wait = (0.0, "none", -1)


class Bytes:
    """The latest accesses to one storage: writes by region, reads by region and engine."""

    __slots__ = ("before", "last", "reads", "turn", "writes")

    def __init__(self, before: tuple[int, ...]):
        # (p0, p1, b0, b1) -> [engine, end of the write, time at which the data are in memory], times in ns
        self.writes: dict[tuple[Any, ...], list[Any]] = {}
        # (p0, p1, b0, b1, engine) -> end of the read in ns
        self.reads: dict[tuple[Any, ...], float] = {}
        self.last = 0.0
        self.turn = -1
        self.before = before


class Hazards:
    """The accesses to every storage, and the waits that follow from them.

    `tiles` are the storages of the program, by storage number; `before` lists, for each storage, those whose bytes it
    reuses; and `tracked` are the HBM storages that the program both writes and reads. `semaphore` is the time in ns
    from the signal of one engine to the start of another, `own` the dependent-instruction overhead in ns, by engine.
    """

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
        """Return the latest of ``wait`` and the waits of engine ``me`` for the writes that its read of ``o`` needs."""
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
        """Return the latest wait among ``wait`` and the earlier accesses that block a write of ``o`` by engine ``me``.

        ``turn`` is the number of device-loop passes completed so far.
        """
        if o.space == "hbm":
            return self._write_hbm(o, me, wait)
        accesses = self.bytes[o.storage]
        until = wait[0]
        if accesses.turn < 0 or (accesses.turn != turn and self.fresh_each_turn[o.storage]):
            for n in accesses.before:
                t = self.bytes[n].last + self.semaphore
                if t > until:
                    until, wait = t, (t, "war", -1)
            accesses.turn = turn
        p0, p1, b0, b1 = o[2:6]
        for (q0, q1, c0, c1, who), end in accesses.reads.items():
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
        for (q0, q1, c0, c1), (who, _, there) in accesses.writes.items():
            if (who != me or me == DMA) and there > until and q0 < p1 and p0 < q1 and c0 < b1 and b0 < c1:
                until = there if who == DMA else there + self.semaphore
                wait = (until, "waw", who)
        return wait

    def _write_hbm(self, o: Operand, me: int, wait: Wait) -> Wait:
        if o.storage not in self.tracked:
            return wait
        accesses = self.bytes[o.storage]
        region = o[2:6]
        for (_, _, c0, c1, who), end in accesses.reads.items():
            if end > wait[0] and c0 < o.b1 and o.b0 < c1 and not o.dynamic:
                wait = (end, "war", who)
        same = accesses.writes.get(region)
        if same is not None and same[2] > wait[0] and not o.dynamic:
            wait = (same[2], "waw", same[0])
        return wait

    def did_read(self, o: Operand, me: int, end: float) -> None:
        """Record that engine ``me`` finishes reading ``o`` at time ``end``."""
        if o.space == "hbm" and o.storage not in self.tracked:
            return
        accesses = self.bytes[o.storage]
        key = (o.p0, o.p1, o.b0, o.b1, me)
        if accesses.reads.get(key, 0.0) < end:
            accesses.reads[key] = end
        if end > accesses.last:
            accesses.last = end

    def did_write(self, o: Operand, me: int, end: float, there: float) -> None:
        """Record that ``me`` writes ``o`` until ``end`` and that the data are in memory at ``there``.

        Earlier accesses whose regions lie within ``o`` are dropped.
        """
        if o.space == "hbm" and o.storage not in self.tracked:
            return
        accesses = self.bytes[o.storage]
        p0, p1, b0, b1 = o[2:6]
        if accesses.reads:
            gone = [k for k in accesses.reads if p0 <= k[0] and k[1] <= p1 and b0 <= k[2] and k[3] <= b1]
            for k in gone:
                del accesses.reads[k]
        writes = accesses.writes
        key = (p0, p1, b0, b1)
        if writes and not (len(writes) == 1 and key in writes):
            for k in [k for k in writes if p0 <= k[0] and k[1] <= p1 and b0 <= k[2] and k[3] <= b1]:
                del writes[k]
        writes[key] = [me, end, there]
        if there > accesses.last:
            accesses.last = there

    def shift(self, storages: set[int], dt: float) -> None:
        """Delay all recorded accesses to ``storages`` by ``dt`` ns."""
        for n in storages:
            accesses = self.bytes[n]
            accesses.last += dt
            for k in accesses.reads:
                accesses.reads[k] += dt
            for entry in accesses.writes.values():
                entry[1] += dt
                entry[2] += dt
