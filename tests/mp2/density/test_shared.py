"""Densities and gradients on several ranks, and after interruptions, have the digits of one process."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

import trnqc
from tests.mp2.density.references import Parts, converged
from tests.mp2.thread_ranks import on_threads, same
from trnqc.eri.gradient import three_centre
from trnqc.errors import CheckpointError, MemoryLimit
from trnqc.fitted.disk import RowsOnDisk
from trnqc.fitted.metric import factorise
from trnqc.mp2.density import sets
from trnqc.mp2.density.pair_sums import pair_sums
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.ranks import on_every_rank
from trnqc.mp2.gradient import terms
from trnqc.mp2.response import fitted
from trnqc.mp2.store import ScratchStore

SCS = (6 / 5, 1 / 3)


class Cut(BaseException):
    """Where a kill would end the process."""


@pytest.fixture(autouse=True)
def small_sets(monkeypatch):
    monkeypatch.setattr(sets, "_WIDEST", 2)


def mp2_of(name, **options):
    # PySCF sets the centre of attraction in the molecule for a while. Ranks that are threads must not share it.
    mf = converged(name, True).copy()
    mf.mol = mf.mol.copy()
    return trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri", frozen=1, threads=1, **options)


def numbers(sums):
    """All arrays of a pass over pairs, as one."""
    arrays = [np.array([sums.energies.os, sums.energies.ss]), *sums.p_occ, *sums.p_vir]
    return np.concatenate([array.ravel() for array in (*arrays, *(g[: g.shape[0]] for g in sums.gamma))])


@pytest.mark.parametrize("name", ["water", "water cation", "ammonia"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_share_the_pairs(name, size):
    parts = Parts(converged(name, True), 1)
    expected = numbers(pair_sums(parts.factors, SCS, parts.execution))

    def work(ranks):
        return numbers(pair_sums(parts.factors, SCS, replace(parts.execution, ranks=ranks)))

    np.testing.assert_array_equal(same(on_threads(size, work)), expected)


def test_factors_that_are_spread_over_ranks():
    parts = Parts(converged("water", True), 1)
    orbitals = mp2_of("water").orbitals()

    def work(ranks):
        execution = replace(parts.execution, ranks=ranks)
        spread = build_factors(parts.mf.mol, parts.auxmol, orbitals, execution)
        with pytest.raises(MemoryLimit, match=r"need all factors B, .* in the memory of each rank"):
            on_every_rank([spread], replace(execution, memory=1e3))
        return on_every_rank([spread], execution)[0].B

    np.testing.assert_array_equal(same(on_threads(3, work)), parts.factors[0].B)


@pytest.mark.parametrize("name", ["water", "water cation"])
@pytest.mark.parametrize("size", [2, 3])
def test_a_gradient_on_ranks(name, size, monkeypatch):
    """Pairs, products of the orbital response, and derivatives of integrals are shared."""
    monkeypatch.setattr(fitted, "_GROUP", 4)
    monkeypatch.setattr(terms, "_COMFORTABLE_BLOCK", 8.0 * 13**2 * 10)
    expected = mp2_of(name).nuc_grad_method().kernel()
    blocks, groups = [], []
    tasks, transformed = three_centre._tasks, fitted.transformed
    monkeypatch.setattr(three_centre, "_tasks", lambda *given: blocks.append(given) or tasks(*given))
    monkeypatch.setattr(fitted, "transformed", lambda *given, **k: groups.append(given) or transformed(*given, **k))
    mp2_of(name).nuc_grad_method().kernel()
    alone = len(blocks), len(groups)
    blocks.clear(), groups.clear()
    gradients = on_threads(size, lambda ranks: mp2_of(name, ranks=ranks).nuc_grad_method().kernel())
    np.testing.assert_array_equal(same(gradients), expected)
    assert (len(blocks), len(groups)) == alone and len(groups) > 20


def stop(at):
    """A progress function that cuts the job off when so many blocks of pairs are done."""

    def progress(stage, done, total):
        if (stage, done) == ("densities", at):
            raise Cut

    return progress


@pytest.mark.parametrize(("name", "at"), [("water", 3), ("water cation", 6)])
def test_an_interrupted_gradient_continues(name, at, tmp_path):
    expected = mp2_of(name).nuc_grad_method().kernel()
    with pytest.raises(Cut):
        mp2_of(name, checkpoint=tmp_path / "kept", progress=stop(at)).nuc_grad_method().kernel()
    stages = []
    again = mp2_of(name, checkpoint=tmp_path / "kept", progress=lambda *step: stages.append(step))
    np.testing.assert_array_equal(again.nuc_grad_method().kernel(), expected)
    names = {stage for stage, _, _ in stages}
    assert "integrals" not in names and "fitting" not in names
    whole = []
    mp2_of(name, checkpoint=tmp_path / "other", progress=lambda *step: whole.append(step)).nuc_grad_method().kernel()
    blocks = [sum(stage == "densities" for stage, _, _ in one) for one in (stages, whole)]
    assert blocks[0] < blocks[1]


def test_a_finished_pass_is_read_and_changed_rows_are_computed_again(tmp_path):
    directory = tmp_path / "kept"
    expected = mp2_of("water", checkpoint=directory).make_rdm1()
    for damaged in (False, True):
        if damaged:
            path = directory / "gamma-0.h5"
            data = bytearray(path.read_bytes())
            data[-9] ^= 1
            path.write_bytes(data)
        stages: list[tuple[str, int, int]] = []
        mp2 = mp2_of("water", checkpoint=directory, progress=lambda *step, seen=stages: seen.append(step))
        np.testing.assert_array_equal(mp2.make_rdm1(), expected)
        assert any(stage == "densities" for stage, _, _ in stages) == damaged


def test_a_checkpoint_keeps_energies_and_densities_apart(tmp_path):
    """Energies, densities of other weights and relaxed densities in the same directory do not disturb one another."""
    directory = tmp_path / "kept"
    plain, kept = mp2_of("water cation"), mp2_of("water cation", checkpoint=directory)
    for scaling in ((1.0, 1.0), SCS, (1.0, 1.0)):
        plain.gradient_scaling = kept.gradient_scaling = scaling
        assert kept.kernel()[0] == pytest.approx(plain.kernel()[0], abs=1e-12)
        np.testing.assert_array_equal(kept.make_rdm1(relaxed=True), plain.make_rdm1(relaxed=True))
    with pytest.raises(CheckpointError, match="frozen orbitals is 1 there and 0 here"):
        trnqc.DFMP2(converged("water cation", True), "cc-pvdz-ri", threads=1, checkpoint=directory).make_rdm1()


@pytest.mark.parametrize("limit", [0.95e6, 1.3e6])
def test_the_memory_limit_holds(limit, factors_like, monkeypatch):
    """The pass over pairs with B and Γ on disk, each larger than the limit, allocates less than the limit."""
    monkeypatch.setattr(sets, "_WIDEST", 16)
    B, eps_occ, eps_vir = factors_like(16, 40, 300)
    rows = ScratchStore().array(RowsOnDisk, "factors", "B", B.shape)
    for i, row in enumerate(B):
        rows.write(i, row)
    factors = [Factors(rows, np.sort(eps_occ), np.sort(eps_vir))]
    execution = Execution(choose("cpu"), memory=limit)
    metric = factorise(np.eye(300), 1e-10)
    assert B.nbytes > limit
    tracemalloc.start()
    try:
        sums = pair_sums(factors, SCS, execution)
        gamma = sums.gamma[0].to_auxiliary(metric, threads=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert gamma.on_disk
    assert peak < limit
    free = pair_sums([replace(factors[0], B=B)], SCS, Execution(choose("cpu")))
    assert np.abs(gamma[:] - free.gamma[0][:]).max() < 1e-13
    assert np.abs(sums.p_vir[0] - free.p_vir[0]).max() < 1e-9
