"""Hazards: dependent instructions wait, independent ones do not."""

import itertools

import pytest

from tests.sim.timing import P, add, bars, output, psum, sbuf, timed
from trnqc.sim import Spec
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.timeline.costs import constants_for

X = Spec((P, 512), "float32")


def only(timeline, engine):
    (event,) = bars(timeline, engine)
    return event


def test_read_waits_for_the_write_of_another_engine():
    def body():
        tile = sbuf(512)
        nisa.memset(dst=tile, value=1.0)
        nisa.activation(dst=sbuf(512), op=nl.exp, data=tile)

    timeline = timed(body)
    c = constants_for("trn2")
    gap = only(timeline, "scalar").start_ns - only(timeline, "vector").end_ns
    assert gap == pytest.approx(c["access_cycles"] / c["vector_ghz"] + c["semaphore_ns"])
    assert only(timeline, "scalar").stall == "raw"
    assert timeline.stalls["scalar"]["raw"] == pytest.approx(only(timeline, "scalar").stall_ns)
    assert timeline.waits["scalar"] == {"raw on vector": pytest.approx(only(timeline, "scalar").stall_ns)}


def test_write_waits_for_the_read_of_another_engine():
    def body():
        tile = sbuf(512)
        nisa.activation(dst=sbuf(512), op=nl.exp, data=tile)
        nisa.memset(dst=tile, value=1.0)

    timeline = timed(body)
    assert only(timeline, "vector").start_ns >= only(timeline, "scalar").end_ns
    assert only(timeline, "vector").stall == "war"


def test_write_waits_for_the_write_of_another_engine():
    def body():
        tile = sbuf(512)
        nisa.activation(dst=tile, op=nl.exp, data=sbuf(512))
        nisa.memset(dst=tile, value=1.0)

    timeline = timed(body)
    assert only(timeline, "vector").start_ns > only(timeline, "scalar").end_ns
    assert only(timeline, "vector").stall == "waw"


def test_other_bytes_of_a_tile_are_free():
    def body():
        tile = sbuf(1024)
        nisa.memset(dst=tile[0:P, 0:512], value=1.0)
        nisa.activation(dst=sbuf(512), op=nl.exp, data=tile[0:P, 512:1024])

    assert only(timed(body), "scalar").start_ns == 0


def test_other_partitions_of_a_tile_are_free():
    def body():
        tile = sbuf(512)
        nisa.memset(dst=tile[0:64, 0:512], value=1.0)
        nisa.activation(dst=sbuf(512, 64), op=nl.exp, data=tile[64:128, 0:512])

    assert only(timed(body), "scalar").start_ns == 0


def test_one_byte_in_common_is_enough():
    def body():
        tile = sbuf(1024)
        nisa.memset(dst=tile[0:P, 0:513], value=1.0)
        nisa.activation(dst=sbuf(512), op=nl.exp, data=tile[0:P, 512:1024])

    assert only(timed(body), "scalar").stall == "raw"


def test_independent_engines_overlap():
    def body():
        nisa.reciprocal(dst=sbuf(512), data=sbuf(512))
        nisa.activation(dst=sbuf(4096), op=nl.exp, data=sbuf(4096))
        for _ in range(4):
            nisa.nc_matmul(dst=psum(512), stationary=sbuf(P), moving=sbuf(512))

    timeline = timed(body)
    assert only(timeline, "vector").start_ns == only(timeline, "scalar").start_ns == 0
    s = timeline.summary()
    assert s["overlap_time_percent"] > 95
    busy = sum(s[f"{e}_engine_busy_time"] for e in ("tensor", "vector", "scalar"))
    assert s["total_time"] < 0.6 * busy


def test_multiplies_of_a_group_follow_one_another_without_a_gap():
    def body():
        bank, left, right = psum(512), sbuf(P), sbuf(512)
        for k in range(4):
            nisa.nc_matmul(dst=bank, stationary=left, moving=right, accumulate=k > 0)

    events = bars(timed(body), "tensor", "tensor")
    for before, after in itertools.pairwise(events):
        assert after.start_ns == pytest.approx(before.end_ns)


def test_narrow_multiplies_expose_their_weights():
    def body():
        left, right = sbuf(P, dtype=nl.bfloat16), sbuf(1, dtype=nl.bfloat16)
        for _ in range(4):
            nisa.nc_matmul(dst=psum(1), stationary=left, moving=right)

    def exposed(weights):
        return timed(body, constants={"weights_cycles": weights}).stalls["tensor"]["issue"] * 2.4

    assert exposed(32) == pytest.approx(32)  # the first load has nothing to hide behind
    assert exposed(128) == pytest.approx(4 * 128 - 3 * 64)


def bank_user(other_half):
    def body():
        bank = psum(512)
        nisa.nc_matmul(dst=bank[0:P, 0:256], stationary=sbuf(P), moving=sbuf(256))
        nisa.tensor_copy(dst=sbuf(256), src=(bank if other_half else psum(512))[0:P, 256:512])

    return body


def test_a_psum_bank_serves_one_engine_at_a_time():
    """Other bytes of the same bank: no hazard, but the bank is taken."""
    apart, together = timed(bank_user(False)), timed(bank_user(True))
    assert only(apart, "vector").start_ns == 0
    assert only(together, "vector").stall == "psum_bank"
    multiply = bars(together, "tensor", "tensor")[0]
    assert only(together, "vector").start_ns == pytest.approx(multiply.end_ns)
    assert only(timed(bank_user(True), constants={"psum_bank_exclusive": 0}), "vector").start_ns == 0


@pytest.mark.parametrize(("target", "shared"), [("trn1", True), ("trn2", False), ("trn3", False)])
def test_vector_and_scalar_share_psum_on_the_first_generation(target, shared):
    def body():
        nisa.tensor_copy(dst=sbuf(512), src=psum(512))
        nisa.activation(dst=sbuf(512), op=nl.exp, data=psum(512))

    event = only(timed(body, target=target), "scalar")
    assert (event.stall == "shared_port") == shared
    assert (event.start_ns > 0) == shared


@pytest.mark.parametrize(("target", "shared"), [("trn1", True), ("trn2", False)])
def test_vector_and_gpsimd_share_sbuf_on_the_first_generation(target, shared):
    def body():
        nisa.memset(dst=sbuf(512), value=1.0)
        add(sbuf(512), sbuf(512), sbuf(512), engine=nisa.engine.gpsimd)

    assert (only(timed(body, target=target), "gpsimd").stall == "shared_port") == shared


def test_a_store_does_not_hold_up_the_next_load():
    def body(x):
        out, tile = output((P, 512)), sbuf(512)
        nisa.reciprocal(dst=tile, data=sbuf(512))
        nisa.dma_copy(dst=out, src=tile)
        nisa.dma_copy(dst=sbuf(512), src=x)
        return out

    loads, stores = bars(timed(body, X), "sync", "loads"), bars(timed(body, X), "sync", "stores")
    assert loads[0].start_ns == 0 < stores[0].start_ns


def test_what_goes_through_memory_waits_too():
    def body(x):
        between, tile = nl.ndarray((P, 512), dtype=nl.float32, buffer=nl.hbm), sbuf(512)
        nisa.dma_copy(dst=between, src=x)
        nisa.dma_copy(dst=tile, src=between)

    timeline = timed(body, X)
    first, second = bars(timeline, "dma3")
    assert second.start_ns > first.end_ns


def test_a_fresh_tile_waits_for_the_bytes_it_takes_over():
    """Three tiles that fill the memory between them: the third load waits for the first tile's reader."""
    columns = 22_000

    def body(x):
        for _ in range(3):
            tile = sbuf(columns)
            nisa.dma_copy(dst=tile, src=x)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

    timeline = timed(body, Spec((P, columns), "float32"))
    triggers, work = bars(timeline, "sync", "loads"), bars(timeline, "vector")
    assert triggers[1].start_ns < work[0].start_ns
    assert triggers[2].start_ns >= work[0].end_ns
    assert triggers[2].stall == "war"
