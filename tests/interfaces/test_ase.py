"""The ASE calculator: units, electrons, restart and errors."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, scf
from pyscf.data.nist import BOHR, HARTREE2EV

import trnqc
from trnqc.errors import CheckpointError, InputError, MoleculeError, UnsupportedError

ase = pytest.importorskip("ase")


def hydrogen(distance=0.78):
    return ase.Atoms("H2", [(0, 0, 0), (0, 0, distance)])


def hydroxyl(**options):
    return ase.Atoms("OH", [(0, 0, 0), (0, 0, 0.97)], **options)


def scf_cycles(calc):
    return calc.point.mp2._scf.cycles


def test_energy_in_electronvolt_and_forces_from_energies():
    atoms = hydrogen()
    atoms.calc = trnqc.ase.TRNQC(basis="6-31g")
    mol = gto.M(atom="H 0 0 0; H 0 0 0.78", basis="6-31g", verbose=0)
    peer = trnqc.DFMP2(trnqc.accelerate(scf.RHF(mol).density_fit()).run(conv_tol=1e-11)).run()
    assert atoms.get_potential_energy() == pytest.approx(peer.e_tot * HARTREE2EV, abs=1e-7)
    energy, force = atoms.get_potential_energy(), atoms.get_forces()[1, 2]
    assert atoms.get_potential_energy() == energy
    h, energies = 4e-4, []
    for step in (-h, h):
        atoms.positions[1, 2] = 0.78 + step
        energies.append(atoms.get_potential_energy())
    assert force == pytest.approx(-(energies[1] - energies[0]) / (2 * h), abs=1e-5)


def test_dipole_moment_of_the_relaxed_density():
    positions = [(0, 0, 0), (0, 0, 0.917)]
    atoms = ase.Atoms("FH", positions)
    atoms.calc = trnqc.ase.TRNQC(basis="sto-3g", density_fit=False)

    def energy(field):
        """The energy in a uniform electric field along z, with the operator -z of an electron's charge -1."""
        mol = gto.M(atom=list(zip("FH", positions)), basis="sto-3g", verbose=0)
        mf = scf.RHF(mol)
        h = mf.get_hcore() + field * mol.intor("int1e_r")[2]
        mf.get_hcore = lambda *_: h
        mf.conv_tol = 1e-12
        nuclei = field * mol.atom_charges() @ mol.atom_coords()[:, 2]
        return trnqc.DFMP2(mf.run(), frozen=1).run().e_tot - nuclei

    h = 1e-3
    dipole = -(energy(h) - energy(-h)) / (2 * h)
    assert atoms.get_dipole_moment() == pytest.approx([0, 0, dipole * BOHR], abs=1e-6)
    atoms.get_forces()
    assert atoms.calc.results["dipole"][2] == pytest.approx(dipole * BOHR, abs=1e-6)


def test_charge_and_spin_of_the_atoms():
    calc = trnqc.ase.TRNQC(basis="sto-3g")
    atoms = hydroxyl()
    atoms.calc = calc

    def electrons():
        atoms.get_potential_energy()
        return calc.point.mp2.mol.charge, calc.point.mp2.mol.spin

    assert electrons() == (0, 1)
    atoms.info["charge"] = -1
    assert electrons() == (-1, 0)
    atoms.info["charge"] = 1
    atoms.info["spin"] = 2
    assert electrons() == (1, 2)
    atoms.info.clear()
    atoms.set_initial_charges([-1, 0])
    assert electrons() == (-1, 0)
    atoms.set_initial_charges([0, 0])
    atoms.set_initial_magnetic_moments([3, 0])
    assert electrons() == (0, 3)
    calc.set(charge=-1, spin=0)
    assert electrons() == (-1, 0)


def test_the_next_geometry_starts_from_the_last_density():
    atoms = hydroxyl()
    atoms.info["charge"] = -1
    atoms.calc = trnqc.ase.TRNQC(basis="sto-3g")
    atoms.get_potential_energy()
    first = scf_cycles(atoms.calc)
    atoms.positions[1, 2] += 1e-4
    atoms.get_potential_energy()
    assert scf_cycles(atoms.calc) < first


def test_restart_reads_results_and_density(tmp_path, monkeypatch):
    label = str(tmp_path / "run" / "hydrogen")
    atoms = hydrogen()
    atoms.calc = trnqc.ase.TRNQC(label=label, basis="6-31g", scs=(1.1, 0.4))
    energy = atoms.get_potential_energy()
    monkeypatch.setattr("trnqc.interfaces.ase.single_point", None)
    again = trnqc.ase.TRNQC(restart=label)
    same = again.get_atoms()
    assert same.get_potential_energy() == energy
    assert again.parameters["basis"] == "6-31g"
    monkeypatch.undo()
    cold = scf_cycles(atoms.calc)
    same.positions[1, 2] += 1e-5
    same.get_potential_energy()
    assert scf_cycles(again) < cold
    assert trnqc.ase.TRNQC(restart=label).results["energy"] != energy


def test_damaged_restart_files(tmp_path):
    with pytest.raises(CheckpointError, match=r"nothing\.json: cannot be read to restart"):
        trnqc.ase.TRNQC(restart=str(tmp_path / "nothing"))
    (tmp_path / "half.json").write_text('{"atoms": ')
    with pytest.raises(CheckpointError, match=r"half\.json"):
        trnqc.ase.TRNQC(restart=str(tmp_path / "half"))


def test_settings_change_the_energy():
    atoms = hydrogen()
    atoms.calc = trnqc.ase.TRNQC(basis="sto-3g")
    first = atoms.get_potential_energy()
    atoms.calc.set(method="sos-mp2")
    scaled = atoms.get_potential_energy()
    result = atoms.calc.point.mp2.result
    assert scaled - first == pytest.approx((result.e_tot_sos - result.e_tot) * HARTREE2EV, abs=1e-7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"basos": "6-31g"}, "did you mean 'basis'"), ({"method": "mp3"}, "the method must be one of mp2")],
)
def test_unknown_settings(settings, words):
    with pytest.raises(InputError, match=words):
        trnqc.ase.TRNQC(**settings)


@pytest.mark.parametrize(
    ("atoms", "kind", "words"),
    [
        (hydroxyl(pbc=(True, False, False), cell=(9, 9, 9)), UnsupportedError, "periodic"),
        (hydroxyl(charges=[0.5, 0]), InputError, "charge must be an integer, the atoms have 0.5"),
        (hydroxyl(magmoms=[2, 0]), MoleculeError, "9 electrons, which is impossible with 2 unpaired"),
    ],
)
def test_atoms_that_are_no_molecule(atoms, kind, words):
    atoms.calc = trnqc.ase.TRNQC(basis="sto-3g")
    with pytest.raises(kind, match=words):
        atoms.get_potential_energy()


def test_optimisation_by_ase():
    bfgs = pytest.importorskip("ase.optimize").BFGS
    atoms = hydrogen(0.9)
    atoms.calc = trnqc.ase.TRNQC(basis="6-31g")
    assert bfgs(atoms, logfile=None).run(fmax=0.01, steps=12)
    mol = gto.M(atom=[("H", r) for r in atoms.positions], basis="6-31g", verbose=0)
    mf = trnqc.accelerate(scf.RHF(mol).density_fit()).run(conv_tol=1e-11)
    gradient = trnqc.DFMP2(mf).nuc_grad_method().kernel()
    assert np.abs(gradient).max() * HARTREE2EV / BOHR < 0.011
