"""Geometry files, and inputs that are not molecules."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto
from pyscf.data.nist import BOHR

from trnqc.errors import MoleculeError
from trnqc.mp2.reference import molecule
from trnqc.mp2.reference.molecule import Geometry, build_mole, load_geometry

GOOD = "2\nhydrogen fluoride\nH 0.0 0.0 0.0\n9 0.0 0.0 0.917\n\n"


@pytest.fixture
def xyz(tmp_path):
    def write(text, name="mol.xyz"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_reads_symbols_numbers_and_trailing_blank_lines(xyz):
    g = load_geometry(xyz(GOOD))
    assert (g.name, g.symbols, g.coordinates[1]) == ("mol", ("H", "F"), (0.0, 0.0, 0.917))
    assert (g.formula, g.electrons) == ("FH", 10)


@pytest.mark.parametrize(
    "text",
    ["\ufeff" + GOOD, GOOD.replace("\n", "\r\n"), GOOD.replace("0.917", "0.917 -0.41"), GOOD.replace(" 0", "\t0")],
    ids=["byte-order mark", "windows", "charges", "tabs"],
)
def test_what_other_programs_write(xyz, text):
    assert load_geometry(xyz(text)).coordinates == load_geometry(xyz(GOOD)).coordinates


def test_bohr_is_converted_to_angstrom(xyz):
    assert load_geometry(xyz(GOOD), unit="bohr").coordinates[1][2] == pytest.approx(0.917 * BOHR, rel=1e-15)


def test_every_molecule_by_name_builds():
    names = sorted(p.stem for p in molecule.MOLECULES.glob("*.xyz"))
    assert {"benzene", "caffeine", "water"} <= set(names)
    for name in names:
        assert build_mole(load_geometry(name), "sto-3g").nelectron % 2 == 0
    assert load_geometry("caffeine").formula == "C8H10N4O2"


# Neighbours of an atom of each element in the molecules of this project.
NEIGHBOURS = {"H": {1}, "C": {3, 4}, "N": {2, 3}, "O": {1, 2}}


@pytest.mark.parametrize("name", sorted(p.stem for p in molecule.MOLECULES.glob("*.xyz")))
def test_every_atom_has_the_neighbours_of_its_element(name):
    geometry = load_geometry(name)
    positions = np.array(geometry.coordinates)
    distances = np.linalg.norm(positions[:, None] - positions, axis=2)
    # Ångström: bonds to hydrogen are shorter than 1.2, the others shorter than 1.6 here.
    hydrogen = np.array([symbol == "H" for symbol in geometry.symbols])
    bonded = distances < np.where(hydrogen[:, None] | hydrogen, 1.2, 1.6)
    for symbol, neighbours in zip(geometry.symbols, bonded.sum(axis=1) - 1):
        assert neighbours in NEIGHBOURS[symbol], (symbol, neighbours)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "number of atoms"),
        ("two\n\nH 0 0 0\nH 0 0 1\n", 1, "'two'"),
        ("0\n\n", 1, "number of atoms"),
        ("3\n\nH 0 0 0\nH 0 0 1\n", 4, "ends after 2"),
        ("2\n\nH 0 0 0\nH 0 1\n", 4, "'H 0 1'"),
        ("2\n\nH 0 0 0\nH 0 0 x\n", 4, "'0 0 x'"),
        ("2\n\nH 0 0 0\nH 0 0 nan\n", 4, "finite"),
        ("2\n\nH 0 0 0\nQq 0 0 1\n", 4, "'Qq'"),
        ("2\n\nH 0 0 0\nH 0 0 1\n2\nnext frame\n", 5, "nothing was expected"),
        ("3\n\nO 0 0 0\nH 0 0 1\nH 0 0 1.0001\n", 5, "atom 2"),
    ],
)
def test_an_unreadable_file_is_named_with_its_line(xyz, text, line, message):
    path = xyz(text)
    with pytest.raises(MoleculeError, match=message) as error:
        load_geometry(path)
    assert f"{path}:{line}:" in str(error.value)


@pytest.mark.parametrize(
    ("written", "label"),
    [(name, "GHOST-O") for name in ("Ghost-O", "GHOST-O", "ghost.O", "Ghost:O", "ghost_o", "GhostO", "ghost-O1")]
    + [(name, "X-O") for name in ("X-O", "X:O", "xO", "X-O2")],
)
def test_ghost_atoms_are_written_as_pyscf_takes_them(xyz, written, label):
    g = load_geometry(xyz(f"2\n\nNe 0 0 0\n{written} 0 0 2\n"))
    assert (g.symbols, g.electrons, g.ghosts, g.formula) == (("Ne", label), 10, 1, "Ne + ghost O")
    mol = build_mole(g, "6-31g")
    peer = gto.M(atom=[("Ne", (0, 0, 0)), (written, (0, 0, 2))], basis="6-31g", verbose=0)
    assert (mol.nelectron, mol.nao, mol.atom_charges().tolist()) == (10, peer.nao, [10, 0])
    np.testing.assert_allclose(mol.intor("int1e_ovlp"), peer.intor("int1e_ovlp"), atol=1e-12)


@pytest.mark.parametrize("name", ["Ghost", "X", "ghost-8", "X-Qq", "Ghost-", "ghost-Qq"])
def test_a_ghost_atom_without_an_element(xyz, name):
    with pytest.raises(MoleculeError, match=rf":4: a ghost atom names its element.*found '{name}'"):
        load_geometry(xyz(f"2\n\nNe 0 0 0\n{name} 0 0 2\n"))


def test_xenon_is_no_ghost_and_a_ghost_has_no_core_potential(xyz):
    g = load_geometry(xyz("2\n\nXe 0 0 0\nghost-I 0 0 4\n"))
    mol = build_mole(g, "def2-svp")
    assert (g.symbols, g.ghosts, mol.nelectron, set(mol._ecp)) == (("Xe", "GHOST-I"), 1, 26, {"Xe"})


def test_bytes_that_are_not_text(xyz):
    with pytest.raises(MoleculeError, match="cannot be read as text"):
        load_geometry(xyz(b"2\n\n\xff\xfe\x00"))


def test_unknown_name_suggests_a_near_one():
    with pytest.raises(MoleculeError, match=r"did you mean 'benzene'.*known names: .*water"):
        load_geometry("benzen")


def test_unknown_unit(xyz):
    with pytest.raises(MoleculeError, match="angstrom, bohr"):
        load_geometry(xyz(GOOD), unit="furlong")


def test_unknown_basis_and_element_without_the_basis():
    with pytest.raises(MoleculeError, match="'cc-pvdzz' for H"):
        build_mole(load_geometry("water"), "cc-pvdzz")
    iodide = Geometry("iodide", ("I",), ((0.0, 0.0, 0.0),), charge=-1)
    with pytest.raises(MoleculeError, match="'cc-pvdz' for I"):
        build_mole(iodide, "cc-pvdz")


@pytest.mark.parametrize(
    ("charge", "spin", "kind", "words"),
    [
        (1, 0, MoleculeError, r"9 electrons.*0 unpaired.*even"),
        (0, 1, MoleculeError, r"10 electrons.*1 unpaired.*odd"),
        (10, 0, MoleculeError, "has 0 electrons"),
        (0, -2, MoleculeError, "-2 unpaired"),
    ],
)
def test_electron_counts_that_make_no_closed_shell(charge, spin, kind, words):
    with pytest.raises(kind, match=words):
        build_mole(load_geometry("water", charge, spin), "cc-pvdz")


def test_effective_core_potential_comes_with_its_basis():
    hi = Geometry("hi", ("H", "I"), ((0.0, 0.0, 0.0), (0.0, 0.0, 1.609)))
    assert build_mole(hi, "def2-svp").nelectron == 54 - 28
    assert build_mole(load_geometry("water"), "def2-svp").nelectron == 10


def test_mole_has_the_geometry_and_is_silent():
    g = load_geometry("water")
    mol = build_mole(g, "cc-pvdz")
    np.testing.assert_allclose(mol.atom_coords() * BOHR, g.coordinates, atol=1e-14)
    assert (mol.verbose, mol.charge, mol.spin) == (0, 0, 0)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("basis", ["minao", "6-31+g(d,p)", "lanl2dz"])
def test_sets_without_core_potentials_build_in_silence(basis):
    """PySCF raises for some of these where it is asked for a core potential, and advertises for others."""
    assert build_mole(load_geometry("water"), basis).has_ecp() == {}
