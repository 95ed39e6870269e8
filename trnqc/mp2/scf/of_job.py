"""The SCF of a DF-MP2 job: on one process or on all ranks, kept in the checkpoint.

Job -> checkpoint -> orbitals of an earlier run | rank 0: SCF, all ranks: J and K -> SCF object on every rank
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyscf import gto

from trnqc.mp2.checkpoint import ORBITALS, Checkpoint, job_of
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.job import Job, frozen_orbitals, reference_of, scf_settings
from trnqc.mp2.scf.hartree_fock import jk_ran_on, run_scf
from trnqc.pyscf.shared.work import SharedWork


def checkpoint_of(
    job: Job, mol: gto.Mole, auxiliary: AuxiliaryBasis, execution: Execution, **more: str
) -> AbstractContextManager[Checkpoint | None]:
    """The checkpoint of a job, which rank 0 keeps, or None; `more` describes a job that is not an energy."""
    if job.checkpoint is None or execution.ranks.rank:
        return nullcontext()
    frozen, kind = frozen_orbitals(job.frozen, mol), reference_of(job.geometry, job.reference)
    about = job_of(mol, auxiliary, frozen, execution, kind)
    return Checkpoint(job.checkpoint, about | scf_settings(job) | more)


def reference(mol: gto.Mole, job: Job, execution: Execution, store: Checkpoint | None, guess: Any = None) -> Any:
    """Return the SCF object of a job, from its checkpoint or from an SCF of rank 0 with J and K from all ranks.

    The objects of all ranks have the same orbitals and work independently of one another afterwards.
    """
    kept = store.orbitals() if store else None
    if execution.ranks.size == 1:
        mf = _scf(mol, job, progress=execution.progress, kept=kept, guess=guess)
    else:
        mf = _shared_scf(mol, job, execution, kept, guess)
    if store is not None:
        spin_fock = getattr(mf, "spin_fock", None)
        store.keep_orbitals(float(mf.e_tot), mf.mo_energy, mf.mo_coeff, mf.mo_occ, jk_ran_on(mf), spin_fock)
    return mf


def _shared_scf(mol: gto.Mole, job: Job, execution: Execution, kept: Mapping[str, Any] | None, guess: Any) -> Any:
    """Run the SCF of several ranks, and return a separate SCF object on each of them."""
    ranks, kind = execution.ranks, reference_of(job.geometry, job.reference)
    ranks.at("SCF")
    shared = SharedWork(ranks, execution.schedule)
    names = (*ORBITALS, "converged", *(["spin_fock"] if kind == "ROHF" else []))
    if ranks.rank:
        mf = _scf(mol, job, progress=execution.progress, kept=shared.serve(), shared=shared)
    else:
        mf = _scf(mol, job, progress=execution.progress, kept=kept, shared=shared, guess=guess)
        shared.end({name: getattr(mf, name) for name in names} | {"ran_on": jk_ran_on(mf)})
    found = {name: getattr(mf, name) for name in names} | {"ran_on": jk_ran_on(mf), "doubts": getattr(mf, "doubts", ())}
    return run_scf(mol, kind, source=job.scf, density_fit=job.density_fit, conv_tol=job.conv_tol, kept=found)


def _scf(mol: gto.Mole, job: Job, **options: Any) -> Any:
    """Run the SCF that a job describes; `options` are further arguments of `run_scf`."""
    return run_scf(
        mol,
        reference_of(job.geometry, job.reference),
        source=job.scf,
        scf_backend=job.scf_backend,
        early_precision=job.scf_precision,
        density_fit=job.density_fit,
        conv_tol=job.conv_tol,
        max_cycle=job.max_cycle,
        allow_unconverged=job.allow_unconverged,
        stability=job.stability,
        **options,
    )
