"""Trace-event JSON for https://ui.perfetto.dev, with one process per core and one thread per engine or DMA queue.

The rest of the profile is stored in ``otherData``, so that the file reads back as the same profile.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trnqc.profiling.profile import NO_STALL, Lane, Profile
from trnqc.profiling.readers.chrome import CAPACITIES, OURS
from trnqc.profiling.utilisation import completed


def trace(profile: Profile) -> str:
    """Return the JSON text of the trace of one profile."""
    _, end = profile.span
    events: list[dict[str, Any]] = []
    for core in profile.cores:
        events.append(_meta("process_name", core, 0, {"name": f"NeuronCore {core}"}))
    thread = 0
    for lane in profile.lanes:
        row = _rows(lane)
        for k in range(int(row.max()) + 1 if len(row) else 0):
            thread += 1
            name = lane.engine if k == 0 else f"{lane.engine} ({k + 1})"
            events.append(_meta("thread_name", lane.core, thread, {"name": name, "lane": lane.engine}))
            events.append(_meta("thread_sort_index", lane.core, thread, {"sort_index": thread}))
            events += _slices(lane, np.flatnonzero(row == k), thread)
    events += list(_counters(profile, end))
    return json.dumps({"displayTimeUnit": "ns", "otherData": _about(profile), "traceEvents": events}, allow_nan=False)


def _meta(kind: str, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


def _rows(lane: Lane) -> np.ndarray:
    """Return the number of the thread of each event, int [n]: slices of one thread must be disjoint or nested."""
    free: list[tuple[float, int]] = []
    row = np.zeros(len(lane), dtype=np.int64)
    used = 0
    for k, (start, end) in enumerate(zip(lane.start.tolist(), lane.end.tolist())):
        if free and free[0][0] <= start:
            _, row[k] = heapq.heappop(free)
        else:
            row[k], used = used, used + 1
        heapq.heappush(free, (end, int(row[k])))
    return row


def _slices(lane: Lane, index: np.ndarray, thread: int) -> Iterator[dict[str, Any]]:
    for k in index.tolist():
        args: dict[str, Any] = {"name": lane.name[k]} if lane.name[k] else {}
        if lane.stall[k] != NO_STALL or lane.stall_ns[k]:
            args |= {"stall": lane.stall[k], "stall_ns": float(lane.stall_ns[k])}
        start, length = float(lane.start[k]), float(lane.end[k] - lane.start[k])
        yield {
            "ph": "X",
            "pid": lane.core,
            "tid": thread,
            "ts": start / 1000,
            "dur": length / 1000,
            "name": lane.op[k],
            "args": args,
        }


def _counters(profile: Profile, end: float) -> Iterator[dict[str, Any]]:
    pid = profile.cores[0] if profile.cores else 0
    for series in profile.series:
        for t, value in zip(series.time.tolist(), series.value.tolist()):
            yield {"ph": "C", "pid": pid, "ts": t / 1000, "name": series.name, "args": {series.unit or "value": value}}
    for name, words in CAPACITIES.items():
        if name in profile.high_water:
            for t in (0.0, end):
                value = profile.high_water[name]
                yield {"ph": "C", "pid": pid, "ts": t / 1000, "name": words, "args": {"B/partition": value}}


def _about(profile: Profile) -> dict[str, Any]:
    fields, _ = completed(profile)
    return {
        "schema": OURS,
        "title": profile.title,
        "source": profile.path,
        "measurement": profile.measurement,
        "target": profile.target,
        "summary": fields,
        "stalls": _plain(profile.stalls),
        "high_water": _plain(profile.high_water),
        "provenance": _plain(profile.provenance),
        "notes": list(profile.notes),
    }


def _plain(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _plain(v) if isinstance(v, Mapping) else v for k, v in mapping.items()}
