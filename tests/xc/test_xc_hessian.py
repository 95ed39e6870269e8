"""Exchange-correlation terms of Hessians: beside PySCF's on the same grid, and whole Hessians of Kohn-Sham objects."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pyscf import dft, gto
from pyscf.hessian import rks, uks

import trnqc
from trnqc.errors import UnsupportedError
from trnqc.xc.hessian.quadrature import Functional, HessianQuadrature
from trnqc.xc.hessian.response import PotentialResponse

WATER = "O 0 0.1 0.1173; H 0.2 0.7572 -0.4692; H 0 -0.7572 -0.4692"
HYDROXYL = "O 0 0.1 0.1173; H 0.2 0.7572 -0.4692"
CASES = [(WATER, "lda,vwn"), (WATER, "b3lyp"), (WATER, "r2scan"), (HYDROXYL, "lda,vwn"), (HYDROXYL, "pbe0")]
CASES.append((HYDROXYL, "m06l"))


def kohn_sham(atom: str, xc: str, basis: str = "sto-3g", cycles: int = 50) -> Any:
    mol = gto.M(atom=atom, basis=basis, spin=atom.count("H") % 2, verbose=0)
    mf = (dft.UKS if mol.spin else dft.RKS)(mol, xc=xc).set(conv_tol=1e-11, max_cycle=cycles)
    mf.grids.atom_grid = (15, 38)
    mf.kernel()
    return mf


def quadrature(mf: Any) -> HessianQuadrature:
    dms = mf.make_rdm1().reshape(-1, mf.mol.nao, mf.mol.nao)
    functional = Functional(mf._numint, mf.xc, len(dms))
    return HessianQuadrature(mf.mol, (mf.grids.coords, mf.grids.weights), functional, dms, 2)


def package(mf: Any) -> ModuleType:
    return uks if mf.mol.spin else rks


def energy_of_pyscf(mf: Any) -> np.ndarray:
    """PySCF's matrices of second derivatives contracted with the densities, as its partial_hess_elec does."""
    arguments = mf.Hessian(), mf.mo_coeff, mf.mo_occ, 2000
    parts = [np.array(f(*arguments)) for f in (package(mf)._get_vxc_diag, package(mf)._get_vxc_deriv2)]
    n, slices = mf.mol.natm, mf.mol.aoslice_by_atom()[:, 2:]
    dms = mf.make_rdm1().reshape(-1, mf.mol.nao, mf.mol.nao)
    shape = mf.mol.nao, mf.mol.nao
    total = np.zeros((n, n, 3, 3))
    for one, two, dm in zip(parts[0].reshape(-1, 3, 3, *shape), parts[1].reshape(-1, n, 3, 3, *shape), dms):
        for a, (p, q) in enumerate(slices):
            total[a, a] += 2 * np.einsum("xyij,ij->xy", one[:, :, p:q], dm[p:q])
            for b, (r, s) in enumerate(slices[: a + 1]):
                total[a, b] += 2 * np.einsum("xyij,ij->xy", two[a][:, :, r:s], dm[r:s])
    for a, b in zip(*np.triu_indices(n, 1)):
        total[a, b] = total[b, a].T
    return total


@pytest.mark.parametrize(("atom", "xc"), CASES)
def test_second_derivatives_at_constant_density(atom: str, xc: str) -> None:
    mf = kohn_sham(atom, xc, "6-31g*", cycles=1)
    assert np.allclose(quadrature(mf).energy(), energy_of_pyscf(mf), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("atom", "xc"), CASES)
def test_derivatives_of_the_potential(atom: str, xc: str) -> None:
    mf = kohn_sham(atom, xc, "6-31g*", cycles=1)
    own = quadrature(mf).fock()
    expected = package(mf)._get_vxc_deriv1(mf.Hessian(), mf.mo_coeff, mf.mo_occ, 2000)
    assert np.allclose(own, np.reshape(expected, own.shape), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("atom", "xc"), CASES)
def test_response_to_changes_of_orbitals(atom: str, xc: str) -> None:
    mf, spin = kohn_sham(atom, xc, "6-31g*", cycles=1), int(atom == HYDROXYL)
    ni, nao = mf._numint, mf.mol.nao
    orbitals = zip(mf.mo_coeff.reshape(-1, nao, nao), mf.mo_occ.reshape(-1, nao))
    occupied = [c[:, n > 0] for c, n in orbitals]
    changes = [np.random.default_rng(5).random((3, *c.shape)) - 0.5 for c in occupied]
    half = np.array([np.matmul(u, c.T) for u, c in zip(changes, occupied)])
    kernel = ni.cache_xc_kernel(mf.mol, mf.grids, xc, mf.mo_coeff, mf.mo_occ, spin)
    potential = (ni.nr_uks_fxc if spin else ni.nr_rks_fxc)(
        mf.mol, mf.grids, xc, None, (half + half.swapaxes(2, 3)).squeeze(), 0, 1, *kernel
    )
    response = PotentialResponse(quadrature(mf), occupied)(changes)
    for own, matrix, c in zip(response, potential.reshape(-1, 3, nao, nao), occupied):
        assert np.allclose(own, matrix @ c, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("atom", "xc"), [(WATER, "b3lyp"), (WATER, "camb3lyp"), (WATER, "r2scan"), (WATER, "hf"), (HYDROXYL, "pbe0")]
)
def test_a_whole_hessian_is_that_of_pyscf(atom: str, xc: str) -> None:
    mf = kohn_sham(atom, xc)
    hessian = trnqc.accelerate(mf, kernels="wait").Hessian()
    assert np.allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-8)
    assert hessian.ran_on.startswith("generated C")


def test_a_grid_of_the_hessian_alone() -> None:
    """Of s functions, because kernels of p functions take long to compile and have nothing to do with the grid."""
    mf = kohn_sham("H 0 0 0; H 0 0.3 0.8", "pbe")
    grids = dft.Grids(mf.mol).set(atom_grid=(10, 26)).build()
    hessians = [one.Hessian().set(grids=grids) for one in (mf, trnqc.accelerate(mf, kernels="wait"))]
    expected, own = (h.partial_hess_elec(mf.mo_energy, mf.mo_coeff, mf.mo_occ) for h in hessians)
    assert np.allclose(own, expected, rtol=0, atol=1e-9)


def test_a_functional_without_a_density_is_refused() -> None:
    mf = kohn_sham("H 0 0 0; H 0 0 0.8", "hf")
    with pytest.raises(UnsupportedError, match="LDA, GGA and meta-GGA"):
        quadrature(mf).energy()


def test_the_number_of_threads_does_not_change_the_bits() -> None:
    mf = kohn_sham(WATER, "pbe", cycles=2)
    results = []
    for threads in (1, 3):
        one = quadrature(mf)
        one.threads = threads
        occupied = [mf.mo_coeff[:, mf.mo_occ > 0]]
        changes = [np.random.default_rng(1).normal(size=(4, *occupied[0].shape))]
        results.append((one.energy(), one.fock(), PotentialResponse(one, occupied)(changes)[0]))
    assert all(np.array_equal(a, b) for a, b in zip(*results))


def test_no_points_contribute_nothing() -> None:
    mf = kohn_sham(WATER, "pbe", cycles=1)
    functional, dms = Functional(mf._numint, mf.xc, 1), mf.make_rdm1()[None]
    none = HessianQuadrature(mf.mol, (np.zeros((0, 3)), np.zeros(0)), functional, dms, 2)
    occupied = [mf.mo_coeff[:, mf.mo_occ > 0]]
    assert not none.energy().any()
    assert not none.fock().any()
    assert not PotentialResponse(none, occupied)([occupied[0][None]])[0].any()
