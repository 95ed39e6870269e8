"""Written files can be read back, are valid in their format, and are never written in part."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.profiling import samples
from trnqc.errors import StorageError
from trnqc.host.files import write_aside
from trnqc.profiling import compare
from trnqc.profiling.profile import Labels, Lane, Profile, Series
from trnqc.profiling.readers import chrome, timeline
from trnqc.profiling.writers import analysis, trace


def sample(tmp_path) -> Profile:
    return timeline.read(samples.timeline(), tmp_path / "t.json")[0]


def read_back(profile: Profile) -> Profile:
    return chrome.read(json.loads(trace(profile)), Path("trace.json"))[0]


def same_lane(a: Lane, b: Lane) -> bool:
    def events(lane):
        rows = [(lane.op[k], lane.name[k], lane.stall[k], float(lane.stall_ns[k])) for k in range(len(lane))]
        return sorted(zip(lane.start.tolist(), lane.end.tolist(), rows))

    return (a.engine, a.core, events(a)) == (b.engine, b.core, events(b))


def test_a_perfetto_trace_reads_back_as_the_same_profile(tmp_path):
    profile = sample(tmp_path)
    again = read_back(profile)
    assert all(map(same_lane, profile.lanes, again.lanes))
    for field in ("title", "measurement", "target", "stalls", "high_water", "provenance", "notes"):
        assert getattr(again, field) == getattr(profile, field), field
    assert dict(again.summary).items() >= dict(profile.summary).items()
    assert again.series == ()


EVENTS = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 90), st.sampled_from("ab")), min_size=1, max_size=15)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["tensor", "dma3", "dma qSyncIO0", "stream 7"]), EVENTS, min_size=1))
def test_overlapping_events_survive(lanes):
    """Slices of one thread are apart, as the format asks, and nothing is lost in the read back."""
    first = min(start for events in lanes.values() for start, *_ in events)
    sampled = []
    for name, events in lanes.items():
        start = np.asarray([e[0] - first for e in events], dtype=float)
        none, n = Labels.same("none", len(events)), len(events)
        end = start + [e[1] for e in events]
        sampled.append(Lane(name, start, end, Labels.of(e[2] for e in events), Labels.same("", n), none, np.zeros(n)))
    profile = Profile("k", "p", "f", "modelled", lanes=sampled)
    slices: dict = {}
    for event in json.loads(trace(profile))["traceEvents"]:
        if event["ph"] == "X":
            slices.setdefault(event["tid"], []).append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    for rows in slices.values():
        rows.sort()
        assert all(a + length <= b for (a, length), (b, _) in pairwise(rows))
    again = {lane.engine: lane for lane in read_back(profile).lanes}
    assert all(same_lane(lane, again[lane.engine]) for lane in sampled)


def test_the_trace_is_what_perfetto_takes(tmp_path):
    """Fields and types of the trace-event format: every event has a phase, a process and a finite time."""
    series = Series("SBUF in use", "%", np.asarray([0.0, 500.0]), np.asarray([10.0, 40.0]))
    profile = sample(tmp_path)
    profile = Profile("k", "p", "f", "device", lanes=profile.lanes, series=[series], high_water={"sbuf": 4096})
    events = json.loads(trace(profile))["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "C"}
    for event in events:
        assert isinstance(event["pid"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            assert isinstance(event["tid"], int)
    counters = [(e["name"], e["args"]) for e in events if e["ph"] == "C"]
    assert ("SBUF high-water", {"B/partition": 4096}) in counters
    assert ("SBUF in use", {"%": 40.0}) in counters
    named = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"tensor", "vector", "scalar", "dma0", "dma1"} <= named


def test_the_analysis_holds_the_figures(tmp_path):
    profile = sample(tmp_path)
    data = json.loads(analysis([profile, profile], compare(profile, profile)))
    assert data["profiles"][0]["overlap"]["vector_scalar_hidden_percent"] == pytest.approx(100 * 250 / 450)
    assert data["profiles"][0]["measurement"] == "modelled"
    assert data["comparison"]["speedup"] == 1
    assert data["comparison"]["fields"]["hbm_read_bytes"]["difference"] == 0


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "out.html"
    write_aside(path, "old")
    monkeypatch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(StorageError, match="disk full"):
        write_aside(path, "new")
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["out.html"]


def test_no_place_to_write(tmp_path):
    with pytest.raises(StorageError, match=r"nowhere/out\.json: cannot be written: No such file"):
        write_aside(tmp_path / "nowhere" / "out.json", "x")
