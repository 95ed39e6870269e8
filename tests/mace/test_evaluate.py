"""Whole evaluations of descriptions with random weights against the oracle, and what can go wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("vesin", reason="needs vesin")

from tests.mace import oracle
from tests.mace.descriptions import CASES, description
from trnqc.errors import InputError
from trnqc.mace import convolutions as module
from trnqc.mace.edges.splines import fitting
from trnqc.mace.edges.splines.tables import spline_tables
from trnqc.mace.evaluate import Evaluator

# Relative to the largest number: rounding of sums of some hundred terms, and of the weights, in a few layers.
TOLERANCES = {"float64": 1e-12, "float32": 5e-6}
PERIODIC = True, True, True
CELL = np.array([[3.4, 0.0, 0.0], [0.7, 5.1, 0.0], [0.2, 0.4, 9.0]])


def structure(atoms: int = 7) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers, positions and cell of atoms in a triclinic cell that is smaller than the cutoff in one direction."""
    rng = np.random.default_rng(3)
    return rng.choice([1, 6, 8], atoms), rng.uniform(size=(atoms, 3)) @ CELL, CELL


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", CASES)
def test_energies_forces_and_virials_are_those_of_the_oracle(case, dtype):
    model, system = description(**CASES[case]), (*structure(), PERIODIC)
    result, expected = Evaluator(model, dtype, threads=1)(*system), oracle.evaluate(model, *system)
    for name in ("energies", "forces", "virial"):
        scale = TOLERANCES[dtype] * np.abs(expected[name]).max()
        np.testing.assert_allclose(getattr(result, name), expected[name], rtol=0, atol=scale, err_msg=name)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("act", ["silu", "tanh", "abs", None])
def test_dipole_moments_are_those_of_the_oracle(act, dtype):
    model, system = description(**CASES["dipoles"], act=act), (*structure(23), PERIODIC)
    expected = oracle.dipoles(model, *system)
    result = Evaluator(model, dtype, threads=3)(*system)
    scale = TOLERANCES[dtype] * np.abs(expected).max()
    np.testing.assert_allclose(result.dipoles, expected, rtol=0, atol=scale)
    without = Evaluator(replace(model, dipoles=()), dtype, threads=3)(*system)
    assert without.dipoles is None
    np.testing.assert_array_equal(result.forces, without.forces)


def test_dipole_moments_turn_with_the_structure_and_of_no_atoms_are_none():
    numbers, positions, cell = structure()
    turn = np.linalg.qr(np.random.default_rng(2).normal(size=(3, 3)))[0]
    evaluator, free = Evaluator(description(**CASES["dipoles"]), "float64"), (False, False, False)
    before, after = (evaluator(numbers, x, cell, free).dipoles for x in (positions, positions @ turn.T))
    np.testing.assert_allclose(after, before @ turn.T, rtol=0, atol=1e-12 * np.abs(before).max())
    assert evaluator(numbers[:0], positions[:0], cell, free).dipoles.shape == (0, 3)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", ["residual", "density", "nonlinear"])
def test_splines_meet_their_tolerance(case, dtype):
    """Forces follow from the splined energy, so both have about the error of the splines."""
    model, system = description(**CASES[case]), (*structure(), PERIODIC)
    evaluator = Evaluator(model, dtype, radial="spline", spline_tolerance=1e-6)
    result, expected = evaluator(*system), oracle.evaluate(model, *system)
    for name in ("energies", "forces", "virial"):
        scale = 2e-5 * np.abs(expected[name]).max()
        np.testing.assert_allclose(getattr(result, name), expected[name], rtol=0, atol=scale, err_msg=name)
    fewer = np.where(system[0] == 8, 6, system[0])
    first = Evaluator(model, dtype, radial="spline")(fewer, *system[1:])
    again = evaluator(fewer, *system[1:])
    np.testing.assert_allclose(again.energies, first.energies, rtol=2e-5)


@pytest.mark.parametrize("periodic", [(False, False, False), (True, False, True)])
def test_clusters_and_slabs(periodic):
    model, system = description(), structure()
    result, expected = Evaluator(model, "float64")(*system, periodic), oracle.evaluate(model, *system, periodic)
    np.testing.assert_allclose(result.energies, expected["energies"], atol=1e-12)
    np.testing.assert_allclose(result.forces, expected["forces"], atol=1e-11 * np.abs(expected["forces"]).max())


def test_a_cell_with_one_atom_is_that_of_its_repetitions():
    """A cell of 1.9 Angstrom and a cutoff of 4: an atom is its own neighbour, many times."""
    evaluator, cell = Evaluator(description(), "float64"), 1.9 * np.eye(3)
    one = evaluator(np.array([8]), np.zeros((1, 3)), cell, PERIODIC)
    places = 1.9 * np.mgrid[:3, :3, :3].reshape(3, -1).T
    many = evaluator(np.full(27, 8), places, 3 * cell, PERIODIC)
    assert many.energy == pytest.approx(27 * one.energy, rel=1e-12)
    np.testing.assert_allclose(many.virial, 27 * one.virial, rtol=1e-10, atol=1e-10 * np.abs(many.virial).max())


@pytest.mark.parametrize("case", ["residual", "density"])
def test_isolated_atoms_have_energies_and_no_forces(case):
    """Two atoms that are farther apart than the cutoff, one of them alone, and no atom at all."""
    model = description(**CASES[case])
    evaluator, far = Evaluator(model, "float64"), np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 9.0]])
    numbers, nowhere, free = np.array([8, 1]), np.zeros((3, 3)), (False, False, False)
    result, expected = evaluator(numbers, far, nowhere, free), oracle.evaluate(model, numbers, far, nowhere, free)
    np.testing.assert_allclose(result.energies, expected["energies"], rtol=1e-13)
    assert not result.forces.any() and not result.virial.any()
    alone = evaluator(numbers[:1], far[:1], nowhere, free)
    np.testing.assert_allclose(alone.energies, expected["energies"][:1], rtol=1e-13)
    for some in (evaluator, Evaluator(model, "float64", radial="spline")):
        none = some(numbers[:0], far[:0], nowhere, free)
        assert none.energy == 0 and none.forces.shape == (0, 3)


def test_the_order_of_atoms_does_not_matter():
    numbers, positions, cell = structure(23)
    evaluator, order = Evaluator(description(), "float64"), np.random.default_rng(5).permutation(23)
    one = evaluator(numbers, positions, cell, PERIODIC)
    other = evaluator(numbers[order], positions[order], cell, PERIODIC)
    np.testing.assert_allclose(other.energies, one.energies[order], rtol=1e-12)
    np.testing.assert_allclose(other.forces, one.forces[order], atol=1e-11)


def test_repeated_evaluations_have_the_same_bits_and_a_skin_changes_nothing():
    """The neighbour list of the first structure serves the second, in which atoms have moved by less than 0.2."""
    numbers, positions, cell = structure(23)
    moved = positions + np.random.default_rng(6).uniform(-0.1, 0.1, positions.shape)
    model = description()
    kept, fresh = Evaluator(model, "float64", skin=0.5), Evaluator(model, "float64", skin=0.0)
    first = kept(numbers, positions, cell, PERIODIC)
    by_list = kept(numbers, moved, cell, PERIODIC)
    again = kept(numbers, positions, cell, PERIODIC)
    assert np.array_equal(first.energies, again.energies) and np.array_equal(first.forces, again.forces)
    expected = fresh(numbers, moved, cell, PERIODIC)
    np.testing.assert_allclose(by_list.energies, expected.energies, rtol=1e-12)
    np.testing.assert_allclose(by_list.forces, expected.forces, atol=1e-11)


@pytest.mark.parametrize("case", ["residual", "density"])
def test_threads_give_the_same_numbers(case):
    system, model = (*structure(61), PERIODIC), description(**CASES[case])
    one, three = (Evaluator(model, "float64", threads=n)(*system) for n in (1, 3))
    np.testing.assert_allclose(three.energies, one.energies, rtol=0, atol=1e-13 * np.abs(one.energies).max())
    np.testing.assert_allclose(three.forces, one.forces, atol=1e-11 * np.abs(one.forces).max())


def test_ranges_of_atoms():
    """Threads compute ranges of 48 atoms, whose arrays they use again. 150 atoms are several ranges."""
    model, rng, cell = description(), np.random.default_rng(5), CELL * [[3], [3], [2]]
    system = rng.choice([1, 6, 8], 150, p=[0.5, 0.4, 0.1]), rng.uniform(size=(150, 3)) @ cell, cell, PERIODIC
    expected = oracle.evaluate(model, *system)
    for threads in (1, 2, 5):
        result = Evaluator(model, "float64", threads=threads)(*system)
        for name in ("energies", "forces", "virial"):
            scale = TOLERANCES["float64"] * np.abs(expected[name]).max()
            np.testing.assert_allclose(getattr(result, name), expected[name], rtol=0, atol=scale, err_msg=name)


def test_wrong_structures_are_one_error_each():
    numbers, positions, cell = structure()
    evaluator = Evaluator(description(), "float64")
    with pytest.raises(InputError, match=r"elements 1, 6, 8; found \[26, 79\]"):
        evaluator(np.array([8, 26, 1, 79, 1, 1, 1]), positions, cell, PERIODIC)
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match="finite"):
            evaluator(numbers, np.where(positions == positions[2], wrong, positions), cell, PERIODIC)
    with pytest.raises(InputError, match="same position"):
        evaluator(numbers, positions[[0, 1, 2, 3, 4, 5, 0]], cell, PERIODIC)
    with pytest.raises(InputError, match="linearly independent"):
        evaluator(numbers, positions, np.ones((3, 3)), PERIODIC)
    with pytest.raises(InputError, match=r"positions: expected shape \[7, 3\], found \[5, 3\]"):
        evaluator(numbers, positions[:5], cell, PERIODIC)
    with pytest.raises(InputError, match=r"cell: expected shape \[3, 3\], found \[3\]"):
        evaluator(numbers, positions, np.ones(3), PERIODIC)
    for skin in (-1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="skin: expected a distance in Angstrom from 0 on"):
            Evaluator(description(), skin=skin)
    with pytest.raises(InputError, match="expected one of float32, float64; found float16"):
        Evaluator(description(), "float16")
    with pytest.raises(InputError, match="expected one of exact, spline; found table"):
        Evaluator(description(), radial="table")
    for dtype, tolerance in (("float32", 1e-7), ("float64", 1e-14), ("float32", np.nan)):
        with pytest.raises(InputError, match=r"spline_tolerance = .* is below the rounding error"):
            Evaluator(description(), dtype, radial="spline", spline_tolerance=tolerance)
    Evaluator(description(), spline_tolerance=0.0)


def test_splines_that_miss_their_tolerance_between_the_knots_are_an_error_with_the_figure(monkeypatch):
    """The error is measured at points that the fit does not use, as soon as the weights are known."""
    monkeypatch.setattr(fitting, "INTERVALS", (12, 16))
    expected = r"16 intervals have a relative error of .*, above the tolerance 1.0e-06"
    with pytest.raises(InputError, match=expected):
        Evaluator(description(**CASES["residual"]), radial="spline", spline_tolerance=1e-6)
    by_pairs = Evaluator(description(**CASES["density"]), radial="spline", spline_tolerance=1e-6)
    with pytest.raises(InputError, match=expected):
        by_pairs(*structure(), PERIODIC)


@pytest.mark.parametrize("case", ["residual", "density", "nonlinear"])
def test_the_error_of_splines_is_known_as_soon_as_their_weights_are(case):
    evaluator = Evaluator(description(**CASES[case]), "float64", radial="spline", spline_tolerance=1e-4)
    assert (evaluator.spline_error is None) == (case != "residual")
    evaluator(*structure(), PERIODIC)
    assert evaluator.spline_error is not None and 0 < evaluator.spline_error <= 1e-4
    assert Evaluator(description(**CASES[case])).spline_error is None


def test_splines_that_do_not_depend_on_elements_are_fitted_once(monkeypatch):
    fits = []
    monkeypatch.setattr(module, "spline_tables", lambda *given: fits.append(given) or spline_tables(*given))
    numbers, *rest = structure()
    evaluator = Evaluator(description(), "float64", radial="spline")
    few = evaluator(np.full_like(numbers, 8), *rest, PERIODIC)
    many = evaluator(numbers, *rest, PERIODIC)
    assert len(fits) == 1
    np.testing.assert_array_equal(
        few.forces,
        Evaluator(description(), "float64", radial="spline")(np.full_like(numbers, 8), *rest, PERIODIC).forces,
    )
    expected = oracle.evaluate(description(), numbers, *rest, PERIODIC)["forces"]
    np.testing.assert_allclose(many.forces, expected, rtol=0, atol=2e-5 * np.abs(expected).max())
