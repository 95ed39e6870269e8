"""Fitted J and K: the same bits for any number of threads and ranks, and what bounds them."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import numpy as np
import pytest
from pyscf import df, gto, lib

from tests.mp2.thread_ranks import on_threads, same
from trnqc.eri.fitting import jk as fitted_jk
from trnqc.eri.fitting import transitions
from trnqc.eri.fitting.distributed import DistributedFitting, bytes_of_a_rank, prepared
from trnqc.eri.fitting.fitted_integrals import columns_of, shell_blocks
from trnqc.pyscf.density_fitting import DF

WATERS = "O 0 0 0.1; H 0 0.8 -0.5; H 0 -0.8 -0.5; O 0 3 0.2; H 0.1 3.7 -0.4; H 0.3 2.2 -0.5"
# One shell of each kind up to d, so that few kernels are compiled.
FITTING = {
    "O": [[0, [9.0, 0.4], [1.9, 0.7]], [0, [0.5, 1.0]], [1, [1.5, 1.0]], [2, [1.2, 1.0]]],
    "H": [[0, [2.0, 0.4], [0.6, 0.7]], [1, [0.9, 1.0]]],
}


@pytest.fixture(scope="module")
def mol():
    return gto.M(atom=WATERS, basis="6-31g", verbose=0, max_memory=4000)


def densities(mol):
    """By name: tagged with orbitals, of low rank, symmetric, neither, and between orbitals and others."""
    rng = np.random.default_rng(3)
    c, n = rng.standard_normal((mol.nao, 9)), np.array([2.0] * 5 + [0.0] * 4)
    dm = (c * n) @ c.T
    any_ = rng.standard_normal((2, mol.nao, mol.nao))
    return {
        "tagged": lib.tag_array(dm, mo_coeff=c, mo_occ=n),
        "low rank": dm,
        "symmetric": any_ + any_.transpose(0, 2, 1),
        "any": any_,
        "transition": transitions.tagged(any_ @ c @ c.T, [c]),
    }


def whole(mol, auxbasis, threads):
    with lib.with_omp_threads(threads):
        fitting = DF(mol, auxbasis)
        return {name: fitting.get_jk(dm, 1 if dm.ndim == 2 else 0) for name, dm in densities(mol).items()}


@pytest.fixture(scope="module")
def alone(mol):
    return whole(mol, FITTING, 1)


def test_they_are_those_of_pyscf(mol, alone):
    theirs = df.DF(mol, FITTING)
    for name, dm in densities(mol).items():
        for mine, other in zip(alone[name], theirs.get_jk(dm, 1 if dm.ndim == 2 else 0)):
            np.testing.assert_allclose(mine, other, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(mol, alone, threads):
    for name, gathered in whole(mol, FITTING, threads).items():
        for mine, one in zip(gathered, alone[name]):
            np.testing.assert_array_equal(mine, one, err_msg=name)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 13])
def test_ranks_change_no_bit(mol, alone, size):
    auxmol = df.addons.make_auxmol(mol, FITTING)
    fit = prepared(mol, auxmol)

    def work(ranks):
        spread = DistributedFitting(mol, auxmol, fit, ranks)
        gathered = {name: spread.get_jk(dm, True, True) for name, dm in densities(mol).items()}
        return len(spread.rows), gathered

    with lib.with_omp_threads(1):
        results = on_threads(size, work)
    assert sum(count for count, _ in results) == fit.naux
    for name, expected in alone.items():
        for k in (0, 1):
            np.testing.assert_array_equal(
                same([gathered[name][k] for _, gathered in results]), expected[k], err_msg=name
            )


def test_dependent_fitting_functions_are_dropped_on_ranks():
    mol = gto.M(atom="O 0 0 0.1; H 0 0.8 -0.5; H 0 -0.8 -0.5", basis="6-31g", verbose=0, max_memory=4000)
    doubled = {symbol: shells * 2 for symbol, shells in FITTING.items()}
    auxmol = df.addons.make_auxmol(mol, doubled)
    fit = prepared(mol, auxmol)
    dm = np.eye(mol.nao)
    with lib.with_omp_threads(1):
        expected = DF(mol, doubled).get_jk(dm)
        gathered = on_threads(2, lambda ranks: DistributedFitting(mol, auxmol, fit, ranks).get_jk(dm, True, True))
    assert fit.naux < auxmol.nao
    for k in (0, 1):
        np.testing.assert_array_equal(same([jk[k] for jk in gathered]), expected[k])


def test_blocks_of_shells_hold_every_pair_once(mol):
    columns = columns_of(mol, shell_blocks(mol))
    assert columns[0][0] == 0 and columns[-1][1] == mol.nao * (mol.nao + 1) // 2
    assert all(end == begin for (_, end), (begin, _) in pairwise(columns))


def test_a_rank_holds_its_share(mol):
    auxmol = df.addons.make_auxmol(mol, FITTING)
    integrals = 8 * auxmol.nao * mol.nao * (mol.nao + 1) / 2
    assert bytes_of_a_rank(mol, auxmol, 1) > integrals
    assert bytes_of_a_rank(mol, auxmol, 10) == pytest.approx(bytes_of_a_rank(mol, auxmol, 1) - 0.9 * integrals)


def test_no_partial_sum_exceeds_its_bound(mol):
    """The bound is what keeps the integers from wrapping around; a density of one sign throughout comes near it."""
    rows = DF(mol, FITTING).build()._cderi
    norms = fitted_jk.Norms()(rows)
    full = np.abs(lib.unpack_tril(rows))
    np.testing.assert_allclose(norms, np.sqrt((full**2).sum(axis=0)), rtol=1e-12)
    c = np.abs(np.random.default_rng(0).standard_normal((mol.nao, 4)))
    half = np.einsum("qml,li->qim", full, c)
    most = np.einsum("qim,qin->mn", half, half)
    diagonal = ((norms @ c) ** 2).sum(axis=1)
    assert (most <= np.sqrt(diagonal[:, None] * diagonal.max()) * (1 + 1e-12)).all()
    dm = c @ c.T
    assert (np.einsum("q,qmn->mn", np.einsum("qmn,mn->q", full, dm), full) <= norms.max() * (dm * norms).sum()).all()


def test_norms_follow_the_integrals(mol):
    norms, rows = fitted_jk.Norms(), np.ones((3, 6))
    assert norms(rows)[0, 0] == pytest.approx(3**0.5)
    assert norms(2 * rows)[0, 0] == pytest.approx(2 * 3**0.5)
    for twin in (copy.copy(norms), pickle.loads(pickle.dumps(norms))):
        assert twin(rows)[2, 1] == pytest.approx(3**0.5)


def test_a_density_that_is_not_finite_gives_no_number(mol):
    dm = np.eye(mol.nao)
    dm[0, 0] = np.nan
    vj, vk = DF(mol, FITTING).get_jk(dm, hermi=0)
    assert np.isnan(vj).all() and np.isnan(vk).all()
