"""Blocks of pairs: every pair once, neighbours that share rows, the same bits as all pairs at once."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnqc.errors import MemoryLimit
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.pairs.block_energies import block_energies, held_bytes, widest
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.mp2.partition.blocks import SETS, default_width, pair_blocks

SIZES = st.integers(1, 40)


@given(SIZES, SIZES)
def test_every_pair_stands_in_one_block(nocc, width):
    seen = np.zeros((nocc, nocc), dtype=int)
    for block in pair_blocks(nocc, width):
        here = np.ones((block.i1 - block.i0, block.j1 - block.j0), dtype=int)
        here = np.tril(here) if block.diagonal else here
        assert here.sum() == block.pairs
        seen[block.rows, block.columns] += here
    np.testing.assert_array_equal(seen, np.tril(np.ones_like(seen)))


@given(SIZES, SIZES)
def test_two_blocks_in_turn_need_no_more_sets_than_are_held(nocc, width):
    blocks = pair_blocks(nocc, width)
    for one, two in itertools.pairwise(blocks):
        assert len({one.i0, one.j0, two.i0, two.j0}) <= SETS


@given(SIZES, SIZES, st.integers(1, 50), st.integers(1, 90))
def test_costs_add_up_to_that_of_all_pairs_at_once(nocc, width, nvir, naux):
    (whole,) = pair_blocks(nocc, nocc)
    assert sum(b.cost(nvir, naux) for b in pair_blocks(nocc, width)) == pytest.approx(whole.cost(nvir, naux))


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("width", [1, 3, 7])
def test_blocks_give_the_bits_of_all_pairs(factors_like, width, fused):
    B, o, v = factors_like(7, 19, 43)
    execution, sector = Execution(choose("cpu", "fp64"), fused=fused), PairSector(Factors(B, o, v))
    os, ss = np.zeros((2, 7, 7))
    for block in pair_blocks(7, width):
        energies = block_energies(block, B[block.rows].copy(), B[block.columns].copy(), sector, execution)
        os[block.rows, block.columns] += energies.os
        ss[block.rows, block.columns] += energies.ss
    whole = execution.choice.backend.pair_step("fp64", fused=fused).triangle(B, o, v)
    np.testing.assert_array_equal(os, whole.os)
    np.testing.assert_array_equal(ss, whole.ss)


def test_width_shrinks_with_the_limit(tmp_path):
    B = np.memmap(tmp_path / "B", np.float64, "w+", shape=(96, 60, 200))
    on_disk = PairSector(Factors(B, np.zeros(96), np.ones(60)))
    execution = Execution(choose("cpu", "fp64"), threads=2)
    assert widest(on_disk, execution) == default_width(96)
    for width in (1, 5):
        needed = held_bytes(width, on_disk, execution, 0)
        assert widest(on_disk, dataclasses.replace(execution, memory=needed)) == width
    least = held_bytes(1, on_disk, execution, 0)
    with pytest.raises(MemoryLimit, match=rf"on disk needs at least {least / 1e6:.4g} MB, the limit is"):
        widest(on_disk, dataclasses.replace(execution, memory=least - 1))
