"""Reader of trace-event JSON, as written by Chrome, Perfetto, torch.profiler and ``trnqc profile --perfetto``.

Times are in microseconds. The event kinds that are read are X (complete), B and E (nested begin and end), M (names of
processes and threads) and C (counters). The other kinds have no duration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.profiling.profile import NO_STALL, Profile
from trnqc.profiling.readers.checks import need
from trnqc.profiling.readers.fields import available
from trnqc.profiling.readers.tracks import Track, origin_of, to_lanes, to_series

OURS = "trnqc.profile/1"
# Peak use of a memory in a profile -> name of the counter that represents it in our own files.
CAPACITIES = {"sbuf": "SBUF high-water", "psum": "PSUM high-water"}
Key = tuple[str, str]


def matches(data: Any) -> bool:
    """Return whether decoded JSON is a list of trace events, or an object that contains one."""
    if isinstance(data, Mapping):
        return isinstance(data.get("traceEvents"), list)
    return isinstance(data, list) and bool(data) and isinstance(data[0], Mapping) and "ph" in data[0]


def read(data: Any, path: Path) -> tuple[Profile, ...]:
    """Return the profile of a trace. Raises InputError if an event has no time or name, or an end has no beginning."""
    events = data["traceEvents"] if isinstance(data, Mapping) else data
    about = data.get("otherData", {}) if isinstance(data, Mapping) else {}
    about = about if isinstance(about, Mapping) and about.get("schema") == OURS else {}
    shown = set(CAPACITIES.values()) if about else set()
    tracks, counters = _walk(events, path)
    form = "trace-event JSON"
    if isinstance(data, Mapping) and ("deviceProperties" in data or "schemaVersion" in data):
        form = "torch.profiler trace JSON"
    origin = origin_of(list(tracks.values()))
    stalls = _part(about, "stalls", path)
    return (
        Profile(
            title=str(about.get("title", path.name.split(".")[0])),
            path=str(path),
            format=form,
            measurement=str(about.get("measurement", "device")),
            target=None if about.get("target") is None else str(about["target"]),
            summary=available(_part(about, "summary", path))[0],
            lanes=to_lanes(list(tracks.values()), path),
            stalls={engine: _figures(_part(stalls, engine, path, "stalls"), path, engine) for engine in stalls},
            series=[to_series(*name, points, origin) for name, points in counters.items() if name[0] not in shown],
            high_water=_figures(_part(about, "high_water", path), path, "high_water"),
            provenance={k: str(v) for k, v in _part(about, "provenance", path).items()},
            notes=[str(note) for note in (need(about, "notes", list, path, "otherData") if about else ())],
        ),
    )


def _part(about: Mapping[str, Any], name: str, path: Path, where: str = "otherData") -> Mapping[str, Any]:
    return need(about, name, dict, path, where) if about else {}


def _figures(values: Mapping[str, Any], path: Path, where: str) -> dict[str, float]:
    return {name: need(values, name, (int, float), path, where) for name in values}


def _walk(events: list[Any], path: Path) -> tuple[dict[Key, Track], dict[tuple[str, str], list[tuple[float, float]]]]:
    process, thread = _names(events)
    tracks: dict[Key, Track] = {}
    counters: dict[tuple[str, str], list[tuple[float, float]]] = {}
    open_slices: dict[Key, list[tuple[float, Mapping[str, Any]]]] = {}
    for k, event in enumerate(events):
        kind = event.get("ph") if isinstance(event, Mapping) else None
        if kind not in ("X", "B", "E", "C"):
            continue
        key = (str(event.get("pid", "")), str(event.get("tid", "")))
        start = _ns(need(event, "ts", (int, float), path, f"traceEvents[{k}]"))
        if kind == "C":
            for name, value in _values(event):
                counters.setdefault(name, []).append((start, value))
            continue
        if key not in tracks:
            tracks[key] = Track(process.get(key[0], f"process {key[0]}"), thread.get(key, f"thread {key[1]}"))
        if kind == "B":
            open_slices.setdefault(key, []).append((start, event))
        elif kind == "E":
            if not open_slices.get(key):
                raise InputError(f"{path}: traceEvents[{k}]: expected a beginning on the same thread, found a lone end")
            began, opened = open_slices[key].pop()
            _add(tracks[key], began, start, opened)
        else:
            _add(tracks[key], start, start + _ns(need(event, "dur", (int, float), path, f"traceEvents[{k}]")), event)
    return tracks, counters


def _names(events: list[Any]) -> tuple[dict[str, str], dict[Key, str]]:
    process: dict[str, str] = {}
    thread: dict[Key, str] = {}
    for event in events:
        if isinstance(event, Mapping) and event.get("ph") == "M" and isinstance(event.get("args"), Mapping):
            pid, name = str(event.get("pid", "")), str(event["args"].get("name", ""))
            if event.get("name") == "process_name":
                process[pid] = name
            elif event.get("name") == "thread_name":
                # Our own files say which lane a thread is a part of.
                thread[pid, str(event.get("tid", ""))] = str(event["args"].get("lane", name)).strip()
    return process, thread


def _add(track: Track, start: float, end: float, event: Mapping[str, Any]) -> None:
    args = event.get("args")
    args = args if isinstance(args, Mapping) else {}
    track.add(
        start,
        end,
        str(event.get("name", "")),
        str(args.get("name", "")),
        str(args.get("stall", NO_STALL)),
        float(args.get("stall_ns", 0.0)) if isinstance(args.get("stall_ns", 0.0), int | float) else 0.0,
    )


def _values(event: Mapping[str, Any]) -> list[tuple[tuple[str, str], float]]:
    args = event.get("args")
    if not isinstance(args, Mapping):
        return []
    name = str(event.get("name", "counter"))
    return [((name, str(unit)), float(v)) for unit, v in args.items() if isinstance(v, int | float)]


def _ns(microseconds: float) -> float:
    """Return nanoseconds, rounded to picoseconds: smaller digits are rounding errors of the microseconds."""
    return microseconds * 1000 if isinstance(microseconds, int) else round(microseconds * 1000, 3)
