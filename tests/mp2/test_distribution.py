"""Rows and pairs over ranks, which are threads here: what each holds, sends and computes, and the energies."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyscf import gto

from tests.mp2.thread_ranks import on_threads, same
from trnqc.errors import MemoryLimit
from trnqc.fitted.disk import RowsOnDisk
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.memory import FactorMemory
from trnqc.mp2.factors.ranks import RowsOnRanks
from trnqc.mp2.pairs.accuracy import pair_energy
from trnqc.mp2.pairs.pairs import run_pairs
from trnqc.mp2.pairs.ranks import exact_on_ranks, pairs_on_ranks
from trnqc.mp2.pairs.rounds import Rounds
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.mp2.partition.distribution import RowDistribution, set_width
from trnqc.mp2.reference.orbitals import ActiveOrbitals
from trnqc.mp2.store import ScratchStore

sizes = some.builds(RowDistribution, some.integers(1, 90), some.just(7), some.just(11), some.integers(1, 40))


@given(sizes)
def test_every_row_is_held_and_every_pair_computed_once(spread):
    held = [n for rank in range(spread.ranks) for n in spread.holds(rank)]
    assert set(held) == set(range(len(spread.sets)))
    assert sum(len(spread.sets[n]) for n in spread.holds(0)) <= -(-len(spread.sets) // spread.shards) * spread.width
    seen = np.zeros((spread.nocc, spread.nocc), int)
    for visits in Rounds(spread).visits:
        for visit in visits:
            for block in visit.blocks:
                seen[block.rows, block.columns] += 1
    lower = np.tri(spread.nocc, dtype=bool)
    np.testing.assert_array_equal(seen[lower], 1)


@given(sizes)
def test_whoever_computes_a_block_has_its_rows(spread):
    check_rounds(Rounds(spread))


@given(sizes, some.integers(1, 40))
def test_pairs_of_opposite_spin_are_computed_once_where_their_rows_are(alpha, nocc):
    rounds = Rounds(alpha, RowDistribution(nocc, 9, 11, alpha.ranks))
    seen = np.zeros((alpha.nocc, nocc), int)
    for visits in rounds.visits:
        for visit in visits:
            for block in visit.blocks:
                seen[block.rows, block.columns] += 1
    np.testing.assert_array_equal(seen, 1)
    check_rounds(rounds)


def check_rounds(rounds):
    for rank, visits in enumerate(rounds.visits):
        mine = {(side, n) for side, spread in enumerate(rounds.sides) for n in spread.holds(rank)}
        for visit in visits:
            assert all(set(rounds.sets(block)) <= {*mine, visit.visitor} for block in visit.blocks)
    for round in range(rounds.count):
        for sender, receiver, rows in rounds.messages(round):
            assert sender in rounds.holders(rows) and receiver not in rounds.holders(rows)
            assert rounds.visits[receiver][round].visitor == rows


@pytest.mark.parametrize("nocc, ranks", [(200, 2), (200, 64), (1200, 64), (1200, 1024)])
def test_loads_are_even(nocc, ranks):
    rounds = Rounds(RowDistribution(nocc, 100, 400, ranks))
    loads = np.zeros(ranks)
    for block, rank in zip(rounds.blocks, rounds.owners):
        loads[rank] += block.cost(100, 400)
    largest = max(block.cost(100, 400) for block in rounds.blocks)
    assert loads.max() <= loads.mean() + largest


@pytest.fixture(scope="module")
def case():
    """Orbitals of no SCF: any will do."""
    mol = gto.M(
        atom="O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5; O 3 0 0; H 3 0.8 0.5; H 3 -0.8 0.5", basis="6-31g", verbose=0
    )
    nao = mol.nao_nr()
    c = np.linalg.eigh(mol.intor("int1e_kin"))[1]
    e = np.concatenate([-np.linspace(2, 1, 10), np.linspace(0.2, 3, nao - 10)])
    orbitals = ActiveOrbitals(c[:, :10], c[:, 10:], e[:10], e[10:], (), ())
    return mol, auxiliary_basis(mol, "weigend").auxmol, (orbitals,)


ONE_PROCESS = Execution(choose("cpu", "fp64"), fused=False)


@pytest.mark.parametrize("size, schedule", [(2, "static"), (3, "dynamic"), (5, "static"), (13, "static")])
def test_any_number_of_ranks_gives_the_same_digits(case, size, schedule):
    alone = build_factors(*case, ONE_PROCESS)
    reference = run_pairs(alone, ONE_PROCESS)

    def work(ranks):
        execution = dataclasses.replace(ONE_PROCESS, ranks=ranks, schedule=schedule)
        factors = build_factors(*case, execution)
        for number, rows in factors.B.held.items():
            np.testing.assert_array_equal(rows, alone.B[list(factors.B.distribution.sets[number])])
        step = run_pairs(factors, execution)
        return np.array([step.energies.os, step.energies.ss]), step.error, ranks.received

    results = on_threads(size, work)
    os, ss = same([energies for energies, _, _ in results])
    np.testing.assert_array_equal(os, reference.energies.os)
    np.testing.assert_array_equal(ss, reference.energies.ss)
    assert all(error.corr == pytest.approx(reference.error.corr, rel=1e-6) for _, error, _ in results)
    # Columns, then visitors, then the rows of a few pairs: about B each time, however many ranks there are.
    assert all(received <= 4 * alone.B.nbytes for _, _, received in results)


@pytest.mark.parametrize("schedule", ["static", "dynamic"])
def test_rows_on_disk_are_shared_and_finished_pairs_found_again(case, schedule, tmp_path):
    store, alone = ScratchStore(), build_factors(*case, ONE_PROCESS)
    B = store.array(RowsOnDisk, "factors", "B", alone.B.shape)
    for i, row in enumerate(alone.B):
        B.write(i, row)
    energies = alone.eps_occ, alone.eps_vir
    reference, on_disk = run_pairs(alone, ONE_PROCESS).energies, Factors(B, *energies)

    def work(ranks):
        kept = None if ranks.rank else store
        store.key = 0  # as when the job starts again
        execution = dataclasses.replace(ONE_PROCESS, ranks=ranks, schedule=schedule)
        pairs = pairs_on_ranks(PairSector(on_disk), execution, lambda: set_width(*B.shape), kept)
        exact = exact_on_ranks([PairSector(on_disk)], ranks)(np.zeros(2, int), np.array([3, 2]), np.array([1, 2]))
        np.testing.assert_array_equal(exact, [pair_energy(alone.B, *energies, *pair) for pair in ((3, 1), (2, 2))])
        return np.array([pairs.os, pairs.ss])

    first = same(on_threads(3, work))
    np.testing.assert_array_equal(first, [reference.os, reference.ss])
    count = len(store.records.entries)
    np.testing.assert_array_equal(same(on_threads(2, work)), first)
    assert len(store.records.entries) == count, "nothing was left to compute"
    store.records.entries = [r for r in store.records.entries if "pairs" not in r or r["pairs"][0][0] % 2]
    assert len(store.records.entries) < count
    np.testing.assert_array_equal(same(on_threads(4, work)), first)


def test_a_rank_without_room_says_what_it_needs():
    memory = FactorMemory(nao=500, nocc=80, nvir=400, naux=1800, threads=1)
    with pytest.raises(MemoryLimit, match=r"spread over 4 ranks need .* on each"):
        memory.check_spread(64, ranks=4, limit=1e8)
    memory.check_spread(64, ranks=4, limit=1e9)


def test_a_row_is_fetched_by_one_rank():
    spread = RowDistribution(5, 2, 4, 2)  # one function fewer is left
    B = np.arange(30.0).reshape(5, 2, 3)

    def work(ranks):
        held = {n: B[list(spread.sets[n])] for n in spread.holds(ranks.rank)}
        rows = RowsOnRanks(spread, ranks, held, 3)
        return [rows.fetched(i, 1) for i in range(5)]

    nothing, everything = on_threads(2, work)
    assert nothing == [None] * 5
    np.testing.assert_array_equal(everything, B)
