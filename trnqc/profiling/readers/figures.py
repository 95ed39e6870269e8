"""Reader of the output of ``trnqc profile --json`` (schema ``trnqc.analysis/1``): summaries without events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.profiling.profile import Profile
from trnqc.profiling.readers.checks import check_version, is_of_schema, need
from trnqc.profiling.readers.fields import available

SCHEMA = "trnqc.analysis/1"
NOTE = "read from an analysis, which keeps no events: overlap and instruction times are in the file and not shown here"


def matches(data: Any) -> bool:
    """Return whether decoded JSON is an analysis that `trnqc profile --json` wrote."""
    return is_of_schema(data, SCHEMA)


def read(data: Mapping[str, Any], path: Path) -> tuple[Profile, ...]:
    """Return the profiles of an analysis. Raises InputError for another schema version, or a missing or wrong field."""
    check_version(data, SCHEMA, path)
    records = need(data, "profiles", list, path, "analysis")
    if not records:
        raise InputError(f"{path}: expected at least one profile in the analysis, found none")
    return tuple(_profile(one, path, f"profiles[{k}]") for k, one in enumerate(records))


def _profile(data: Any, path: Path, where: str) -> Profile:
    summary, notes = available(need(data, "summary", dict, path, where))
    return Profile(
        title=need(data, "title", str, path, where),
        path=str(path),
        format=f"{SCHEMA} of {need(data, 'format', str, path, where)}",
        measurement=need(data, "measurement", str, path, where),
        target=need(data, "target", str, path, where) if data.get("target") else None,
        summary=summary,
        stalls=_stalls(need(data, "stalls", list, path, where), path, where),
        queues={k: int(v) for k, v in _numbers(data, "queues", path, where).items()} if "queues" in data else {},
        high_water=_numbers(data, "high_water", path, where),
        provenance={str(k): str(v) for k, v in need(data, "provenance", dict, path, where).items()},
        notes=[*dict.fromkeys([*map(str, need(data, "notes", list, path, where)), *notes, NOTE])],
    )


def _stalls(rows: list[Any], path: Path, where: str) -> dict[str, dict[str, float]]:
    table: dict[str, dict[str, float]] = {}
    for k, row in enumerate(rows):
        place = f"{where}.stalls[{k}]"
        causes = table.setdefault(need(row, "engine", str, path, place), {})
        causes[need(row, "cause", str, path, place)] = float(need(row, "ns", (int, float), path, place))
    return table


def _numbers(data: Mapping[str, Any], key: str, path: Path, where: str) -> dict[str, float]:
    values = need(data, key, dict, path, where)
    return {str(name): float(need(values, name, (int, float), path, f"{where}.{key}")) for name in values}


def command_of(data: Any, depth: int = 3) -> str | None:
    """Return the command that wrote a record of benchmark figures, or None if ``data`` is not such a record."""
    if not isinstance(data, Mapping) or depth < 0:
        return None
    if isinstance(data.get("command"), str):
        return str(data["command"])
    return next(filter(None, _commands(data.values(), depth)), None)


def _commands(values: Any, depth: int) -> Iterator[str | None]:
    return (command_of(value, depth - 1) for value in values)
