"""The ASE calculator: ASE's signs, units and properties."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest

ase = pytest.importorskip("ase", reason="needs ASE")
pytest.importorskip("vesin", reason="needs vesin")

from ase.calculators.calculator import PropertyNotImplementedError  # noqa: E402
from ase.calculators.fd import calculate_numerical_forces, calculate_numerical_stress  # noqa: E402

from tests.mace import oracle  # noqa: E402
from tests.mace.descriptions import CASES, description  # noqa: E402
from tests.mace.test_evaluate import PERIODIC, TOLERANCES, structure  # noqa: E402
from trnqc.errors import InputError  # noqa: E402
from trnqc.mace import Calculator, save  # noqa: E402
from trnqc.mace.calculator import _system  # noqa: E402


def atoms(periodic: tuple[bool, ...] = PERIODIC) -> ase.Atoms:
    numbers, positions, cell = structure()
    return ase.Atoms(numbers, positions, cell=cell, pbc=periodic)


def test_forces_and_stress_are_derivatives_of_the_energy():
    system = atoms()
    system.calc = Calculator(description(**CASES["density"]), dtype="float64")
    assert system.get_potential_energy() == pytest.approx(system.get_potential_energies().sum(), rel=1e-14)
    forces, stress = system.get_forces(), system.get_stress()
    # Central differences with a step of 1e-4 have an error of about 1e-7 of the largest force.
    np.testing.assert_allclose(calculate_numerical_forces(system, eps=1e-4), forces, atol=1e-6 * np.abs(forces).max())
    np.testing.assert_allclose(calculate_numerical_stress(system, eps=1e-5), stress, atol=1e-6 * np.abs(stress).max())


def test_the_shift_and_biases_of_readouts_are_not_energies_of_isolated_atoms():
    """Atoms that are farther apart than the cutoff."""
    model, far = description(layers=1, biases=True), ase.Atoms("OH", [[0, 0, 0], [0, 0, 9.0]])
    isolated = model.atomic_energies[[2, 0]]
    far.calc = Calculator(model, dtype="float64")
    expected = oracle.evaluate(model, *_system(far))["energies"] - isolated
    np.testing.assert_allclose(far.calc.get_property("node_energy", far), expected, rtol=0, atol=1e-12)
    shifted = Calculator(dataclasses.replace(model, shift=model.shift + 3.0), dtype="float64")
    np.testing.assert_allclose(shifted.get_property("node_energy", far), expected + 3.0, rtol=0, atol=1e-12)
    far.calc = Calculator(
        [model, dataclasses.replace(model, atomic_energies=model.atomic_energies + 1)], dtype="float64"
    )
    far.get_potential_energy()
    np.testing.assert_allclose(far.calc.results["node_energy"], expected + 0.5, rtol=0, atol=1e-12)


def test_the_stress_is_the_sum_of_the_stresses_of_the_atoms():
    system = atoms()
    system.calc = Calculator(description(**CASES["density"]), dtype="float64")
    stress, stresses = system.get_stress(), system.get_stresses()
    assert stresses.shape == (len(system), 6)
    np.testing.assert_allclose(stresses.sum(axis=0), stress, atol=1e-13 * np.abs(stress).max())


@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_copies_and_pickles_compute_the_same(copied, used):
    system, other = atoms(), atoms()
    system.calc = Calculator(description(), dtype="float64", threads=2, skin=0.3)
    if used:
        system.get_potential_energy()
    other.calc = copied(system.calc)
    np.testing.assert_array_equal(other.get_forces(), system.get_forces())
    ours, theirs = other.calc.evaluator, system.calc.evaluator
    assert (ours.radial, ours.threads, ours.skin, ours.dtype) == (
        theirs.radial,
        theirs.threads,
        theirs.skin,
        theirs.dtype,
    )
    assert pickle.loads(pickle.dumps(Calculator(description(), radial="spline"))).evaluator.radial.kind == "spline"
    other.positions += 0.01 * np.arange(len(other))[:, None]
    assert other.get_potential_energy() != system.get_potential_energy()


def test_a_file_gives_the_same_and_clusters_have_no_stress(tmp_path):
    save(description(), tmp_path / "model.npz")
    by_file, by_value = atoms(), atoms()
    by_file.calc, by_value.calc = Calculator(tmp_path / "model.npz"), Calculator(description())
    assert by_file.get_potential_energy() == by_value.get_potential_energy()
    cluster = atoms((False, False, False))
    cluster.calc = Calculator(description())
    cluster.get_forces()
    with pytest.raises(PropertyNotImplementedError):
        cluster.get_stress()


def test_a_committee_has_means_and_variances_of_its_members(tmp_path):
    """As mace-torch's: variances are divided by the number of members, and those of the stress are [3, 3]."""
    members, system = [description(seed=seed) for seed in range(2)], atoms()
    for n, member in enumerate(members):
        save(member, tmp_path / f"run_{n}.npz")
    alone = [Calculator(member, dtype="float64").evaluator(*_system(system), virials=True) for member in members]
    energies, forces = [np.array([getattr(one, name) for one in alone]) for name in ("energy", "forces")]
    stress = np.array([one.virial for one in alone]) / system.get_volume()
    for given in (members, str(tmp_path / "run_*.npz"), [tmp_path / f"run_{n}.npz" for n in range(2)]):
        system.calc = Calculator(given, dtype="float64")
        assert system.get_potential_energy() == pytest.approx(energies.mean(), rel=1e-14)
        np.testing.assert_allclose(system.get_forces(), forces.mean(axis=0), rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(system.get_stress(voigt=False), stress.mean(axis=0), rtol=1e-13)
        results = system.calc.results
        np.testing.assert_allclose(results["energies"], np.mean([one.energies for one in alone], axis=0), rtol=1e-13)
        for name, values in (("energy", energies), ("forces", forces), ("stress", stress)):
            np.testing.assert_array_equal(results[f"{name}_comm"], values)
            np.testing.assert_allclose(results[f"{name}_var"], ((values - values.mean(0)) ** 2).sum(0) / 2, rtol=1e-11)
    assert system.calc.get_property("energy_var", system) == pytest.approx(np.var(energies), rel=1e-11)
    assert isinstance(results["energy_var"], float)
    np.testing.assert_allclose(system.get_stresses().sum(axis=0), system.get_stress(), rtol=1e-11)
    system.calc = Calculator(members[:1], dtype="float64")
    system.get_potential_energy()
    assert not [name for name in system.calc.results if name.endswith(("_comm", "_var"))]


def test_the_dipole_is_the_sum_of_those_of_the_atoms_and_a_committee_has_a_variance():
    members, system = [description(**CASES["dipoles"], seed=seed) for seed in range(2)], atoms()
    sums = np.array([oracle.dipoles(member, *_system(system)).sum(axis=0) for member in members])
    system.calc = Calculator(members[1], dtype="float64")
    np.testing.assert_allclose(system.get_dipole_moment(), sums[1], rtol=1e-11)
    assert "dipole_var" not in system.calc.implemented_properties
    system.calc = Calculator(members, dtype="float64")
    np.testing.assert_allclose(system.get_dipole_moment(), sums.mean(axis=0), rtol=1e-11)
    np.testing.assert_allclose(system.calc.results["dipole_comm"], sums, rtol=1e-11)
    np.testing.assert_allclose(system.calc.get_property("dipole_var", system), sums.var(axis=0), rtol=1e-10)


def test_members_with_and_without_dipole_moments_are_no_committee():
    members = [description(), description(**CASES["dipoles"])]
    with pytest.raises(InputError, match="dipole moments of all members or of none, found them in 1 of 2"):
        Calculator(members)
    system = atoms()
    system.calc = Calculator(members[0])
    with pytest.raises(PropertyNotImplementedError):
        system.get_dipole_moment()


def test_the_error_of_splines_of_a_committee_is_the_largest_one():
    members = [description(seed=seed, hidden="5x0e") for seed in range(2)]
    calc = Calculator(members, radial="spline", spline_tolerance=1e-4)
    errors = [one.spline_error for one in calc.evaluators]
    assert errors[0] != errors[1] and calc.spline_error == max(errors) <= 1e-4
    assert Calculator(members).spline_error is None


def test_a_committee_without_members_is_refused(tmp_path):
    for nothing in ([], str(tmp_path / "no_*.npz")):
        with pytest.raises(InputError, match="expected at least one model; found none"):
            Calculator(nothing)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", ["residual", "nonlinear", "density", "three layers", "one layer"])
def test_descriptors_are_the_features_of_the_oracle(case, dtype):
    model, system = description(**CASES[case]), atoms()
    calc = Calculator(model, dtype=dtype, threads=2)
    *before, last = oracle.features(model, *_system(system))
    channels = model.products[0].linear.irreps_out[0].mul
    everything = np.concatenate([*before, last[:, :channels]], axis=1)
    scalars = np.concatenate([h[:, :channels] for h in (*before, last)], axis=1)
    found, limit = calc.get_descriptors(system, invariants_only=False), TOLERANCES[dtype] * np.abs(everything).max()
    assert found.dtype == dtype
    np.testing.assert_allclose(found, everything, rtol=0, atol=limit)
    np.testing.assert_allclose(calc.get_descriptors(system), scalars, rtol=0, atol=limit)
    width = before[0].shape[1] if before else channels
    first = calc.get_descriptors(system, invariants_only=False, num_layers=1)
    np.testing.assert_array_equal(first, found[:, :width])
    np.testing.assert_array_equal(calc.get_descriptors(system, num_layers=1), found[:, :channels])


def test_descriptors_of_committees_of_the_last_atoms_and_of_too_many_layers():
    system = atoms()
    system.calc = Calculator([description(seed=seed) for seed in range(2)], dtype="float64")
    with pytest.raises(InputError, match="has not calculated any yet"):
        system.calc.get_descriptors()
    forces = system.get_forces()
    both = system.calc.get_descriptors()
    assert isinstance(both, list) and len(both) == 2 and np.abs(both[0] - both[1]).max() > 0.1
    np.testing.assert_array_equal(system.get_forces(), forces)
    for count in (0, 3, -2):
        with pytest.raises(InputError, match=f"num_layers: expected -1 or 1 to 2, .* found {count}"):
            system.calc.get_descriptors(system, num_layers=count)


@pytest.mark.parametrize("options", [{}, {"dtype": "float64", "radial": "spline", "skin": 0.0}], ids=["f32", "spline"])
def test_second_derivatives_are_those_of_the_energy(options):
    system = atoms()
    system.calc = Calculator(description(**CASES["density"]), **options)
    second = system.calc.get_hessian(system)
    count, scale = len(system), np.abs(second).max()
    assert second.shape == (3 * count, count, 3)
    square = second.reshape(3 * count, 3 * count)
    # Largest observed: 1e-9.
    np.testing.assert_allclose(square, square.T, rtol=0, atol=1e-8 * scale)
    np.testing.assert_allclose(second.sum(axis=1), 0, atol=1e-8 * scale)

    # Second differences of float64 energies along some directions. Largest observed: 2e-6.
    exact, step = Calculator(system.calc.evaluator.model, **options | {"dtype": "float64"}), 3e-4
    for direction in np.random.default_rng(1).normal(size=(3, count, 3)):
        energies = []
        for sign in (-2, -1, 0, 1, 2):
            moved = atoms()
            moved.positions += sign * step * direction
            moved.calc = exact
            energies.append(moved.get_potential_energy())
        difference = np.dot([-1, 16, -30, 16, -1], energies) / (12 * step**2)
        along = direction.ravel() @ square @ direction.ravel()
        assert along == pytest.approx(difference, abs=1e-5 * scale * (direction**2).sum())


def test_a_committee_has_second_derivatives_of_each_member():
    members, system = [description(seed=seed) for seed in range(2)], atoms((False, False, False))[:3]
    both = Calculator(members, dtype="float64").get_hessian(system)
    assert isinstance(both, list) and len(both) == 2
    np.testing.assert_array_equal(both[1], Calculator(members[1], dtype="float64").get_hessian(system))


def test_the_example_conserves_energy_without_pytorch(tmp_path):
    """Kinetic and potential energy are exchanged, their sum moves a thousand times less."""
    save(description(), tmp_path / "model.npz")
    options = ["--model", str(tmp_path / "model.npz"), "--steps", "20", "--timestep", "0.2"]
    # None makes an import of torch fail as if it was not installed.
    run = "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('examples.md_mace', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", run, *options], capture_output=True, text=True, check=True, timeout=300
    )
    kinetic, total = map(float, re.search(r"moved by (\S+) eV, total energy by (\S+) eV", done.stdout).groups())
    assert kinetic > 1e-4
    assert total < 1e-3 * kinetic
