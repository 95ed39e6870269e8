"""A DF-MP2 job from a geometry to its result, as the command line runs it.

Job -> molecule, basis sets, sizes checked -> SCF -> build_factors -> run_pairs, also on other backends -> MP2Result
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError, UnsupportedError
from trnqc.host.memory import available_memory, release_freed_memory
from trnqc.host.threads import thread_count
from trnqc.mp2.assembly import compare, result_of_molecule
from trnqc.mp2.execution import Choice, Execution, Progress, choose
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.build import build_spin_factors
from trnqc.mp2.factors.memory import plan_factors
from trnqc.mp2.jobs.checkpoint import ORBITALS, Checkpoint, job_of
from trnqc.mp2.pairs.pairs import pair_step_bytes, run_pairs
from trnqc.mp2.reference.hartree_fock import (
    REFERENCES,
    SOURCES,
    drop_integrals,
    generated_fitting_sets,
    jk_ran_on,
    run_scf,
)
from trnqc.mp2.reference.molecule import Geometry, build_mole
from trnqc.mp2.reference.orbitals import (
    ActiveOrbitals,
    SpinFrozen,
    chemical_core,
    correlated_orbitals,
    kind_of_reference,
)
from trnqc.mp2.reference.ranks import SharedJK
from trnqc.mp2.reference.semicanonical import semicanonical_orbitals
from trnqc.mp2.result import SCS, SOS, MP2Result, check_scaling
from trnqc.ranks import ALONE, Ranks

# Fraction of the free memory that a job without a limit may use. The rest is for other processes of the machine.
SHARE_OF_FREE_MEMORY = 0.9


@dataclass(frozen=True)
class Job:
    """A description of what is computed, and how.

    Attributes
    ----------
    geometry, basis, auxbasis
        The molecule, its orbital basis, and the auxiliary basis as in `DFMP2`.
    frozen
        "core" for the chemical core, else as in `DFMP2`.
    backend, precision, fused
        Backend, precision and kernel of the pair step, as in `DFMP2`. The precision None selects the best that the
        backend has.
    compare_with
        (backend, precision) of other pair steps over the same factors.
    scs, sos
        Factors (c_os, c_ss) of SCS-MP2, and c_os of SOS-MP2.
    memory
        Bytes that the job may add to the process; None for SHARE_OF_FREE_MEMORY of the free memory.
    checkpoint
        A directory from which the same job continues if it is interrupted (docs/jobs.md).
    threads
        Number of threads of this process; by default PySCF's.
    scf
        Whether J and K of the SCF are computed by our integrals ("trnqc") or by PySCF's ("pyscf").
    reference
        "rhf", "uhf" or "rohf"; by default RHF for closed shells and UHF for open shells.
    density_fit
        Whether the SCF is density-fitted.
    conv_tol, max_cycle
        Threshold of the SCF energy in Hartree, and the largest number of SCF cycles.
    allow_unconverged
        Whether to continue with an SCF that has not converged.
    stability
        Whether to check that the solution of the SCF is stable. The result has a warning if it is not.
    verbose
        PySCF's verbosity.
    """

    geometry: Geometry
    basis: str = "cc-pvdz"
    auxbasis: str | None = None
    frozen: SpinFrozen | str = "core"
    backend: str = "auto"
    precision: str | None = None
    fused: bool = False
    compare_with: Sequence[tuple[str, str | None]] = ()
    scs: tuple[float, float] = SCS
    sos: float = SOS
    memory: float | None = None
    checkpoint: str | Path | None = None
    threads: int | None = None
    scf: str = "trnqc"
    reference: str | None = None
    density_fit: bool = True
    conv_tol: float = 1e-10
    max_cycle: int = 100
    allow_unconverged: bool = False
    stability: bool = False
    verbose: int = 0


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
        with _store(job, mol, auxiliary, frozen, execution, kind) as store:
            start = time.perf_counter()
            mf = _reference(mol, job, execution, store)
            drop_integrals(mf)
            release_freed_memory()
            timings = {"SCF": time.perf_counter() - start}
            _keep(mf, store)
            spins, singles = _orbitals(mf, frozen)
            factors = build_spin_factors(mol, auxiliary.auxmol, spins, execution, store, beside)
            step = run_pairs(factors, execution, store)
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


def execution_of(
    job: Job, progress: Progress | None = None, ranks: Ranks = ALONE, schedule: str = "dynamic"
) -> Execution:
    """How a job runs; arguments as in `run`."""
    return Execution(
        choose(job.backend, job.precision),
        threads=thread_count(job.threads, lib.num_threads),
        memory=job.memory or SHARE_OF_FREE_MEMORY * available_memory() / ranks.neighbours,
        fused=job.fused,
        ranks=ranks,
        schedule=schedule,
        progress=progress,
    )


def shared_reference(mol: gto.Mole, job: Job, execution: Execution) -> Any:
    """Return the converged SCF object of a job on every rank, from its checkpoint if it has one.

    The objects of all ranks have the same orbitals and work independently of each other afterwards.
    """
    auxiliary, kind = auxiliary_basis(mol, job.auxbasis), reference_of(job)
    with _store(job, mol, auxiliary, frozen_orbitals(job, mol), execution, kind) as store:
        mf = _reference(mol, job, execution, store)
        _keep(mf, store)
    names = (*ORBITALS, "converged", *(["spin_fock"] if kind == "ROHF" else []))
    kept = {name: getattr(mf, name) for name in names} | {"ran_on": jk_ran_on(mf), "doubts": getattr(mf, "doubts", ())}
    return run_scf(mol, kind, source=job.scf, density_fit=job.density_fit, conv_tol=job.conv_tol, kept=kept)


def frozen_orbitals(job: Job, mol: gto.Mole) -> SpinFrozen:
    """The frozen orbitals of a job, as in `DFMP2`."""
    return chemical_core(mol) if isinstance(job.frozen, str) else job.frozen


def scf_settings(job: Job) -> dict[str, Any]:
    """What a checkpoint compares of the SCF."""
    return {
        "SCF": "density-fitted" if job.density_fit else "conventional",
        "SCF threshold": job.conv_tol,
        "SCF cycles": job.max_cycle,
    }


def _keep(mf: Any, store: Checkpoint | None) -> None:
    """Record the orbitals in the checkpoint."""
    if store is not None:
        spin_fock = getattr(mf, "spin_fock", None)
        store.keep_orbitals(float(mf.e_tot), mf.mo_energy, mf.mo_coeff, mf.mo_occ, jk_ran_on(mf), spin_fock)


def reference_of(job: Job) -> str:
    """The kind of reference of a job: "RHF", "UHF" or "ROHF".

    Raises InputError if it is unknown, and UnsupportedError for a closed-shell reference of an open shell.
    """
    if job.reference is None:
        return "UHF" if job.geometry.spin else "RHF"
    kind = job.reference.upper()
    if kind not in REFERENCES:
        raise InputError(f"the reference must be one of {', '.join(REFERENCES).lower()}, got {job.reference!r}")
    if kind == "RHF" and job.geometry.spin:
        raise UnsupportedError(
            f"{job.geometry.name} has {job.geometry.spin} unpaired electrons, which RHF cannot describe: use uhf or "
            "rohf"
        )
    return kind


def molecule_of(job: Job, execution: Execution) -> gto.Mole:
    """PySCF's molecule of a job, with its memory limit."""
    mol = build_mole(job.geometry, job.basis)
    mol.verbose = job.verbose
    # PySCF's limit in MB is for the whole process; ours is for the memory that the job adds.
    mol.max_memory = execution.memory / 1e6 + lib.current_memory()[0]
    return mol


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


def _store(
    job: Job, mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: SpinFrozen, execution: Execution, kind: str
) -> AbstractContextManager[Checkpoint | None]:
    """The checkpoint, which rank 0 keeps, or None."""
    if job.checkpoint is None or execution.ranks.rank:
        return nullcontext()
    return Checkpoint(job.checkpoint, job_of(mol, auxiliary, frozen, execution, kind) | scf_settings(job))


def _reference(mol: gto.Mole, job: Job, execution: Execution, store: Checkpoint | None) -> Any:
    """The SCF object, from the checkpoint or from an SCF of rank 0 with J and K from all ranks."""
    ranks, kind = execution.ranks, reference_of(job)

    def scf(kept: Mapping[str, Any] | None, shared: SharedJK | None = None) -> Any:
        return run_scf(
            mol,
            kind,
            source=job.scf,
            density_fit=job.density_fit,
            conv_tol=job.conv_tol,
            max_cycle=job.max_cycle,
            allow_unconverged=job.allow_unconverged,
            stability=job.stability,
            progress=execution.progress,
            kept=kept,
            shared=shared,
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


def _elsewhere(execution: Execution, choice: Choice) -> Execution:
    """The same execution with another backend, which adds its name to the stages in progress reports."""

    def report(stage: str, done: int, total: int) -> None:
        execution.report(f"{stage} on {choice.backend.name}", done, total)

    return replace(execution, choice=choice, progress=report)


def _about_the_scf(mf: Any) -> tuple[str, ...]:
    if elements := generated_fitting_sets(mf):
        return (f"no JK-fitting set in the library for {', '.join(elements)}: the SCF used a generated one",)
    return ()
