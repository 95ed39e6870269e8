"""Conversion of event columns to lanes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.profiling.profile import ENGINES, NO_STALL, Labels, Lane
from trnqc.profiling.readers.checks import ordered


@dataclass(frozen=True, eq=False)
class Columns:
    """The n events of one table. ``start`` and ``end`` are int64 or float64 [n] in ns on the source's clock."""

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
    """Return event columns; by default all events are on core 0 and have no stalls."""
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
    """Return one lane per engine and core, with times relative to the first event of all tables.

    The origin is subtracted before times are converted to floats, because nanoseconds since 1970 exceed 2^53.
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
    """Sort key of lanes: by core, then engines in the usual order, DMA queues by number and others by name."""
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
    core_lanes = []
    for which, core in sorted(set(zip(engine.tolist(), np.asarray(t.core).tolist()))):
        pick = np.flatnonzero((engine == which) & (t.core == core))
        core_lanes.append(
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
    return core_lanes


# Engine -> its names in the vendor's tables, in the track names of its viewer and in the labels of older JSON files.
_ENGINES = {
    "tensor": ("tensor", "tensormatrix", "pe", "tensore", "tensormatrixe", "pea"),
    "vector": ("vector", "vectore", "dve"),
    "scalar": ("scalar", "scalare", "act", "activation"),
    "gpsimd": ("gpsimd", "gpsimde", "pool", "pooling"),
    "sync": ("sync", "synce", "sp", "syncengine"),
}
_BY_NAME = {name: engine for engine, names in _ENGINES.items() for name in names}
_SUFFIX = re.compile(r"[\s_-]*(engine|eng)?$")
# Hardware queues are called q<Owner><Purpose><number>, e.g. qSyncIO0 or qScalarSpillReload0-Q1-E64.
_QUEUE = re.compile(r"^(?:dma[\s_-]+)?(q[A-Z]\w*\d.*)$", re.IGNORECASE)
_NUMBERED = re.compile(r"^dma[\s_-]?(?:engine|eng)?[\s_-]?(\d+)$", re.IGNORECASE)


def engine_of(label: str) -> str | None:
    """Return one of the five engine names, ``dma...`` for a DMA engine or queue, or None for another name."""
    text = label.strip()
    numbered = _NUMBERED.match(text)
    if numbered:
        return f"dma{int(numbered[1])}"
    known = _BY_NAME.get(_SUFFIX.sub("", text.lower()).replace(" ", ""))
    if known:
        return known
    queue = _QUEUE.match(text)
    if queue:
        return f"dma {queue[1]}"
    return text.lower() if text.lower().split(" ")[0] == "dma" else None


def lane_name(label: str) -> str:
    """Return the engine name if there is one, otherwise the label of the source."""
    return engine_of(label) or label.strip() or "unnamed"
