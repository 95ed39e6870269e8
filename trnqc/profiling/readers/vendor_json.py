"""Reader of the JSON files of the vendor's profilers.

summary-json: ``{name of the run: {field: value}}``, one entry per worker. json: ``{"summary": [{...}], "instruction":
[{timestamp, duration, label, opcode, ...}], ...}``, times in ns. system profile: ``{"trace_events": [{timestamp,
duration, group, name, ...}], ...}``, events of the runtime on the host.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.profiling.machines import target_of
from trnqc.profiling.profile import NO_STALL, Labels, Profile
from trnqc.profiling.readers.checks import need, numbers, optional_numbers, strings
from trnqc.profiling.readers.fields import normal
from trnqc.profiling.readers.lanes import Columns, columns, lanes

# A summary has at least one of these fields.
KNOWN_FIELDS = ("total_time", "neuroncore_cycle_count", "event_count", "hardware_flops", "dma_active_time")
# Lists of the json form that hold transfers; the vendor documents the instruction list only, so these are optional.
DMA_LISTS = ("dma", "dma_packet", "DmaPacket", "DmaPacketAggregated")


def matches(data: Any) -> bool:
    """Return whether decoded JSON is a full profile, system profile or set of summaries of the vendor."""
    return isinstance(data, Mapping) and (_is_full(data) or _is_system(data) or bool(_summaries(data)))


def read(data: Mapping[str, Any], path: Path) -> tuple[Profile, ...]:
    """Return one profile, or one per worker for summary-json.

    Raises InputError if a field is missing or of the wrong type.
    """
    if _is_full(data):
        return (_full(data, path),)
    if _is_system(data):
        return (_system(data, path),)
    summaries = _summaries(data)
    return tuple(_summary(name, fields, path, "vendor summary-json") for name, fields in summaries.items())


def _looks_like_summary(value: Any) -> bool:
    return isinstance(value, Mapping) and any(name in value for name in KNOWN_FIELDS)


def _summaries(data: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    if _looks_like_summary(data):
        return {"": data}
    return {name: value for name, value in data.items() if _looks_like_summary(value)}


def _is_full(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("instruction", data.get("Instruction")), list)


def _is_system(data: Mapping[str, Any]) -> bool:
    return isinstance(data.get("trace_events"), list)


def _summary(name: str, raw: Mapping[str, Any], path: Path, form: str, **more: Any) -> Profile:
    fields, notes = normal(raw)
    text = {k: str(v) for k, v in fields.items() if isinstance(v, str)}
    target = target_of(str(fields.get("instance_type", "")))
    return Profile(
        title=name or path.stem,
        path=str(path),
        format=form,
        measurement="device",
        target=target,
        summary={k: v for k, v in fields.items() if k not in text},
        provenance=text | more.pop("provenance", {}),
        notes=notes,
        **more,
    )


def _full(data: Mapping[str, Any], path: Path) -> Profile:
    rows = data.get("summary", data.get("Summary", []))
    rows = [rows] if isinstance(rows, Mapping) else rows
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{path}: summary: expected a list of objects, found {rows!r:.80}")
    if len(rows) > 1:
        raise InputError(f"{path}: expected one summary, found {len(rows)}; export one worker or core at a time")
    tables = [_instructions(data.get("instruction", data.get("Instruction")), path)]
    tables += [_transfers(data[name], path, name) for name in DMA_LISTS if isinstance(data.get(name), list)]
    event_lanes = lanes(tables, path, "instruction")
    return _summary("", rows[0] if rows else {}, path, "vendor json", lanes=event_lanes)


def _times(records: list[Any], path: Path, where: str) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end times, stored either as timestamp and duration or as start_ts and end_ts."""
    if records and isinstance(records[0], Mapping) and "start_ts" in records[0]:
        return numbers(records, "start_ts", path, where), numbers(records, "end_ts", path, where)
    start = numbers(records, "timestamp", path, where)
    return start, start + numbers(records, "duration", path, where)


def _instructions(records: Any, path: Path) -> Columns:
    start, end = _times(records, path, "instruction")
    if records and not any(key in records[0] for key in ("engine", "label")):
        need(records[0], "label", str, path, "instruction[0]")
    waits = optional_numbers(records, "evt_wait_time_ns", path, "instruction")
    return columns(
        Labels.of(strings(records, "engine", "label")),
        start,
        end,
        Labels.of(strings(records, "opcode")),
        Labels.of(strings(records, "nki_source_location", "hlo_name", "operands")),
        core=optional_numbers(records, "pcore_idx", path, "instruction").astype(np.int64),
        stall=Labels.of("semaphore" if wait > 0 else NO_STALL for wait in waits),
        stall_ns=waits,
    )


def _transfers(records: Any, path: Path, where: str) -> Columns:
    start, end = _times(records, path, where)
    queues = [
        f"dma{r['engine_idx']}" if r.get("engine_idx") is not None else f"dma {r.get('queue_name', r.get('label', ''))}"
        for r in records
    ]
    return columns(
        Labels.of(queues),
        start,
        end,
        Labels.of(strings(records, "queue_type", "op", "label")),
        Labels.of(strings(records, "variable")),
        core=optional_numbers(records, "pcore_idx", path, where).astype(np.int64),
    )


def _system(data: Mapping[str, Any], path: Path) -> Profile:
    records = data["trace_events"]
    start, end = _times(records, path, "trace_events")
    name = Labels.of(strings(records, "name"))
    table = columns(Labels.of(strings(records, "group")), start, end, name, Labels.of(strings(records, "tensor_name")))
    event_lanes = lanes([table], path, "trace_events")
    return Profile(path.stem, str(path), "vendor system profile json", "device", lanes=event_lanes)
