"""Counterpoise-corrected interaction energies against ghost atoms set by hand in PySCF."""

from __future__ import annotations

import pytest
from pyscf import gto, scf
from pyscf.mp import dfmp2

import trnqc
from trnqc.errors import InputError, MoleculeError
from trnqc.interfaces.counterpoise import Fragment, fragment_molecule, parse_fragments

WATERS = (
    "O -1.551 -0.115 0; H -1.934 0.762 0; H -0.600 0.041 0; "
    "O 1.351 0.111 0; H 1.680 -0.374 -0.759; H 1.680 -0.374 0.759"
)


def pyscf_energies(mol):
    """Density-fitted Hartree-Fock and MP2 of PySCF, all electrons."""
    return dfmp2.DFMP2(scf.RHF(mol).density_fit().run(conv_tol=1e-11)).run()


H2_AND_HF = "H 0 0 -3.2; H 0 0 -2.46; H 0 0 -0.92; F 0 0 0"


@pytest.mark.parametrize(
    ("dimer", "basis", "size"),
    [(H2_AND_HF, "sto-3g", 2), pytest.param(WATERS, "6-31g", 3, marks=pytest.mark.slow)],
    ids=["H2 and HF", "water dimer"],
)
def test_dimers_against_ghosts_in_pyscf(dimer, basis, size):
    atoms = dimer.split("; ")

    def total(atom):
        return pyscf_energies(gto.M(atom=atom, basis=basis, verbose=0)).e_tot

    fragments = [range(size), range(size, len(atoms))]
    result = trnqc.counterpoise(gto.M(atom=dimer, basis=basis, verbose=0), fragments, pyscf_energies)
    first, second = "; ".join(atoms[:size]), "; ".join(atoms[size:])
    ghost_first, ghost_second = ("; ".join("ghost-" + a for a in half) for half in (atoms[:size], atoms[size:]))
    both = total(dimer)
    corrected = both - total(f"{first}; {ghost_second}") - total(f"{ghost_first}; {second}")
    assert result.corrected.e_tot == pytest.approx(corrected, abs=1e-8)
    assert result.uncorrected.e_tot == pytest.approx(both - total(first) - total(second), abs=1e-8)
    assert result.superposition_error.e_tot < 0
    assert result.corrected.e_hf + result.corrected.e_corr == result.corrected.e_tot


def test_default_method_freezes_the_core_of_real_atoms_only():
    atoms = "H 0 0 0; H 0 0 0.74; Ne 0 0 4"
    mol = gto.M(atom=atoms, basis="6-31g", verbose=0)
    stages = []
    result = trnqc.counterpoise(mol, [[0, 1], [2]], progress=lambda *state: stages.append(state))
    alone = gto.M(atom=atoms.replace("H", "ghost-H"), basis="6-31g", verbose=0)
    peer = scf.RHF(alone).density_fit().run(conv_tol=1e-11)
    mp = trnqc.DFMP2(peer, frozen=1).run()
    assert result.in_full_basis[1].e_tot == pytest.approx(mp.e_tot, abs=1e-9)
    assert stages == [("energies", n, 5) for n in range(5)]


def test_three_fragments_and_additive_energies():
    """Energies that are sums over atoms give no interaction, and one Hartree per pair of real atoms gives three."""
    mol = gto.M(atom="He 0 0 0; He 0 0 3; He 0 3 0", basis="sto-3g", verbose=0)

    class Pairs:
        def __init__(self, mol):
            real = sum(charge > 0 for charge in mol.atom_charges())
            self.e_hf, self.e_corr = -2.0 * real, real * (real - 1) / 2 + 0.01 * mol.nao

    result = trnqc.counterpoise(mol, [[0], [1], [2]], Pairs)
    assert result.corrected.e_hf == 0
    assert result.uncorrected.e_corr == pytest.approx(3.0)
    assert result.corrected.e_corr == pytest.approx(3.0 - 0.06)


def test_charges_spins_and_basis_sets_by_element():
    mol = gto.M(
        atom="Na 0 0 0; Cl 0 0 3; I 0 0 8; H 0 0 9.6",
        basis={"default": "def2-svp", "H": "sto-3g"},
        ecp={"I": "def2-svp"},
        verbose=0,
    )
    salt = fragment_molecule(mol, Fragment((0,), charge=1), ghosts=True)
    assert (salt.nelectron, salt.nao, salt.atom_charges().tolist()) == (10, mol.nao, [11, 0, 0, 0])
    iodide = fragment_molecule(mol, Fragment((2,), charge=0, spin=1), ghosts=False)
    assert (iodide.nelectron, iodide.spin, iodide.natm) == (25, 1, 1)
    assert fragment_molecule(mol, Fragment((1, 2), 0, 0), ghosts=True).nelectron == 17 + 25


@pytest.mark.parametrize(
    ("fragments", "words"),
    [
        ([(0, 1, 2)], "at least two fragments"),
        ([(0, 1, 2), (3, 4)], r"miss atoms 5 \(from 0\)"),
        ([(0, 1, 2), (2, 3, 4, 5)], "fragments 1 and 2 overlap: both have atom 2"),
        ([(0, 1, 2), (3, 4, 5, 6)], "fragment 2: atom 6 is not one of the 6 atoms"),
        ([(0, 1, 2, 3, 4, 5), ()], "fragment 2 has no atoms"),
        ([(0, 1), (2, 3, 4, 5)], r"fragment 1 with charge \+0 has 9 electrons"),
        ([Fragment((0, 1), -1), Fragment((2, 3, 4, 5))], r"fragment 2 with charge \+0 has 11 electrons"),
        ([Fragment((0, 1), -1), Fragment((2, 3, 4, 5), -1)], r"add up to -2, the complex has \+0"),
    ],
)
def test_fragments_that_are_not_those_of_the_complex(fragments, words):
    with pytest.raises(MoleculeError, match=words):
        trnqc.counterpoise(gto.M(atom=WATERS, basis="sto-3g", verbose=0), fragments)


@pytest.mark.parametrize("text", ["", "1-3", "1-2/x", "1:2:3:4/5", "1-/2"])
def test_fragments_of_the_command_line(text):
    if text == "1-3":
        assert parse_fragments(text) == (Fragment((0, 1, 2)),)
    else:
        with pytest.raises(InputError, match="ATOMS"):
            parse_fragments(text)
