"""A DF-MP2 job from a geometry to its method object and its result.

Job -> molecule, basis sets, sizes checked -> SCF -> DFMP2 -> MP2Result, densities, gradients
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError, UnsupportedError
from trnqc.host import blas
from trnqc.host.arrays import release_freed_memory
from trnqc.host.clock import measured
from trnqc.host.threads import thread_count
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.execution import Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.memory import plan_factors
from trnqc.mp2.job import Job, execution_of, frozen_orbitals, molecule_of, reference_of, scf_settings
from trnqc.mp2.pairs.pairs import pair_step_bytes
from trnqc.mp2.reference.orbitals import SpinFrozen, correlated_orbitals
from trnqc.mp2.result import MP2Result, check_scaling
from trnqc.mp2.scf.hartree_fock import SOURCES, drop_integrals, generated_fitting_sets
from trnqc.mp2.scf.of_job import checkpoint_of, reference
from trnqc.ranks import ALONE, Ranks

_log = logging.getLogger(__name__)


def run(job: Job, progress: Progress | None = None, ranks: Ranks = ALONE, schedule: str = "dynamic") -> MP2Result:
    """Compute the energy of a job; arguments and errors as of `method_of`."""
    threads = thread_count(job.threads, lib.num_threads)
    with lib.with_omp_threads(threads), blas.limited(job.threads), method_of(job, progress, ranks, schedule) as mp2:
        drop_integrals(mp2._scf)
        release_freed_memory()
        result = mp2.compute()
    lib.logger.note(mp2, "E(%s) = %.15g  E_corr = %.15g", "DF-MP2", result.e_tot, result.e_corr)
    return result


def method_of(
    job: Job,
    progress: Progress | None = None,
    ranks: Ranks = ALONE,
    schedule: str = "dynamic",
    guess: np.ndarray | None = None,
    mol: gto.Mole | None = None,
) -> DFMP2:
    """Run the SCF of a job and return the DF-MP2 object, which has computed nothing yet.

    Backends, basis sets, sizes and memory are checked before the SCF begins. The object keeps the checkpoint locked
    until the end of its context.

    Parameters
    ----------
    job
        What is computed, and how.
    progress
        Called as progress(stage, done, total).
    ranks
        The processes of the job. All of them call this with the same job and get the same results. Rank 0 runs the SCF,
        with J and K from all ranks, and keeps the checkpoint. `job.memory` is the limit of each rank.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.
    guess
        Density matrix from which the SCF starts, unless the checkpoint has its orbitals.
    mol
        The molecule, which takes the place of the geometry and the basis set of the job.

    Raises
    ------
    TrnqcError
        If the input is wrong, the SCF does not converge, the memory limit is too small, the backend is not available,
        or a disk or a rank fails.
    """
    execution = execution_of(job, progress, ranks, schedule)
    for other in job.compare_with:
        choose(*other)
    check_scaling(job.scs, job.sos)
    if job.scf not in SOURCES:
        raise InputError(f"scf must be one of {', '.join(SOURCES)}, got {job.scf!r}")
    if ranks.size > 1 and job.scf_backend != "cpu":
        raise UnsupportedError(
            f"J and K of the SCF run on backend {job.scf_backend!r} in one process, found {ranks.size}: use "
            "--scf-backend cpu (scf_backend), where all processes compute them"
        )
    kind = reference_of(job.geometry, job.reference)
    with lib.with_omp_threads(execution.threads), blas.limited(job.threads), ExitStack() as failing:
        with measured("basis sets"):
            mol = molecule_of(job, execution) if mol is None else mol
            frozen, auxiliary = frozen_orbitals(job.frozen, mol), auxiliary_basis(mol, job.auxbasis)
            _check_sizes(mol, auxiliary, frozen, execution, kind, on_disk=job.checkpoint is not None)
        start = time.perf_counter()
        with measured("SCF"):
            store = failing.enter_context(checkpoint_of(job, mol, auxiliary, execution))
            mf = reference(mol, job, execution, store, guess)
        seconds = time.perf_counter() - start
        _log.info("%s: %s energy %.10f Hartree after %.1f s", job.geometry.name, kind, mf.e_tot, seconds)
        mp2 = DFMP2(
            mf,
            job.auxbasis,
            frozen,
            job.precision,
            job.backend,
            fused=job.fused,
            threads=execution.threads,
            allow_unconverged=job.allow_unconverged,
            scs=job.scs,
            sos=job.sos,
            progress=progress,
            checkpoint=job.checkpoint if store is None else store,
            ranks=ranks,
            schedule=schedule,
        )
        failing.pop_all()
    mp2.compare_with, mp2._memory, mp2._scf_settings = job.compare_with, execution.memory, scf_settings(job)
    mp2._fock = getattr(mf, "spin_fock", None)
    mp2._of_job = {"geometry": job.geometry, "timings": {"SCF": seconds}, "warnings": _about_the_scf(mf)}
    return mp2


def _check_sizes(
    mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: SpinFrozen, execution: Execution, kind: str, on_disk: bool
) -> None:
    """Check that orbitals remain to be correlated and that the job fits into memory."""
    nao, auxmol = mol.nao_nr(), auxiliary.auxmol
    c, e = np.eye(nao), np.zeros(nao)
    occupied = [np.arange(nao) < n for n in mol.nelec]
    if kind == "RHF":
        spins = correlated_orbitals(c, e, 2.0 * occupied[0], frozen)
    else:
        spins = correlated_orbitals((c, c), (e, e), np.array(occupied, dtype=float), frozen)
    beside = pair_step_bytes([(spin.nocc, spin.nvir) for spin in spins], auxmol.nao_nr(), execution)
    plan_factors(auxmol, spins, execution, beside=beside, on_disk=on_disk)


def _about_the_scf(mf: Any) -> tuple[str, ...]:
    if elements := generated_fitting_sets(mf):
        return (f"no JK-fitting set in the library for {', '.join(elements)}: the SCF used a generated one",)
    return ()
