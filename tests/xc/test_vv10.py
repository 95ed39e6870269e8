"""Nonlocal correlation by compiled sums over pairs of points, beside PySCF's and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto
from pyscf.dft.numint import _vv10nlc

import trnqc
from trnqc.xc.numint import NumInt
from trnqc.xc.vv10 import vv10

PARAMETERS = (5.9, 0.0093)


def points(count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The density exp(-3 r) and its gradient on random points, the points, and weights of which a few are negative."""
    rng = np.random.default_rng(count)
    coords = rng.normal(size=(count, 3)) * 2.2
    r = np.linalg.norm(coords, axis=1)
    rho = np.exp(-3 * r)
    return np.array([rho, *(-3 * rho * coords.T / r)]), coords, rng.uniform(-0.1, 1.0, count)


# Fewer points than a vector has lanes, a number that no vector and no tile divides, several tiles and parts.
@pytest.mark.parametrize("count", [0, 1, 3, 519, 1200])
@pytest.mark.parametrize("threads", [1, 3])
def test_energy_and_derivatives_are_those_of_pyscf(count, threads) -> None:
    rho, coords, weights = points(count)
    exc, vxc = vv10(rho, coords, weights, PARAMETERS, threads)
    theirs = _vv10nlc(rho, coords, rho, weights, coords, PARAMETERS)
    np.testing.assert_allclose(exc, theirs[0], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(vxc, theirs[1], rtol=1e-12, atol=1e-15)


def test_small_densities_are_left_out() -> None:
    rho, coords, weights = points(200)
    rho[:, ::2] *= 1e-9
    exc, vxc = vv10(rho, coords, weights, PARAMETERS)
    assert not exc[::2].any() and not vxc[:, ::2].any()
    of_rest = vv10(rho[:, 1::2], coords[1::2], weights[1::2], PARAMETERS)
    np.testing.assert_array_equal(exc[1::2], of_rest[0])


def test_potential_is_the_derivative_of_the_energy() -> None:
    rho, coords, weights = points(300)
    change, step = 0.1 * rho * np.random.default_rng(1).normal(size=rho.shape[1]), 1e-4

    def energy(shift: float) -> float:
        moved = rho + shift * change
        return float((vv10(moved, coords, weights, PARAMETERS)[0] * moved[0]) @ weights)

    vxc = vv10(rho, coords, weights, PARAMETERS)[1]
    by_gamma = 2 * (rho[1:] * change[1:]).sum(axis=0)
    derivative = (weights * (vxc[0] * change[0] + vxc[1] * by_gamma)).sum()
    assert derivative == pytest.approx((energy(step) - energy(-step)) / (2 * step), rel=1e-6)


def test_a_point_without_gradient() -> None:
    rho, coords, weights = points(20)
    rho[1:, 4] = 0.0
    exc, vxc = vv10(rho, coords, weights, PARAMETERS)
    assert np.isfinite(exc).all() and np.isfinite(vxc).all() and vxc[1, 4] == 0.0


def test_uniform_gas_has_no_energy() -> None:
    """The constant beta cancels the integral over all distances."""
    root, step = np.linspace(0, 30, 2001, retstep=True)
    r = root**2
    coords = np.stack([r, 0 * r, 0 * r], axis=1)
    rho = np.zeros((4, len(r)))
    rho[0] = 0.02
    exc = vv10(rho, coords, 4 * np.pi * r**2 * 2 * root * step, PARAMETERS)[0]
    assert exc[0] == pytest.approx(0.0, abs=1e-8)


def molecule(**options) -> gto.Mole:
    return gto.M(atom="O 0.02 -0.03 0.01; H 0.1 0.2 0.95; H 0.9 -0.1 -0.3", basis="6-31g", verbose=0, **options)


@pytest.mark.parametrize("hermi", [0, 1])
@pytest.mark.parametrize("xc", ["wb97m_v", "b97m_v"])
def test_matrix_is_that_of_pyscf(xc, hermi) -> None:
    mol = molecule()
    grids = dft.Grids(mol)
    grids.atom_grid = (20, 50)
    grids.build(with_non0tab=True)
    dm = dft.RKS(mol).get_init_guess()
    ours, theirs = (ni.nr_nlc_vxc(mol, grids, xc, dm, hermi=hermi) for ni in (NumInt("wait"), dft.numint.NumInt()))
    assert ours[:2] == pytest.approx(theirs[:2], abs=1e-11)
    np.testing.assert_allclose(ours[2], theirs[2], rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", [dft.RKS, dft.UKS, dft.ROKS])
def test_energies_of_objects(method) -> None:
    mf = method(molecule(charge=method is not dft.RKS, spin=int(method is not dft.RKS)), xc="b97m_v")
    mf.grids.atom_grid = mf.nlcgrids.atom_grid = (20, 50)
    ours = trnqc.accelerate(mf, kernels="wait")
    dm = mf.get_init_guess()
    assert ours.energy_tot(dm) == pytest.approx(mf.energy_tot(dm), abs=1e-10)
    assert ours._numint.seconds["pairs of points"] > 0
