"""Conversion of the tracks and counters of a trace to lanes and series of a profile."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from trnqc.profiling.profile import NO_STALL, Labels, Lane, Series
from trnqc.profiling.readers.lanes import Columns, columns, engine_of, lanes

_CORE = re.compile(r"^(?:neuron\s*core|nc)[\s_-]*(\d+)$", re.IGNORECASE)


@dataclass
class Track:
    """Slices of one track, collected while a trace is read. Times are in ns on the clock of the trace."""

    process: str
    thread: str
    start: list[float] = field(default_factory=list)
    end: list[float] = field(default_factory=list)
    op: list[str] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    stall: list[str] = field(default_factory=list)
    stall_ns: list[float] = field(default_factory=list)

    def add(
        self, start: float, end: float, op: str, name: str = "", stall: str = NO_STALL, stall_ns: float = 0.0
    ) -> None:
        """Append a slice from `start` to `end`; `stall_ns` is the wait before it."""
        self.start.append(start)
        self.end.append(end)
        self.op.append(op)
        self.name.append(name)
        self.stall.append(stall)
        self.stall_ns.append(stall_ns if math.isfinite(stall_ns) else 0.0)


def to_lanes(tracks: Sequence[Track], path: Path) -> tuple[Lane, ...]:
    """Return one lane per track. Tracks of the same engine share a lane, and each process with engines is a core."""
    used = [track for track in tracks if track.start]
    processes = list(dict.fromkeys(track.process for track in used))
    cores = [p for p in processes if any(t.process == p and engine_of(t.thread) for t in used)]
    return lanes([_columns(track, cores, len(processes) > 1) for track in used], path, "slice")


def _columns(track: Track, cores: list[str], several: bool) -> Columns:
    n = len(track.start)
    plain = bool(engine_of(track.thread)) or not several
    lane = track.thread if plain else f"{track.process} / {track.thread}"
    core = _core(track.process, cores)
    whole = all(isinstance(t, int) for t in track.start + track.end)
    kind = np.int64 if whole else np.float64
    return columns(
        Labels.same(lane, n),
        np.asarray(track.start, dtype=kind),
        np.asarray(track.end, dtype=kind),
        Labels.of(track.op),
        Labels.of(track.name),
        core=np.full(n, core),
        stall=Labels.of(track.stall),
        stall_ns=np.asarray(track.stall_ns, dtype=np.float64),
    )


def _core(process: str, cores: list[str]) -> int:
    """Return the number in the name of the process if it names a core, otherwise its position among `cores`."""
    numbered = _CORE.match(process)
    if numbered:
        return int(numbered[1])
    return cores.index(process) if process in cores else 0


def to_series(name: str, unit: str, points: Sequence[tuple[float, float]], origin: float) -> Series:
    """Return the finite samples (time in ns, value) of a counter as a series, sorted by time.

    `origin`, the time of the first event, is subtracted; times that are still integers lose no digits by that.
    """
    ordered = sorted(point for point in points if math.isfinite(point[1]))
    return Series(
        name,
        unit,
        np.asarray([t - origin for t, _ in ordered], dtype=np.float64),
        np.asarray([value for _, value in ordered], dtype=np.float64),
    )


def origin_of(tracks: Sequence[Track]) -> float:
    """Return the earliest start of all tracks; 0 if no track has events."""
    return min((min(track.start) for track in tracks if track.start), default=0)
