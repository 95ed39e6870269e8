"""General properties: more work is never faster, a further dependence never helps, and records are complete."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.timing import P, add, output, psum, sbuf, timed
from trnqc.sim import NkiValidationError, Spec, Timeline, jit, last_trace, simulate
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl
from trnqc.sim.timeline.calendar import Calendar

COLUMNS = st.integers(1, 511)


def chain(columns, links, target="trn2"):
    def body(x):
        out, tile, bank = output((P, columns)), sbuf(columns), psum(columns)
        nisa.dma_copy(dst=tile, src=x)
        left = sbuf(P)
        for k in range(links):
            nisa.nc_matmul(dst=bank, stationary=left, moving=tile, accumulate=k > 0)
            nisa.activation(dst=tile, op=nl.exp, data=tile)
            add(tile, tile, bank)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return timed(body, Spec((P, columns), "float32"), target=target).total_ns


@settings(max_examples=25, deadline=None)
@given(
    columns=COLUMNS, more=st.integers(0, 200), links=st.integers(1, 4), target=st.sampled_from(["trn1", "trn2", "trn3"])
)
def test_more_columns_are_never_faster(columns, more, links, target):
    """Where nothing steps down: the cost of short instructions ends at 128 columns, as published, and DMA joins rows of
    256 bytes and more, which are 64 columns."""
    wide = min(512, columns + more)
    if all((columns < step) == (wide < step) for step in (64, 128)):
        assert chain(columns, links, target) <= chain(wide, links, target) + 1e-6


@settings(max_examples=15, deadline=None)
@given(columns=COLUMNS, links=st.integers(1, 6))
def test_more_instructions_are_never_faster(columns, links):
    assert chain(columns, links) < chain(columns, links + 1)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), target=st.sampled_from(["trn1", "trn2"]))
def test_a_dependence_never_helps(data, target):
    """Random instructions on tiles of their own; joining two operands can only delay the end."""
    size = data.draw(st.integers(2, 8))
    kinds = [data.draw(st.sampled_from(["vector", "scalar", "gpsimd", "tensor"])) for _ in range(size)]
    widths = [data.draw(st.integers(1, 512)) for _ in range(size)]
    joined = data.draw(st.integers(1, size - 1))
    earlier = data.draw(st.integers(0, joined - 1))

    def body(join):
        def run():
            tiles = [sbuf(512) for _ in range(size)]
            for n, (kind, width) in enumerate(zip(kinds, widths)):
                dst, src = tiles[n][0:P, 0:width], sbuf(512)[0:P, 0:width]
                if join and n == joined:
                    src = tiles[earlier][0:P, 0:width]
                if kind == "scalar":
                    nisa.activation(dst=dst, op=nl.exp, data=src)
                elif kind == "tensor":
                    nisa.nc_matmul(dst=psum(width), stationary=sbuf(P), moving=src)
                else:
                    add(dst, src, src, engine=getattr(nisa.engine, kind))

        return timed(run, target=target).total_ns

    assert body(join=False) <= body(join=True) + 1e-6


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 10), st.sampled_from("ab")), min_size=1, max_size=40))
@example([(9.0, 1.0, "a"), (5.0, 6.0, "a"), (10.0, 1.0, "b")])
def test_calendars_never_double_book(wishes):
    calendar, taken = Calendar(), []
    for ready, length, owner in wishes:
        start = calendar.book(ready, length, owner)
        assert start >= ready
        for begin, end, other in taken:
            assert other == owner or start >= end - 1e-9 or start + length <= begin + 1e-9
        taken.append((start, start + length, owner))


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0.1, 10)), min_size=1, max_size=40))
def test_filled_time_is_conserved(wishes):
    calendar = Calendar()
    for ready, length in wishes:
        first, last = calendar.fill(ready, length)
        assert first >= ready
        assert last - first >= length - 1e-9
    assert sum(e - s for s, e, _ in calendar.busy) == pytest.approx(sum(length for _, length in wishes))


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 9)), min_size=1, max_size=30))
def test_covered_time_is_the_measure_of_the_union(spans):
    calendar = Calendar()
    added = sum(calendar.cover(start, start + length) for start, length in spans)
    assert added == len({t for start, length in spans for t in range(start, start + length)})


def small(x):
    out, tile = output((P, 64)), sbuf(64)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=tile, op=nl.exp, data=tile)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_a_timeline_survives_json():
    timeline = timed(small, Spec((P, 64), "float32"))
    back = Timeline.from_dict(json.loads(json.dumps(timeline.to_dict())))
    assert back.events == timeline.events
    assert back.summary() == timeline.summary()
    assert back.to_dict() == timeline.to_dict()
    assert timeline.to_dict()["schema"] == "trnqc.timeline/1"
    assert timeline.summary()["measurement"] == "modelled"


def test_a_foreign_record_is_refused():
    with pytest.raises(NkiValidationError, match=r"trnqc.timeline/1.*other/2"):
        Timeline.from_dict({"schema": "other/2"})


def test_data_do_not_change_time():
    x = np.ones((P, 64), np.float32)
    assert timed(small, x, data=True).total_ns == timed(small, Spec((P, 64), "float32")).total_ns
    simulate(small)(x)
    assert timed(small, x).summary()["scalar_engine_instruction_count"] == last_trace().executed["activation"]


def test_events_stop_at_their_limit():
    timeline = timed(small, Spec((P, 64), "float32"), event_limit=3)
    assert len(timeline.events) == 3
    assert "beyond the limit" in timeline.extrapolation


def test_a_refused_kernel_is_refused_with_the_same_words():
    def body():
        tile = sbuf(16, 8)
        nisa.memset(dst=tile.ap(pattern=[[16, 8], [1, 17]]), value=0.0)

    with pytest.raises(NkiValidationError, match="Out-of-bound"):
        timed(body)


def test_core_zero_of_two_cores_is_timed():
    @jit
    def body(x):
        out, tile = output((2 * P, 64)), sbuf(64)
        core = nl.program_id(0)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=out[core * P : (core + 1) * P, :], src=tile)
        nisa.core_barrier(out, (0, 1))
        return out

    assert timed(body[2], Spec((P, 64), "float32")).summary()["dma_transfer_count"] == 2
