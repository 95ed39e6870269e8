"""Activity, overlap, stalls and utilisation of a schedule worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.profiling import samples
from trnqc.profiling import activity, compare
from trnqc.profiling.machines import MACHINES, target_of
from trnqc.profiling.profile import Labels, Lane, Profile
from trnqc.profiling.readers import timeline
from trnqc.profiling.utilisation import completed, roofline


@pytest.fixture
def profile() -> Profile:
    return timeline.read(samples.timeline(), Path("t.json"))[0]


def lane(engine: str, events: list[tuple], core: int = 0) -> Lane:
    """events: (start, end, op, stall_ns)."""
    start, end, op, wait = zip(*events)
    return Lane(
        engine,
        np.asarray(start, dtype=float),
        np.asarray(end, dtype=float),
        Labels.of(op),
        Labels.of(op),
        Labels.of("semaphore" if w else "none" for w in wait),
        np.asarray(wait, dtype=float),
        core,
    )


def test_activity(profile):
    rows = {row.engine: row for row in activity.activities(profile)}
    assert (rows["tensor"].active, rows["tensor"].count, rows["tensor"].percent) == (samples.TENSOR, 3, 80)
    assert (rows["dma"].active, rows["dma"].total) == (samples.DMA, 400)
    assert rows["dma0"].active == 200


def test_overlap_and_its_matrix(profile):
    shared = activity.overlap(profile)
    assert shared.hidden_percent == pytest.approx(100 * 250 / 450)
    assert shared.tensor_percent == pytest.approx(100 * 250 / 800)
    pairs = activity.matrix(profile)
    assert pairs.engines == ("tensor", "vector", "scalar", "dma")
    assert pairs.ns.tolist() == [[800, 200, 50, 300], [200, 300, 0, 0], [50, 0, 150, 0], [300, 0, 0, 300]]


def test_cores_do_not_hide_each_other():
    """Vector work of one core is not behind the Tensor engine of the other."""
    both = Profile(
        "k", "p", "f", "device", lanes=[lane("tensor", [(0, 10, "m", 0)], 0), lane("vector", [(0, 10, "v", 0)], 1)]
    )
    assert activity.overlap(both).both == 0
    assert [row.percent for row in activity.activities(both)] == [100, 100]


def test_waiting_is_not_activity():
    waits = Profile("k", "p", "f", "device", lanes=[lane("sync", [(0, 60, "EVENT_SEMAPHORE", 0), (60, 100, "NOP", 0)])])
    (row,) = activity.activities(waits)
    assert row.active == 40
    assert [(s.cause, s.ns, s.percent) for s in activity.stalls(waits)] == [("semaphore", 60, 60)]


def test_stalls_come_longest_first(profile):
    stalls = [(s.engine, s.cause, s.ns) for s in activity.stalls(profile)]
    assert stalls == [("vector", "raw", 300), ("scalar", "psum_bank", 250), ("tensor", "raw", 100)]
    assert activity.stalls(profile)[0].percent == pytest.approx(30)


def test_stalls_from_events_where_the_source_adds_none_up(profile):
    own = {(s.engine, s.cause): s.ns for s in activity.stalls(replace(profile, stalls={}))}
    assert own == {
        ("vector", "raw"): 300,
        ("scalar", "psum_bank"): 250,
        ("tensor", "raw"): 100,
        ("dma1", "dma_queue"): 40,
    }


def test_a_share_is_of_all_queues_of_the_engine():
    """Two queues that wait 90 and 70 of 100 ns wait 80 % of their time together, not 160 % of the total."""
    waits = Profile(
        "k",
        "p",
        "f",
        "modelled",
        summary={"total_time": 100e-9},
        stalls={"sync": {"raw": 90, "war": 70}},
        queues={"sync": 2},
    )
    assert [s.percent for s in activity.stalls(waits)] == pytest.approx([45, 35])
    both = [lane("vector", [(0, 10, "v", 0), (90, 100, "v", 80)], core) for core in (0, 1)]
    assert [s.percent for s in activity.stalls(Profile("k", "p", "f", "device", lanes=both))] == pytest.approx([80])


@pytest.mark.parametrize(("engine", "ns"), [("sync", 109), ("dma", 10), ("dma3", 10)])
def test_waits_that_overlap_have_no_share(engine, ns):
    waits = Profile("k", "p", "f", "device", summary={"total_time": 100e-9}, stalls={engine: {"semaphore": ns}})
    assert [(s.ns, s.percent) for s in activity.stalls(waits)] == [(ns, None)]


def test_top_is_per_engine():
    table = {"tensor": {"raw": 3, "war": 2, "waw": 1}, "vector": {"raw": 1, "none": 9}}
    stalls = activity.stalls(Profile("k", "p", "f", "modelled", stalls=table), top=2)
    assert [(s.engine, s.cause, s.percent) for s in stalls] == [
        ("tensor", "raw", None),
        ("tensor", "war", None),
        ("vector", "raw", None),
    ]


def test_instructions_by_time(profile):
    first, second, *_ = activity.ops(profile)
    assert (first.engine, first.op, first.count, first.ns, first.mean) == ("tensor", "nc_matmul", 3, 800, 800 / 3)
    assert (second.engine, second.ns) == ("dma", 400)
    assert len(activity.ops(profile, top=1)) == 1


def test_utilisation_follows_the_definitions(profile):
    fields, computed = completed(profile)
    machine = MACHINES["trn2"]
    peak, seconds = 2 * 128 * 128 * 2.4e9, 1e-6
    assert machine.peak == peak
    assert fields["hfu_estimated_percent"] == pytest.approx(100 * samples.FLOPS / (peak * seconds))
    assert fields["mbu_estimated_percent"] == pytest.approx(100 * samples.HBM / (2.9e12 / 4 * seconds))
    assert fields["mm_arithmetic_intensity"] == pytest.approx(samples.FLOPS / samples.HBM)
    assert "hfu_estimated_percent" in computed
    assert "tensor_engine_active_time" not in computed


def test_given_figures_are_kept(profile):
    with_figure = replace(profile, summary=dict(profile.summary) | {"hfu_estimated_percent": 12.5})
    fields, computed = completed(with_figure)
    assert fields["hfu_estimated_percent"] == 12.5
    assert "hfu_estimated_percent" not in computed


def test_events_alone_give_times(profile):
    fields, _ = completed(replace(profile, summary={}))
    assert fields["total_time"] == pytest.approx(1e-6)
    assert fields["tensor_engine_active_time_percent"] == pytest.approx(80)
    assert fields["matmul_instruction_count"] == 3
    assert "hfu_estimated_percent" not in fields


def test_transposes_are_no_model_flops(profile):
    fields, _ = completed(replace(profile, summary=dict(profile.summary) | {"transpose_flops": samples.FLOPS // 3}))
    assert fields["mfu_inst_estimated_percent"] == pytest.approx(fields["hfu_estimated_percent"] * 2 / 3)


def test_roofline(profile):
    roof = roofline(profile)
    machine = MACHINES["trn2"]
    assert roof.peak == machine.peak
    assert roof.bound == "memory"
    assert roof.attainable == pytest.approx(machine.hbm_share * samples.FLOPS / samples.HBM)
    fp32 = roofline(replace(profile, summary=dict(profile.summary) | {"adjusted_hardware_flops": 4 * samples.FLOPS}))
    assert fp32.peak == pytest.approx(machine.peak_fp32)
    assert fp32.bound == "compute"
    assert roofline(replace(profile, target=None)) is None


def test_ridge_points_agree_with_the_published_ones():
    """bf16 flops per byte of HBM of one core."""
    ridge = {name: machine.peak / machine.hbm_share for name, machine in MACHINES.items()}
    assert ridge == pytest.approx({"trn1": 222, "trn2": 218, "trn3": 129}, rel=0.05)


def test_peaks_agree_with_the_published_ones():
    peaks = {name: machine.peak / 1e12 for name, machine in MACHINES.items()}
    assert peaks == pytest.approx({"trn1": 92, "trn2": 79, "trn3": 79}, rel=0.01)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("trn1.2xlarge", "trn1"),
        ("inf2.xlarge", "trn1"),
        ("trn2.48xlarge", "trn2"),
        ("TRN3", "trn3"),
        ("p5.48xlarge", None),
    ],
)
def test_targets_of_instances(name, target):
    assert target_of(name) == target


def test_comparison(profile):
    slow = replace(profile, summary=dict(profile.summary) | {"total_time": 4e-6}, target="trn1", measurement="device")
    both = compare(slow, profile)
    assert both.speedup == pytest.approx(4)
    time = next(row for row in both.rows if row.name == "total_time")
    assert (time.difference, time.ratio) == pytest.approx((-3e-6, 0.25))
    assert len(both.caveats) == 2
    assert compare(profile, profile).caveats == ()
    assert both.stalls[0].name == "vector: raw"


def test_comparison_of_profiles_with_different_fields():
    a = Profile("a", "p", "f", "device", summary={"total_time": 1.0, "hbm_read_bytes": 0})
    b = Profile("b", "p", "f", "device", summary={"total_time": 2.0, "event_count": 3, "hbm_read_bytes": 5})
    rows = {row.name: row for row in compare(a, b).rows}
    assert list(rows) == ["total_time", "hbm_read_bytes", "event_count"]
    assert rows["event_count"].difference is None
    assert rows["hbm_read_bytes"].ratio is None


def test_holes_of_a_partial_list_are_left_out_of_percentages():
    """An extrapolated run lists its first and last passes: the time between them is unknown, not idle."""
    lanes = [lane("tensor", [(0, 100, "m", 0), (900, 1000, "m", 0)]), lane("vector", [(50, 100, "v", 0)])]
    claimed = Profile("k", "p", "f", "modelled", summary={"tensor_engine_active_time": 9e-7}, lanes=lanes)
    assert activity.stretches(claimed).tolist() == [[0, 100], [900, 1000]]
    assert [row.percent for row in activity.activities(claimed)] == [100, 25]
    assert "22.2 % of the tensor engine's active time" in activity.unlisted(claimed)
    whole = replace(claimed, summary={"tensor_engine_active_time": 2e-7})
    assert activity.unlisted(whole) is None
    assert [row.percent for row in activity.activities(whole)] == [20, 5]


def test_times_are_not_computed_from_a_part_of_the_events():
    partial = Profile(
        "k", "p", "f", "modelled", summary={"tensor_engine_active_time": 9e-7}, lanes=[lane("tensor", [(0, 9, "m", 0)])]
    )
    assert "tensor_engine_instruction_time" not in completed(partial)[0]
