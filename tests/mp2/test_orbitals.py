"""Frozen orbitals, and references that are refused."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, scf
from pyscf.mp import dfmp2

from trnqc.errors import InputError, MoleculeError, NotConverged, UnsupportedError
from trnqc.mp2.reference.orbitals import active_orbitals, check_reference, chemical_core


@pytest.mark.parametrize("frozen", [None, 0, 1, 4, [], [0, 2], [0, 20, 23], (1, 5), np.array([3, 7]), np.int64(2)])
def test_same_orbitals_as_pyscf(reference, frozen):
    mf = reference("water")
    _, c_occ, c_vir, _ = dfmp2.DFMP2(mf, frozen=frozen).split_mo_coeff()
    result = active_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ, frozen)
    np.testing.assert_array_equal(result.c_occ, c_occ)
    np.testing.assert_array_equal(result.c_vir, c_vir)
    assert len(result.eps_occ) + len(result.frozen_occ) == 5
    assert len(result.eps_vir) + len(result.frozen_vir) == 19


@pytest.mark.parametrize(
    ("frozen", "kind", "words"),
    [
        (5, MoleculeError, "5 frozen orbitals leave none of the 5"),
        (9, MoleculeError, "9 frozen orbitals leave none"),
        (-1, InputError, "between 0 and 24"),
        (25, InputError, "between 0 and 24"),
        (True, InputError, "dimension|number or a list"),
        (1.5, InputError, "number or a list"),
        ("core", InputError, "number or a list"),
        ([0, 24], InputError, "between 0 and 23"),
        ([-1], InputError, "between 0 and 23"),
        ([0.5], InputError, "number or a list"),
        (range(5), MoleculeError, "all 5 occupied orbitals are frozen"),
        (range(5, 24), MoleculeError, "all virtual orbitals are frozen"),
    ],
)
def test_frozen_that_leaves_nothing_or_means_nothing(reference, frozen, kind, words):
    mf = reference("water")
    with pytest.raises(kind, match=words):
        active_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ, frozen)


def test_basis_without_virtuals():
    with pytest.raises(MoleculeError, match="no virtual orbitals"):
        active_orbitals(np.eye(1), np.zeros(1), np.array([2.0]), None)


@pytest.mark.parametrize(
    ("name", "core"), [("water", 1), ("hydrogen sulfide", 5), ("hydrogen", 0), ("hydrogen iodide", 4)]
)
def test_chemical_core(reference, name, core):
    assert chemical_core(reference(name).mol) == core


def _hydrogen():
    return gto.M(atom="H 0 0 0; H 0 0 0.74", basis="sto-3g", verbose=0)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [
        (lambda: scf.GHF(_hydrogen()), UnsupportedError, "only RHF, UHF and ROHF"),
        (lambda: dft.RKS(_hydrogen()), UnsupportedError, "Kohn-Sham"),
        (lambda: scf.RHF(_hydrogen()), InputError, "run mf.kernel"),
        (lambda: _hydrogen(), InputError, "ROHF object was expected, got Mole"),
    ],
)
def test_references_that_are_no_rhf(make, kind, words):
    with pytest.raises(kind, match=words):
        check_reference(make())


def test_unconverged_reference_stops_unless_allowed():
    mf = scf.RHF(gto.M(atom="O 0 0 0; H 0 0.76 0.59; H 0 -0.76 0.59", basis="sto-3g", verbose=0)).run(max_cycle=1)
    with pytest.raises(NotConverged, match="--allow-unconverged"):
        check_reference(mf)
    check_reference(mf, allow_unconverged=True)


def test_occupations_are_printed_as_numbers():
    mf = scf.RHF(gto.M(atom="H 0 0 0; H 0 0 2.5", basis="6-31g", verbose=0)).run()
    mf.mo_occ = np.array([1.2345678, 0.5, 0.2, 0.1])
    with pytest.raises(UnsupportedError, match=r"found 0\.1, 0\.2, 0\.5, 1\.23457 too: run the reference without"):
        check_reference(mf)


@pytest.mark.parametrize(
    ("name", "make", "kind", "message"),
    [
        ("mo_coeff", lambda x: x + 1e-3j, UnsupportedError, "mo_coeff is complex"),
        ("mo_energy", lambda x: x + 1e-3j, UnsupportedError, "mo_energy is complex"),
        (
            "mo_coeff",
            lambda x: np.where(x == x.max(), np.nan, x),
            InputError,
            "mo_coeff has elements that are not finite",
        ),
        (
            "mo_energy",
            lambda x: np.where(x == x.max(), np.inf, x),
            InputError,
            "mo_energy has elements that are not fin",
        ),
        ("mo_energy", lambda x: np.ma.masked_less(x, 0), InputError, "mo_energy is a masked array"),
    ],
)
def test_orbitals_are_real_numbers(reference, name, make, kind, message):
    mf = reference("water")
    orbitals = {x: getattr(mf, x) for x in ("mo_coeff", "mo_energy", "mo_occ")}
    with pytest.raises(kind, match=message):
        active_orbitals(**orbitals | {name: make(orbitals[name])}, frozen=None)
