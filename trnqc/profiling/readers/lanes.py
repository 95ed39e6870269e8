"""Columns of events -> lanes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.profiling.profile import ENGINES, NO_STALL, Labels, Lane
from trnqc.profiling.readers.checks import ordered
from trnqc.profiling.readers.names import lane_name


@dataclass(frozen=True, eq=False)
class Columns:
    """n events of one table. start, end: int64 or float64 [n] ns on the source's clock; core: int [n]."""

    engine: Labels
    core: np.ndarray
    start: np.ndarray
    end: np.ndarray
    op: Labels
    name: Labels
    stall: Labels
    stall_ns: np.ndarray

    def __len__(self) -> int:
        return len(self.start)


def columns(
    engine: Labels,
    start: np.ndarray,
    end: np.ndarray,
    op: Labels,
    name: Labels,
    core: np.ndarray | None = None,
    stall: Labels | None = None,
    stall_ns: np.ndarray | None = None,
) -> Columns:
    """With core 0 and no stalls unless given."""
    n = len(start)
    return Columns(
        engine,
        np.zeros(n, dtype=np.int64) if core is None else core,
        start,
        end,
        op,
        name,
        Labels.same(NO_STALL, n) if stall is None else stall,
        np.zeros(n) if stall_ns is None else stall_ns,
    )


def lanes(tables: list[Columns], path: Path, where: str = "event") -> tuple[Lane, ...]:
    """One lane per engine and core, all on the clock of the first event of any table.

    The origin is taken off before times become floats: clocks that count nanoseconds since 1970 exceed 2^53.
    """
    tables = [table for table in tables if len(table)]
    for table in tables:
        ordered(table.start, table.end, path, where)
    if not tables:
        return ()
    origin = min(table.start.min() for table in tables)
    parts: dict[tuple[str, int], list[Lane]] = {}
    for table in tables:
        for lane in _split(table, origin):
            parts.setdefault((lane.engine, lane.core), []).append(lane)
    return tuple(Lane.joined(parts[key]) for key in sorted(parts, key=_place))


def _place(key: tuple[str, int]) -> tuple[Any, ...]:
    """Cores apart; engines in the usual order, then DMA by number, then the rest by name."""
    engine, core = key
    if engine in ENGINES:
        return core, 0, ENGINES.index(engine), ""
    number = engine.removeprefix("dma")
    dma = engine.startswith("dma")
    return core, 1 if dma else 2, int(number) if dma and number.isdigit() else 0, engine


def _split(t: Columns, origin: float) -> list[Lane]:
    named = [lane_name(name) for name in t.engine.names]
    distinct = sorted(set(named), key=named.index)
    engine = np.asarray([distinct.index(name) for name in named])[t.engine.codes]
    made = []
    for which, core in sorted(set(zip(engine.tolist(), np.asarray(t.core).tolist()))):
        pick = np.flatnonzero((engine == which) & (t.core == core))
        made.append(
            Lane(
                distinct[which],
                (t.start[pick] - origin).astype(np.float64),
                (t.end[pick] - origin).astype(np.float64),
                t.op.take(pick),
                t.name.take(pick),
                t.stall.take(pick),
                t.stall_ns[pick].astype(np.float64),
                int(core),
            )
        )
    return made
