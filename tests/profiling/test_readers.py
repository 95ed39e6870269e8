"""Every format gives the same schedule; damaged and unknown files give one error with expected and actual content."""

from __future__ import annotations

import gzip
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.profiling import samples
from trnqc.errors import InputError, UnsupportedError
from trnqc.profiling import activity
from trnqc.profiling.readers import read
from trnqc.profiling.readers.fields import normal
from trnqc.profiling.writers import analysis, trace

ROOT = Path(__file__).resolve().parents[2]


def json_file(make):
    return lambda folder: samples.write(folder / "a file.json", make())


def pftrace_file(folder):
    pytest.importorskip("perfetto")
    path = folder / "device_profile_model_1.pftrace"
    path.write_bytes(samples.pftrace())
    return path


def tables(folder):
    pytest.importorskip("pyarrow")
    return samples.parquet(folder)


def packed(folder):
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps(samples.chrome()).encode()))
    return path


FORMS = {
    "timeline": json_file(samples.timeline),
    "vendor json": json_file(samples.vendor_json),
    "parquet": tables,
    "chrome": json_file(samples.chrome),
    "chrome gz": packed,
    "pftrace": pftrace_file,
}
COMPUTE_ONLY = ("vendor json",)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_tells_the_same_schedule(form, tmp_path):
    (profile,) = read(FORMS[form](tmp_path))
    lanes = {lane.engine: lane for lane in profile.lanes}
    rows = samples.COMPUTE if form in COMPUTE_ONLY else samples.SCHEDULE
    assert list(lanes) == list(dict.fromkeys(row[0] for row in rows))
    for engine, lane in lanes.items():
        expected = [[row[2], row[3]] for row in rows if row[0] == engine]
        assert np.allclose(lane.intervals, expected, rtol=0, atol=1e-3)
    shared = activity.overlap(profile)
    assert {k: getattr(shared, k) for k in samples.OVERLAP} == pytest.approx(samples.OVERLAP)


@pytest.mark.parametrize("form", ("timeline", "vendor json", "parquet"))
def test_summary_fields_keep_the_vendors_names(form, tmp_path):
    (profile,) = read(FORMS[form](tmp_path))
    for name, value in samples.summary().items():
        assert profile.number(name) == pytest.approx(value), name


def test_summary_json_is_one_profile_a_worker(tmp_path):
    workers = {"n_a": samples.summary(1.0), "n_b": samples.summary(1.0) | {"total_time": 2e-6}}
    result = read(samples.write(tmp_path / "s.json", workers))
    assert [profile.title for profile in result] == ["n_a", "n_b"]
    assert [profile.number("total_time") for profile in result] == pytest.approx([1e-6, 2e-6])


def test_where_it_came_from(tmp_path):
    (modelled,) = read(FORMS["timeline"](tmp_path))
    assert (modelled.measurement, modelled.target, modelled.title) == ("modelled", "trn2", "gemm")
    assert modelled.high_water == {"sbuf": 4096, "psum": 2048}
    assert "every iteration was timed" in modelled.notes
    assert modelled.provenance["constant launch_ns"] == "0"


def test_tables_know_machine_versions_and_memory(tmp_path):
    (profile,) = read(tables(tmp_path))
    assert (profile.measurement, profile.target, profile.title) == ("device", "trn2", "gemm on a device")
    assert profile.provenance["compiler_version"] == "2.21"
    (use,) = profile.series
    assert (use.name, use.time.tolist()) == ("SBUF in use", [0.0, 500.0])
    assert use.value == pytest.approx([10.0, 40.0])


def test_one_table_alone(tmp_path):
    (profile,) = read(tables(tmp_path) / "Instruction.parquet")
    assert [lane.engine for lane in profile.lanes] == ["tensor", "vector", "scalar"]
    assert sum(lane.stall_ns.sum() for lane in profile.lanes) == 650


def test_split_tables_are_joined(tmp_path):
    here = tables(tmp_path)
    (here / "DmaPacket.parquet").rename(here / "DmaPacket_0.parquet")
    (here / "Instruction.parquet").rename(here / "Renamed.parquet")
    (profile,) = read(here)
    assert [lane.engine for lane in profile.lanes] == ["tensor", "vector", "scalar", "dma0", "dma1"]


def test_names_and_counters_of_a_perfetto_trace(tmp_path):
    (profile,) = read(pftrace_file(tmp_path))
    assert profile.lanes[0].op[0] == "nc_matmul"
    assert profile.lanes[0].name[0] == "kernel.py:10"
    (use,) = profile.series
    assert (use.name, use.unit, use.time.tolist(), use.value.tolist()) == ("SBUF in use", "%", [500.0], [12.5])


def test_tracks_of_one_engine_make_one_lane(tmp_path):
    """The vendor shows weight loads and multiplies of the Tensor engine as two tracks."""
    data = samples.chrome()
    names = [e for e in data["traceEvents"] if e["name"] == "thread_name"]
    names[0]["args"]["name"], names[1]["args"]["name"] = "TensorE", "TensorMatrixE"
    (profile,) = read(samples.write(tmp_path / "t.json", data))
    tensor = profile.lanes[0]
    assert tensor.engine == "tensor"
    assert tensor.start.tolist() == [0, 200, 300, 500]


def test_begin_and_end_events_nest(tmp_path):
    events = [
        {"ph": "B", "pid": 1, "tid": 1, "ts": 1, "name": "outer"},
        {"ph": "B", "pid": 1, "tid": 1, "ts": 2, "name": "inner"},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 9},
    ]
    (profile,) = read(samples.write(tmp_path / "t.json", events))
    (lane,) = profile.lanes
    assert [(lane.op[k], lane.start[k], lane.end[k]) for k in range(2)] == [("outer", 0, 8000), ("inner", 1000, 2000)]


def test_host_and_gpu_traces(tmp_path):
    (host,) = read(samples.write(tmp_path / "system_profile.json", samples.system_json()))
    assert [(lane.engine, len(lane)) for lane in host.lanes] == [("nrt-nc-000", 2)]
    (gpu,) = read(samples.write(tmp_path / "gpu.json", samples.nsight()))
    assert [(lane.engine, lane.intervals.tolist()) for lane in gpu.lanes] == [
        ("stream 13", [[1000, 3000]]),
        ("stream 7", [[0, 1500]]),
    ]


def test_torch_profiler_writes_what_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
        torch.ones(64, 64) @ torch.ones(64, 64)
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    (profile,) = read(path)
    assert profile.format == "torch.profiler trace JSON"
    assert "aten::mm" in {name for lane in profile.lanes for name in lane.op.names}


def test_target_can_be_given(tmp_path):
    path = samples.write(tmp_path / "s.json", samples.summary_json())
    assert read(path)[0].target is None
    assert read(path, "trn1")[0].target == "trn1"
    with pytest.raises(InputError, match="trn1, trn2, trn3, found 'h100'"):
        read(path, "h100")


@pytest.mark.parametrize(
    ("fields", "tensor"),
    [
        ({"total_time": 2.0, "tensor_engine_active_time": 1.0, "tensor_engine_active_time_percent": 0.5}, 50.0),
        ({"total_time": 2.0, "tensor_engine_active_time": 0.01, "tensor_engine_active_time_percent": 0.5}, 0.5),
        ({"tensor_engine_active_time_percent": 0.5}, 50.0),
        ({"tensor_engine_active_time_percent": 0.5, "mfu_estimated_percent": 31.0}, 0.5),
    ],
)
def test_fractions_and_percentages_are_told_apart(fields, tensor):
    result, _ = normal(fields)
    assert result["tensor_engine_active_time_percent"] == pytest.approx(tensor)


def test_our_own_percentages_are_never_fractions(tmp_path):
    """A kernel that reaches half a percent of the peak is no kernel that reaches fifty."""
    slow = {"tensor_engine_active_time_percent": 0.5, "measurement": "modelled"}
    (profile,) = read(samples.write(tmp_path / "t.json", samples.timeline(summary=slow)))
    assert profile.number("tensor_engine_active_time_percent") == 0.5
    path = tmp_path / "trace.json"
    path.write_text(trace(profile))
    assert read(path)[0].number("tensor_engine_active_time_percent") == 0.5


def test_figures_that_could_not_be_had_are_left_out():
    result, notes = normal({"mbu_estimated_percent": -1.0, "total_time": float("nan"), "event_count": 3})
    assert result == {"event_count": 3}
    assert "mbu_estimated_percent, total_time" in notes[0]


# ---- files that cannot be read ----


def message(path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    text = str(caught.value)
    assert str(path) in text
    assert "expected" in text
    return text


@pytest.mark.parametrize("form", ("timeline", "vendor json", "chrome"))
def test_truncated_json(form, tmp_path):
    path = FORMS[form](tmp_path)
    whole = path.read_bytes()
    for size in (len(whole) // 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        assert "cut short" in message(path), size


def test_truncated_binary_files(tmp_path):
    for make in (pftrace_file, packed):
        path = make(tmp_path)
        path.write_bytes(path.read_bytes()[:-7])
        assert "whole" in message(path)
    table = tables(tmp_path) / "Instruction.parquet"
    table.write_bytes(table.read_bytes()[:-7])
    with pytest.raises(InputError, match=r"Instruction\.parquet: expected a whole Parquet file"):
        read(table)


@pytest.mark.parametrize(
    ("name", "data", "actual"),
    [
        ("empty.json", b"", "an empty file"),
        ("picture.png", b"\x89PNG\r\n\x1a\n0000", "begins with"),
        ("other.json", b'{"answer": 42}', "an object with 'answer'"),
        ("list.json", b"[1, 2]", "a list of 2"),
        ("broken.json", b'{"schema" 1, "events": []}', "a fault"),
        ("run.ntff", b"\x0a\x03abc", "a raw capture; convert it first: neuron-explorer view"),
        ("words.txt", b"total_time 0.017\n", "begins with"),
        ("almost.pftrace", b"\x0a\x03abc", "break off"),
    ],
)
def test_foreign_files(name, data, actual, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    assert actual in message(path)


def test_an_analysis_reads_back_with_its_figures(tmp_path):
    stalls = {"sync": {"raw": 900, "war": 600}, "vector": {"raw": 300}}
    samples.write(tmp_path / "a.json", samples.timeline(stalls=stalls))
    (whole,) = read(tmp_path / "a.json")
    whole = replace(whole, queues={"sync": 2})
    (tmp_path / "figures.json").write_text(analysis([whole, whole]))
    first, second = read(tmp_path / "figures.json")
    for name in ("title", "measurement", "target", "stalls", "queues", "high_water", "provenance"):
        assert getattr(first, name) == getattr(second, name) == getattr(whole, name), name
    assert dict(whole.summary).items() <= dict(first.summary).items()
    assert activity.stalls(first) == activity.stalls(whole)
    assert first.lanes == () and "no events" in first.notes[-1]


def test_loads_and_stores_wait_in_two_queues(tmp_path):
    keys = ("engine", "queue", "op", "start_ns", "end_ns", "name", "stall", "stall_ns")
    rows = [
        ("sync", "loads", "dma_copy", 80, 100, "k.py:1", "raw", 80),
        ("sync", "stores", "dma_copy", 90, 100, "k.py:2", "war", 60),
        ("tensor", "weights", "nc_matmul", 0, 10, "k.py:3", "none", 0),
        ("tensor", "tensor", "nc_matmul", 20, 30, "k.py:3", "raw", 10),
    ]
    stalls = {"sync": {"raw": 80, "war": 60}, "tensor": {"raw": 10}}
    data = samples.timeline(events=[dict(zip(keys, row)) for row in rows], stalls=stalls, summary={"total_time": 1e-7})
    samples.write(tmp_path / "a.json", data)
    (profile,) = read(tmp_path / "a.json")
    result = {(s.engine, s.cause): s.percent for s in activity.stalls(profile)}
    assert result == pytest.approx({("sync", "raw"): 40, ("sync", "war"): 30, ("tensor", "raw"): 10})


SHIPPED = sorted((ROOT / "profiles").glob("**/*.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_file_is_read_or_says_what_it_is(path):
    if path.parent.name == "analyses":
        (profile,) = read(path)
        assert profile.number("total_time") > 0
        by_engine = {}
        for stall in activity.stalls(profile):
            by_engine.setdefault(stall.engine, []).append(stall.percent or 0.0)
        assert by_engine and all(sum(percents) <= 100 for percents in by_engine.values())
        return
    words = message(path)
    assert re.search(r"a record of the figures of `python (-m scripts\.|scripts/)\w+.*read it as JSON", words), words


def test_a_broken_analysis_is_one_clear_error(tmp_path):
    for change, expected in (
        ({"schema": "trnqc.analysis/9"}, "expected schema"),
        ({"profiles": []}, "at least one"),
        ({"profiles": [{}]}, "'summary'"),
    ):
        path = tmp_path / "a.json"
        path.write_text(json.dumps({"schema": "trnqc.analysis/1", "profiles": [{}]} | change))
        assert expected in message(path)


def test_missing_file_and_empty_directory(tmp_path):
    assert "No such file" in message(tmp_path / "nowhere.json")
    assert "no .parquet file" in message(tmp_path)


def test_foreign_table(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1]}), tmp_path / "Instruction.parquet")
    assert "without their columns" in message(tmp_path)


@pytest.mark.parametrize(
    ("change", "actual"),
    [
        ({"schema": "trnqc.timeline/2"}, "found 'trnqc.timeline/2'"),
        ({"events": {}}, "'events': expected a list"),
        ({"events": [{"engine": "tensor", "start_ns": 0}]}, "events[0]: expected the field 'end_ns'"),
        ({"events": [{"engine": "tensor", "start_ns": 5, "end_ns": 1}]}, "events[0]: expected a start before the end"),
        ({"events": [{"engine": "tensor", "start_ns": "0", "end_ns": 1}]}, "'start_ns': expected a number"),
        ({"measurement": "guessed"}, "found 'guessed'"),
        ({"stalls": {"tensor": {"raw": "long"}}}, "'raw': expected a number"),
    ],
)
def test_timelines_that_are_wrong_inside(change, actual, tmp_path):
    path = samples.write(tmp_path / "t.json", samples.timeline(**change))
    assert actual in message(path)


def test_vendor_json_wrong_inside(tmp_path):
    data = samples.vendor_json()
    del data["instruction"][1]["duration"]
    assert "instruction[1]: expected the field 'duration'" in message(samples.write(tmp_path / "v.json", data))
    two = samples.vendor_json() | {"summary": [{}, {}]}
    assert "expected one summary, found 2" in message(samples.write(tmp_path / "w.json", two))


def test_lone_end(tmp_path):
    path = samples.write(tmp_path / "t.json", [{"ph": "E", "pid": 1, "tid": 1, "ts": 3}])
    assert "found a lone end" in message(path)


def test_tables_without_pyarrow(tmp_path, monkeypatch):
    here = tables(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'trnqc\[profiles\]'"):
        read(here)
