"""blas_cholesky on the simulator: panels against the reference, work lists and instruction counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels.blas.blas_cholesky import blas_cholesky
from nki_kernels.blas.factor import masks
from nki_kernels.blas.solve_plan import panel_list
from nki_kernels.descriptors import kernels
from trnqc import sim


@settings(max_examples=30, deadline=None)
@given(panels=st.integers(1, 8), panel=st.sampled_from([128, 512, 1024]))
def test_items_cover_the_rows_once(panels, panel):
    """Every block right of the diagonal is solved once, and has the products of all panels before."""
    cols, n = min(512, panel), panels * panel
    lengths = set()
    for k in range(panels):
        items, factors, limits = panel_list(n, k, panel, cols)
        first, middle, begin, last, column = limits[0].tolist()
        assert (first, column) == (0, k * panel) and middle == begin
        blocks = list(range(k * panel, n, cols))
        sums = [(left // (panel * n), out) for left, _, out in items[:middle].tolist()]
        assert sorted(sums) == sorted((j, c) for c in blocks for j in range(k))
        assert [out for *_, out in items[begin:last].tolist()] == blocks[panel // cols :]
        lengths.add((len(items), len(factors)))
    assert len(lengths) == 1


def trace(n):
    spec, panel = sim.Spec, 128
    operands = spec((1, n, n), "float32"), spec((panel, n), "float32"), spec((1, panel, n), "float32")
    return sim.trace(blas_cholesky)(*operands, masks(), *panel_list(n, 1, panel, panel), panel, panel)


def test_program_size_does_not_depend_on_the_matrix():
    assert trace(256).static == trace(2048).static


@pytest.mark.parametrize("precision", ["fp32", "bf16x6"])
def test_defaults_keep_the_rules_of_the_smallest_chip(precision):
    kernel, shape = kernels()["blas_cholesky"], {"n": 4096}
    point = kernel.default_point(shape, precision)
    assert kernel.realise(point, shape, precision, "trn1") == kernel.default(shape, precision)
