"""Hessians of density-fitted SCF objects: beside PySCF's, differences of gradients, and what is left to PySCF."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyscf import df, dft, gto, scf

import trnqc
from trnqc.eri.hessian.fitted.builder import FittedHessian
from trnqc.eri.hessian.fitted.coefficients import FittedCoefficients
from trnqc.eri.hessian.fitted.energy import products_of_changes
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.eri.prepare import prebuild
from trnqc.errors import UnsupportedClass

WATER = "O 0 0.1 0.2; H 0.3 1.4 -0.9; H 0 -1.4 -0.8"
HYDROXYL = "O 0 0.1 0.2; H 0.3 1.4 -0.9"
# One shell of each kind that matters, with two contractions of one set of s functions.
BASIS = {"O": [[0, [1.2, 0.6, 0.2], [0.3, 0.4, 0.9]], [1, [0.7, 1.0]], [2, [0.8, 1.0]]], "H": [[0, [0.9, 1.0]]]}
FITTING = {"O": [[0, [2.0, 1.0]], [1, [1.3, 1.0]], [2, [0.9, 1.0]]], "H": [[0, [1.5, 1.0]], [1, [0.8, 1.0]]]}
CASES = {"RHF": "hf", "UHF": "hf", "RKS": "b3lyp", "UKS": "pbe", "range separation": "wb97x"}


def converged(atom: str = WATER, xc: str = "hf", **options: Any) -> Any:
    mol = gto.M(atom=atom, basis=BASIS, unit="Bohr", spin=int(atom == HYDROXYL), verbose=0, **options)
    mf = (scf.UHF if mol.spin else scf.RHF)(mol) if xc == "hf" else (dft.UKS if mol.spin else dft.RKS)(mol, xc=xc)
    mf = mf.density_fit(auxbasis=FITTING)
    if xc != "hf":
        mf.grids.atom_grid = (15, 38)
    return mf.run(conv_tol=1e-12, conv_tol_grad=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_a_hessian_is_that_of_pyscf(case: str) -> None:
    mf = converged(HYDROXYL if case.startswith("U") else WATER, CASES[case])
    hessian = trnqc.accelerate(mf, kernels="wait").Hessian()
    assert np.allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-9)
    assert hessian.ran_on.startswith("generated C")


def test_cartesian_functions_and_a_ghost_atom() -> None:
    mf = converged("O 0 0.1 0.2; GHOST-H 0.3 1.4 -0.9; X-H 1 1 1; H 0 -1.4 -0.8; H 0 1.4 -0.7", cart=True)
    hessian = trnqc.accelerate(mf, kernels="wait").Hessian()
    assert np.allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-9)


def test_differences_of_gradients() -> None:
    mf, step = trnqc.accelerate(converged(), kernels="wait"), 1e-3
    scanner = mf.nuc_grad_method().as_scanner()
    moved = mf.mol.atom_coords() + step * np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    back = 2 * mf.mol.atom_coords() - moved
    plus, minus = (scanner(mf.mol.set_geom_(x, unit="Bohr", inplace=False))[1] for x in (moved, back))
    # The error of central differences is a sixth of step^2 times a fourth derivative of the energy, of order one.
    assert np.allclose(mf.Hessian().kernel()[1, :, 1], (plus - minus) / (2 * step), rtol=0, atol=1e-5)


def test_a_moved_molecule_has_no_force() -> None:
    assert abs(trnqc.accelerate(converged(), kernels="wait").Hessian().kernel().sum(axis=1)).max() < 1e-7


def test_the_number_of_threads_does_not_change_the_bits() -> None:
    mf = converged()
    orbitals = [np.sqrt(2) * mf.mo_coeff[:, mf.mo_occ > 0]]
    one, three = (FittedHessian(mf.mol, mf.with_df.auxmol, threads=n) for n in (1, 3))
    assert np.array_equal(one.energy(orbitals, 1.0, 1.0), three.energy(orbitals, 1.0, 1.0))
    assert all(np.array_equal(a, b) for a, b in zip(one.fock(orbitals, True, True), three.fock(orbitals, True, True)))


def test_little_memory_divides_the_pairs_of_orbitals() -> None:
    mf = converged()
    derivatives = IntegralDerivatives(mf.mol, mf.with_df.auxmol, 0.0)
    coefficients = FittedCoefficients.of(derivatives, [mf.mo_coeff[:, mf.mo_occ > 0]], True, 2)
    whole, divided = (products_of_changes(derivatives, coefficients, True, memory, 2) for memory in (1e9, 1.0))
    assert np.allclose(whole, divided, rtol=0, atol=1e-12)


def test_what_does_not_fit_is_left_to_pyscf(monkeypatch: pytest.MonkeyPatch) -> None:
    mf = converged()
    hessian = trnqc.accelerate(mf, kernels="wait").Hessian()
    monkeypatch.setattr("trnqc.pyscf.hessian_terms.FittedTerms._memory", lambda terms: 1.0)
    assert np.allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-9)
    assert "raise max_memory" in hessian.ran_on


def test_fixed_fitting_functions_are_left_to_pyscf() -> None:
    mf = converged()
    hessian = trnqc.accelerate(mf, kernels="wait").Hessian().set(auxbasis_response=1)
    assert np.allclose(hessian.kernel(), mf.Hessian().set(auxbasis_response=1).kernel(), rtol=0, atol=1e-9)
    assert hessian.ran_on == "PySCF: auxbasis_response is below 2"


def test_two_kinds_of_functions_are_refused() -> None:
    mol = gto.M(atom=WATER, basis=BASIS, unit="Bohr", verbose=0)
    auxmol = df.make_auxmol(mol, FITTING)
    auxmol.cart = True
    with pytest.raises(UnsupportedClass, match="one kind of functions"):
        FittedHessian(mol, auxmol)


def test_programs_are_those_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from trnqc.eri.compiled import programs

    used: set[str] = set()
    build = programs.build

    def noted(recipes: Any, *words: Any) -> Any:
        used.update(recipe.name for recipe in recipes)
        return build(recipes, *words)

    monkeypatch.setattr("trnqc.eri.arrays.filling.build", noted)
    monkeypatch.setattr("trnqc.eri.compiled.programs.build", noted)
    mf = converged()
    orbitals = [np.sqrt(2) * mf.mo_coeff[:, mf.mo_occ > 0]]
    hessian = FittedHessian(mf.mol, mf.with_df.auxmol)
    hessian.energy(orbitals, 1.0, 1.0)
    hessian.fock(orbitals, True, True)
    wanted = prebuild.programs(mf.mol, ("fitting", "fitted hessian"), auxmol=mf.with_df.auxmol)
    assert used == {recipe.name for recipe in wanted}
