"""Double hybrids and RPA from the orbitals of a Hartree-Fock or Kohn-Sham job.

MeanFieldJob, its converged object -> DH or RPA object -> energy by its parts, CorrelationSummary
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyscf import gto

from trnqc.errors import UnsupportedError
from trnqc.interfaces.mean_field.job import MeanFieldJob, double_hybrid_of, kind_of
from trnqc.interfaces.mean_field.result import CorrelationSummary, SCFResult
from trnqc.mp2.execution import Progress
from trnqc.mp2.hybrids.dispersion import Disp, dispersion_energy
from trnqc.mp2.hybrids.double_hybrid import DH
from trnqc.mp2.hybrids.expansion import SeriesFunctional
from trnqc.mp2.hybrids.recipes import HybridRecipe
from trnqc.mp2.job import frozen_orbitals
from trnqc.mp2.reference.orbitals import correlated_orbitals
from trnqc.mp2.rings.methods import RPA


def check_correlation(job: MeanFieldJob, derivatives: bool, vibrations: bool, states: bool) -> None:
    """Check that a double hybrid or RPA has what is asked for. Raises UnsupportedError."""
    hybrid = double_hybrid_of(job)
    if hybrid is None and not job.rpa:
        return
    what = "RPA" if job.rpa else hybrid.name if hybrid else ""
    if job.rpa and hybrid:
        raise UnsupportedError(f"{hybrid.name} has a correlation of its own: leave out --rpa, or take another --xc")
    if kind_of(job) == "RO":
        raise UnsupportedError(f"{what} has no restricted open-shell form here: use --reference uhf")
    if job.solvent:
        raise UnsupportedError(f"{what} in a solvent is not implemented: leave out --solvent")
    if job.rpa and job.dispersion:
        raise UnsupportedError("RPA contains dispersion: leave out --dispersion")
    if states:
        raise UnsupportedError(f"excited states of {what} are not implemented: leave out --tddft, or take another --xc")
    if vibrations:
        raise UnsupportedError(f"{what} has no Hessian: take a functional without perturbation for --frequencies")
    if derivatives and job.rpa:
        raise UnsupportedError("RPA has no gradient: leave out --gradient and --optimize, or --rpa")
    if derivatives and hybrid and isinstance(hybrid.final, SeriesFunctional):
        raise UnsupportedError(f"{what} has VV10 correlation and therefore no gradient: take another double hybrid")


def check_dispersion(job: MeanFieldJob, mol: gto.Mole) -> None:
    """Check before the SCF that a double hybrid has the dispersion of the job. Raises InputError, UnsupportedError."""
    if hybrid := double_hybrid_of(job):
        dispersion_energy(mol, hybrid, _dispersion(job, hybrid))


def correlated(job: MeanFieldJob, mf: Any, progress: Progress | None = None) -> DH | RPA | None:
    """The method object of a double hybrid or of RPA, or None for a job without either.

    `mf` is the SCF object of the job. It has to be converged for RPA.
    """
    frozen = frozen_orbitals(job.frozen, mf.mol)
    if job.rpa:
        return RPA(mf, frozen=frozen, progress=progress)
    if hybrid := double_hybrid_of(job):
        return DH(mf, hybrid, frozen=frozen, disp=_dispersion(job, hybrid), progress=progress)
    return None


def with_correlation(result: SCFResult, method: DH | RPA) -> SCFResult:
    """The result of the SCF with the energy of a method object, whose `kernel` has been called."""
    if isinstance(method, DH):
        e_corr, parts, words = _of_double_hybrid(method, result.parts)
        doubts = method.mp2.result.warnings if method.mp2 and method.mp2.result else ()
    else:
        e_corr, parts, words = _of_rpa(method, result.parts)
        doubts = ()
    mf = method._scf
    spins = correlated_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ, method.frozen)
    about = CorrelationSummary(
        method=words,
        e_scf=result.e_tot,
        e_corr=e_corr,
        frozen=tuple(len(spin.frozen_occ) for spin in spins),
        correlated=tuple(spin.nocc for spin in spins),
    )
    assert method.e_tot is not None
    total, warnings = float(method.e_tot), result.warnings + doubts
    return replace(result, e_tot=total, parts=parts, correlation=about, warnings=warnings)


def _of_double_hybrid(dh: DH, parts: Mapping[str, float]) -> tuple[float, dict[str, float], str]:
    assert dh.result is not None
    hybrid, energies = dh.recipe, dh.result
    # The parts of the SCF are those of the total energy only if both have the same functional.
    found = dict(parts) if hybrid.final is None else {"density functional": energies.e_dft}
    found["perturbation, opposite spin"] = hybrid.c_os * energies.e_corr_os
    found["perturbation, same spin"] = hybrid.c_ss * energies.e_corr_ss
    if energies.e_disp:
        found["dispersion"] = energies.e_disp
    words = f"DF-MP2 of its orbitals, {hybrid.c_os:g} opposite spin + {hybrid.c_ss:g} same spin ({hybrid.source})"
    return energies.e_pt2, found, words


def _of_rpa(rpa: RPA, parts: Mapping[str, float]) -> tuple[float, dict[str, float], str]:
    assert rpa.result is not None
    # With Kohn-Sham orbitals the total energy has the Hartree-Fock energy of the orbitals, without the functional.
    found = {"Hartree-Fock of the orbitals": rpa.e_hf} if hasattr(rpa._scf, "xc") else dict(parts)
    found["RPA correlation"] = rpa.result.energy
    return rpa.result.energy, found, f"direct RPA, density-fitted, {rpa.result.points} frequencies"


def _dispersion(job: MeanFieldJob, hybrid: HybridRecipe) -> Disp:
    """The dispersion of a job as `trnqc.DH` takes it."""
    version = job.dispersion
    if version is None:
        return None
    if version == "none":
        return False
    if ":" in version or (version == "d3bj" and hybrid.damping):
        return version
    return f"{version}:{hybrid.name}"
