"""blas_cholesky on the simulator: panels against the reference, work lists and instruction counts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels.blas.blas_cholesky import blas_cholesky
from nki_kernels.blas.factor import masks
from nki_kernels.blas.solve_plan import panel_list
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import GATE, Infeasible, random_fill
from trnqc import sim
from trnqc.sim.lint.lint import lint


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("precision, panel", [("fp32", 128), ("bf16x3", 128), ("fp32", 256)])
def test_a_panel_agrees_with_its_reference(precision, panel, target, monkeypatch):
    """The second of three panels: sums, the diagonal block, the rest."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    kernel, shape = kernels()["blas_cholesky"], {"n": 3 * panel}
    constants = kernel.realise({"panel": panel}, shape, precision, target)
    gate = kernel.gate(shape, precision, constants, 1, random_fill(0))
    result = sim.simulate(kernel.function)(*gate.args, **gate.constants)
    assert kernel.error(gate, result) < GATE / 2
    assert kernel.error(gate, result * 1.001) > GATE


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


def test_the_kernel_stays_inside_the_language():
    assert not lint(blas_cholesky)


def test_rules_name_themselves():
    kernel = kernels()["blas_cholesky"]
    with pytest.raises(Infeasible, match="larger than the 256 of all"):
        kernel.realise({"panel": 512}, {"n": 200}, "fp32", "trn1")
    for precision in ("fp32", "bf16x6"):
        point = kernel.default_point({"n": 4096}, precision)
        assert kernel.realise(point, {"n": 4096}, precision, "trn1") == kernel.default({"n": 4096}, precision)
