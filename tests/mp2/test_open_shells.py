"""Open shells against PySCF's DF-UMP2 and against closed shells, on every way that factors and pairs can take."""

from __future__ import annotations

import dataclasses
import functools
from contextlib import nullcontext

import numpy as np
import pytest
from pyscf import df, gto, scf
from pyscf.mp import dfump2

import trnqc
from tests.mp2.thread_ranks import on_threads, same
from trnqc.errors import CheckpointError, InputError, MemoryLimit, MoleculeError, UnsupportedError
from trnqc.mp2.checkpoint import Checkpoint
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.pairs.denominators import SMALLEST, denominator_warnings
from trnqc.mp2.pairs.pairs import run_pairs
from trnqc.mp2.pairs.sectors import PairSector

MOLECULES = {
    "NO2": ("N 0 0 0; O 0 1.1 0.47; O 0 -1.1 0.47", 0, 1),
    "CH3": ("C 0 0 0; H 1.079 0 0; H -0.5395 0.9344 0; H -0.5395 -0.9344 0", 0, 1),
    "O2": ("O 0 0 0; O 0 0 1.208", 0, 2),
    "H2O+": ("O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587", 1, 1),
    "Li": ("Li 0 0 0", 0, 1),
}


@functools.cache
def mole(name: str, basis: str = "6-31g") -> gto.Mole:
    atom, charge, spin = MOLECULES[name]
    return gto.M(atom=atom, charge=charge, spin=spin, basis=basis, verbose=0)


@functools.cache
def uhf(name: str):
    return scf.UHF(mole(name)).run(conv_tol=1e-11)


@functools.cache
def rohf(name: str):
    return scf.ROHF(mole(name)).run(conv_tol=1e-11)


def pyscf_ump2(mf, frozen=None) -> tuple[float, float]:
    """Opposite- and same-spin energies of PySCF with the auxiliary basis of this package."""
    theirs = dfump2.DFUMP2(mf, frozen=frozen)
    theirs.with_df = df.DF(mf.mol)
    theirs.with_df.auxbasis = df.make_auxbasis(mf.mol, mp2fit=True)
    theirs.kernel(with_t2=False)
    return theirs.e_corr_os, theirs.e_corr_ss


def parts(method) -> tuple[float, float]:
    return method.e_corr_os, method.e_corr_ss


@pytest.mark.parametrize(
    ("name", "frozen"),
    [("NO2", 3), ("CH3", None), ("O2", 2), ("H2O+", 1), ("H2O+", [[0, 1, 5], [1]]), ("H2O+", np.array([0])), ("Li", 1)],
)
def test_energies_are_those_of_pyscf(name, frozen):
    method = trnqc.DFMP2(uhf(name), frozen=frozen).run()
    np.testing.assert_allclose(parts(method), pyscf_ump2(uhf(name), frozen), rtol=0, atol=1e-10)
    result = method.result
    assert result.e_corr_aa + result.e_corr_bb == pytest.approx(result.e_corr_ss, abs=1e-15)
    assert trnqc.MP2Result.from_dict(result.to_dict()) == result
    np.testing.assert_array_equal(result.pair_energies.ab, method.pair_energies.ab)


def test_pairs_by_spin_are_those_of_the_amplitudes():
    method = trnqc.DFMP2(uhf("H2O+"), frozen=1).run(precision="fp64")
    aa, ab, bb = method.t2
    alpha, beta = method.ao2mo()
    energies = method.pair_energies
    for t, left, right, pairs in ((aa, alpha, alpha, energies.aa), (ab, alpha, beta, energies.ab)):
        v = np.einsum("iaQ,jbQ->ijab", left.B, right.B)
        expected = np.einsum("ijab,ijab->ij", t, v)
        np.testing.assert_allclose(pairs, np.tril(expected) if left is right else expected, atol=1e-13)
    assert bb.shape == (3, 3, 9, 9) and energies.bb.shape == (3, 3)
    np.testing.assert_array_equal(bb, -bb.swapaxes(2, 3))


@pytest.mark.parametrize("fitted", [False, True])
def test_a_closed_shell_has_the_digits_of_rhf(fitted):
    mol = gto.M(atom="O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587", basis="6-31g", verbose=0)
    mf = scf.RHF(mol).density_fit() if fitted else scf.RHF(mol)
    restricted = trnqc.DFMP2(mf.run(conv_tol=1e-11), frozen=1).run()
    unrestricted = trnqc.DFMP2(mf.to_uhf(), frozen=1).run()
    np.testing.assert_allclose(parts(unrestricted), parts(restricted), rtol=1e-14)
    assert unrestricted.result.e_corr_aa == unrestricted.result.e_corr_bb
    assert unrestricted.nocc == (4, 4) and restricted.nocc == 4


@pytest.mark.parametrize(("backend", "precision"), [("cpu", "fp32"), ("cpu", "bf16x3"), ("simulator", "fp32")])
def test_other_backends_and_precisions_agree(backend, precision):
    exact = trnqc.DFMP2(uhf("CH3"), frozen=1).run()
    for fused in (True, False):
        other = trnqc.DFMP2(uhf("CH3"), frozen=1, backend=backend, precision=precision, fused=fused).run()
        np.testing.assert_allclose(parts(other), parts(exact), rtol=0, atol=1e-6)
        assert abs(other.e_corr - exact.e_corr) <= other.result.error.corr


def test_semicanonical_orbitals_and_single_excitations():
    """Against orbitals that are rotated here and given to PySCF's DF-UMP2 as unrestricted ones."""
    mf = rohf("O2")
    fock = mf.get_fock()
    c, e, singles = [], [], 0.0
    for f, occupied in ((fock.focka, mf.mo_occ > 0), (fock.fockb, mf.mo_occ > 1)):
        blocks = [mf.mo_coeff[:, occupied], mf.mo_coeff[:, ~occupied]]
        energies, rotations = zip(*(np.linalg.eigh(block.T @ f @ block) for block in blocks))
        occ, vir = (block @ rotation for block, rotation in zip(blocks, rotations))
        singles += np.sum((occ.T @ f @ vir) ** 2 / (energies[0][:, None] - energies[1]))
        c.append(np.hstack([occ, vir]))
        e.append(np.concatenate(energies))
    rotated = mf.to_uhf()
    rotated.mo_coeff, rotated.mo_energy, rotated.converged = np.array(c), np.array(e), True
    method = trnqc.DFMP2(mf).run()
    np.testing.assert_allclose(parts(method), pyscf_ump2(rotated), rtol=0, atol=1e-10)
    assert method.result.e_singles == pytest.approx(singles, abs=1e-12) and singles < -1e-4
    assert method.e_corr == pytest.approx(sum(parts(method)) + singles, abs=1e-12)


def test_restricted_open_shell_of_a_closed_shell_is_rhf():
    mol = gto.M(atom="O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587", basis="6-31g", verbose=0)
    mf = scf.RHF(mol).run(conv_tol=1e-11)
    method = trnqc.DFMP2(scf.ROHF(mol).run(conv_tol=1e-11), frozen=1).run()
    np.testing.assert_allclose(parts(method), parts(trnqc.DFMP2(mf, frozen=1).run()), rtol=0, atol=1e-9)
    assert abs(method.result.e_singles) < 1e-12


@pytest.fixture(scope="module")
def open_shell():
    """Orbitals of both spins, the auxiliary functions, and the energies of one process in memory."""
    method = trnqc.DFMP2(uhf("NO2"), frozen=[[0, 1, 2], [0, 1]])
    auxmol = method.auxiliary_basis().auxmol
    execution = Execution(choose("cpu", "fp64"), fused=False)
    case = method.mol, auxmol, method.orbitals()
    return case, execution, run_pairs(build_factors(*case, execution), execution).energies


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize(("size", "schedule"), [(2, "static"), (3, "dynamic"), (5, "static")])
def test_ranks_have_the_same_digits(open_shell, size, schedule, kept, tmp_path):
    """Rows spread over the ranks, or in a checkpoint that all of them read."""
    case, execution, alone = open_shell

    def work(ranks):
        shared = dataclasses.replace(execution, ranks=ranks, schedule=schedule)
        with Checkpoint(tmp_path, {}) if kept and ranks.rank == 0 else nullcontext() as store:
            energies = run_pairs(build_factors(*case, shared, store), shared, store).energies
        return np.concatenate([energies.aa.ravel(), energies.ab.ravel(), energies.bb.ravel()])

    energies = same(on_threads(size, work))
    expected = np.concatenate([alone.aa.ravel(), alone.ab.ravel(), alone.bb.ravel()])
    np.testing.assert_allclose(energies, expected, rtol=1e-13) if kept else np.testing.assert_array_equal(
        energies, expected
    )


def test_factors_on_disk_and_small_memory_change_no_digit():
    whole = trnqc.DFMP2(uhf("NO2"), frozen=3).run()
    on_disk = trnqc.DFMP2(uhf("NO2"), frozen=3).set(force_outcore=True).run()
    assert "on disk" in on_disk.result.run.factors
    small = trnqc.DFMP2(uhf("NO2"), frozen=3, max_memory=0.8).run()
    assert "on disk" in small.result.run.factors
    for other in (on_disk, small):
        np.testing.assert_allclose(parts(other), parts(whole), rtol=1e-13)
    with pytest.raises(MemoryLimit, match=r"pairs ia"):
        trnqc.DFMP2(uhf("NO2"), frozen=3, max_memory=0.05).run()


def test_a_checkpoint_is_continued_and_refuses_another_spin(tmp_path):
    first = trnqc.DFMP2(uhf("H2O+"), frozen=1, checkpoint=tmp_path / "run").run()
    count = len((tmp_path / "run" / "records.jsonl").read_text().splitlines())
    again = trnqc.DFMP2(uhf("H2O+"), frozen=1, checkpoint=tmp_path / "run").run()
    assert parts(again) == parts(first)
    assert len((tmp_path / "run" / "records.jsonl").read_text().splitlines()) == count
    assert {path.name for path in (tmp_path / "run").glob("*.h5")} == {"factors-alpha.h5", "factors-beta.h5"}
    with pytest.raises(CheckpointError, match="reference is"):
        trnqc.DFMP2(rohf("H2O+"), frozen=1, checkpoint=tmp_path / "run").run()


def test_factors_of_the_caller(tmp_path):
    method = trnqc.DFMP2(uhf("H2O+"), frozen=1).run()
    alpha, beta = method.ao2mo()
    arrays = (alpha.B, beta.B), (alpha.eps_occ, beta.eps_occ), (alpha.eps_vir, beta.eps_vir)
    result = trnqc.mp2_energy(*arrays)
    assert (result.e_corr_os, result.e_corr_ss) == parts(method)
    assert (result.sizes.nocc, result.sizes.nocc_beta) == (4, 3) and result.frozen.occ_beta is None
    kept = trnqc.mp2_energy(*arrays, checkpoint=tmp_path / "run")
    assert trnqc.mp2_energy(*arrays, checkpoint=tmp_path / "run").pairs == kept.pairs
    with pytest.raises(InputError, match="same naux"):
        trnqc.mp2_energy((alpha.B, beta.B[:, :, 1:]), *arrays[1:])
    with pytest.raises(InputError, match="are not pairs"):
        trnqc.mp2_energy(arrays[0], alpha.eps_occ, alpha.eps_vir)


def test_errors_name_the_spin():
    with pytest.raises(MoleculeError, match=r"5 orbitals of each spin .* the number of occupied beta orbitals is 4"):
        trnqc.DFMP2(uhf("H2O+"), frozen=5).run()
    with pytest.raises(MoleculeError, match="all occupied orbitals of both spins are frozen"):
        trnqc.DFMP2(uhf("Li"), frozen=[0, 1]).run()
    with pytest.raises(InputError, match="call ao2mo"):
        trnqc.DFMP2(uhf("H2O+"), frozen=1).kernel(trnqc.DFMP2(uhf("H2O+")).ao2mo())
    mf = uhf("H2O+").copy()
    mf.mo_occ = mf.mo_occ * 0.5
    with pytest.raises(UnsupportedError, match=r"occupations of 1 and 0 were expected, found 0\.5 too"):
        trnqc.DFMP2(mf)


def test_a_spin_without_electrons_has_no_energy():
    """H2 of triplet spin: only alpha pairs."""
    mol = gto.M(atom="H 0 0 0; H 0 0 1.2", spin=2, basis="cc-pvdz", verbose=0)
    mf = scf.UHF(mol).run(conv_tol=1e-11)
    method = trnqc.DFMP2(mf).run()
    assert method.e_corr_os == method.result.e_corr_bb == 0.0
    assert method.e_corr_ss == pytest.approx(pyscf_ump2(mf)[1], abs=1e-11) and method.e_corr_ss < -1e-4


def test_doubtful_denominators_are_named():
    mf = uhf("H2O+").copy()
    mf.mo_energy = mf.mo_energy.copy()
    mf.mo_energy[0, 5] = mf.mo_energy[0, 4] + 1e-3
    mf.mo_energy[1, 4] = mf.mo_energy[1, 3] + 1e-3
    with pytest.warns(UserWarning, match=r"pair \(4, 3\) and the virtual orbitals \(0, 0\) of alpha and beta spin"):
        trnqc.DFMP2(mf).run()
    mf.mo_energy[0, 5] = mf.mo_energy[0, 4] - 0.3
    with pytest.warns(UserWarning, match=r"lowest virtual alpha energy lies 0\.3 Hartree .*mf\.stability\(\)"):
        trnqc.DFMP2(mf).run()


def test_the_smallest_denominator_is_found_among_all():
    rng = np.random.default_rng(4)
    for name, right in (("", None), ("aa", None), ("ab", 5)):
        eps = [np.sort(rng.uniform(-1, 0.5, 4)), np.sort(rng.uniform(-0.5, 1, 6))]
        other = [np.sort(rng.uniform(-1, 0.5, right)), np.sort(rng.uniform(-0.5, 1, 7))] if right else eps
        left = Factors(np.zeros((4, 6, 1)), *eps)
        sector = PairSector(left, Factors(np.zeros((5, 7, 1)), *other) if right else None, name)
        d = np.add.outer(eps[0], other[0])[:, :, None, None] - np.add.outer(eps[1], other[1])
        if name == "aa":
            d[np.arange(4), np.arange(4)] = d[:, :, np.arange(6), np.arange(6)] = np.inf
        messages = [m for m in denominator_warnings([sector]) if m.startswith("the denominator")]
        assert abs(d).min() < SMALLEST and f"only {abs(d).min():.2g} Hartree" in messages[0]
