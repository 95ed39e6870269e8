"""Reader of the simulator's timelines, JSON of schema ``trnqc.timeline/1``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trnqc.profiling.activity import is_dma
from trnqc.profiling.machines import target_of
from trnqc.profiling.profile import Labels, Profile
from trnqc.profiling.readers.checks import check_version, is_of_schema, need, numbers, optional_numbers, strings
from trnqc.profiling.readers.fields import available
from trnqc.profiling.readers.lanes import columns, lanes

SCHEMA = "trnqc.timeline/1"


def matches(data: Any) -> bool:
    """Return whether decoded JSON is a timeline of the simulator."""
    return is_of_schema(data, SCHEMA)


def read(data: Mapping[str, Any], path: Path) -> tuple[Profile, ...]:
    """Return the profile of a timeline. Raises InputError for another schema version, or a missing or wrong field."""
    check_version(data, SCHEMA, path)
    events = need(data, "events", list, path, "timeline")
    summary, notes = available(need(data, "summary", dict, path, "timeline"))
    words = data.get("extrapolation") or ""
    target = need(data, "target", str, path, "timeline")
    profile = Profile(
        title=need(data, "kernel", str, path, "timeline"),
        path=str(path),
        format=SCHEMA,
        measurement=need(data, "measurement", str, path, "timeline"),
        target=target_of(target) or target,
        summary={k: v for k, v in summary.items() if k not in ("measurement", "target", "kernel")},
        lanes=_lanes(events, path),
        stalls=_stalls(need(data, "stalls", dict, path, "timeline"), path),
        queues=_queues(events),
        high_water=_numbers(need(data, "high_water", dict, path, "timeline"), path, "high_water"),
        provenance=_provenance(data),
        notes=[*notes, *([str(words)] if words else [])],
    )
    return (profile,)


def _lanes(events: list[Any], path: Path) -> tuple[Any, ...]:
    start = numbers(events, "start_ns", path, "events")
    end = numbers(events, "end_ns", path, "events")
    for k, event in enumerate(events):
        need(event, "engine", str, path, f"events[{k}]")
    table = columns(
        Labels.of(strings(events, "engine")),
        start,
        end,
        Labels.of(strings(events, "op")),
        Labels.of(strings(events, "name")),
        stall=Labels.of(text or "none" for text in strings(events, "stall")),
        stall_ns=optional_numbers(events, "stall_ns", path, "events"),
    )
    return lanes([table], path, "events")


def _queues(events: list[Any]) -> dict[str, int]:
    """Return the number of waiting queues of the engines that have several; two queues issue loads and stores."""
    names: dict[str, set[str]] = {}
    for event in events:
        if event.get("stall_ns") and not is_dma(event["engine"]):
            names.setdefault(event["engine"], set()).add(str(event.get("queue", "")))
    return {engine: len(queues) for engine, queues in names.items() if len(queues) > 1}


def _stalls(stalls: Mapping[str, Any], path: Path) -> dict[str, dict[str, float]]:
    return {
        engine: _numbers(need(stalls, engine, dict, path, "stalls"), path, f"stalls[{engine!r}]") for engine in stalls
    }


def _numbers(values: Mapping[str, Any], path: Path, where: str) -> dict[str, float]:
    return {name: float(need(values, name, (int, float), path, where)) for name in values}


def _provenance(data: Mapping[str, Any]) -> dict[str, str]:
    command = {"command": str(data["command"])} if data.get("command") else {}
    return command | _flat(data.get("versions", {}), "version") | _flat(data.get("constants", {}), "constant")


def _flat(values: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {f"{kind} {name}": str(value) for name, value in values.items()} if isinstance(values, Mapping) else {}
