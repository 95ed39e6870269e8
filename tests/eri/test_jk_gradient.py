"""Gradients of the two-electron energy of a pair of densities, exact and fitted."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import df, gto, scf
from pyscf.grad import rhf

from trnqc.eri.gradient.fitted.densities import DensityPair, by_spin
from trnqc.eri.gradient.jk_gradient import exact_jk_gradient, fitted_jk_gradient
from trnqc.errors import InputError, MemoryLimit

WATER = "O 0 0 0.1; H 0 0.8 0.6; H 0.3 -0.7 0.5"
FITTING = {"default": [[0, [3.0, 1.0]], [0, [0.5, 1.0]], [1, [0.8, 1.0]]]}


@pytest.fixture(scope="module")
def mol() -> gto.Mole:
    return gto.M(atom=WATER, basis="sto-3g", verbose=0)


@pytest.fixture(scope="module")
def auxmol(mol) -> gto.Mole:
    return df.make_auxmol(mol, FITTING)


def symmetric(nao: int, spins: int, seed: int, rank: int = 2) -> np.ndarray:
    """Densities of low rank for an even seed, of full rank for an odd one."""
    rng = np.random.default_rng(seed)
    c = rng.standard_normal((spins, nao, nao if seed % 2 else rank))
    d = c @ (rng.standard_normal(c.shape[-1])[:, None] * c.swapaxes(-1, -2))
    return d[0] if spins == 1 else d


def energy(eri: np.ndarray, d1: np.ndarray, d2: np.ndarray) -> float:
    total1, total2 = (d if d.ndim == 2 else d.sum(axis=0) for d in (d1, d2))
    exchange = np.einsum("pqrs,npr,nqs->", eri, *(d.reshape(-1, *d.shape[-2:]) for d in (d1, d2)), optimize=True)
    factor = 0.5 if d1.ndim == 2 else 1.0
    return float(np.einsum("pqrs,pq,rs->", eri, total1, total2, optimize=True) - factor * exchange)


def moved(mol: gto.Mole, step: float) -> gto.Mole:
    coordinates = mol.atom_coords()
    coordinates[1] += step * np.array([0.3, -0.5, 0.8])
    return mol.set_geom_(coordinates, unit="Bohr", inplace=False)


def slope(values, h: float = 1e-3) -> float:
    return (8 * (values(h) - values(-h)) - (values(2 * h) - values(-2 * h))) / (12 * h)


@pytest.mark.parametrize("spins", [1, 2])
@pytest.mark.parametrize("same", [False, True], ids=["two densities", "one density"])
def test_exact_integrals(mol, spins, same):
    d1, d2 = symmetric(mol.nao, spins, 1), symmetric(mol.nao, spins, 1 if same else 2)
    ours = exact_jk_gradient(mol, d1, d2)
    assert ours.shape == (3, 3)
    np.testing.assert_allclose(ours.sum(axis=0), 0, atol=1e-9)
    expected = slope(lambda h: energy(moved(mol, h).intor("int2e"), d1, d2))
    assert ours[1] @ np.array([0.3, -0.5, 0.8]) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("spins", [1, 2])
@pytest.mark.parametrize("seeds", [(2, 1), (1, 2), (3, 5)], ids=["low rank first", "low rank second", "full rank"])
def test_fitted_integrals(mol, auxmol, spins, seeds):
    d1, d2 = (symmetric(mol.nao, spins, seed) for seed in seeds)
    ours = fitted_jk_gradient(mol, auxmol, d1, d2)

    def fitted(h: float) -> float:
        three, two = df.incore.aux_e2(moved(mol, h), moved(auxmol, h)), moved(auxmol, h).intor("int2c2e")
        solved = np.linalg.solve(two, three.reshape(-1, len(two)).T)
        return energy(np.einsum("pqP,Prs->pqrs", three, solved.reshape(-1, mol.nao, mol.nao)), d1, d2)

    np.testing.assert_allclose(ours.sum(axis=0), 0, atol=1e-9)
    assert ours[1] @ np.array([0.3, -0.5, 0.8]) == pytest.approx(slope(fitted), rel=1e-7, abs=1e-7)


def test_hartree_fock_gradients(mol):
    """The two-electron parts of PySCF's gradients, of closed and of open shells."""
    mf = scf.RHF(mol).run()
    d = mf.make_rdm1()
    veff = rhf.Gradients(mf).get_veff(mol, d)
    by_function = 2 * np.einsum("xij,ij->ix", veff, d)
    expected = [by_function[begin:end].sum(axis=0) for begin, end in mol.aoslice_by_atom()[:, 2:]]
    np.testing.assert_allclose(exact_jk_gradient(mol, d, d) / 2, expected, rtol=0, atol=1e-9)
    half = np.array([d, d]) / 2
    np.testing.assert_allclose(exact_jk_gradient(mol, half, half) / 2, expected, rtol=0, atol=1e-9)


def test_fitted_hartree_fock_gradient(mol, auxmol):
    """PySCF's gradient with the response of the fitting functions."""
    mf = scf.RHF(mol).density_fit(auxbasis=FITTING).run()
    gradients = mf.nuc_grad_method()
    d = mf.make_rdm1()
    veff = gradients.get_veff(mol, d)
    by_function = 2 * np.einsum("xij,ij->ix", veff, d)
    expected = np.array([by_function[begin:end].sum(axis=0) for begin, end in mol.aoslice_by_atom()[:, 2:]])
    expected += gradients.auxbasis_response * veff.aux
    np.testing.assert_allclose(fitted_jk_gradient(mol, auxmol, d, d) / 2, expected, rtol=0, atol=1e-8)


def test_range_separation():
    mol = gto.M(atom="H 0 0 0; H 0 0.8 0.6; He 0.3 -0.7 0.5", basis="sto-3g", verbose=0)
    d1, d2 = symmetric(mol.nao, 1, 1), symmetric(mol.nao, 1, 2)

    def long_range(h: float) -> float:
        geometry = moved(mol, h)
        with geometry.with_range_coulomb(0.5):
            return energy(geometry.intor("int2e"), d1, d2)

    assert exact_jk_gradient(mol, d1, d2, omega=0.5)[1] @ np.array([0.3, -0.5, 0.8]) == pytest.approx(
        slope(long_range), abs=1e-8
    )


def test_what_is_refused(mol, auxmol):
    good = symmetric(mol.nao, 1, 1)
    with pytest.raises(InputError, match="two densities"):
        exact_jk_gradient(mol, good, good[1:])
    with pytest.raises(InputError, match="symmetric"):
        exact_jk_gradient(mol, np.triu(good), good)
    with pytest.raises(InputError, match="not finite"):
        exact_jk_gradient(mol, good, good * np.nan)
    with pytest.raises(MemoryLimit, match="max_memory"):
        fitted_jk_gradient(mol, auxmol, good, good, max_memory=1e3)


@pytest.mark.parametrize("spins", [1, 2])
@pytest.mark.parametrize("seeds", [(2, 2), (2, 1), (3, 5)], ids=["one density", "low rank", "full rank"])
def test_factors(mol, auxmol, spins, seeds):
    """Coulomb and exchange terms by themselves add up to the sum with factors, exact and fitted."""
    d1, d2 = (symmetric(mol.nao, spins, seed) for seed in seeds)
    for gradient in (
        lambda **factors: exact_jk_gradient(mol, d1, d2, **factors),
        lambda **factors: fitted_jk_gradient(mol, auxmol, d1, d2, **factors),
    ):
        j, k = gradient(exchange=0.0), gradient(coulomb=0.0)
        np.testing.assert_allclose(gradient(), j + k, rtol=0, atol=1e-9)
        np.testing.assert_allclose(gradient(coulomb=0.3, exchange=0.2), 0.3 * j + 0.2 * k, rtol=0, atol=1e-9)


def test_densities_of_one_space(mol, auxmol):
    """Densities in the space of the same orbitals, which need fewer products, and one that is slightly outside."""
    rng = np.random.default_rng(3)
    c = rng.standard_normal((mol.nao, 3))
    a, b = rng.standard_normal((2, 3, 3))
    d1, d2 = c @ (a + a.T) @ c.T, c @ (b + b.T) @ c.T
    pair = DensityPair.of(mol, d1, d2)
    assert all(spin.inside and spin.rank == 3 for spin in by_spin(pair)[1])
    outside = np.zeros_like(d1)
    outside[0, 0] = 1e-9
    assert not any(spin.inside for spin in by_spin(DensityPair.of(mol, d1, d2 + outside))[1])
    ours = fitted_jk_gradient(mol, auxmol, d1, d2)
    np.testing.assert_allclose(fitted_jk_gradient(mol, auxmol, d1, d2 + outside), ours, rtol=0, atol=1e-7)
    spin_zero = np.array([d1, np.zeros_like(d1)]), np.array([d2, np.zeros_like(d2)])
    exchange = fitted_jk_gradient(mol, auxmol, d1, d2, coulomb=0.0)
    np.testing.assert_allclose(fitted_jk_gradient(mol, auxmol, *spin_zero, coulomb=0.0), 2 * exchange, atol=1e-9)


def test_bits_do_not_depend_on_threads(mol, auxmol):
    d1, d2 = symmetric(mol.nao, 2, 2), symmetric(mol.nao, 2, 1)
    one, three = (fitted_jk_gradient(mol, auxmol, d1, d2, threads=n) for n in (1, 3))
    assert np.array_equal(one, three)
