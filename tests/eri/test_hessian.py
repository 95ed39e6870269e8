"""Analytic Hessians: two-electron terms and whole Hessians beside PySCF's, invariances, finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, lib, scf
from pyscf.hessian import rhf as rhf_hessian
from pyscf.hessian import uhf as uhf_hessian

import trnqc
from trnqc.eri.hessian.one_electron import one_electron_energy
from trnqc.eri.hessian.two_electron import HessianBuilder
from trnqc.errors import InputError

WATER = "O 0 0.1 0.1173; H 0.2 0.7572 -0.4692; H 0 -0.7572 -0.4692"
HYDROXYL = "O 0 0.1 0.1173; H 0.2 0.7572 -0.4692"
# Two contractions of one set of s and of p functions.
GENERAL = {
    "O": [[0, [9.0, 0.4, 0.1], [1.2, 0.6, 0.5]], [1, [1.5, 0.5, 0.2], [0.4, 0.6, 0.9]]],
    "H": [[0, [1.3, 0.5, 0.3], [0.3, 0.5, 0.9]]],
}


def molecule(atom: str = WATER, **options: object) -> gto.Mole:
    return gto.M(atom=atom, verbose=0, **({"basis": "sto-3g"} | options))


def converged(mol: gto.Mole, **options: object) -> scf.hf.SCF:
    mf = (scf.UHF if mol.spin else scf.RHF)(mol).set(conv_tol=1e-12, **options)
    return mf.run()


@pytest.mark.parametrize(
    "mol",
    [molecule(), molecule(HYDROXYL, spin=1), molecule(basis=GENERAL), molecule("H 0 0 0; X-H 0 1 1; H 0 0 0.8")],
    ids=["RHF", "UHF", "general", "ghost"],
)
def test_second_derivatives_are_those_of_pyscf(mol: gto.Mole) -> None:
    mf = converged(mol)
    package = uhf_hessian if mol.spin else rhf_hessian
    ej, ek = package._partial_hess_ejk(mf.Hessian())[1:]
    own = HessianBuilder(mol).energy(np.reshape(mf.make_rdm1(), (-1, mol.nao, mol.nao)))
    assert np.allclose(own, (ej, ek), rtol=0, atol=1e-9)


def test_one_electron_terms_are_those_of_pyscf() -> None:
    mf = converged(molecule())
    e1 = rhf_hessian._partial_hess_ejk(mf.Hessian())[0]
    weighted = (mf.mo_coeff * mf.mo_occ * mf.mo_energy) @ mf.mo_coeff.T
    assert np.allclose(one_electron_energy(mf.Hessian(), mf.make_rdm1(), weighted), e1, rtol=0, atol=1e-10)


@pytest.mark.parametrize("omega", [0.0, 0.4, -0.4])
def test_an_operator_with_omega_and_one_matrix_alone(omega: float) -> None:
    mol = molecule("O 0 0 0; H 0 0.7 0.6", charge=-1)
    mf = converged(mol)
    with mol.with_range_coulomb(omega):
        ej, ek = rhf_hessian._partial_hess_ejk(mf.Hessian())[1:]
    builder, dm = HessianBuilder(mol, omega), mf.make_rdm1()[None]
    assert np.allclose(builder.energy(dm, with_k=False)[0], ej, rtol=0, atol=1e-9)
    assert np.allclose(builder.energy(dm, with_j=False)[1], ek, rtol=0, atol=1e-9)


@pytest.mark.parametrize("mol", [molecule(), molecule(HYDROXYL, spin=1)], ids=["RHF", "UHF"])
def test_derivatives_of_the_fock_matrix_are_those_of_pyscf(mol: gto.Mole) -> None:
    mf = converged(mol)
    expected = mf.Hessian().make_h1(mf.mo_coeff, mf.mo_occ)
    own = trnqc.accelerate(mf, kernels="wait").Hessian().make_h1(mf.mo_coeff, mf.mo_occ)
    assert np.allclose(own, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mol", [molecule(), molecule(HYDROXYL, spin=1)], ids=["RHF", "UHF"])
def test_a_whole_hessian_is_that_of_pyscf(mol: gto.Mole) -> None:
    mf = converged(mol)
    hessian = trnqc.accelerate(mf, kernels="wait").Hessian()
    assert np.allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-8)
    assert hessian.ran_on.startswith("generated C")
    assert type(hessian.undo()) is type(mf.Hessian())


def test_some_atoms_have_blocks_of_the_whole() -> None:
    mf = trnqc.accelerate(converged(molecule()), kernels="wait")
    some = mf.Hessian().kernel(atmlst=[2, 0])
    assert np.allclose(some, mf.Hessian().kernel()[np.ix_([2, 0], [2, 0])], rtol=0, atol=1e-8)


def test_a_moved_molecule_has_no_force() -> None:
    mf = trnqc.accelerate(converged(molecule()), kernels="wait")
    assert abs(mf.Hessian().kernel().sum(axis=1)).max() < 1e-7


def test_differences_of_gradients() -> None:
    mf, step = trnqc.accelerate(converged(molecule()), kernels="wait"), 1e-3
    scanner = mf.nuc_grad_method().as_scanner()
    moved = mf.mol.atom_coords() + step * np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    back = 2 * mf.mol.atom_coords() - moved
    plus, minus = (scanner(mf.mol.set_geom_(x, unit="Bohr", inplace=False))[1] for x in (moved, back))
    assert np.allclose(mf.Hessian().kernel()[1, :, 1], (plus - minus) / (2 * step), rtol=0, atol=2e-5)


def test_the_number_of_threads_does_not_change_the_bits() -> None:
    mol = molecule()
    dm = scf.RHF(mol).get_init_guess(key="1e")[None]
    one, three = (HessianBuilder(mol, threads=n) for n in (1, 3))
    assert np.array_equal(one.energy(dm), three.energy(dm))
    assert all(np.array_equal(a, b) for a, b in zip(one.fock(dm), three.fock(dm)))


def test_missing_kernels_leave_the_hessian_to_pyscf(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    mf = converged(molecule("H 0 0 0; H 0 0 0.8"))
    hessian = trnqc.accelerate(mf, kernels="cached").Hessian()
    monkeypatch.setattr("trnqc.eri.compiled.programs.is_compiled", lambda program: False)
    assert np.allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-9)
    assert hessian.ran_on.startswith("PySCF")


def test_a_chkfile_and_a_copy_keep_the_layer() -> None:
    mf = trnqc.accelerate(converged(molecule("H 0 0 0; H 0 0 0.8")), kernels="wait")
    hessian = mf.Hessian().copy()
    assert np.allclose(lib.view(hessian, hessian.__class__).kernel(), mf.undo().Hessian().kernel(), rtol=0, atol=1e-8)


def test_densities_of_another_molecule_are_refused() -> None:
    with pytest.raises(InputError, match="two finite densities"):
        HessianBuilder(molecule()).energy(np.zeros((3, 7, 7)))
