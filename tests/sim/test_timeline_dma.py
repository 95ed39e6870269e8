"""Transfers: lanes, rows, latencies, descriptors, registers."""

import itertools

import numpy as np
import pytest

from tests.sim.timing import P, bars, output, sbuf, timed
from trnqc.sim import Spec
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.timeline.costs import constants_for


def load(rows, columns, times=1):
    def body(x):
        for _ in range(times):
            nisa.dma_copy(dst=sbuf(columns, rows), src=x)

    return timed(body, Spec((rows, columns), "float32"))


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_one_load_takes_its_latencies_and_its_bytes(target):
    c = constants_for(target)
    timeline = timed(lambda x: nisa.dma_copy(dst=sbuf(1024), src=x), Spec((P, 1024), "float32"), target=target)
    share = 8 * 4096 / c["dma_bytes_per_ns"] + c["dma_row_ns"]
    assert timeline.total_ns == pytest.approx(c["dma_start_ns"] + share + c["dma_finish_ns"])
    lanes = [bars(timeline, f"dma{n}")[0] for n in range(16)]
    assert [e.end_ns - e.start_ns for e in lanes] == pytest.approx([share] * 16)
    steps = [b.start_ns - a.start_ns for a, b in itertools.pairwise(lanes)]
    assert steps == pytest.approx([c["dma_generate_ns"] / 16] * 15)


@pytest.mark.parametrize(("rows", "lanes"), [(1, 1), (8, 1), (9, 2), (64, 8), (127, 16), (128, 16)])
def test_a_lane_serves_eight_partitions(rows, lanes):
    timeline = load(rows, 512)
    used = {e.engine for e in timeline.events if e.engine.startswith("dma")}
    assert used == {f"dma{n}" for n in range(lanes)}


def test_long_rows_move_faster():
    """Bytes a ns of a lane, by bytes a row of its own: overhead dominates below 256 B, 2 KiB is near the top."""

    def rate(columns):
        timeline = timed(lambda x: nisa.dma_copy(dst=sbuf(columns), src=x[0:P, 1:]), Spec((P, columns + 1), "float32"))
        event = bars(timeline, "dma0")[0]
        return 8 * 4 * columns / (event.end_ns - event.start_ns)

    rates = [rate(n) for n in (1, 16, 64, 512, 1024, 8192)]
    assert rates == sorted(rates)
    assert rates[0] < 0.05 * 23
    assert rates[2] < 0.75 * 23
    assert rates[3] > 0.9 * 23
    assert rates[5] < 23


@pytest.mark.parametrize(("rows", "columns", "runs"), [(P, 64, 1), (P, 63, 8), (3, 64, 1), (P, 8192, 1)])
@pytest.mark.parametrize("store", [False, True])
def test_rows_that_adjoin_in_hbm_are_one_run(rows, columns, runs, store):
    """From 256 B on."""

    def body(x):
        tile, out = sbuf(columns, rows), output((rows, columns))
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)
        return out

    event = bars(timed(body, Spec((rows, columns), "float32")), "dma0", "stores" if store else "loads")[0]
    c = constants_for("trn2")
    expected = min(rows, 8) * 4 * columns / c["dma_bytes_per_ns"] + runs * c["dma_row_ns"]
    assert event.end_ns - event.start_ns == pytest.approx(expected)


def test_rows_that_lie_together_in_pairs():
    def body(x):
        nisa.dma_copy(dst=sbuf(512), src=x.ap(pattern=[[2048, 64], [512, 2], [1, 512]]))

    event = bars(timed(body, Spec((P, 1024), "float32")), "dma3")[0]
    c = constants_for("trn2")
    assert event.end_ns - event.start_ns == pytest.approx(8 * 2048 / c["dma_bytes_per_ns"] + 4 * c["dma_row_ns"])


def test_scattered_elements_cost_a_row_each():
    def body(x):
        nisa.dma_copy(dst=sbuf(64), src=x[0:P, 0:128:2])

    event = bars(timed(body, Spec((P, 128), "float32")), "dma0")[0]
    c = constants_for("trn2")
    assert event.end_ns - event.start_ns == pytest.approx(8 * 64 * (4 / 23 + c["dma_row_ns"]))


def test_descriptors_are_made_one_instruction_at_a_time():
    c = constants_for("trn2")
    starts = [e.start_ns for e in bars(load(P, 1, times=6), "dma15")]
    assert starts[-1] - starts[0] == pytest.approx(5 * c["dma_generate_ns"])


def test_lanes_are_shared_by_what_uses_them():
    c = constants_for("trn2")
    timeline = load(P, 8192, times=3)
    share = 8 * 4 * 8192 / 23 + c["dma_row_ns"]
    ends = [e.end_ns for e in bars(timeline, "dma15")]
    assert ends[2] - ends[0] == pytest.approx(2 * share, rel=1e-3)
    assert timeline.stalls["dma"]["dma_queue"] > 0


def test_a_runtime_address_waits_for_its_register():
    def body(table, x):
        row, out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf), sbuf(512)
        nisa.dma_copy(dst=row, src=table)
        at = nisa.register_alloc()
        nisa.register_load(at, row)
        nisa.dma_copy(dst=out, src=x.ap(pattern=[[512, P], [1, 512]], scalar_offset=at, indirect_dim=0))

    timeline = timed(body, np.zeros((1, 1), np.int32), Spec((2 * P, 512), "float32"))
    queue = bars(timeline, "sync", "loads")
    assert [e.op for e in queue] == ["dma_copy", "register_load", "dma_copy"]
    assert queue[1].stall == "raw"
    assert queue[1].start_ns > 1300
    assert queue[2].start_ns >= queue[1].end_ns
    assert bars(timeline, "dma9")[0].start_ns > 2 * 1300


def test_traffic_is_counted():
    def body(x):
        out, tile = output((P, 512)), sbuf(512)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out, src=tile)
        return out

    s = timed(body, Spec((P, 512), "float32")).summary()
    assert s["hbm_read_bytes"] == s["hbm_write_bytes"] == P * 512 * 4
    assert s["dma_transfer_count"] == 2
    assert s["dma_transfer_average_bytes"] == P * 512 * 4
    assert s["dma_packet_time"] == pytest.approx(16 * s["dma_engine_busy_time"])
    assert 0 < s["dma_active_time_percent"] < 100


def test_a_gather_moves_rows_and_not_its_indices():
    """Long rows that an index selects take the time of as many rows in a plain copy, of 4 KiB each."""

    def body(x, index):
        places = sbuf(1, dtype=nl.int32)
        nisa.dma_copy(dst=places, src=index)
        nisa.dma_copy(dst=sbuf(1024), src=x.ap(pattern=[[1024, P], [1, 1024]], vector_offset=places, indirect_dim=0))

    c = constants_for("trn2")
    timeline = timed(body, Spec((300, 1024), "float32"), np.arange(P, dtype=np.int32)[:, None])
    share = 8 * (4096 / c["dma_bytes_per_ns"] + c["dma_row_ns"])
    last = [bars(timeline, f"dma{n}")[-1] for n in range(16)]
    assert [e.end_ns - e.start_ns for e in last] == pytest.approx([share] * 16)
