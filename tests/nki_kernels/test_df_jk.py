"""The kernels of fitted J and K on the simulator, against their references and plain sums in fp64."""

from __future__ import annotations

import numpy as np
import pytest

from nki_kernels.jk import plan
from nki_kernels.jk.df_coulomb import df_coulomb, reference_df_coulomb
from nki_kernels.jk.df_exchange import df_exchange, reference_df_exchange
from nki_kernels.precision.splits import PRECISIONS, split
from trnqc import sim

# (functions, occupied orbitals, fitting functions): one of each; primes; orbitals of four, two and one functions on the
# partitions; one over a block of functions, a run of columns and a tile of orbitals.
SIZES = [(1, 1, 1), (7, 5, 31), (131, 13, 9), (67, 33, 40), (129, 65, 11), (257, 129, 3), (521, 20, 5)]
# Products of random numbers in fp32, and in bf16x3, relative to the largest element.
CLOSE = {"fp32": 1e-6, "bf16x6": 1e-6, "bf16x3": 3e-5, "bf16": 3e-2}


@pytest.fixture(params=["trn1", "trn2"])
def target(request, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", request.param)
    return request.param


def exchange_launch(nao, nocc, naux, precision="fp32", cores=1):
    """Operands and constants of a launch, and K in fp64."""
    rng, form = np.random.default_rng([nao, nocc, naux]), PRECISIONS[precision]
    square, orbitals = rng.standard_normal((naux, nao, nao)), rng.standard_normal((nao, nocc))
    square += square.transpose(0, 2, 1)
    sizes = plan.exchange_sizes(nao, nocc, form.itemsize)
    (part,) = plan.launches(naux, cores * plan.GROUP, plan.MOST_ELEMENTS)
    rows = plan.padded(square.reshape(naux, -1), part.stop, nao * nao).reshape(-1, nao, nao)
    operands = (split(plan.on_partitions(x, sizes.blocks), precision) for x in (rows, orbitals))
    half = square @ orbitals
    exact = np.einsum("qmi,qli->ml", half, half, optimize=True)
    return tuple(operands), {"blocks": sizes.blocks, "group": sizes.group, "ring": sizes.ring}, exact


def coulomb_launch(pairs, naux, n, precision="fp32", cores=1):
    """Operands and constants of a launch, and J and d in fp64."""
    rng, sizes = np.random.default_rng([pairs, naux, n]), plan.coulomb_sizes(pairs)
    rows, densities = rng.standard_normal((naux, pairs)), rng.standard_normal((n, pairs))
    (part,) = plan.launches(naux, cores * plan.P, plan.MOST_ELEMENTS)
    by_row = split(plan.padded(rows, part.stop, sizes.pairs), precision)
    density = split(plan.by_blocks(plan.padded(densities, n, sizes.pairs)), precision)
    fitted = densities @ rows.T
    return (by_row.swapaxes(1, 2).copy(), by_row, density), {"chunk": sizes.chunk, "turns": sizes.turns}, fitted, rows


def lower_error(result, expected):
    low = np.tri(len(expected), dtype=bool)
    return float(np.abs(result - expected)[low].max() / np.abs(expected[low]).max())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_exchange(size, target):
    operands, constants, exact = exchange_launch(*size)
    result = sim.simulate(df_exchange)(*operands, **constants)
    assert lower_error(result[0], exact) < CLOSE["fp32"]
    assert lower_error(result[0], reference_df_exchange(*operands, **constants)[0]) < CLOSE["fp32"]


@pytest.mark.parametrize("precision", ["bf16x6", "bf16x3", "bf16"])
def test_exchange_in_parts(precision):
    operands, constants, exact = exchange_launch(131, 41, 6, precision)
    result = sim.simulate(df_exchange)(*operands, **constants)
    assert lower_error(result[0], exact) < CLOSE[precision]


def test_two_cores_share_the_fitting_functions():
    operands, constants, exact = exchange_launch(19, 7, 70, cores=2)
    parts = sim.simulate(df_exchange[2])(*operands, **constants)
    assert parts.shape == (2, 19, 19) and np.abs(parts[:, -1]).min() > 0
    assert lower_error(parts.astype(float).sum(axis=0), exact) < CLOSE["fp32"]
    operands, constants, fitted, rows = coulomb_launch(200, 300, 1, cores=2)
    parts, vectors = sim.simulate(df_coulomb[2])(*operands, **constants)
    np.testing.assert_allclose(
        np.concatenate([plan.from_blocks(core) for core in vectors], axis=1)[:, :300], fitted, rtol=0, atol=1e-4
    )
    result = plan.from_blocks(parts.astype(float).sum(axis=0))[:, :200]
    np.testing.assert_allclose(result, fitted @ rows, rtol=0, atol=1e-6 * np.abs(fitted @ rows).max())


@pytest.mark.parametrize("size", [(1, 1, 1), (28, 31, 1), (131, 129, 2), (1300, 257, 3)], ids=str)
def test_coulomb(size, target):
    operands, constants, fitted, rows = coulomb_launch(*size)
    results = sim.simulate(df_coulomb)(*operands, **constants)
    for result, reference in zip(results, reference_df_coulomb(*operands, **constants), strict=True):
        assert result.shape == reference.shape
        assert np.abs(result - reference).max() < CLOSE["fp32"] * np.abs(reference).max()
    vj, exact = plan.from_blocks(results[0][0])[:, : size[0]], fitted @ rows
    assert np.abs(vj - exact).max() < CLOSE["fp32"] * np.abs(exact).max()


@pytest.mark.parametrize("precision", ["bf16x6", "bf16x3", "bf16"])
def test_coulomb_in_parts(precision):
    operands, constants, fitted, rows = coulomb_launch(131, 30, 1, precision)
    vj, _ = sim.simulate(df_coulomb)(*operands, **constants)
    exact = fitted @ rows
    assert np.abs(plan.from_blocks(vj[0])[:, :131] - exact).max() < CLOSE[precision] * np.abs(exact).max()


def test_instruction_counts_do_not_grow_with_pairs_and_fitting_functions():
    few, many = (
        sim.trace(df_exchange)(*launch[0], **launch[1]) for launch in (exchange_launch(40, 9, n) for n in (30, 300))
    )
    assert few.static == many.static
    few, many = (
        sim.trace(df_coulomb)(*launch[0], **launch[1]) for launch in (coulomb_launch(n, 130, 1) for n in (1024, 8192))
    )
    assert few.static == many.static


@pytest.mark.parametrize("precision", list(CLOSE))
@pytest.mark.parametrize(("nao", "nocc"), [(1, 1), (246, 51), (560, 51), (1000, 300), (1100, 20)])
def test_plans_fit_the_chip(precision, nao, nocc):
    """The tiles of a plan, as the kernel allocates them, fit SBUF, and a pass loops over all fitting functions."""
    form = PRECISIONS[precision]
    sizes = plan.exchange_sizes(nao, nocc, form.itemsize)
    assert plan.GROUP % sizes.group == 0 and sizes.group * plan.lane_of(nocc) % plan.P == 0
    height = plan.ceil(nao, sizes.blocks)
    specs = [
        sim.Spec((form.parts, plan.GROUP, height, sizes.blocks * nao), form.dtype),
        sim.Spec((form.parts, height, sizes.blocks * nocc), form.dtype),
    ]
    sim.trace(df_exchange)(*specs, blocks=sizes.blocks, group=sizes.group, ring=sizes.ring)


def test_more_functions_than_fit_have_no_plan():
    assert plan.exchange_sizes(1700, 100, 4) is not None
    assert plan.exchange_sizes(4000, 100, 4) is None


@pytest.mark.parametrize("pairs", [1, 127, 128, 129, 1024, 1025, 9999])
def test_passes_of_j_are_of_equal_length(pairs):
    sizes = plan.coulomb_sizes(pairs)
    assert pairs <= sizes.pairs and sizes.pairs % (plan.P * sizes.chunk * sizes.turns) == 0
    assert sizes.pairs - pairs < plan.P * (2 + sizes.pairs // (plan.P * plan.CHUNK))
