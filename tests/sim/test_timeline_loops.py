"""Device loops: extrapolated passes give the same totals as passes that are placed one by one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels import mp2_plan
from nki_kernels.mp2_energy import mp2_energy
from tests.sim.timing import P, add, bars, output, psum, sbuf, timed
from trnqc.sim import Spec
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


def pipeline(trips, buffers=2, columns=512, products=3):
    """Load, multiply, drain, store, with ``buffers`` tiles in turn."""

    def body(x):
        out = output((trips * buffers * P, columns))
        left = sbuf(P)
        tiles, drains = [sbuf(columns) for _ in range(buffers)], [sbuf(columns) for _ in range(buffers)]
        banks = [psum(columns) for _ in range(buffers)]

        def one_pass(it):
            for n in range(buffers):
                rows = [[columns, P], [1, columns]]
                source = x.ap(pattern=rows, offset=n * P * columns, scalar_offset=it, indirect_dim=0)
                nisa.dma_copy(dst=tiles[n], src=source)
                for k in range(products):
                    nisa.nc_matmul(dst=banks[n], stationary=left, moving=tiles[n], accumulate=k > 0)
                nisa.tensor_copy(dst=drains[n], src=banks[n])
                place = out.ap(pattern=rows, offset=n * P * columns, scalar_offset=it, indirect_dim=0)
                nisa.dma_copy(dst=place, src=drains[n])

        nl.fori_loop(0, trips, one_pass)
        return out

    return body, Spec((trips + buffers * P, columns), "float32")


def compare(body, *args, target="trn2"):
    short, whole = timed(body, *args, target=target), timed(body, *args, target=target, extrapolate=False)
    assert "added" in short.extrapolation
    assert whole.extrapolation == "every instruction was placed"
    assert short.total_ns == pytest.approx(whole.total_ns, rel=0.01)
    a, b = short.summary(), whole.summary()
    for name in ("tensor_engine_active_time", "vector_engine_busy_time", "dma_active_time", "overlap_time"):
        assert a[name] == pytest.approx(b[name], rel=0.01, abs=1e-9)
    for name in ("model_flops", "hbm_read_bytes", "dma_transfer_count", "tensor_engine_instruction_count"):
        assert a[name] == b[name]
    return short, whole


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_added_passes_take_as_long_as_placed_ones(buffers, target):
    short, whole = compare(*pipeline(41, buffers), target=target)
    assert len(short.events) < len(whole.events) / 2
    for engine, causes in whole.stalls.items():
        for cause, idle in causes.items():
            assert short.stalls[engine].get(cause, 0.0) == pytest.approx(idle, rel=0.02, abs=0.002 * whole.total_ns)


@settings(max_examples=15, deadline=None)
@given(
    trips=st.integers(1, 60),
    buffers=st.integers(1, 3),
    columns=st.sampled_from([1, 31, 200, 512]),
    products=st.integers(1, 9),
)
def test_any_pipeline(trips, buffers, columns, products):
    body, x = pipeline(trips, buffers, columns, products)
    short, whole = timed(body, x), timed(body, x, extrapolate=False)
    assert short.total_ns == pytest.approx(whole.total_ns, rel=0.01)
    assert short.summary()["model_flops"] == whole.summary()["model_flops"]


def test_nested_loops():
    def body():
        tile, total = sbuf(300), sbuf(300)

        def inner(_):
            add(total, total, tile)

        def outer(_):
            nisa.activation(dst=tile, op=nl.exp, data=tile)
            nl.fori_loop(0, 17, inner)

        nl.fori_loop(0, 23, outer)

    compare(body)


def test_one_buffer_stalls_and_two_do_not():
    one, two = (timed(*pipeline(40, n, products=4)) for n in (1, 2))
    per_tile = [result.total_ns / n for result, n in ((one, 1), (two, 2))]
    assert per_tile[1] < 0.8 * per_tile[0]
    assert two.summary()["tensor_engine_busy_time_percent"] > 90


def test_engines_run_ahead_unless_a_barrier_is_asked_for():
    body, x = pipeline(30, 2)
    free, held = timed(body, x), timed(body, x, constants={"loop_barrier": 1})
    assert held.total_ns > 1.2 * free.total_ns


def test_bounds_from_a_register_hold_up_every_engine():
    def body(bounds):
        limits = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=limits, src=bounds)
        last = nisa.register_alloc()
        nisa.register_load(last, limits)
        nl.fori_loop(0, last, lambda _: nisa.memset(dst=sbuf(8), value=0.0))

    timeline = timed(body, np.full((1, 1), 5, np.int32))
    first = bars(timeline, "vector")[0]
    assert first.start_ns > 1300
    assert timeline.stalls["vector"]["register"] == pytest.approx(first.start_ns)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_pair_kernel(target):
    """Every pass of a small case, and awkward sizes, against its extrapolation."""
    nocc, nvir, naux = 13, 131, 257
    tiles = mp2_plan.choose_tiles(nvir, naux, 4)
    i, j = np.tril_indices(nocc)
    work = mp2_plan.work_list(np.stack([i, j], axis=1), np.linspace(-1, -0.5, nocc), tiles)
    args = (
        Spec((1, nocc * tiles.nblk, P, tiles.nk, tiles.block), "float32"),
        Spec((tiles.nblk, tiles.block), "float32"),
        Spec((tiles.nblk, P, -(-tiles.block // P)), "float32"),
        work.e_pair,
        work.rows,
        work.bounds,
        nvir,
        naux,
        tiles.kchunk,
    )
    compare(mp2_energy.func, *args, target=target)
