"""The pair-energy kernel against its reference and against plain sums, and its instruction counts."""

import numpy as np
import pytest

from nki_kernels import mp2_plan as plan
from nki_kernels.descriptors.descriptor import PARTS, operand_dtype
from nki_kernels.lang import nki
from nki_kernels.mp2_energy import mp2_energy, reference_mp2_energy
from nki_kernels.mp2_plan import tile_list
from trnqc import sim

# Error over the largest pair energy: factors are rounded to 24, 16 and 8 bits.
RELATIVE = {"fp32": 2e-6, "bf16x15": 2e-6, "bf16x6": 2e-6, "bf16x3": 2e-5, "bf16": 2e-2}


def problem(nocc, nvir, naux, seed=0):
    rng = np.random.default_rng(seed)
    B = rng.normal(size=(nocc, nvir, naux)) * 0.1
    return B, -np.sort(rng.uniform(0.5, 1.0, nocc)), np.sort(rng.uniform(0.1, 2.0, nvir))


def arguments(B, eps_occ, eps_vir, tiles, precision="fp32", cores=1):
    pairs = plan.star_pairs(len(B), tiles.group)
    work = plan.work_list(pairs, eps_occ, tiles, cores)
    bt = plan.pack_factors(B, tiles, precision)
    virtuals = plan.pack_virtuals(eps_vir, tiles)
    return pairs, work, (bt, *virtuals, work.e_pair, work.rows, work.bounds, tiles.nvir, tiles.naux, tiles.kchunk)


def plain_sums(B, eps_occ, eps_vir, pairs):
    os, ss = [], []
    for i, j in pairs:
        T = B[i] @ B[j].T
        R = T / (eps_occ[i] + eps_occ[j] - eps_vir[:, None] - eps_vir)
        weight = 1 if i == j else 2
        os.append(weight * (R * T).sum())
        ss.append(weight * (R * (T - T.T)).sum())
    return np.array(os), np.array(ss)


def check(B, eps_occ, eps_vir, tiles, precision="fp32", cores=1):
    pairs, work, args = arguments(B, eps_occ, eps_vir, tiles, precision, cores)
    reference = reference_mp2_energy(*args)
    kernel = mp2_energy if cores == 1 else mp2_energy[cores]
    out = np.asarray(nki.simulate(kernel)(*args))
    owned = ~np.isnan(reference)
    assert np.abs(out - reference)[owned].max() <= 1e-5 * np.abs(reference[owned]).max()
    os, ss = plan.sum_lanes(out, work, len(pairs))
    plain_os, plain_ss = plain_sums(B, eps_occ, eps_vir, pairs)
    scale = np.abs(plain_os).max()
    assert np.abs(os - plain_os).max() <= RELATIVE[precision] * scale
    assert np.abs(ss - plain_ss).max() <= RELATIVE[precision] * scale
    same = pairs[:, 0] == pairs[:, 1]
    assert not ss[same].any()


SIZES = [
    pytest.param(6, 100, 150, id="five pairs side by side"),
    pytest.param(11, 90, 20, id="a group of pairs i = j"),
    pytest.param(1, 1, 1, id="one of each"),
    pytest.param(2, 5, 7, id="tiny"),
    pytest.param(3, 128, 128, id="exactly one tile"),
    pytest.param(4, 129, 130, id="one over a tile"),
    pytest.param(5, 127, 257, id="prime, one over two tiles"),
    pytest.param(2, 509, 140, id="prime nvir of caffeine"),
    pytest.param(2, 700, 129, id="two runs of columns"),
]


@pytest.mark.parametrize("nocc, nvir, naux", SIZES)
def test_resident_factors(nocc, nvir, naux):
    check(*problem(nocc, nvir, naux), plan.choose_tiles(nvir, naux, 4))


@pytest.mark.parametrize("precision", ["bf16x15", "bf16x6", "bf16x3", "bf16"])
def test_split_precision(precision):
    check(*problem(3, 150, 140), plan.choose_tiles(150, 140, 4), precision)


@pytest.mark.parametrize("group", [1, 3])
def test_groups(group):
    check(*problem(5, 40, 30), plan.Mp2Tiles(40, 30, 40, 1, group))


@pytest.mark.parametrize(
    "nvir, naux, block, kchunk, group",
    [(300, 140, 128, 2, 2), (257, 150, 128, 2, 1), (700, 300, 256, 2, 1), (300, 520, 256, 3, 1), (100, 260, 100, 1, 1)],
)
def test_blocks_of_virtuals_and_streamed_factors(nvir, naux, block, kchunk, group):
    check(*problem(3, nvir, naux), plan.Mp2Tiles(nvir, naux, block, kchunk, group))


def test_two_cores_share_the_work(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    check(*problem(5, 140, 130), plan.choose_tiles(140, 130, 4), cores=2)


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_every_generation_accepts_it(monkeypatch, target):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    check(*problem(2, 140, 130), plan.choose_tiles(140, 130, 4))


def traced(nocc, nvir, naux, precision="fp32"):
    """A dry run: counts and capacity without arithmetic."""
    tiles = plan.choose_tiles(nvir, naux, 4)
    pairs = plan.star_pairs(nocc, tiles.group)
    work = plan.work_list(pairs, -np.ones(nocc), tiles)
    parts, dtype = PARTS[precision], operand_dtype(precision)
    bt = sim.Spec((parts, nocc * tiles.nblk, plan.P, tiles.nk, tiles.block), dtype)
    row, col = (sim.Spec(x.shape, np.float32) for x in plan.pack_virtuals(np.ones(nvir), tiles))
    e_pair = sim.Spec(work.e_pair.shape, np.float32)
    args = (bt, row, col, e_pair, work.rows, work.bounds, nvir, naux, tiles.kchunk)
    return sim.trace(mp2_energy)(*args), tiles


def needed_matmuls(nocc, nvir, naux, products=1):
    """Every product tile once: T and U right of the diagonal, T on it; for i = j, T alone. None side by side."""
    nk = -(-naux // plan.P)
    tiles = tile_list(nvir, nvir, True)
    diagonal = sum(tile[4] for tile in tiles)
    right = len(tiles) - diagonal
    unlike = nocc * (nocc - 1) // 2
    return nk * products * (unlike * (diagonal + 2 * right) + nocc * (diagonal + right))


@pytest.mark.parametrize("nvir, naux", [(40, 70), (150, 140), (448, 1536)])
@pytest.mark.parametrize("precision", ["fp32", "bf16x3", "bf16x6"])
def test_program_does_not_grow_with_occupied_orbitals(precision, nvir, naux):
    small, _ = traced(4, nvir, naux, precision)
    large, _ = traced(64, nvir, naux, precision)
    assert small.static == large.static


def needed_flops(nocc, nvir, naux):
    """Those of `needed_matmuls` by their true sizes."""
    flops = 0.0
    for _, m, _, n, diagonal in tile_list(nvir, nvir, True):
        flops += 2 * m * n * naux * (nocc * (nocc - 1) // 2 * (1 if diagonal else 2) + nocc)
    return flops


@pytest.mark.parametrize("nocc, nvir, naux", [(7, 40, 70), (19, 100, 420), (12, 243, 666), (9, 448, 300)])
@pytest.mark.parametrize("precision, products", [("fp32", 1), ("bf16x3", 3)])
def test_products_side_by_side_are_those_that_are_needed(nocc, nvir, naux, precision, products):
    tiles = plan.choose_tiles(nvir, naux, 4)
    assert tiles.at_once > 1
    arrays = plan.pack_factors(np.ones((nocc, nvir, naux)), tiles, precision), *plan.pack_virtuals(np.ones(nvir), tiles)
    work = plan.work_list(plan.star_pairs(nocc, tiles.group), -np.ones(nocc), tiles)
    modelled = sim.timeline(mp2_energy, target="trn1", event_limit=0)(
        *arrays, work.e_pair, work.rows, work.bounds, nvir, naux, tiles.kchunk
    )
    assert modelled.summary()["model_flops"] == pytest.approx(products * needed_flops(nocc, nvir, naux), rel=1e-9)


@pytest.mark.parametrize("nocc, nvir, naux", [(64, 448, 1536), (96, 672, 2304), (37, 509, 1434)])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_medium_large_and_caffeine_fit_and_do_no_needless_product(monkeypatch, target, nocc, nvir, naux):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    trace, tiles = traced(nocc, nvir, naux)
    assert tiles.nblk == 1
    assert trace.executed["nc_matmul"] == needed_matmuls(nocc, nvir, naux)
    assert trace.executed["nc_transpose"] == nocc * (nocc - 1) // 2 * -(-nvir // plan.P)


def test_several_thousand_virtuals(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    trace, tiles = traced(4, 2800, 9000)
    assert tiles.nblk > 1 and sum(trace.static.values()) < 20000
