"""Tables of indices with steps beyond the 16 bits of iota."""

from __future__ import annotations

import numpy as np
import pytest

from nki_kernels.gemm import gemm
from nki_kernels.index_tables import wide_iota
from nki_kernels.lang import nisa, nki, nl
from trnqc import sim


@nki.jit
def table(x, pattern, offset, multiplier):
    width = 1
    for pair in pattern:
        width = width * pair[1]
    tile = nl.ndarray((x.shape[0], width, 1), dtype=nl.int32, buffer=nl.sbuf)
    wide_iota(tile, pattern, offset, multiplier)
    out = nl.ndarray((x.shape[0], width, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


# One step that fits, one at the limit and one beyond, two beyond, one beyond that never counts; instructions of each.
PATTERNS = [
    (((3, 5), (1, 4)), 1),
    (((32767, 3), (1, 4)), 1),
    (((32768, 3), (1, 4)), 5),
    (((16777217, 3), (99999, 5), (1, 2)), 9),
    (((16777217, 1), (7, 5)), 1),
]


@pytest.mark.parametrize("version", ["0.6", "0.7"])
@pytest.mark.parametrize(("pattern", "instructions"), PATTERNS)
def test_indices(pattern, instructions, version, monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", version)
    got = sim.simulate(table)(np.zeros((6, 1), np.float32), pattern, 11, 100_000)
    want = 11 + 100_000 * np.arange(6)
    for step, number in pattern:
        want = want[..., None] + step * np.arange(number)
    np.testing.assert_array_equal(got, want.reshape(6, -1, 1))
    assert sum(sim.last_trace().static.values()) == instructions + 1


def test_large_products_can_be_traced():
    """Rows are 2^24 elements of the result apart from block to block."""
    a, b = sim.Spec((1, 128, 4096), "float32"), sim.Spec((1, 128, 4096), "float32")
    assert sim.trace(gemm)(a, b).executed["nc_matmul"] > 0
