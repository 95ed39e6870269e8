"""Only RI sets are used as auxiliary basis, and generated sets are reported."""

from __future__ import annotations

import pytest
from pyscf import df, gto

from trnqc import DFMP2
from trnqc.errors import MoleculeError
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis

KF = "K 0 0 0; F 0 0 2.2"


@pytest.mark.parametrize(
    ("basis", "names"),
    [
        ("cc-pvdz", {"H": "cc-pvdz-ri", "O": "cc-pvdz-ri"}),
        ("def2-tzvp", {"H": "def2-tzvp-ri", "O": "def2-tzvp-ri"}),
        ("6-31g**", {"H": "cc-pvdz-ri", "O": "cc-pvdz-ri"}),
        ("6-311++G(d,p)", {"H": "aug-cc-pvtz-ri", "O": "aug-cc-pvtz-ri"}),
        ({"H": "cc-pvdz", "O": "aug-cc-pvtz"}, {"H": "cc-pvdz-ri", "O": "aug-cc-pvtz-ri"}),
    ],
)
def test_default_is_the_ri_set_of_each_orbital_basis(basis, names):
    mol = gto.M(atom="O 0 0 0; H 0 0.76 0.59; H 0 -0.76 0.59", basis=basis, verbose=0)
    result = auxiliary_basis(mol)
    assert result.names == names
    assert result.generated == ()
    assert result.warning is None
    assert result.auxmol.nao_nr() == df.addons.make_auxmol(mol, names).nao_nr()


def test_missing_elements_are_generated_and_told(capfd):
    basis = auxiliary_basis(gto.M(atom=KF, basis="6-31g*", verbose=0))
    assert basis.names == {"F": "cc-pvdz-ri", "K": "autoaux"}
    assert basis.generated == ("K",)
    assert "for K" in basis.warning
    assert capfd.readouterr().out == ""


def test_asking_for_a_generated_set_is_no_surprise(reference):
    basis = auxiliary_basis(reference("water").mol, "autoaux")
    assert set(basis.names.values()) == {"autoaux"}
    assert basis.warning is None


def test_generated_set_fits_as_well_as_the_ri_set(reference):
    """Both within 1e-4 Hartree of each other: the fitting error of either is below that for water."""
    mf = reference("water")
    assert DFMP2(mf, auxbasis="autoaux").kernel()[0] == pytest.approx(DFMP2(mf).kernel()[0], abs=1e-4)


def test_library_set_without_the_element():
    with pytest.raises(MoleculeError, match="'cc-pvdz-ri' for K"):
        auxiliary_basis(gto.M(atom=KF, basis="6-31g*", verbose=0), "cc-pvdz-ri")


def test_dict_without_the_element(reference):
    with pytest.raises(MoleculeError, match="no entry for O"):
        auxiliary_basis(reference("water").mol, {"H": "cc-pvdz-ri"})


def test_dict_with_a_default(reference):
    basis = auxiliary_basis(reference("water").mol, {"H": "cc-pvtz-ri", "default": "cc-pvdz-ri"})
    assert basis.names == {"H": "cc-pvtz-ri", "O": "cc-pvdz-ri"}


@pytest.mark.parametrize("labels", [("O1", "H1", "H2"), ("o", "h", "h@2")])
def test_labels_fall_back_on_the_elements_sets(labels):
    """As PySCF's integrals do, for orbital and auxiliary basis alike."""
    places = [(0, 0, 0.117), (0, 0.757, -0.469), (0, -0.757, -0.469)]
    mol = gto.M(atom=list(zip(labels, places)), basis={"o": "cc-pvdz", "H": "cc-pvdz"}, verbose=0)
    for asked in (None, {"O": "cc-pvdz-ri", "h": "cc-pvdz-ri"}):
        basis = auxiliary_basis(mol, asked)
        assert basis.auxmol.nao_nr() == 84
        assert set(basis.names.values()) == {"cc-pvdz-ri"}


@pytest.mark.parametrize("basis", ["6-31g", {"K": "6-31g", "F": "6-31g"}])
def test_ghost_atoms_have_the_functions_of_their_element(basis):
    result = auxiliary_basis(gto.M(atom="K 0 0 0; F 0 0 2.2; ghost-F 0 0 5", basis=basis, verbose=0))
    assert result.names == {"K": "autoaux", "F": "cc-pvdz-ri", "GHOST-F": "cc-pvdz-ri"}
    by_atom = result.auxmol.aoslice_by_atom()
    assert by_atom[1, 1] - by_atom[1, 0] == by_atom[2, 1] - by_atom[2, 0] > 0


def test_what_is_neither_name_nor_dict(reference):
    with pytest.raises(MoleculeError, match="got 3"):
        auxiliary_basis(reference("water").mol, 3)


def test_a_name_that_no_set_can_be_made_from(reference):
    with pytest.raises(MoleculeError, match="cannot be built for H: @3s2p1d implies 3"):
        auxiliary_basis(reference("water").mol, "cc-pvdz@3s2p1d")
