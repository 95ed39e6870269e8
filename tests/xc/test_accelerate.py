"""Kohn-Sham objects with J, K and the quadrature by generated programs."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto
from pyscf.dft import numint

import trnqc
from trnqc.xc.numint import NumInt


@pytest.fixture(scope="module")
def water() -> gto.Mole:
    atoms = "O 0 0 0; H 0 0 1.8; H 1.7 0.2 -0.3"
    basis = {"O": [[0, [6.4, 0.4], [0.9, 0.5]], [1, [1.2, 1.0]]], "H": [[0, [0.5, 1.0]]]}
    return gto.M(atom=atoms, unit="B", basis=basis, verbose=0)


@pytest.fixture(scope="module")
def cation(water) -> gto.Mole:
    mol = water.copy()
    mol.charge, mol.spin = 1, 1
    return mol.build()


def small(mf):
    mf.grids.level, mf.conv_tol = 0, 1e-11
    return mf


@pytest.mark.parametrize("xc", ["lda,vwn", "b3lyp", "r2scan", "wb97x-d3bj"])
def test_closed_shells(water, xc):
    plain = small(dft.RKS(water, xc=xc)).run()
    ours = trnqc.accelerate(small(dft.RKS(water, xc=xc))).run()
    assert isinstance(ours._numint, NumInt)
    assert ours._numint.ran_on == "generated programs"
    np.testing.assert_allclose(ours.e_tot, plain.e_tot, rtol=0, atol=1e-9)
    assert type(ours.undo()._numint) is numint.NumInt


@pytest.mark.parametrize("kind", [dft.UKS, dft.ROKS])
def test_open_shells(cation, kind):
    plain = small(kind(cation, xc="pbe0")).run()
    ours = trnqc.accelerate(small(kind(cation, xc="pbe0"))).run()
    assert ours._numint.ran_on == "generated programs"
    np.testing.assert_allclose(ours.e_tot, plain.e_tot, rtol=0, atol=1e-9)


def test_nonlocal_correlation_is_pyscfs(water):
    plain, ours = (small(dft.RKS(water, xc="b97m_v")) for _ in range(2))
    ours = trnqc.accelerate(ours)
    for mf in (plain, ours):
        mf.nlcgrids.level = 0
        mf.kernel()
    np.testing.assert_allclose(ours.e_tot, plain.e_tot, rtol=0, atol=1e-9)


def test_another_integration_stays(water):
    class Other(numint.NumInt):
        """A class of the user."""

    mf = dft.RKS(water, xc="pbe")
    mf._numint = Other()
    assert type(trnqc.accelerate(mf)._numint) is Other


def test_gradients_and_scanners(water):
    plain = small(dft.RKS(water, xc="pbe"))
    ours = trnqc.accelerate(small(dft.RKS(water, xc="pbe")))
    moved = water.set_geom_(water.atom_coords() * 1.02, unit="B", inplace=False)
    for mol in (water, moved):
        energies = [mf.as_scanner()(mol) for mf in (plain, ours)]
        np.testing.assert_allclose(*energies, rtol=0, atol=1e-9)
    forces = [mf.run().nuc_grad_method().kernel() for mf in (plain, ours)]
    np.testing.assert_allclose(*forces, rtol=0, atol=1e-7)


def test_a_functional_that_libxc_lacks_is_refused(water):
    mf = trnqc.accelerate(dft.RKS(water, xc="no_such_functional"))
    with pytest.raises(KeyError, match="not found"):
        mf.kernel()
