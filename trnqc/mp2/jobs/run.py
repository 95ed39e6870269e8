"""A DF-MP2 job from a geometry to its result, as the command line runs it.

Job -> molecule, basis sets, sizes checked -> SCF -> build_factors -> run_pairs, also on other backends -> MP2Result
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError
from trnqc.host.memory import release_freed_memory
from trnqc.mp2.assembly import compare, result_of_molecule
from trnqc.mp2.execution import Choice, Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.build import build_spin_factors
from trnqc.mp2.factors.memory import plan_factors
from trnqc.mp2.jobs.job import Job, execution_of, frozen_orbitals, molecule_of, reference_of
from trnqc.mp2.jobs.scf import checkpoint_of, keep_orbitals, run_reference
from trnqc.mp2.pairs.pairs import pair_step_bytes, run_pairs
from trnqc.mp2.reference.orbitals import ActiveOrbitals, SpinFrozen, correlated_orbitals, kind_of_reference
from trnqc.mp2.reference.semicanonical import semicanonical_orbitals
from trnqc.mp2.result import MP2Result, check_scaling
from trnqc.mp2.scf.hartree_fock import SOURCES, drop_integrals, generated_fitting_sets
from trnqc.ranks import ALONE, Ranks

_log = logging.getLogger(__name__)


def run(job: Job, progress: Progress | None = None, ranks: Ranks = ALONE, schedule: str = "dynamic") -> MP2Result:
    """Run a job.

    Backends, basis sets, sizes and memory are checked before the SCF begins.

    Parameters
    ----------
    job
        What is computed, and how.
    progress
        Called as progress(stage, done, total).
    ranks
        The processes of the job. All of them call this with the same job and get the same result. Rank 0 runs the SCF,
        with J and K from all ranks, and keeps the checkpoint. `job.memory` is the limit of each rank.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.

    Raises
    ------
    TrnqcError
        If the input is wrong, the SCF does not converge, the memory limit is too small, the backend is not available,
        or a disk or a rank fails.
    """
    execution = execution_of(job, progress, ranks, schedule)
    others = [choose(*other) for other in job.compare_with]
    check_scaling(job.scs, job.sos)
    if job.scf not in SOURCES:
        raise InputError(f"scf must be one of {', '.join(SOURCES)}, got {job.scf!r}")
    kind = reference_of(job)
    with lib.with_omp_threads(execution.threads):
        mol = molecule_of(job, execution)
        frozen = frozen_orbitals(job, mol)
        auxiliary = auxiliary_basis(mol, job.auxbasis)
        beside = _check_sizes(mol, auxiliary, frozen, execution, kind, on_disk=job.checkpoint is not None)
        with checkpoint_of(job, mol, auxiliary, frozen, execution, kind) as store:
            start = time.perf_counter()
            mf = run_reference(mol, job, execution, store)
            drop_integrals(mf)
            release_freed_memory()
            timings = {"SCF": time.perf_counter() - start}
            _log.info("%s: %s energy %.10f Hartree after %.1f s", job.geometry.name, kind, mf.e_tot, timings["SCF"])
            keep_orbitals(mf, store)
            spins, singles = _orbitals(mf, frozen)
            factors = build_spin_factors(mol, auxiliary.auxmol, spins, execution, store, beside)
            _log.info("%s: factors after %.1f s", job.geometry.name, time.perf_counter() - start)
            step = run_pairs(factors, execution, store)
            _log.info("%s: pair energies after %.1f s", job.geometry.name, time.perf_counter() - start)
        compared = (run_pairs(factors, _elsewhere(execution, other)) for other in others)
        comparisons = tuple(compare(step, other, factors) for other in compared)
    result = result_of_molecule(
        mf,
        spins,
        auxiliary,
        factors,
        step,
        geometry=job.geometry,
        timings=timings,
        warnings=_about_the_scf(mf),
        scs=job.scs,
        sos=job.sos,
        comparisons=comparisons,
        e_singles=singles,
    )
    lib.logger.note(mf, "E(%s) = %.15g  E_corr = %.15g", "DF-MP2", result.e_tot, result.e_corr)
    return result


def _check_sizes(
    mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: SpinFrozen, execution: Execution, kind: str, on_disk: bool
) -> int:
    """Check that orbitals remain to be correlated and that the job fits into memory.

    Returns the bytes that the pair step needs in addition to the factors.
    """
    nao, auxmol = mol.nao_nr(), auxiliary.auxmol
    c, e = np.eye(nao), np.zeros(nao)
    occupied = [np.arange(nao) < n for n in mol.nelec]
    if kind == "RHF":
        spins = correlated_orbitals(c, e, 2.0 * occupied[0], frozen)
    else:
        spins = correlated_orbitals((c, c), (e, e), np.array(occupied, dtype=float), frozen)
    beside = pair_step_bytes([(spin.nocc, spin.nvir) for spin in spins], auxmol.nao_nr(), execution)
    plan_factors(auxmol, spins, execution, beside=beside, on_disk=on_disk)
    return beside


def _orbitals(mf: Any, frozen: SpinFrozen) -> tuple[tuple[ActiveOrbitals, ...], float]:
    """The correlated orbitals of each spin, and the energy of single excitations."""
    if kind_of_reference(mf) != "ROHF":
        return correlated_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ, frozen), 0.0
    return semicanonical_orbitals(mf.mo_coeff, mf.mo_occ, mf.spin_fock, frozen)


def _elsewhere(execution: Execution, choice: Choice) -> Execution:
    """The same execution with another backend, which adds its name to the stages in progress reports."""

    def report(stage: str, done: int, total: int) -> None:
        execution.report(f"{stage} on {choice.backend.name}", done, total)

    return replace(execution, choice=choice, progress=report)


def _about_the_scf(mf: Any) -> tuple[str, ...]:
    if elements := generated_fitting_sets(mf):
        return (f"no JK-fitting set in the library for {', '.join(elements)}: the SCF used a generated one",)
    return ()
