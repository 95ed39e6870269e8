"""The DF-MP2 object of a job, for interfaces that need more of it than the energy.

Job -> molecule -> SCF, from the last density if there is one -> DFMP2
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError
from trnqc.host.memory import available_memory, memory_limit
from trnqc.host.threads import thread_count
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.execution import Progress
from trnqc.mp2.jobs.job import SHARE_OF_FREE_MEMORY, Job
from trnqc.mp2.reference.hartree_fock import run_rhf
from trnqc.mp2.reference.molecule import Geometry, build_mole, describe
from trnqc.mp2.reference.orbitals import chemical_core

# Fields of a job that describe its method and the machine. The other fields are about whole jobs.
SETTINGS = tuple(
    field.name
    for field in dataclasses.fields(Job)
    if field.name not in ("geometry", "compare_with", "checkpoint", "fused")
)
# A geometry that stands in a job until the interface gets one.
_NO_GEOMETRY = Geometry("", (), ())


def job_of_settings(settings: Mapping[str, Any]) -> Job:
    """Build a job without a geometry from settings by name, which are fields of `trnqc.mp2.jobs.job.Job`.

    Raises
    ------
    InputError
        If a name is not one of SETTINGS.
    """
    for name in settings:
        if name not in SETTINGS:
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise InputError(f"unknown setting {name!r}; {hint}settings are {', '.join(SETTINGS)}")
    return Job(_NO_GEOMETRY, **settings)


def mp2_object(job: Job, guess: np.ndarray | None = None, progress: Progress | None = None) -> DFMP2:
    """Run the SCF of a job and return the DF-MP2 object, whose `kernel` has not been called.

    Parameters
    ----------
    job
        What is computed, and how; its checkpoint and comparisons are not used.
    guess
        Density matrix in the atomic orbitals of the job's basis set, from which the SCF starts.
    progress
        Called as progress(stage, done, total).

    Raises
    ------
    TrnqcError
        If the input is wrong, or the SCF does not converge.
    """
    mol = build_mole(job.geometry, job.basis)
    memory = job.memory or SHARE_OF_FREE_MEMORY * available_memory()
    # PySCF's limit in MB is for the whole process; ours is for the memory that the job adds.
    mol.verbose, mol.max_memory = job.verbose, memory / 1e6 + lib.current_memory()[0]
    with lib.with_omp_threads(thread_count(job.threads, lib.num_threads)):
        return _object(mol, job, memory, guess, progress)


def default_method(mol: gto.Mole) -> DFMP2:
    """DF-MP2 with a frozen core on density-fitted Hartree-Fock; the energies are computed."""
    mp2 = _object(mol, Job(describe(mol)), memory_limit(mol.max_memory))
    mp2.kernel()
    return mp2


def _object(
    mol: gto.Mole, job: Job, memory: float, guess: np.ndarray | None = None, progress: Progress | None = None
) -> DFMP2:
    mf = run_rhf(
        mol,
        source=job.scf,
        density_fit=job.density_fit,
        conv_tol=job.conv_tol,
        max_cycle=job.max_cycle,
        allow_unconverged=job.allow_unconverged,
        progress=progress,
        guess=guess,
    )
    return DFMP2(
        mf,
        auxbasis=job.auxbasis,
        frozen=chemical_core(mol) if isinstance(job.frozen, str) else job.frozen,
        precision=job.precision,
        backend=job.backend,
        max_memory=memory / 1e6,
        fused=job.fused,
        threads=job.threads,
        allow_unconverged=job.allow_unconverged,
        scs=job.scs,
        sos=job.sos,
        progress=progress,
    )
