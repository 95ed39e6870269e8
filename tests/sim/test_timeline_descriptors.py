"""DMA descriptors that GpSimd makes, in the timeline."""

from __future__ import annotations

import numpy as np
import pytest

from tests.sim.timing import bars, timed
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X = np.ones((256, 64), np.float32)
ROWS = np.arange(128, dtype=np.int32).reshape(128, 1)
NS = 600.0


def at_an_offset(x):
    register = nisa.register_alloc(3)
    tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(2):
        nisa.dma_copy(dst=tile, src=x.ap(pattern=[[64, 128], [1, 64]], scalar_offset=register))


def gathered(x, rows):
    index, tile = nl.load(rows), nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x.ap(pattern=[[64, 128], [1, 64]], vector_offset=index, indirect_dim=0))


def plain(x):
    nl.load(x[0:128])


CASES = [(at_an_offset, (X,), "trn1", 2), (at_an_offset, (X,), "trn2", 0), (plain, (X,), "trn1", 0)]
CASES += [(gathered, (X, ROWS), "trn1", 1), (gathered, (X, ROWS), "trn2", 1)]


@pytest.mark.parametrize(("kernel", "args", "target", "count"), CASES)
def test_gpsimd_makes_those_that_hardware_does_not(kernel, args, target, count):
    made = bars(timed(kernel, *args, target=target, constants={"software_dge_ns": NS}), "gpsimd")
    assert [event.end_ns - event.start_ns for event in made] == pytest.approx([NS] * count)
    assert bars(timed(kernel, *args, target=target), "gpsimd") == []


def test_bytes_move_after_their_descriptors():
    result = timed(at_an_offset, X, target="trn1", constants={"software_dge_ns": 5000})
    made = bars(result, "gpsimd")
    first = [min(e.start_ns for e in bars(result, f"dma{n}")) for n in range(16)]
    assert min(first) > made[0].end_ns
    # The descriptors of both take as much longer than those of the generator, 600 ns each.
    assert result.total_ns - timed(at_an_offset, X, target="trn1").total_ns == pytest.approx(2 * (5000 - 600))


def test_instructions_of_gpsimd_wait_their_turn():
    def busy(x):
        tile = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        at_an_offset(x)
        nisa.memset(dst=tile, value=0.0, engine=nisa.engine.gpsimd)

    events = bars(timed(busy, X, target="trn1", constants={"software_dge_ns": NS}), "gpsimd")
    assert [event.op for event in events] == ["dma_copy", "dma_copy", "memset"]
    assert events[2].start_ns >= events[1].end_ns >= events[0].end_ns + NS
