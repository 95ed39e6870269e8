"""Densities and gradients of MP2 on ROHF references against derivatives by finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, scf

import trnqc
from trnqc.errors import TrnqcError
from trnqc.mp2.density.natural import natural_orbitals
from trnqc.mp2.density.restricted_open import restricted_open_density

# Bohr; an amino radical without symmetry.
POSITIONS = np.array([[0.2, 0.0, 0.22], [0.0, 1.43, -0.88], [0.1, -1.3, -0.8]])


def radical(positions=POSITIONS, field: float = 0.0, fitted: bool = True, frozen=None):
    mol = gto.M(atom=list(zip("NHH", positions)), unit="Bohr", basis="6-31g", spin=1, verbose=0)
    mf = scf.ROHF(mol)
    if fitted:
        mf = mf.density_fit(auxbasis="cc-pvdz-jkfit")
    core = mf.get_hcore() + field * mol.intor("int1e_r")[2]
    mf.get_hcore = lambda *args: core
    return trnqc.DFMP2(mf.run(conv_tol=1e-13, conv_tol_grad=1e-9), auxbasis="cc-pvdz-ri", frozen=frozen)


def slope(energy, step: float) -> float:
    """The derivative at zero by a four-point formula."""
    e = {n: energy(n * step) for n in (-2, -1, 1, 2)}
    return (8 * (e[1] - e[-1]) - (e[2] - e[-2])) / (12 * step)


def density_of(mp, relaxed: bool):
    rest = list(mp.ao2mo()), mp.auxiliary_basis().auxmol, mp._execution()
    return restricted_open_density(mp._scf, mp.orbitals(), *rest, relaxed=relaxed)


@pytest.mark.parametrize(("fitted", "frozen"), [(False, None), (True, 1), (True, [0, 2, 12]), (False, [[0], [0, 4]])])
def test_dipole_is_the_derivative_by_an_electric_field(fitted, frozen):
    density = radical(fitted=fitted, frozen=frozen).make_rdm1(relaxed=True, ao_repr=True).sum(axis=0)
    moment = np.vdot(radical().mol.intor("int1e_r")[2], density)
    expected = slope(lambda f: radical(field=f, fitted=fitted, frozen=frozen).run().e_tot, 2e-3)
    assert moment == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("frozen", [None, 1, [0, 2, 12]])
def test_gradient_is_the_derivative_by_the_positions(frozen):
    direction = np.random.default_rng(1).standard_normal((3, 3))
    analytic = radical(frozen=frozen).nuc_grad_method().kernel()
    assert np.abs(analytic.sum(axis=0)).max() < 1e-9
    expected = slope(lambda s: radical(POSITIONS + s * direction, frozen=frozen).run().e_tot, 1.5e-3)
    assert np.vdot(analytic, direction) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize("relaxed", [False, True])
def test_traces(relaxed):
    mp = radical()
    rdm1 = mp.make_rdm1(relaxed=relaxed)
    assert np.abs(rdm1 - density_of(mp, relaxed).rdm1()).max() < 1e-9
    assert rdm1.trace(axis1=1, axis2=2) == pytest.approx([5, 4], abs=1e-10)
    occupations, _ = natural_orbitals(rdm1, mp.mo_coeff)
    assert occupations.sum() == pytest.approx(9, abs=1e-10)


def test_closed_shell_as_rohf():
    mol = gto.M(atom="O 0 0 0.1; H 0 0.75 -0.47; H 0 -0.75 -0.47", basis="6-31g", verbose=0)
    mf = scf.RHF(mol).run(conv_tol=1e-13, conv_tol_grad=1e-9)
    closed = trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri").make_rdm1(relaxed=True)
    rohf = scf.rohf.ROHF(mol).run(mf.make_rdm1(), conv_tol=1e-13, conv_tol_grad=1e-9)
    opened = density_of(trnqc.DFMP2(rohf, auxbasis="cc-pvdz-ri"), relaxed=True).rdm1(ao_repr=True)
    assert np.abs(opened.sum(axis=0) - mf.mo_coeff @ closed @ mf.mo_coeff.T).max() < 1e-7


def test_frozen_and_correlated_orbitals_that_are_degenerate():
    """The nitrogen atom has a half-filled p shell."""
    mf = scf.ROHF(gto.M(atom="N", basis="6-31g", spin=3, verbose=0)).run(conv_tol=1e-12)
    with pytest.raises(TrnqcError, match=r"one of the orbitals 2 and [34] is frozen, and both have the same energy"):
        trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri", frozen=[2]).make_rdm1(relaxed=True)
