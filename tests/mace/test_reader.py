"""Descriptions that are read from models of mace-torch have the energies, forces and virials of the models."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("mace", reason="needs mace-torch")
ase = pytest.importorskip("ase")

import torch  # noqa: E402
from mace.calculators import MACECalculator  # noqa: E402

import trnqc  # noqa: E402
from tests.mace import oracle  # noqa: E402
from tests.mace.mace_models import FAMILIES, random_model  # noqa: E402
from trnqc.errors import InputError, UnsupportedError  # noqa: E402
from trnqc.mace import Calculator, save  # noqa: E402
from trnqc.mace.reader import load, read  # noqa: E402


def structure(periodic: bool | tuple[bool, ...] = True) -> ase.Atoms:
    """Seven atoms in a triclinic cell that is smaller than the cutoff in one direction."""
    rng = np.random.default_rng(3)
    cell = np.array([[3.4, 0.0, 0.0], [0.7, 5.1, 0.0], [0.2, 0.4, 9.0]])
    return ase.Atoms("OHHCCHO", rng.uniform(size=(7, 3)) @ cell, cell=cell, pbc=periodic)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "dipoles"])
def test_energies_forces_and_virials_are_those_of_the_model(family):
    module = random_model(family)
    head = module.heads[-1]
    atoms = structure()
    atoms.calc = MACECalculator(models=[module], device="cpu", default_dtype="float64", head=head)
    atoms.info["head"] = head
    numbers, cell = atoms.numbers, np.asarray(atoms.cell)
    result = oracle.evaluate(read(module, head), numbers, atoms.positions, cell, tuple(atoms.pbc))
    forces = atoms.get_forces()
    # float64: sums of some hundred terms, and of neighbours in another order.
    np.testing.assert_allclose(result["energies"].sum(), atoms.get_potential_energy(), rtol=1e-12)
    np.testing.assert_allclose(result["energies"], atoms.calc.results["energies"], atol=1e-10)
    np.testing.assert_allclose(result["forces"], forces, atol=1e-11 * max(1, np.abs(forces).max()))
    virial = atoms.get_stress(voigt=False) * atoms.get_volume()
    np.testing.assert_allclose(result["virial"], virial, atol=1e-10 * max(1, np.abs(virial).max()))


@pytest.mark.parametrize("gate", [torch.tanh, torch.abs, None])
def test_gates_of_readouts_are_those_of_the_model(gate):
    module, atoms = random_model("MP-0", gate=gate), structure()
    atoms.calc = MACECalculator(models=[module], device="cpu", default_dtype="float64")
    expected = atoms.get_potential_energy(), atoms.get_forces()
    atoms.calc = Calculator(module, dtype="float64")
    np.testing.assert_allclose(atoms.get_potential_energy(), expected[0], rtol=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), expected[1], atol=1e-10 * np.abs(expected[1]).max())


def test_an_unknown_gate_is_named():
    with pytest.raises(UnsupportedError, match="expected the activation function silu or tanh or abs, found"):
        read(random_model("MP-0", gate=torch.nn.functional.softplus))


def test_stresses_of_atoms_are_those_of_the_model():
    module, atoms = random_model("MPA-0"), structure()
    atoms.calc = MACECalculator(models=[module], device="cpu", default_dtype="float64", compute_atomic_stresses=True)
    expected = atoms.get_stresses()
    atoms.calc = Calculator(module, dtype="float64")
    np.testing.assert_allclose(atoms.get_stresses(), expected, rtol=0, atol=1e-10 * np.abs(expected).max())


@pytest.mark.parametrize("family", ["MPA-0", "heads", "no scale"])
def test_energies_without_those_of_isolated_atoms_are_those_of_mace_torch(family):
    """They contain the shift and the pair repulsion of MPA-0, and the shift of the second of two heads."""
    module, atoms = random_model(family), structure()
    head = module.heads[-1]
    options = {"models": [module], "device": "cpu", "default_dtype": "float64", "head": head}
    atoms.calc = MACECalculator(**options)
    atoms.get_potential_energy()
    expected = atoms.calc.results
    atoms.calc = Calculator(module, head, dtype="float64")
    np.testing.assert_allclose(
        atoms.calc.get_property("node_energy", atoms), expected["node_energy"], rtol=0, atol=1e-11
    )
    np.testing.assert_allclose(atoms.get_potential_energies(), expected["energies"], rtol=0, atol=1e-11)


def test_a_committee_has_the_results_of_mace_torch():
    """Also where the members have other energies of isolated atoms, of which mace-torch takes those of the first."""
    other = random_model("MPA-0", atomic_energies=np.array([-1.0, 2.0, 5.0]))
    modules, atoms = [random_model("MP-0"), other], structure()
    atoms.calc = MACECalculator(models=modules, device="cpu", default_dtype="float64")
    atoms.get_forces()
    expected = atoms.calc.results
    atoms.calc = Calculator(modules, dtype="float64")
    atoms.get_forces()
    assert set(atoms.calc.results) == set(expected)
    for name in expected:
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(atoms.calc.results[name], expected[name], rtol=0, atol=1e-10 * scale, err_msg=name)


DIPOLES = {
    "vectors in readouts": {},
    "scalars in the last readout": {"MLP_irreps": "6x0e"},
    "tanh": {"gate": torch.tanh},
    "no gate": {"gate": None},
    "higher degrees": {"hidden_irreps": "8x0e+8x1o+8x2e", "num_interactions": 3},
    "one layer": {"num_interactions": 1},
}


@pytest.mark.parametrize("case", DIPOLES)
@pytest.mark.parametrize("periodic", [True, False])
def test_energies_forces_and_dipoles_are_those_of_mace_torch(case, periodic):
    """The energies of the atoms are not: those of mace-torch are energies of isolated atoms for these models."""
    module, atoms = random_model("dipoles", **DIPOLES[case]), structure(periodic)
    options = {"models": [module], "device": "cpu", "default_dtype": "float64", "model_type": "EnergyDipoleMACE"}
    atoms.calc = MACECalculator(**options)
    energy, forces, dipole = atoms.get_potential_energy(), atoms.get_forces(), atoms.get_dipole_moment()
    stress = atoms.get_stress() if periodic else None
    assert np.abs(dipole).max() > 1e-3
    atoms.calc = Calculator(module, dtype="float64")
    np.testing.assert_allclose(atoms.get_potential_energy(), energy, rtol=1e-12)
    np.testing.assert_allclose(atoms.get_potential_energies().sum(), energy, rtol=1e-12)
    np.testing.assert_allclose(atoms.get_forces(), forces, rtol=0, atol=1e-10 * np.abs(forces).max())
    np.testing.assert_allclose(atoms.get_dipole_moment(), dipole, rtol=0, atol=1e-12)
    if periodic:
        np.testing.assert_allclose(atoms.get_stress(), stress, rtol=0, atol=1e-10 * np.abs(stress).max())


def test_a_model_of_dipoles_needs_vectors():
    scalars = random_model("dipoles", num_interactions=1, hidden_irreps="8x0e")
    with pytest.raises(UnsupportedError, match="model: expected features with vectors"):
        read(scalars)


def test_a_committee_with_dipoles_has_the_results_of_mace_torch():
    modules, atoms = [random_model("dipoles"), random_model("dipoles", correlation=2)], structure()
    options = {"models": modules, "device": "cpu", "default_dtype": "float64", "model_type": "EnergyDipoleMACE"}
    atoms.calc = MACECalculator(**options)
    atoms.get_forces()
    expected = atoms.calc.results
    atoms.calc = Calculator(modules, dtype="float64")
    atoms.get_forces()
    assert set(atoms.calc.results) == set(expected)
    for name in ("dipole", "dipole_comm", "dipole_var", "energy_var", "forces_comm", "stress_comm"):
        scale = np.abs(expected[name]).max()
        np.testing.assert_allclose(atoms.calc.results[name], expected[name], rtol=0, atol=1e-10 * scale, err_msg=name)


@pytest.mark.parametrize("options", [{}, {"invariants_only": False}, {"num_layers": 1}])
@pytest.mark.parametrize("family", ["MP-0", "MPA-0"])
def test_descriptors_are_those_of_mace_torch(family, options):
    module, atoms = random_model(family), structure()
    expected = MACECalculator(models=[module], device="cpu", default_dtype="float64").get_descriptors(atoms, **options)
    found = Calculator(module, dtype="float64").get_descriptors(atoms, **options)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("family", ["MP-0", "MPA-0"])
def test_second_derivatives_are_those_of_mace_torch(family):
    module, atoms = random_model(family), structure()
    expected = MACECalculator(models=[module], device="cpu", default_dtype="float64").get_hessian(atoms)
    found = Calculator(module).get_hessian(atoms)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-8 * np.abs(expected).max())


@pytest.mark.parametrize("periodic", [False, (True, True, False)])
def test_clusters_and_slabs(periodic):
    module, atoms = random_model("MP-0"), structure(periodic)
    atoms.calc = MACECalculator(models=[module], device="cpu", default_dtype="float64")
    result = oracle.evaluate(read(module), atoms.numbers, atoms.positions, np.asarray(atoms.cell), tuple(atoms.pbc))
    np.testing.assert_allclose(result["energies"], atoms.get_potential_energies(), atol=1e-12)


@pytest.mark.parametrize("family", ["MP-0", "MPA-0", "MH-1"])
def test_a_model_that_accelerate_has_changed_is_the_same_model(family, tmp_path):
    """The description has the same numbers, and the model stays as it is."""
    module = random_model(family)
    save(read(module, module.heads[-1]), tmp_path / "before.npz")
    trnqc.cg.accelerate(module)
    names = [type(part).__name__ for part in module.modules()]
    save(read(module, module.heads[-1]), tmp_path / "after.npz")
    torch.save(module, tmp_path / "accelerated.model")
    save(load(tmp_path / "accelerated.model", module.heads[-1]), tmp_path / "loaded.npz")
    assert names == [type(part).__name__ for part in module.modules()]
    with np.load(tmp_path / "before.npz") as before:
        for other in ("after", "loaded"):
            with np.load(tmp_path / f"{other}.npz") as found:
                assert set(found) == set(before)
                for name in before:
                    np.testing.assert_array_equal(found[name], before[name])


def test_a_saved_model_is_read_from_its_file(tmp_path):
    module = random_model("MP-0", dtype=torch.float32)
    torch.save(module, tmp_path / "my.model")
    model = load(tmp_path / "my.model")
    assert (model.numbers, model.head, model.dtype) == ((1, 6, 8), "Default", "float32")


def test_a_head_has_to_be_named_where_there_are_several():
    module = random_model("heads")
    with pytest.raises(InputError, match="expected one of a, b; found None"):
        read(module)
    with pytest.raises(InputError, match="found c"):
        read(module, "c")


def test_unknown_blocks_are_named():
    from mace.modules import interaction_classes

    other = interaction_classes["RealAgnosticAttResidualInteractionBlock"]
    module = random_model("MP-0", interaction_cls=other)
    with pytest.raises(UnsupportedError, match=r"interactions.1: expected .* found RealAgnosticAttResidual"):
        read(module)
    with pytest.raises(UnsupportedError, match=r"model: expected MACE or .*EnergyDipolesMACE, found Linear"):
        read(torch.nn.Linear(1, 1))
    dipoles_only = random_model("dipoles", kind="AtomicDipolesMACE", atomic_energies=None)
    with pytest.raises(UnsupportedError, match=r"model: expected .*, found AtomicDipolesMACE of mace\.modules"):
        read(dipoles_only)


@pytest.mark.parametrize(
    ("part", "attribute"), [("", "radial_embedding"), ("interactions.1", "linear_up"), ("products.0", "use_sc")]
)
def test_a_model_of_another_version_is_one_error(part, attribute):
    changed = random_model("MP-0")
    delattr(changed.get_submodule(part), attribute)
    with pytest.raises(
        InputError, match=rf"expected the modules of mace-torch .* no attribute '{attribute}'.* save it"
    ):
        read(changed)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    torch.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="expected a module of PyTorch, found dict"):
        load(tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no model")
    with pytest.raises(InputError, match="expected a model saved by mace-torch"):
        load(tmp_path / "text.pt")
