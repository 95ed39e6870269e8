"""What is built for a basis set is what calculations with it need."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto

from trnqc.eri.compiled import programs
from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.gradient.three_centre import three_centre_gradient, two_centre_gradient
from trnqc.eri.integrals import int2c2e, int2e, int3c2e
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.prepare import prebuild
from trnqc.eri.seminumerical.exchange import SeminumericalExchange
from trnqc.eri.seminumerical.gradient import exchange_gradient
from trnqc.errors import InputError, MoleculeError

BASIS = "6-31g"


@pytest.fixture
def asked(monkeypatch) -> set[str]:
    """Names of the programs that are compiled or taken from the cache from here on."""
    names = set()
    real = programs.library

    def record(program):
        names.add(program.name)
        return real(program)

    monkeypatch.setattr(programs, "library", record)
    return names


def molecule(atom: str = "O 0 0 0; H 0 0.8 0.6; H 0 -0.8 0.6", basis: str = BASIS) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0)


def names(*arguments, **options) -> set[str]:
    return {program.name for program in prebuild.programs(*arguments, **options)}


def test_j_and_k(asked):
    mol = molecule()
    wanted = names(prebuild.atoms(BASIS, ["H", "O"]), ["jk"])
    builder = JKBuilder(mol)
    for with_j, with_k in ((True, True), (True, False)):
        builder.get_jk(np.eye(mol.nao), 1, with_j, with_k)
    assert asked == wanted


def test_in_memory(asked):
    int2e(molecule(), aosym="s8")
    assert asked == names(prebuild.atoms(BASIS, ["O", "H"]), ["memory"])


def test_range_separation(asked):
    mol = molecule("H 0 0 0; H 0 0 1")
    JKBuilder(mol, omega=-0.3).get_jk(np.eye(mol.nao), 1, False, True)
    assert asked == names(prebuild.atoms(BASIS, ["H"]), ["jk"], "erfc")


def test_gradients(asked):
    mol = molecule("Be 0 0 0", "sto-3g")
    GradientBuilder(mol).get_jk(np.eye(mol.nao))
    assert asked == names(prebuild.atoms("sto-3g", ["Be"]), ["gradient"])


def test_fitting(asked):
    mol, auxmol = molecule("H 0 0 0; H 0 0 1"), molecule("H 0 0 0; H 0 0 1", "weigend")
    int3c2e(mol, auxmol)
    int2c2e(auxmol)
    assert asked == names(prebuild.atoms(BASIS, ["H"]), ["fitting"], auxmol=prebuild.atoms("weigend", ["H"]))


def test_fitted_gradients(asked):
    mol, auxmol = molecule("H 0 0 0; H 0 0 1"), molecule("H 0 0 0; H 0 0 1", "weigend")
    three_centre_gradient(mol, auxmol, np.ones((mol.nao, mol.nao, auxmol.nao)))
    two_centre_gradient(auxmol, np.ones((auxmol.nao, auxmol.nao)))
    auxiliary = prebuild.atoms("weigend", ["H"])
    assert asked == names(prebuild.atoms(BASIS, ["H"]), ["fitted gradient"], auxmol=auxiliary)


def test_seminumerical_exchange(asked):
    mol = molecule("Be 0 0 0", "sto-3g")
    SeminumericalExchange(mol, level=0).get_k(np.eye(mol.nao))
    assert asked == names(prebuild.atoms("sto-3g", ["Be"]), ["seminumerical"])


def test_gradient_of_seminumerical_exchange(asked):
    mol = molecule("Be 0 0 0", "sto-3g")
    exchange_gradient(SeminumericalExchange(mol, level=0), np.eye(mol.nao))
    assert asked == names(prebuild.atoms("sto-3g", ["Be"]), ["seminumerical gradient"])


def test_atoms():
    mol = prebuild.atoms("sto-3g", ["c", "H", "C"], cartesian=True)
    assert [mol.atom_symbol(n) for n in range(mol.natm)] == ["C", "H"]
    assert mol.cart
    for elements in ([], ["Xx"]):
        with pytest.raises(MoleculeError, match="element symbols"):
            prebuild.atoms("sto-3g", elements)


@pytest.mark.parametrize(
    "options", [{"operator": "yukawa"}, {"kinds": ["optics"]}, {"kinds": ["fitting"]}], ids=lambda o: str(o)
)
def test_what_is_not_known(options):
    with pytest.raises(InputError):
        prebuild.programs(prebuild.atoms("sto-3g", ["H"]), **{"kinds": ["jk"], **options})
