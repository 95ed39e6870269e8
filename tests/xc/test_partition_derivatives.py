"""Derivatives of the weights of grid points: PySCF's first ones, and finite differences of PySCF's weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pyscf import dft, gto
from pyscf.dft import gen_grid, radi
from pyscf.grad.rks import grids_response_cc

from trnqc.errors import UnsupportedError
from trnqc.xc.grid_response import MovingPoints, moving_points
from trnqc.xc.partition_derivatives import SWITCHES, Partition

ATOMS = "O 0 0.1 0.1; H 0.2 0.8 -0.5; C 0.1 -1.1 -0.4; F 1 1 1"
SCHEMES = [gen_grid.original_becke, gen_grid.stratmann]
ADJUSTMENTS = [None, radi.treutler_atomic_radii_adjust, radi.becke_atomic_radii_adjust]
every_scheme = pytest.mark.parametrize("scheme", SCHEMES)
every_adjustment = pytest.mark.parametrize("adjust", ADJUSTMENTS)


def grid(mol: gto.Mole, **settings) -> dft.Grids:
    return dft.Grids(mol).set(atom_grid=(6, 14), **settings)


def molecule(atoms: str = ATOMS, **options) -> gto.Mole:
    return gto.M(atom=atoms, basis="sto-3g", spin=None, verbose=0, **options)


def difference(mol: gto.Mole, atom: int, axis: int, value: Callable[[gto.Mole], np.ndarray]) -> np.ndarray:
    """The derivative by a coordinate of an atom, with an error of the fourth power of the step."""

    def at(shift: float) -> np.ndarray:
        coords = mol.atom_coords()
        coords[atom, axis] += shift
        return value(mol.set_geom_(coords, unit="Bohr", inplace=False))

    step = 1e-3
    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


def weights(mol: gto.Mole, **settings) -> np.ndarray:
    """PySCF's weights, atom after atom."""
    return grid(mol, **settings).build(sort_grids=False).weights[: sum(map(len, volumes(mol)))]


def volumes(mol: gto.Mole) -> list[np.ndarray]:
    return [one.volumes for one in moving_points(grid(mol))]


@every_scheme
@every_adjustment
def test_first_derivatives_are_those_of_pyscf(scheme, adjust) -> None:
    grids = grid(molecule(), becke_scheme=scheme, radii_adjust=adjust)
    for own, (coords, weight, derivatives) in zip(moving_points(grids), grids_response_cc(grids), strict=True):
        np.testing.assert_array_equal(own.points, coords)
        scale = np.abs(own.volumes)
        assert (np.abs(own.weights - weight) <= 1e-13 * scale).all()
        assert (np.abs(own.derivatives - derivatives) <= 1e-11 * scale).all()


@pytest.mark.parametrize(
    "options", [{"atoms": "O 0 0 0; ghost-H 0 0 1; H 0 1 0"}, {"atoms": "Br 0 0 0; H 0 0 1.4", "ecp": "lanl2dz"}]
)
def test_radii_are_those_of_the_elements(options) -> None:
    """A ghost atom has no charge, and one with a core potential has that of its valence shell."""
    mol = molecule(**options)
    own = np.concatenate([one.derivatives for one in moving_points(grid(mol))], axis=2)
    scale = np.abs(np.concatenate(volumes(mol)))
    for atom in range(mol.natm):
        for axis in range(3):
            assert (np.abs(own[atom, axis] - difference(mol, atom, axis, weights)) <= 1e-7 * scale + 1e-12).all()


@every_scheme
@every_adjustment
def test_second_derivatives_are_those_of_the_first(scheme, adjust) -> None:
    mol, settings = molecule(), {"becke_scheme": scheme, "radii_adjust": adjust}
    factors = [np.random.default_rng(n).normal(size=len(one)) / one for n, one in enumerate(volumes(mol))]

    def parts(mol: gto.Mole) -> list[MovingPoints]:
        return list(moving_points(grid(mol, **settings)))

    own = np.array([one.second(values) for one, values in zip(parts(mol), factors)])
    for atom, axis in ((0, 1), (2, 0)):
        expected = difference(
            mol, atom, axis, lambda mol: np.array([one.derivatives @ f for one, f in zip(parts(mol), factors)])
        )
        np.testing.assert_allclose(own[:, :, atom, :, axis], expected, rtol=0, atol=3e-8)
    np.testing.assert_allclose(own, own.transpose(0, 2, 1, 4, 3), rtol=0, atol=1e-12)
    # A translation changes no weight.
    assert abs(own.sum(axis=1)).max() < 1e-12


def test_one_atom_has_constant_weights() -> None:
    (own,) = moving_points(grid(molecule("He 0.1 0.2 0.3")))
    np.testing.assert_array_equal(own.weights, own.volumes)
    assert not own.derivatives.any()
    assert not own.second(np.ones(len(own.points))).any()


def test_points_on_an_axis_behind_a_nucleus() -> None:
    """There nu is 1 up to rounding, on either side of it."""
    partition = Partition.of(grid(molecule("H 0 0 0; F 0 0 0.9; H 0 0 2.3")))
    points = np.array([[0, 0, z] for z in (-3.0, 0.0, 1.7, 1.7007535, 2.5, 5.0, 9.0)])
    share, first = partition.shares(0, points)
    assert np.isfinite(first).all()
    assert share[0] == share[1] == 1
    assert (abs(first[:, :, [0, 1, 3, 4, 5, 6]]) < 1e-12).all()
    assert np.isfinite(partition.second(0, points, np.ones(len(points)))).all()


@pytest.mark.parametrize("scheme", SWITCHES)
def test_switching_functions_fall_from_one_to_zero(scheme) -> None:
    value, first, second = SWITCHES[scheme](np.array([-1.0, 0.0, 1.0]))
    np.testing.assert_allclose(value, [1, 0.5, 0], rtol=0, atol=1e-15)
    assert first[0] == first[2] == second[0] == second[1] == second[2] == 0


def test_another_partition_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="becke_lko, not that of Becke or Stratmann"):
        Partition.of(grid(molecule(), becke_scheme=gen_grid.becke_lko))

    def adjusted(mol, radii):
        return lambda i, j, g: g

    with pytest.raises(UnsupportedError, match="adjusted by adjusted"):
        Partition.of(grid(molecule(), radii_adjust=adjusted))
