"""The SCF of a DF-MP2 job: on one process or on all ranks, kept in the checkpoint.

Job -> checkpoint -> orbitals of an earlier run | rank 0: SCF, all ranks: J and K -> SCF object on every rank
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pyscf import gto

from trnqc.errors import UnsupportedError
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.jobs.checkpoint import ORBITALS, Checkpoint, job_of
from trnqc.mp2.jobs.job import Job, frozen_orbitals, reference_of, scf_settings
from trnqc.mp2.reference.orbitals import SpinFrozen
from trnqc.mp2.scf.hartree_fock import jk_ran_on, run_scf
from trnqc.mp2.scf.shared_jk import SharedJK


def checkpoint_of(
    job: Job, mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: SpinFrozen, execution: Execution, kind: str
) -> AbstractContextManager[Checkpoint | None]:
    """The checkpoint, which rank 0 keeps, or None."""
    if job.checkpoint is None or execution.ranks.rank:
        return nullcontext()
    return Checkpoint(job.checkpoint, job_of(mol, auxiliary, frozen, execution, kind) | scf_settings(job))


def scf_of(mol: gto.Mole, job: Job, **options: Any) -> Any:
    """Run the SCF that a job describes; `options` are further arguments of `run_scf`."""
    return run_scf(
        mol,
        reference_of(job),
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


def run_reference(mol: gto.Mole, job: Job, execution: Execution, store: Checkpoint | None) -> Any:
    """The SCF object, from the checkpoint or from an SCF of rank 0 with J and K from all ranks."""
    ranks, kind = execution.ranks, reference_of(job)

    def scf(kept: Mapping[str, Any] | None, shared: SharedJK | None = None) -> Any:
        return scf_of(mol, job, progress=execution.progress, kept=kept, shared=shared)

    if ranks.size > 1 and job.scf_backend != "cpu":
        raise UnsupportedError(
            f"J and K of the SCF run on backend {job.scf_backend!r} in one process, found {ranks.size}: use "
            "--scf-backend cpu (scf_backend), where all processes compute them"
        )
    ranks.at("SCF")
    if ranks.size == 1:
        return scf(store.orbitals() if store else None)
    shared = SharedJK(mol, ranks, execution.schedule)
    if ranks.rank:
        return scf(shared.serve())
    mf = scf(store.orbitals() if store else None, shared)
    names = (*ORBITALS, "converged", *(["spin_fock"] if kind == "ROHF" else []))
    shared.end({name: getattr(mf, name) for name in names} | {"ran_on": jk_ran_on(mf)})
    return mf


def keep_orbitals(mf: Any, store: Checkpoint | None) -> None:
    """Record the orbitals in the checkpoint."""
    if store is not None:
        spin_fock = getattr(mf, "spin_fock", None)
        store.keep_orbitals(float(mf.e_tot), mf.mo_energy, mf.mo_coeff, mf.mo_occ, jk_ran_on(mf), spin_fock)


def shared_reference(mol: gto.Mole, job: Job, execution: Execution) -> Any:
    """Return the converged SCF object of a job on every rank, from its checkpoint if it has one.

    The objects of all ranks have the same orbitals and work independently of each other afterwards.
    """
    auxiliary, kind = auxiliary_basis(mol, job.auxbasis), reference_of(job)
    with checkpoint_of(job, mol, auxiliary, frozen_orbitals(job, mol), execution, kind) as store:
        mf = run_reference(mol, job, execution, store)
        keep_orbitals(mf, store)
    names = (*ORBITALS, "converged", *(["spin_fock"] if kind == "ROHF" else []))
    kept = {name: getattr(mf, name) for name in names} | {"ran_on": jk_ran_on(mf), "doubts": getattr(mf, "doubts", ())}
    return run_scf(mol, kind, source=job.scf, density_fit=job.density_fit, conv_tol=job.conv_tol, kept=kept)
