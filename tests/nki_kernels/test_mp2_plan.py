"""The host side of the pair kernel: tiles that fit, packed factors, and work lists that cover every element once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels import mp2_plan as plan

TRN1_SBUF = 176 * 1024


def all_pairs(nocc):
    return np.stack(np.tril_indices(nocc), axis=1)


@given(nvir=st.integers(1, 5000), naux=st.integers(1, 12000), itemsize=st.sampled_from([2, 4]))
@settings(deadline=None, max_examples=200)
def test_tiles_fit_the_budget(nvir, naux, itemsize):
    tiles = plan.choose_tiles(nvir, naux, itemsize, TRN1_SBUF)
    assert tiles.sbuf_bytes(itemsize) <= TRN1_SBUF
    assert tiles.block == nvir or tiles.block % plan.P == 0
    assert tiles.kchunk == tiles.nk or tiles.block <= 2 * plan.P


def test_whole_factors_stay_on_chip_at_the_shapes_of_molecules():
    for nvir, naux in [(243, 666), (448, 1536), (509, 1434), (672, 2304)]:
        tiles = plan.choose_tiles(nvir, naux, 4, TRN1_SBUF)
        assert (tiles.block, tiles.kchunk) == (nvir, tiles.nk)


def test_too_small_a_budget_names_the_least():
    with pytest.raises(ValueError, match=r"at least \d+ bytes of SBUF per partition are needed, 1000 are allowed"):
        plan.choose_tiles(300, 300, 4, 1000)


@given(nvir=st.integers(1, 2000), block_tiles=st.integers(1, 6))
def test_block_pairs_cover_the_upper_triangle_once(nvir, block_tiles):
    block = min(nvir, plan.P * block_tiles)
    tiles = plan.Mp2Tiles(nvir, 128, block, 1, 1)
    seen = np.zeros((tiles.nblk, tiles.nblk), int)
    for kind, (rows, cols, same) in enumerate(plan.block_kinds(nvir, block)):
        for a, b in plan.block_pairs(tiles, kind):
            seen[a, b] += 1
            assert rows == min(block, nvir - a * block) and cols == min(block, nvir - b * block) and same == (a == b)
    assert np.array_equal(seen, np.triu(np.ones_like(seen)))


@given(nocc=st.integers(1, 23), group=st.integers(1, 4), cores=st.integers(1, 3))
@settings(deadline=None)
def test_every_pair_is_worked_by_one_core_and_all_have_equally_many(nocc, group, cores):
    """Cores share an item, which both compute alike, where they have no equal shares."""
    tiles = plan.Mp2Tiles(5, 7, 5, 1, group)
    pairs = all_pairs(nocc)
    work = plan.work_list(pairs, -np.arange(1.0, nocc + 1), tiles, cores, capacity=len(pairs) + 3)
    assert np.array_equal(np.sort(work.owner[work.owner >= 0]), np.arange(len(pairs)))
    ranges = work.bounds.reshape(cores, -1, 2)
    items = np.concatenate([np.arange(*r) for core in ranges for r in core])
    assert np.array_equal(np.unique(items), np.arange((work.owner[:, 0] >= 0).sum()))
    assert (np.diff(ranges) == np.diff(ranges[:1])).all() and len(items) - len(np.unique(items)) < 4 * cores
    used = work.owner >= 0
    assert np.allclose(work.e_pair[used], -(pairs.sum(axis=1) + 2)[work.owner[used]])


@given(nocc=st.integers(1, 90), group=st.integers(1, 9))
@settings(deadline=None)
def test_stars_hold_every_pair_once_and_leave_few_single(nocc, group):
    pairs = plan.star_pairs(nocc, group)
    seen = np.zeros((nocc, nocc), int)
    np.add.at(seen, (pairs.max(axis=1), pairs.min(axis=1)), 1)
    assert np.array_equal(seen, np.tril(np.ones_like(seen)))
    _, single, same_groups, same = plan.group_pairs(pairs, group, group)
    assert sum(map(len, same_groups + same)) == nocc and (group == 1 or len(same) < group)
    if group > 1 and nocc > 4 * group:
        assert len(single) < group


@given(n=st.integers(1, 20), m=st.integers(1, 20), group=st.integers(1, 9))
@settings(deadline=None)
def test_cross_pairs_hold_every_pair_of_two_sets_once(n, m, group):
    pairs = plan.cross_pairs(n, n + m, group)
    assert sorted(map(tuple, pairs)) == [(i, j) for i in range(n, n + m) for j in range(n)]
    _, single, *same = plan.group_pairs(pairs, group, group)
    assert (len(single), same) == (m * n if group == 1 else m * (n % group), [[], []])


@given(nocc=st.integers(1, 40), size=st.integers(1, 300))
@settings(deadline=None)
def test_launches_share_one_program(nocc, size):
    tiles = plan.Mp2Tiles(5, 7, 5, 1, 8)
    parts = plan.launches(nocc, -np.arange(1.0, nocc + 1), tiles, 1, size)
    assert len({work.rows.shape for _, work in parts}) == 1
    assert sum(len(pairs) for pairs, _ in parts) == nocc * (nocc + 1) // 2
    assert sum((work.owner >= 0).sum() for _, work in parts) == nocc * (nocc + 1) // 2


def test_capacity_too_small():
    with pytest.raises(ValueError, match="3 items do not fit the capacity of 2"):
        plan.work_list(all_pairs(2), -np.ones(2), plan.Mp2Tiles(5, 7, 5, 1, 1), capacity=2)


@pytest.mark.parametrize("nvir, naux, block", [(1, 1, 1), (5, 130, 5), (300, 127, 128), (129, 257, 128)])
def test_packing_keeps_every_element(nvir, naux, block):
    B = np.random.default_rng(0).normal(size=(3, nvir, naux))
    tiles = plan.Mp2Tiles(nvir, naux, block, 1, 1)
    bt = plan.pack_factors(B, tiles, "fp32").reshape(3, tiles.nblk, plan.P, tiles.nk, block)
    back = bt.transpose(0, 1, 4, 3, 2).reshape(3, tiles.nblk * block, -1)
    assert np.array_equal(back[:, :nvir, :naux], B.astype(np.float32))
    assert not back[:, nvir:].any() and not back[:, :, naux:].any()
