"""Hessians with the response of the grid beside finite differences, where points and weights follow the atoms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pyscf import dft, gto

import trnqc
from tests.eri.test_fitted_hessian import BASIS, FITTING
from trnqc.errors import UnsupportedError
from trnqc.xc.grid_response import xc_gradient_of_moving_grid
from trnqc.xc.hessian.moving_grid import MovingGridQuadrature
from trnqc.xc.hessian.quadrature import Functional

WATER = "O 0 0.1 0.1173; H 0.2 0.7572 -0.4692; H 0 -0.7572 -0.4692"
# Water, and its cation, which has one unpaired electron.
CASES = [(0, "lda,vwn"), (0, "b3lyp"), (0, "r2scan"), (1, "lda,vwn"), (1, "pbe0"), (1, "m06l")]
# Coordinates by which derivatives are taken: one of the heavy atom, one of a light one.
COORDINATES = ((0, 1), (1, 2))


def kohn_sham(mol: gto.Mole, xc: str, dm: Any = None, **settings: Any) -> Any:
    """A coarse grid, with which the response of the grid is large."""
    mf = (dft.UKS if mol.spin else dft.RKS)(mol, xc=xc).set(conv_tol=1e-13, conv_tol_grad=1e-9, **settings)
    mf.grids.atom_grid = (15, 38)
    mf.kernel(dm)
    return mf


def water(charge: int = 0, basis: Any = "sto-3g") -> gto.Mole:
    return gto.M(atom=WATER, basis=basis, charge=charge, spin=charge, verbose=0)


def difference(mol: gto.Mole, atom: int, axis: int, step: float, value: Callable[[gto.Mole], np.ndarray]) -> np.ndarray:
    """The derivative by a coordinate of an atom, with an error of the fourth power of the step."""

    def at(shift: float) -> np.ndarray:
        coords = mol.atom_coords()
        coords[atom, axis] += shift
        return value(mol.set_geom_(coords, unit="Bohr", inplace=False))

    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def quadrature(mf: Any) -> MovingGridQuadrature:
    dms = mf.make_rdm1().reshape(-1, mf.mol.nao, mf.mol.nao)
    return MovingGridQuadrature(mf.mol, mf.grids, Functional(mf._numint, mf.xc, len(dms)), dms, 2)


@pytest.mark.parametrize(("charge", "xc"), CASES)
def test_second_derivatives_at_constant_density(charge: int, xc: str) -> None:
    mf = kohn_sham(water(charge, "6-31g*"), xc, max_cycle=1)
    own, dm = quadrature(mf).energy(), np.array(mf.make_rdm1())

    def gradient(mol: gto.Mole) -> np.ndarray:
        return xc_gradient_of_moving_grid(mf._numint, mol, mf.grids.copy().reset(mol), xc, dm)

    for atom, axis in COORDINATES:
        expected = difference(mf.mol, atom, axis, 1e-3, gradient)
        np.testing.assert_allclose(own[:, atom, :, axis], expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(own, own.transpose(1, 0, 3, 2), rtol=0, atol=1e-12)
    assert abs(own.sum(axis=0)).max() < 1e-12


@pytest.mark.parametrize(("charge", "xc"), CASES)
def test_derivatives_of_the_potential(charge: int, xc: str) -> None:
    mf = kohn_sham(water(charge, "6-31g*"), xc, max_cycle=1)
    own, dm, ni = quadrature(mf).fock(), np.array(mf.make_rdm1()), mf._numint

    def potential(mol: gto.Mole) -> np.ndarray:
        grids = mf.grids.copy().reset(mol).build(with_non0tab=True)
        return (ni.nr_uks if charge else ni.nr_rks)(mol, grids, xc, dm)[2].reshape(-1, mol.nao, mol.nao)

    for atom, axis in COORDINATES:
        expected = difference(mf.mol, atom, axis, 1e-3, potential)
        np.testing.assert_allclose(own[:, atom, axis], expected, rtol=0, atol=1e-8)
    # A translation changes no potential.
    assert abs(own.sum(axis=1)).max() < 1e-12


@pytest.mark.parametrize(
    ("charge", "xc", "fitted"),
    [
        (0, "lda,vwn", False),
        (0, "m062x", False),
        (0, "camb3lyp", False),
        pytest.param(0, "pbe", True, marks=pytest.mark.slow),
        (1, "r2scan", False),
        pytest.param(1, "camb3lyp", True, marks=pytest.mark.slow),
        (1, "m062x", True),
    ],
)
def test_a_hessian_is_the_derivative_of_gradients(charge: int, xc: str, fitted: bool) -> None:
    mol = water(charge, BASIS if fitted else "sto-3g")

    def converged(mol: gto.Mole, dm: Any = None) -> Any:
        mf = (dft.UKS if charge else dft.RKS)(mol, xc=xc).set(conv_tol=1e-13, conv_tol_grad=1e-9)
        mf = trnqc.accelerate(mf.density_fit(auxbasis=FITTING) if fitted else mf, kernels="wait")
        mf.grids.atom_grid, mf.conv_tol_cpscf = (15, 38), 1e-12
        mf.kernel(dm)
        return mf

    mf = converged(mol)
    hessian = mf.Hessian().set(grid_response=True)
    own, dm = hessian.kernel(), mf.make_rdm1()
    assert hessian.ran_on.startswith("generated C")

    def gradient(mol: gto.Mole) -> np.ndarray:
        return converged(mol, dm).nuc_grad_method().set(grid_response=True).kernel()

    fixed = mf.Hessian().kernel()
    for atom, axis in COORDINATES:
        expected = difference(mol, atom, axis, 2e-3, gradient)
        np.testing.assert_allclose(own[:, atom, :, axis], expected, rtol=0, atol=1e-6)
        # The test would not see the response of the grid if it were small.
        assert abs(fixed[:, atom, :, axis] - expected).max() > 1e-3
    # PySCF's solver of the coupled-perturbed equations ends at 2e-8, also in Hartree-Fock Hessians without a grid.
    np.testing.assert_allclose(own, own.transpose(1, 0, 3, 2), rtol=0, atol=5e-8)
    assert abs(own.sum(axis=0)).max() < 5e-8


def hydrogen(xc: str = "pbe", **settings: Any) -> Any:
    """Of s functions, because kernels of p functions take long to compile and have nothing to do with the grid."""
    mol = gto.M(atom="H 0 0 0; H 0 0.3 0.8", basis="sto-3g", verbose=0)
    return trnqc.accelerate(kohn_sham(mol, xc, **settings), kernels="wait")


def test_a_solvent_leaves_the_response_of_the_grid() -> None:
    """A solvent with nearly the permittivity of vacuum, in whose Hessian the layers of objects are others."""
    mf = hydrogen()
    in_vacuum = mf.Hessian().set(grid_response=True)
    dissolved = mf.undo().PCM()
    dissolved.with_solvent.eps = 1 + 1e-9
    dissolved = trnqc.accelerate(dissolved, kernels="wait").run()
    np.testing.assert_allclose(
        dissolved.Hessian().set(grid_response=True).kernel(), in_vacuum.kernel(), rtol=0, atol=1e-6
    )


def test_hartree_fock_has_no_grid() -> None:
    mf = trnqc.accelerate(gto.M(atom="H 0 0 0; H 0 0 0.8", basis="sto-3g", verbose=0).RHF().run(), kernels="wait")
    hessian = mf.Hessian()
    hessian.grid_response = True
    np.testing.assert_allclose(hessian.kernel(), mf.Hessian().kernel(), rtol=0, atol=1e-12)


def test_some_atoms_only() -> None:
    mf = hydrogen()
    own = mf.Hessian().set(grid_response=True)
    np.testing.assert_allclose(
        mf.Hessian().set(grid_response=True).kernel(atmlst=[1]), own.kernel()[1:, 1:], rtol=0, atol=1e-8
    )


def test_nonlocal_correlation_is_refused() -> None:
    mf = hydrogen("pbe").set(nlc="vv10")
    with pytest.raises(UnsupportedError, match=r"derivatives of non-local correlation\): set grid_response=False"):
        mf.Hessian().set(grid_response=True).kernel()


def test_without_kernels_it_is_refused(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    mf = hydrogen()
    mf.kernels = "cached"
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    with pytest.raises(UnsupportedError, match="not all that are needed are compiled"):
        mf.Hessian().set(grid_response=True).kernel()


def test_an_integration_of_the_user_is_refused() -> None:
    mf = hydrogen()
    mf._numint.eval_rho2 = lambda *args, **options: None
    with pytest.raises(UnsupportedError, match="eval_rho2 of this object is the user's"):
        mf.Hessian().set(grid_response=True).kernel()


def test_points_that_the_user_has_left_out_are_refused() -> None:
    mf = hydrogen()
    mf.grids._select_grids(np.arange(100))
    with pytest.raises(UnsupportedError, match="points that belong to atom 0, and its settings describe 570"):
        mf.Hessian().set(grid_response=True).kernel()


def test_another_partition_of_space_is_refused() -> None:
    mf = hydrogen()
    mf.grids.becke_scheme = dft.gen_grid.becke_lko
    mf.grids.build()
    with pytest.raises(UnsupportedError, match="becke_lko"):
        mf.Hessian().set(grid_response=True).kernel()
