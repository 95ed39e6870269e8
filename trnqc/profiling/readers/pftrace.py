"""Perfetto's protobuf traces (``.pftrace``): slices and counters of track events.

The ``perfetto`` package is not used, because it downloads a native trace processor on first use and a profile must open
on a machine without a network. Field numbers are those of Perfetto's public trace format.

trace -> packets -> (interned names, track descriptors, events per sequence) -> tracks of slices
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trnqc.errors import InputError
from trnqc.profiling.profile import NO_STALL, Profile
from trnqc.profiling.readers.protobuf import Field, Truncated, fields, message, number, signed, text
from trnqc.profiling.readers.tracks import Track, origin_of, to_lanes, to_series

# Field numbers: a packet of a trace, and the fields of a packet.
PACKET = 1
TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, COMPRESSED, DEFAULTS, DESCRIPTOR = 8, 10, 11, 12, 41, 50, 59, 60
# Types of a track event.
BEGIN, END, COUNTER = 1, 2, 4
# Flag of a packet whose sequence starts anew.
STATE_CLEARED = 1


@dataclass
class _Sequence:
    """State of one packet sequence: its interned strings by id and its default track."""

    names: dict[int, str] = field(default_factory=dict)
    keys: dict[int, str] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    track: int = 0


@dataclass
class _Node:
    name: str = ""
    parent: int = 0
    process: str = ""
    thread: str = ""
    unit: str | None = None


@dataclass
class _State:
    sequences: dict[int, _Sequence] = field(default_factory=dict)
    nodes: dict[int, _Node] = field(default_factory=dict)
    slices: dict[int, Track] = field(default_factory=dict)
    open_slices: dict[int, list[tuple[int, str, dict[str, str]]]] = field(default_factory=dict)
    counters: dict[int, list[tuple[float, float]]] = field(default_factory=dict)


def matches(head: bytes) -> bool:
    """Return whether the bytes look like a trace: length-delimited packets that begin with a packet field."""
    return len(head) > 2 and head[0] == (PACKET << 3 | 2)


def read(data: bytes, path: Path) -> tuple[Profile, ...]:
    """Return the profile of a trace. Raises InputError if the bytes are no trace, are truncated, or hold no slices."""
    state = _State()
    try:
        for packet in _packets(memoryview(data)):
            _packet(packet, state)
    except (Truncated, zlib.error) as error:
        raise InputError(f"{path}: expected a whole Perfetto trace, found bytes that break off: {error}") from error
    tracks = [_named(state, uuid, track) for uuid, track in state.slices.items() if track.start]
    if not tracks:
        raise InputError(f"{path}: expected a Perfetto trace with slices on tracks, found none")
    unclosed = sum(map(len, state.open_slices.values()))
    origin = origin_of(tracks)
    return (
        Profile(
            title=path.stem,
            path=str(path),
            format="Perfetto protobuf trace",
            measurement="device",
            lanes=to_lanes(tracks, path),
            series=[
                to_series(_title(state, uuid), state.nodes[uuid].unit or "", points, origin)
                for uuid, points in state.counters.items()
                if uuid in state.nodes
            ],
            notes=[f"{unclosed} slices never end in the trace and are left out"] if unclosed else [],
        ),
    )


def _packets(trace: memoryview) -> Iterator[memoryview]:
    for kind, value in fields(trace):
        if kind != PACKET:
            continue
        compressed = [v for k, v in fields(message(value)) if k == COMPRESSED]
        if compressed:
            for part in compressed:
                yield from _packets(memoryview(zlib.decompress(message(part))))
        else:
            yield message(value)


def _packet(packet: memoryview, state: _State) -> None:
    entries = dict(fields(packet))
    sequence_id = number(entries.get(SEQUENCE, 0))
    if number(entries.get(FLAGS, 0)) & STATE_CLEARED:
        state.sequences.pop(sequence_id, None)
    sequence = state.sequences.setdefault(sequence_id, _Sequence())
    if INTERNED in entries:
        _intern(message(entries[INTERNED]), sequence)
    if DEFAULTS in entries:
        for kind, value in fields(message(entries[DEFAULTS])):
            if kind == 11:
                sequence.track = number(dict(fields(message(value))).get(11, sequence.track))
    if DESCRIPTOR in entries:
        _describe(message(entries[DESCRIPTOR]), state)
    if EVENT in entries:
        _event(message(entries[EVENT]), number(entries.get(TIMESTAMP, 0)), sequence, state)


def _intern(data: memoryview, sequence: _Sequence) -> None:
    tables = {2: sequence.names, 3: sequence.keys, 29: sequence.values}
    for kind, value in fields(data):
        if kind in tables:
            entry = dict(fields(message(value)))
            tables[kind][number(entry.get(1, 0))] = text(entry.get(2, memoryview(b"")))


def _describe(descriptor: memoryview, state: _State) -> None:
    entries = dict(fields(descriptor))
    node = state.nodes.setdefault(number(entries.get(1, 0)), _Node())
    for kind in (2, 10, 13):  # name, static_name, atrace_name
        if kind in entries:
            node.name = text(entries[kind])
    node.parent = number(entries.get(5, node.parent))
    if 3 in entries:
        process = dict(fields(message(entries[3])))
        node.process = text(process[6]) if 6 in process else f"process {process.get(1, '')}"
    if 4 in entries:
        thread = dict(fields(message(entries[4])))
        node.thread = text(thread[5]) if 5 in thread else f"thread {thread.get(2, '')}"
    if 8 in entries:
        counter = dict(fields(message(entries[8])))
        node.unit = text(counter[6]) if 6 in counter else {1: "ns", 2: "", 3: "B"}.get(number(counter.get(3, 0)), "")


def _event(event: memoryview, time: int, sequence: _Sequence, state: _State) -> None:
    args: dict[str, str] = {}
    entries: dict[int, Field] = {}
    for kind, value in fields(event):
        if kind == 4:
            args.update(_annotation(message(value), sequence))
        else:
            entries[kind] = value
    uuid = number(entries.get(11, sequence.track))
    kind = number(entries.get(9, 0))
    if kind == BEGIN:
        name = text(entries[23]) if 23 in entries else sequence.names.get(number(entries.get(10, 0)), "")
        state.open_slices.setdefault(uuid, []).append((time, name, args))
    elif kind == END and state.open_slices.get(uuid):
        began, name, begin_args = state.open_slices[uuid].pop()
        track = state.slices.setdefault(uuid, Track("", ""))
        begin_args = begin_args | args
        stall_ns = _float(begin_args.get("stall_ns", ""))
        detail = next((begin_args[k] for k in ("name", "operands", "variable", "hlo_name") if k in begin_args), "")
        track.add(
            began, time, name or begin_args.get("opcode", ""), detail, begin_args.get("stall", NO_STALL), stall_ns
        )
    elif kind == COUNTER:
        sample = _double(entries[44]) if 44 in entries else float(signed(number(entries.get(30, 0))))
        state.counters.setdefault(uuid, []).append((time, sample))


def _annotation(data: memoryview, sequence: _Sequence) -> dict[str, str]:
    entries = dict(fields(data))
    key = text(entries[10]) if 10 in entries else sequence.keys.get(number(entries.get(1, 0)), "")
    if 6 in entries:
        return {key: text(entries[6])}
    if 17 in entries:
        return {key: sequence.values.get(number(entries[17]), "")}
    if 5 in entries:
        return {key: repr(_double(entries[5]))}
    if 4 in entries:
        return {key: str(signed(number(entries[4])))}
    return {key: str(entries[3])} if 3 in entries else {}


def _double(value: Field) -> float:
    return struct.unpack("<d", number(value).to_bytes(8, "little"))[0]


def _float(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _chain(nodes: Mapping[int, _Node], uuid: int) -> list[_Node]:
    """Return the track and its ancestors. A cycle of parents is cut where it closes."""
    seen: list[int] = []
    while uuid in nodes and uuid not in seen:
        seen.append(uuid)
        uuid = nodes[uuid].parent
    return [nodes[k] for k in seen]


def _title(state: _State, uuid: int) -> str:
    node = state.nodes[uuid]
    return node.name or node.thread or node.process or f"track {uuid}"


def _named(state: _State, uuid: int, track: Track) -> Track:
    chain = _chain(state.nodes, uuid)
    track.thread = _title(state, uuid) if chain else f"track {uuid}"
    above = [node.process or node.name for node in chain[1:]] or [node.process for node in chain]
    track.process = next((name for name in above if name), "trace")
    return track
