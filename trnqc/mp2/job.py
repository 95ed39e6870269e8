"""The description of a DF-MP2 job, and what follows from it: molecule, frozen orbitals, reference, execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyscf import gto, lib

from trnqc.errors import InputError, UnsupportedError
from trnqc.host.clock import measured
from trnqc.host.memory import available_memory
from trnqc.host.threads import thread_count
from trnqc.mp2.execution import Execution, Progress, choose
from trnqc.mp2.reference.molecule import Geometry, build_mole
from trnqc.mp2.reference.orbitals import REFERENCES, SpinFrozen, chemical_core
from trnqc.mp2.result import SCS, SOS
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
    scf_backend, scf_precision
        Where J and K of early SCF cycles are computed: "cpu", or a backend with fitted J and K, and in which precision
        there, as `backend` and `early_precision` of `trnqc.accelerate`.
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
    fused: bool = True
    compare_with: Sequence[tuple[str, str | None]] = ()
    scs: tuple[float, float] = SCS
    sos: float = SOS
    memory: float | None = None
    checkpoint: str | Path | None = None
    threads: int | None = None
    scf: str = "trnqc"
    scf_backend: str = "cpu"
    scf_precision: str = "fp32"
    reference: str | None = None
    density_fit: bool = True
    conv_tol: float = 1e-10
    max_cycle: int = 100
    allow_unconverged: bool = False
    stability: bool = False
    verbose: int = 0


def below_checkpoint(job: Job, part: str) -> Job:
    """The same job with its checkpoint, if it has one, in a subdirectory of that name."""
    return job if job.checkpoint is None else replace(job, checkpoint=Path(job.checkpoint) / part)


@measured("choice of a backend")
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


def molecule_of(job: Job, execution: Execution) -> gto.Mole:
    """PySCF's molecule of a job, with its memory limit."""
    return limited_molecule(job.geometry, job.basis, execution.memory, job.verbose)


def limited_molecule(geometry: Geometry, basis: str, memory: float, verbose: int) -> gto.Mole:
    """PySCF's molecule of a job that may add so many bytes to the process."""
    mol = build_mole(geometry, basis)
    mol.verbose = verbose
    # PySCF's limit in MB is for the whole process; ours is for the memory that the job adds.
    mol.max_memory = memory / 1e6 + lib.current_memory()[0]
    return mol


def reference_of(geometry: Geometry, reference: str | None) -> str:
    """The kind of reference of a geometry: "RHF", "UHF" or "ROHF"; by default RHF for closed shells, else UHF.

    Raises InputError for an unknown kind, and UnsupportedError for a closed-shell reference of an open shell.
    """
    if reference is None:
        return "UHF" if geometry.spin else "RHF"
    kind = reference.upper()
    if kind not in REFERENCES:
        raise InputError(f"the reference must be one of {', '.join(REFERENCES).lower()}, got {reference!r}")
    if kind == "RHF" and geometry.spin:
        raise UnsupportedError(
            f"{geometry.name} has {geometry.spin} unpaired electrons, which RHF cannot describe: use uhf or rohf"
        )
    return kind


def frozen_orbitals(frozen: SpinFrozen | str, mol: gto.Mole) -> SpinFrozen:
    """The frozen orbitals of a job as `DFMP2` takes them."""
    return chemical_core(mol) if isinstance(frozen, str) else frozen


def scf_settings(job: Job) -> dict[str, Any]:
    """The settings of the SCF that a checkpoint compares."""
    return {
        "SCF": "density-fitted" if job.density_fit else "conventional",
        "SCF threshold": job.conv_tol,
        "SCF cycles": job.max_cycle,
    }
