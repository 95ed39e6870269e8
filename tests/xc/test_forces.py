"""The exchange-correlation part of nuclear gradients: PySCF's, finite differences, and PySCF's objects with it."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, lib
from pyscf.grad import rks, uks

import trnqc
from tests.eri.test_fitting import FITTING
from trnqc.xc.forces import gradient_on, xc_gradient

# The sums of a few thousand points differ by the order of their terms.
TOLERANCE = 1e-10
FUNCTIONALS = ("lda,vwn", "pbe", "b3lyp", "tpss", "m06l", "camb3lyp")
# One shell of each kind, so that few programs have to be compiled.
BASIS = {
    "O": gto.parse("O S\n 8.0 0.4 \n 1.2 0.7\nO S\n 0.3 1.0\nO P\n 2.2 0.5\n 0.5 0.6\nO D\n 1.1 1.0"),
    "H": gto.parse("H S\n 3.0 0.2\n 0.5 0.9\nH P\n 0.8 1.0"),
}
WATER = "O 0.02 -0.03 0.01; H 0.1 0.2 0.95; H 0.9 -0.1 -0.3"


def water(atoms: str = WATER, **options) -> gto.Mole:
    return gto.M(atom=atoms, basis=BASIS, verbose=0, **options)


def density(mol: gto.Mole, spins: int = 1, seed: int = 0) -> np.ndarray:
    """Densities of orthonormal orbitals with occupations between 0 and 2."""
    rng, s = np.random.default_rng(seed), mol.intor("int1e_ovlp")
    inverse = np.linalg.inv(np.linalg.cholesky(s)).T
    dms = []
    for _ in range(spins):
        c = inverse @ np.linalg.qr(rng.normal(size=s.shape))[0][:, :5]
        dms.append(c * rng.uniform(0.5, 2 / spins, 5) @ c.T)
    return np.array(dms) if spins == 2 else dms[0]


def contracted(mol: gto.Mole, v: np.ndarray, dm: np.ndarray) -> np.ndarray:
    """The gradient by atom from PySCF's matrices of derivatives."""
    v, dm = v.reshape(-1, 3, mol.nao, mol.nao), dm.reshape(-1, mol.nao, mol.nao)
    return np.array([2 * np.einsum("sxij,sij->x", v[:, :, a:b], dm[:, a:b]) for a, b in mol.aoslice_by_atom()[:, 2:]])


@pytest.mark.parametrize("xc", FUNCTIONALS)
@pytest.mark.parametrize("spins", [1, 2])
@pytest.mark.parametrize("cart", [False, True], ids=["spherical", "cartesian"])
def test_gradient_is_that_of_pyscf(xc, spins, cart) -> None:
    mol = water(cart=cart)
    ni, grids, dm = dft.numint.NumInt(), dft.Grids(mol), density(mol, spins)
    grids.atom_grid = (20, 50)
    grids.build(with_non0tab=True)
    theirs = (rks if spins == 1 else uks).get_vxc(ni, mol, grids, xc, dm)[1]
    np.testing.assert_allclose(xc_gradient(ni, mol, grids, xc, dm), contracted(mol, theirs, dm), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("xc", ["lda,vwn", "pbe", "tpss"])
def test_gradient_is_the_derivative_of_the_energy(xc) -> None:
    """Functions move, points and the density matrix do not."""
    mol, step = water(), 1e-4
    ni, grids, dm = dft.numint.NumInt(), dft.Grids(mol), density(mol)
    grids.atom_grid = (20, 50)
    grids.build(with_non0tab=True)

    def energy(shift: float) -> float:
        coords = mol.atom_coords()
        coords[1, 2] += shift
        return ni.nr_rks(mol.set_geom_(coords, unit="Bohr", inplace=False), grids, xc, dm)[1]

    difference = (energy(step) - energy(-step)) / (2 * step)
    assert xc_gradient(ni, mol, grids, xc, dm)[1, 2] == pytest.approx(difference, abs=1e-7)


def test_density_of_any_rank() -> None:
    """A matrix of full rank with negative eigenvalues, where products with factors take more operations."""
    mol = water()
    matrix = np.random.default_rng(2).normal(size=(mol.nao, mol.nao))
    dm = density(mol) + 0.01 * (matrix + matrix.T)
    ni, grids = dft.numint.NumInt(), dft.Grids(mol)
    grids.atom_grid = (10, 50)
    grids.build(with_non0tab=True)
    theirs = contracted(mol, rks.get_vxc(ni, mol, grids, "pbe", dm)[1], dm)
    np.testing.assert_allclose(xc_gradient(ni, mol, grids, "pbe", dm), theirs, rtol=0, atol=TOLERANCE)


def test_threads_do_not_change_the_gradient() -> None:
    mol = water()
    ni, grids, dm = dft.numint.NumInt(), dft.Grids(mol), density(mol)
    grids.atom_grid = (20, 50)
    grids.build(with_non0tab=True)
    with lib.with_omp_threads(1):
        one = xc_gradient(ni, mol, grids, "pbe", dm)
    with lib.with_omp_threads(2):
        np.testing.assert_array_equal(xc_gradient(ni, mol, grids, "pbe", dm), one)


def test_a_functional_without_semilocal_part_gives_nothing() -> None:
    mol = water()
    grids = dft.Grids(mol)
    grids.atom_grid = (10, 14)
    assert not xc_gradient(dft.numint.NumInt(), mol, grids.build(), "hf", density(mol)).any()


def test_no_points() -> None:
    mol = small()
    assert not gradient_on(dft.numint.NumInt(), mol, np.zeros((0, 3)), np.zeros(0), "pbe", density(mol)).any()


def few_cycles(mf):
    """Orbitals of some cycles, from which both compute the same gradient."""
    mf.grids.atom_grid = (20, 50)
    return mf.run(max_cycle=3)


OBJECTS = {
    "RKS": (dft.RKS, "b3lyp", 0),
    "UKS": (dft.UKS, "tpss", 2),
    "ROKS": (dft.ROKS, "pbe", 2),
    "no functional": (dft.RKS, "hf", 0),
}


def small(spin: int = 0) -> gto.Mole:
    """s and p functions, for which kernels of J and K are compiled by other tests too."""
    return gto.M(atom=WATER, basis="6-31g", spin=spin, verbose=0)


@pytest.mark.parametrize("fitted", [False, True], ids=["direct", "fitted"])
@pytest.mark.parametrize("name", OBJECTS)
def test_gradients_objects(name, fitted) -> None:
    method, xc, spin = OBJECTS[name]
    mf = method(small(spin), xc=xc)
    assert_same_gradient(few_cycles(mf.density_fit(auxbasis=FITTING) if fitted else mf))


def test_range_separated_hybrid() -> None:
    assert_same_gradient(few_cycles(dft.RKS(small(), xc="camb3lyp").density_fit(auxbasis=FITTING)))


def assert_same_gradient(mf) -> None:
    ours = trnqc.accelerate(mf).nuc_grad_method()
    np.testing.assert_allclose(ours.kernel(), mf.nuc_grad_method().kernel(), rtol=0, atol=1e-9)
    assert ours.xc_ran_on == ("generated programs" if mf.xc != "hf" else "PySCF: the functional is of the kind HF")
    np.testing.assert_allclose(ours.get_veff(), mf.nuc_grad_method().get_veff(), rtol=0, atol=1e-9)


def test_some_atoms_only() -> None:
    mf = few_cycles(dft.RKS(small(), xc="pbe"))
    some = trnqc.accelerate(mf).nuc_grad_method().grad_elec(atmlst=[2, 0])
    np.testing.assert_allclose(some, mf.nuc_grad_method().grad_elec()[[2, 0]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["RKS", "UKS"])
@pytest.mark.parametrize("xc", ["lda,vwn", "pbe", "m06"])
def test_grid_response_is_that_of_pyscf(name, xc) -> None:
    method, _, spin = OBJECTS[name]
    mf = few_cycles(method(small(spin), xc=xc))
    plain, ours = mf.nuc_grad_method(), trnqc.accelerate(mf).nuc_grad_method()
    plain.grid_response = ours.grid_response = True
    np.testing.assert_allclose(ours.kernel(), plain.kernel(), rtol=0, atol=1e-9)
    assert ours.xc_ran_on == "generated programs"


def test_grid_response_of_a_partition_that_pyscf_differentiates() -> None:
    mf = dft.RKS(small(), xc="pbe")
    mf.grids.becke_scheme = dft.gen_grid.becke_lko
    mf = few_cycles(mf)
    plain, ours = mf.nuc_grad_method(), trnqc.accelerate(mf).nuc_grad_method()
    plain.grid_response = ours.grid_response = True
    np.testing.assert_allclose(ours.kernel(), plain.kernel(), rtol=0, atol=1e-9)


def test_grid_response_with_nonlocal_correlation() -> None:
    mf = dft.RKS(small(), xc="b97m_v")
    mf.nlcgrids.atom_grid = (10, 14)
    mf = few_cycles(mf)
    plain, ours = mf.nuc_grad_method(), trnqc.accelerate(mf).nuc_grad_method()
    plain.grid_response = ours.grid_response = True
    np.testing.assert_allclose(ours.kernel(), plain.kernel(), rtol=0, atol=1e-9)
    assert ours.xc_ran_on == "generated programs, nonlocal correlation by PySCF"


@pytest.mark.parametrize("name", ["RKS", "UKS"])
def test_nonlocal_correlation(name) -> None:
    method, _, spin = OBJECTS[name]
    mf = method(small(spin), xc="b97m_v")
    mf.nlcgrids.atom_grid = (10, 14)
    mf = few_cycles(mf)
    ours = trnqc.accelerate(mf).nuc_grad_method()
    np.testing.assert_allclose(ours.kernel(), mf.nuc_grad_method().kernel(), rtol=0, atol=1e-9)
    assert ours.xc_ran_on == "generated programs"
    assert ours.base.nlc == mf.nlc


def test_hartree_fock_has_no_layer() -> None:
    gradients = trnqc.accelerate(small().RHF().run()).nuc_grad_method()
    assert not hasattr(gradients, "xc_ran_on")


def test_the_layer_comes_off() -> None:
    mf = few_cycles(dft.RKS(small(), xc="pbe").density_fit(auxbasis=FITTING))
    gradients = trnqc.accelerate(mf).nuc_grad_method()
    assert "xc_ran_on" not in gradients.undo().__dict__


def test_scanner() -> None:
    mf = few_cycles(dft.RKS(small(), xc="lda,vwn").density_fit(auxbasis=FITTING))
    mf.max_cycle = 50
    moved = small().set_geom_("O 0 0 0; H 0 0.1 1; H 0.9 0 -0.3", inplace=False)
    theirs = mf.nuc_grad_method().as_scanner()(moved)
    energy, gradient = trnqc.accelerate(mf).nuc_grad_method().as_scanner()(moved)
    assert energy == pytest.approx(theirs[0], abs=1e-9)
    np.testing.assert_allclose(gradient, theirs[1], rtol=0, atol=1e-7)
