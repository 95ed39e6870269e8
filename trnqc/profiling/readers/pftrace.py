"""Perfetto's protobuf traces (``.pftrace``): slices and counters of track events.

Read here and not through the ``perfetto`` package: that one downloads a native trace processor on first use, and a
profile must open on a machine without a network. Field numbers are those of perfetto's public trace format.

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

PACKET = 1
TIMESTAMP, SEQUENCE, EVENT, INTERNED, FLAGS, COMPRESSED, DEFAULTS, DESCRIPTOR = 8, 10, 11, 12, 41, 50, 59, 60
BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
STATE_CLEARED = 1


@dataclass
class _Sequence:
    """What one writer has said so far: its interned strings by id and its default track."""

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
    """A trace is a row of length-delimited packets in field 1, whose own first tag is that of a packet field."""
    return len(head) > 2 and head[0] == (PACKET << 3 | 2)


def read(data: bytes, path: Path) -> tuple[Profile, ...]:
    """One profile. InputError: bytes that are no trace or stop short, or a trace without slices."""
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
    found = dict(fields(packet))
    sequence_id = number(found.get(SEQUENCE, 0))
    if number(found.get(FLAGS, 0)) & STATE_CLEARED:
        state.sequences.pop(sequence_id, None)
    sequence = state.sequences.setdefault(sequence_id, _Sequence())
    if INTERNED in found:
        _intern(message(found[INTERNED]), sequence)
    if DEFAULTS in found:
        for kind, value in fields(message(found[DEFAULTS])):
            if kind == 11:
                sequence.track = number(dict(fields(message(value))).get(11, sequence.track))
    if DESCRIPTOR in found:
        _describe(message(found[DESCRIPTOR]), state)
    if EVENT in found:
        _event(message(found[EVENT]), number(found.get(TIMESTAMP, 0)), sequence, state)


def _intern(data: memoryview, sequence: _Sequence) -> None:
    tables = {2: sequence.names, 3: sequence.keys, 29: sequence.values}
    for kind, value in fields(data):
        if kind in tables:
            entry = dict(fields(message(value)))
            tables[kind][number(entry.get(1, 0))] = text(entry.get(2, memoryview(b"")))


def _describe(descriptor: memoryview, state: _State) -> None:
    found = dict(fields(descriptor))
    node = state.nodes.setdefault(number(found.get(1, 0)), _Node())
    for kind in (2, 10, 13):  # name, static_name, atrace_name
        if kind in found:
            node.name = text(found[kind])
    node.parent = number(found.get(5, node.parent))
    if 3 in found:
        process = dict(fields(message(found[3])))
        node.process = text(process[6]) if 6 in process else f"process {process.get(1, '')}"
    if 4 in found:
        thread = dict(fields(message(found[4])))
        node.thread = text(thread[5]) if 5 in thread else f"thread {thread.get(2, '')}"
    if 8 in found:
        counter = dict(fields(message(found[8])))
        node.unit = text(counter[6]) if 6 in counter else {1: "ns", 2: "", 3: "B"}.get(number(counter.get(3, 0)), "")


def _event(event: memoryview, time: int, sequence: _Sequence, state: _State) -> None:
    args: dict[str, str] = {}
    found: dict[int, Field] = {}
    for kind, value in fields(event):
        if kind == 4:
            args.update(_annotation(message(value), sequence))
        else:
            found[kind] = value
    uuid = number(found.get(11, sequence.track))
    kind = number(found.get(9, 0))
    if kind == BEGIN:
        name = text(found[23]) if 23 in found else sequence.names.get(number(found.get(10, 0)), "")
        state.open_slices.setdefault(uuid, []).append((time, name, args))
    elif kind == END and state.open_slices.get(uuid):
        began, name, given = state.open_slices[uuid].pop()
        track = state.slices.setdefault(uuid, Track("", ""))
        given = given | args
        stall_ns = _float(given.get("stall_ns", ""))
        detail = next((given[k] for k in ("name", "operands", "variable", "hlo_name") if k in given), "")
        track.add(began, time, name or given.get("opcode", ""), detail, given.get("stall", NO_STALL), stall_ns)
    elif kind == COUNTER:
        sample = _double(found[44]) if 44 in found else float(signed(number(found.get(30, 0))))
        state.counters.setdefault(uuid, []).append((time, sample))


def _annotation(data: memoryview, sequence: _Sequence) -> dict[str, str]:
    found = dict(fields(data))
    key = text(found[10]) if 10 in found else sequence.keys.get(number(found.get(1, 0)), "")
    if 6 in found:
        return {key: text(found[6])}
    if 17 in found:
        return {key: sequence.values.get(number(found[17]), "")}
    if 5 in found:
        return {key: repr(_double(found[5]))}
    if 4 in found:
        return {key: str(signed(number(found[4])))}
    return {key: str(found[3])} if 3 in found else {}


def _double(value: Field) -> float:
    return struct.unpack("<d", number(value).to_bytes(8, "little"))[0]


def _float(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0


def _chain(nodes: Mapping[int, _Node], uuid: int) -> list[_Node]:
    """The track and its ancestors; a loop of parents ends where it closes."""
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
