"""Gradients of SCF objects with exchange on a grid: against differences of their energies, and exact gradients."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, mp, scf

import trnqc
from tests.eri.test_seminumerical_gradient import ACCURATE, DIFFERENCES, derivative, direction
from trnqc.errors import UnsupportedError

# s functions alone, so that few kernels are compiled.
FITTING = {symbol: [[0, [e, 1.0]] for e in (0.2, 0.6, 1.8, 5.4, 16.0)] for symbol in ("H", "He")}
METHODS = {
    "RHF": lambda mol: scf.RHF(mol),
    "UHF": lambda mol: scf.UHF(mol),
    "ROHF": lambda mol: scf.ROHF(mol),
    "RHF with fitted J": lambda mol: scf.RHF(mol).density_fit(auxbasis=FITTING),
    "B3LYP": lambda mol: dft.RKS(mol, xc="b3lyp"),
    "UKS of PBE0": lambda mol: dft.UKS(mol, xc="pbe0"),
    "CAM-B3LYP": lambda mol: dft.RKS(mol, xc="camb3lyp"),
    "CAM-B3LYP with fitted J": lambda mol: dft.RKS(mol, xc="camb3lyp").density_fit(auxbasis=FITTING),
    "UKS of HSE06": lambda mol: dft.UKS(mol, xc="hse06"),
    "UKS of HSE06 with fitted J": lambda mol: dft.UKS(mol, xc="hse06").density_fit(auxbasis=FITTING),
    "SVWN": lambda mol: dft.RKS(mol, xc="svwn"),
}
OPEN = ("UHF", "ROHF", "UKS of PBE0", "UKS of HSE06", "UKS of HSE06 with fitted J")


def accelerated(name: str):
    charge = 0 if name in OPEN else 1
    mol = gto.M(atom="H 0 0 0; He 0.1 0 0.9", charge=charge, spin=1 - charge, basis="6-31g", verbose=0)
    mf = METHODS[name](mol)
    if hasattr(mf, "grids"):
        mf.grids.level = 1
    return trnqc.accelerate(mf, exchange="seminumerical").run(conv_tol=1e-11)


@pytest.mark.parametrize("name", METHODS)
def test_gradients_of_scf_objects(name: str):
    mf = accelerated(name)
    gradients = mf.nuc_grad_method()
    if hasattr(mf, "grids"):
        gradients.grid_response = True
    de, along = gradients.kernel(), direction(mf.mol)
    if name not in OPEN:  # PySCF's code for open shells fails for some of the atoms.
        assert abs(gradients.grad_elec(atmlst=[1]) + gradients.grad_nuc(atmlst=[1]) - de[1]).max() < 1e-9
    if "fitted" not in name:
        exact = mf.undo().run().nuc_grad_method()
        exact.grid_response = hasattr(mf, "grids")
        assert abs(de - exact.kernel()).max() < ACCURATE
    # The SCF of each geometry adds to the error of the differences. PySCF's own gradients with the functional HSE06 of
    # libxc differ from differences by 1e-5.
    expected = derivative(mf.as_scanner(), mf.mol, along)
    assert np.sum(de * along) == pytest.approx(expected, abs=5e-5 if "HSE" in name else 3 * DIFFERENCES)
    assert gradients.exchange_ran_on == "no exact exchange" if name == "SVWN" else "points" in gradients.exchange_ran_on
    assert type(gradients.undo()) is type(mf.undo().nuc_grad_method())


def test_scanner_follows_the_geometry():
    mf = accelerated("RHF")
    moved = mf.mol.set_geom_(mf.mol.atom_coords() * 1.1, unit="Bohr", inplace=False)
    e, de = mf.nuc_grad_method().as_scanner()(moved)
    other = trnqc.accelerate(scf.RHF(moved), exchange="seminumerical").run(conv_tol=1e-11)
    assert e == pytest.approx(other.e_tot, abs=1e-8)
    assert abs(de - other.Gradients().kernel()).max() < 1e-6


def test_matrices_of_derivatives_are_refused():
    mf = accelerated("RHF")
    gradients = mf.nuc_grad_method()
    for call in (gradients.get_veff, gradients.get_jk, gradients.get_k):
        with pytest.raises(UnsupportedError, match="no matrices of derivatives of K"):
            call()
    assert gradients.get_j().shape == (3, mf.mol.nao, mf.mol.nao)
    gradients.get_veff = lambda mol=None, dm=None: np.zeros((3, mf.mol.nao, mf.mol.nao))
    with pytest.raises(UnsupportedError, match="get_veff of this object"):
        gradients.kernel()


def test_gradients_of_correlated_methods_and_excited_states_are_refused():
    mf = accelerated("RHF")
    with pytest.raises(UnsupportedError, match="found seminumerical"):
        trnqc.DFMP2(mf).nuc_grad_method()
    for method in (mf.TDA().run(nstates=1), mp.MP2(mf).run()):
        with pytest.raises(UnsupportedError, match="gradients of SCF energies alone"):
            method.nuc_grad_method().kernel()


@pytest.mark.parametrize("solver", ["newton", "solvent", "X2C"])
def test_other_layers_of_pyscf(solver: str):
    mol = gto.M(atom="H 0 0 0; He 0.1 0 0.9", charge=1, basis="6-31g", verbose=0)
    make = {"newton": lambda mf: mf, "solvent": lambda mf: mf.PCM(), "X2C": lambda mf: mf.sfx2c1e()}[solver]
    mf = trnqc.accelerate(make(scf.RHF(mol)), exchange="seminumerical")
    gradients = (mf.newton() if solver == "newton" else mf).run().nuc_grad_method()
    exact = make(scf.RHF(mol)).run().nuc_grad_method().kernel()
    assert 1e-8 < abs(gradients.kernel() - exact).max() < ACCURATE
