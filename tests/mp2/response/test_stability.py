"""Stability of SCF solutions against PySCF's analysis."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyscf import gto
from pyscf.scf import stability as theirs
from pyscf.soscf import newton_ah

from trnqc.errors import UnsupportedError
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import Geometry
from trnqc.mp2.response import stability
from trnqc.mp2.response.response import response_of
from trnqc.mp2.response.rotations import CanonicalRotations
from trnqc.mp2.run import run
from trnqc.mp2.scf.hartree_fock import run_scf

STRETCHED, CARBON = "H 0 0 0; H 0 0 1.3", "C 0 0 0; C 0 0 1.24"


def molecule(atom, spin=0):
    return gto.M(atom=atom, basis="6-31g", spin=spin, verbose=0)


def eigenvalue(product, diagonal):
    """Lowest eigenvalue of the matrix, computed from its products with unit vectors."""
    return np.linalg.eigvalsh([product(unit) for unit in np.eye(len(diagonal))])[0]


@pytest.mark.parametrize("density_fit", [True, False])
@pytest.mark.parametrize("atom", [STRETCHED, CARBON, "H 0 0 0; F 0 0 0.92"])
def test_lowest_eigenvalues_are_those_of_the_whole_matrices(atom, density_fit):
    mf = run_scf(molecule(atom), density_fit=density_fit)
    spins = stability.spin_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ)
    _, _, hop, diagonal = theirs._gen_hop_rhf_external(mf, with_symmetry=False)
    lowest = stability._lowest(stability.BrokenSpinRotations(*spins), response_of(mf.to_uhf(), 2 * spins, 1, 0.0))
    assert lowest == pytest.approx(eigenvalue(hop, diagonal), abs=1e-5)
    _, hop, diagonal = newton_ah.gen_g_hop_rhf(mf, mf.mo_coeff, mf.mo_occ, with_symmetry=False)
    lowest = stability._lowest(CanonicalRotations(spins), response_of(mf, spins, 1, 0.0))
    assert lowest == pytest.approx(eigenvalue(hop, diagonal) / 2, abs=1e-5)


def test_what_is_said_of_unstable_solutions():
    assert run_scf(molecule("H 0 0 0; F 0 0 0.92"), stability=True).doubts == ()
    (external,) = run_scf(molecule(STRETCHED), stability=True).doubts
    assert "a UHF solution with broken spin symmetry has a lower energy" in external
    external, internal = run_scf(molecule(CARBON), stability=True).doubts
    assert "UHF" in external and "another RHF solution has a lower energy" in internal


def test_the_orbitals_of_the_hint_lead_to_a_stable_solution():
    mf = run_scf(molecule(STRETCHED))
    uhf = mf.to_uhf()
    uhf.kernel(uhf.make_rdm1(mf.stability(external=True)[1], uhf.mo_occ))
    assert uhf.e_tot < mf.e_tot - 1e-3
    assert stability.stability_warnings(uhf, 1) == ()
    symmetric = mf.to_uhf()
    (message,) = stability.stability_warnings(symmetric, 1)
    assert "another UHF solution has a lower energy" in message


def test_a_result_has_the_warning():
    geometry = Geometry("stretched", ("H", "H"), ((0.0, 0.0, 0.0), (0.0, 0.0, 1.3)))
    job = Job(geometry, "6-31g", backend="cpu", threads=1)
    assert run(job).warnings == ()
    assert any("broken spin symmetry" in message for message in run(replace(job, stability=True)).warnings)
    with pytest.raises(UnsupportedError, match=r"checked for RHF and UHF in one process.* for ROHF"):
        run_scf(molecule("H 0 0 0", 1), "ROHF", stability=True)
