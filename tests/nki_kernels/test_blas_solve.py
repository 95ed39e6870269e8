"""blas_trsm on the simulator: solutions, inverses of blocks, work lists and instruction counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels.blas.blas_trsm import blas_trsm, reference_blas_trsm
from nki_kernels.blas.inverse import LEVELS, masks
from nki_kernels.blas.solve_plan import PANELS, is_ahead, padded, solve_list, solve_sizes
from nki_kernels.cores import range_of_core
from nki_kernels.descriptors import kernels
from nki_kernels.gemm_blocks import blocks_of
from nki_kernels.precision.splits import PRECISIONS, split
from trnqc import sim
from trnqc.sim.machine.version import VERSIONS


def launch(n, m, panel, cols, precision, cores=1):
    """The arguments for a matrix of condition around ten, and the solution in fp64; n is a multiple of panel."""
    rng = np.random.default_rng(n)
    lower = np.tril(rng.standard_normal((n, n))) / n**0.5 + 2 * np.eye(n)
    b = rng.standard_normal((n, m))
    diagonal = np.stack([lower[k : k + panel, k : k + panel] for k in range(0, n, panel)]).astype(np.float32)
    lists = solve_list(n, m, panel, cols, cores)
    operands = split(lower.T, precision), diagonal, b.astype(np.float32)
    return (*operands, masks(), *lists, panel, cols), np.linalg.solve(lower, b)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("precision, error", [("fp32", 2e-6), ("bf16x3", 5e-5)])
@pytest.mark.parametrize(
    "size",
    [(128, 1, 128, 512), (384, 40, 128, 32), (512, 9, 256, 4), (640, 3, 640, 512), (1280, 1220, 640, 600)],
    ids=str,
)
def test_solutions(size, precision, error, target, monkeypatch):
    """One panel, blocks of columns with a remainder, panels of several tiles, and blocks of two rounds."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    args, exact = launch(*size, precision)
    x = sim.simulate(blas_trsm)(*args)
    assert abs(x - exact).max() < error * abs(exact).max()
    assert abs(x - reference_blas_trsm(*args)).max() < error * abs(exact).max()


def test_two_cores_take_the_columns():
    args, exact = launch(256, 20, 128, 8, "fp32", cores=2)
    assert abs(sim.simulate(blas_trsm[2])(*args) - exact).max() < 2e-6 * abs(exact).max()


def test_masks_add_up_to_a_triangle():
    """Every element of a tile belongs to one doubling."""
    assert masks().shape == (LEVELS + 1, 128, 128)
    np.testing.assert_array_equal(masks().sum(axis=0), np.tri(128))


def items_of_cores(n, m, panel, cols, cores):
    """For each kind of blocks and core: the items with their own operands, and whether these are loaded ahead."""
    _, rows, factors = solve_list(n, m, panel, cols, cores)
    each = n // panel * (n // panel + 1) // 2
    at = 0
    for width, count, start in blocks_of(m, cols):
        for core in range(cores):
            begin, end = range_of_core(count, core, cores)
            number = (end - begin) * each
            items, ahead = rows[at : at + number].copy(), is_ahead(count, cores)
            if ahead:
                items[1:, :2] = items[:-1, :2].copy()
                items[0, :2] = n * n, start + begin * width
            yield core, items.tolist(), factors[at : at + number].tolist(), ahead
            at += number
    assert at == len(rows) == len(factors)


@settings(max_examples=50, deadline=None)
@given(panels=st.integers(1, 6), blocks=st.integers(1, 6), rest=st.integers(0, 3), cores=st.sampled_from([1, 2, 4]))
def test_items_come_after_what_they_read(panels, blocks, rest, cores):
    """Each item reads blocks of the solution that are complete, on the core that computes them.

    They were complete one item earlier if operands are loaded ahead.
    """
    panel, cols = 128, 4
    n, m = panel * panels, cols * blocks + rest
    results = set()
    passes = Counter()
    for core, items, factors, ahead in items_of_cores(n, m, panel, cols, cores):
        solved, summed, stored = set(), {}, None
        for (left, right, out), (_, alpha, _) in zip(items, factors):
            k, column = out // (panel * m), out % m
            assert not ahead or right != stored
            if alpha < 0:
                j = right // (panel * m)
                assert (j, column) in solved and left == j * panel * n + k * panel
                summed[k, column] = summed.get((k, column), 0) + 1
            else:
                assert right == out and left == n * n + k * panel and summed.get((k, column), 0) == k
                solved.add((k, column))
            stored = out
        results |= solved
        passes[core] += len(items)
    assert results == {(k, column) for k in range(panels) for column in range(0, m, cols)}
    assert len(passes) == cores and len(set(passes.values())) == 1, "device loops have the same trip count on all cores"


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 20_000), m=st.integers(1, 5000))
def test_padding_is_small(n, m):
    panel, cols = solve_sizes(n, m)
    assert panel in PANELS and cols <= m
    assert padded(n, panel) <= 1.1 * padded(n, 128)


def trace(n, m, panel, cols):
    spec = sim.Spec
    operands = spec((1, n, n), "float32"), spec((n // panel, panel, panel), "float32"), spec((n, m), "float32")
    return sim.trace(blas_trsm)(*operands, masks(), *solve_list(n, m, panel, cols), panel, cols)


def test_program_size_depends_on_no_extent():
    small, large = trace(256, 1024, 128, 512), trace(2048, 8192, 128, 512)
    assert small.static == large.static
    # Three products for each doubling of a diagonal tile, and one for each item: 16 panels, 16 blocks of columns.
    assert large.executed["nc_matmul"] == 16 * 3 * LEVELS + 16 * (16 * 17 // 2)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_kernel_runs_in_both_versions_of_the_language(version, monkeypatch):
    """Operands of two blocks of columns are loaded ahead, and those of the remainder are not."""
    monkeypatch.setenv("TRNQC_NKI", version)
    args, exact = launch(256, 11, 128, 5, "bf16x3")
    assert abs(sim.simulate(blas_trsm)(*args) - exact).max() < 5e-5 * abs(exact).max()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 20_000), st.integers(1, 5000), st.sampled_from(sorted(set(PRECISIONS) - {"bf16x15"})))
def test_defaults_keep_the_rules_of_the_smallest_chip(n, m, precision):
    kernel, shape = kernels()["blas_trsm"], {"n": n, "m": m}
    point = kernel.default_point(shape, precision)
    assert kernel.realise(point, shape, precision, "trn1") == kernel.default(shape, precision)
