"""A DF-MP2 job from a geometry to its result: what the command line and the example run.

geometry -> molecule -> sizes checked -> RHF -> factors -> pairs -> result, and the same factors on other backends
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.errors import InputError
from trnqc.host.memory import available_memory, release_freed_memory
from trnqc.mp2.dfmp2 import DFMP2, describe_run
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis, auxiliary_basis
from trnqc.mp2.factors.factors import Factors, plan_factors
from trnqc.mp2.factors.ranks import check_spread, visited_bytes
from trnqc.mp2.jobs.checkpoint import ORBITALS, Checkpoint, job_of
from trnqc.mp2.jobs.choice import Choice, choose
from trnqc.mp2.pairs.blocks import least_bytes
from trnqc.mp2.pairs.pairs import ResultWarning, run_pairs
from trnqc.mp2.reference.hartree_fock import SOURCES, generated_fitting_sets, let_go, made_by, run_rhf
from trnqc.mp2.reference.molecule import Geometry, build_mole
from trnqc.mp2.reference.orbitals import Frozen, active_orbitals, chemical_core
from trnqc.mp2.reference.ranks import SharedJK
from trnqc.mp2.result import SCS, SOS, Comparison, MP2Result, check_scaling
from trnqc.ranks.groups import ALONE, Ranks

Progress = Callable[[str, int, int], None]

SHARE_OF_FREE_MEMORY = 0.9


@dataclass(frozen=True)
class Job:
    """frozen: "core" for the chemical core, else as in `DFMP2`. precision None: the backend's best.

    compare_with: (backend, precision) on which the pairs run once more. max_memory: MB (10^6 bytes), None for 90 %
    of what is free. checkpoint: a directory from which the same job goes on where it was cut off (docs/jobs.md).
    scf: what makes J and K of the SCF, "trnqc" (our integrals) or "pyscf" (PySCF as it is).
    """

    geometry: Geometry
    basis: str = "cc-pvdz"
    auxbasis: str | None = None
    frozen: Frozen | str = "core"
    backend: str = "auto"
    precision: str | None = None
    fused: bool = False
    compare_with: Sequence[tuple[str, str | None]] = ()
    scs: tuple[float, float] = SCS
    sos: float = SOS
    max_memory: float | None = None
    checkpoint: str | Path | None = None
    threads: int | None = None
    scf: str = "trnqc"
    density_fit: bool = True
    conv_tol: float = 1e-10
    max_cycle: int = 100
    allow_unconverged: bool = False
    verbose: int = 0


def run(job: Job, progress: Progress | None = None, ranks: Ranks = ALONE, schedule: str = "dynamic") -> MP2Result:
    """Run the job. What can be known to fail (backends, basis, sizes, memory) fails before the SCF starts.

    ranks: all of them call this with the same job and get the same result; rank 0 runs the SCF, of which all make J and
    K, and keeps the checkpoint. schedule: how tasks are dealt to them (trnqc.ranks.groups.dealt). max_memory is that of
    each rank.
    """
    choice = choose(job.backend, job.precision)
    others = [choose(*other) for other in job.compare_with]
    check_scaling(job.scs, job.sos)
    if job.scf not in SOURCES:
        raise InputError(f"scf is one of {', '.join(SOURCES)}, found {job.scf!r}")
    max_memory = job.max_memory or SHARE_OF_FREE_MEMORY * available_memory() / ranks.neighbours / 1e6
    with lib.with_omp_threads(job.threads or lib.num_threads()):
        mol = build_mole(job.geometry, job.basis, max_memory)
        mol.verbose = job.verbose
        # PySCF counts all that the process holds, we what a job adds.
        mol.max_memory += lib.current_memory()[0]
        frozen = chemical_core(mol) if isinstance(job.frozen, str) else job.frozen
        auxiliary = auxiliary_basis(mol, job.auxbasis)
        _check_sizes(mol, auxiliary, job, choice, frozen, max_memory, ranks)
        with nullcontext() if ranks.rank else _store(mol, auxiliary, job, choice, frozen) as store:
            start = time.perf_counter()
            mf = _reference(mol, job, store, progress, ranks, schedule)
            let_go(mf)
            release_freed_memory()
            scf_seconds = time.perf_counter() - start

            mp = DFMP2(
                mf, job.auxbasis, frozen, choice.precision, choice.backend.name, max_memory, fused=job.fused,
                threads=job.threads, allow_unconverged=True, scs=job.scs, sos=job.sos, progress=progress,
                checkpoint=store, ranks=ranks, schedule=schedule,
            )  # fmt: skip
            factors = mp.ao2mo()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResultWarning)  # they stand in the result, which the caller shows
                mp.kernel(factors)
        result = _finish(mp.result, job, choice, mf, scf_seconds)
        return replace(
            result, comparisons=tuple(_compare(result, mp, factors, job, other, progress) for other in others)
        )


def _reference(
    mol: gto.Mole, job: Job, store: Checkpoint | None, progress: Progress | None, ranks: Ranks, schedule: str
) -> Any:
    """The RHF object, run by rank 0 with the J and K of all ranks, or found in the checkpoint."""

    def made(kept: Mapping[str, Any] | None, shared: SharedJK | None = None) -> Any:
        return run_rhf(
            mol, source=job.scf, density_fit=job.density_fit, conv_tol=job.conv_tol, max_cycle=job.max_cycle,
            allow_unconverged=job.allow_unconverged, progress=progress, kept=kept, shared=shared,
        )  # fmt: skip

    ranks.at("SCF")
    if ranks.size == 1:
        return made(store.orbitals() if store else None)
    shared = SharedJK(mol, ranks, schedule)
    if ranks.rank:
        return made(shared.serve())
    mf = made(store.orbitals() if store else None, shared)
    shared.end({name: getattr(mf, name) for name in (*ORBITALS, "converged")} | {"ran_on": made_by(mf)})
    return mf


def _store(
    mol: gto.Mole, auxiliary: AuxiliaryBasis, job: Job, choice: Choice, frozen: Frozen
) -> AbstractContextManager[Checkpoint | None]:
    if job.checkpoint is None:
        return nullcontext()
    scf = {
        "SCF": "density-fitted" if job.density_fit else "conventional",
        "SCF threshold": job.conv_tol,
        "SCF cycles": job.max_cycle,
    }
    return Checkpoint(job.checkpoint, job_of(mol, auxiliary, frozen, choice, job.fused) | scf)


def _check_sizes(
    mol: gto.Mole,
    auxiliary: AuxiliaryBasis,
    job: Job,
    choice: Choice,
    frozen: Frozen,
    max_memory: float,
    ranks: Ranks,
) -> None:
    nao, naux = mol.nao_nr(), auxiliary.auxmol.nao_nr()
    occupation = 2.0 * (np.arange(nao) < mol.nelectron // 2)
    o = active_orbitals(np.eye(nao), np.zeros(nao), occupation, frozen)
    nocc, nvir = len(o.eps_occ), len(o.eps_vir)
    if ranks.size > 1 and job.checkpoint is None:
        threads = job.threads or lib.num_threads()
        width = plan_factors(auxiliary.auxmol, nao, nocc, nvir, None, threads).width
        visited = visited_bytes((nocc, nvir, naux), choice, job.fused, job.threads)
        check_spread(nao, (nocc, nvir, naux), ranks.size, threads, width, 1e6 * max_memory, visited)
        return
    pairs = least_bytes(nvir, naux, choice, job.fused, job.threads)
    plan_factors(
        auxiliary.auxmol, nao, nocc, nvir, 1e6 * max_memory, job.threads, pairs=pairs,
        on_disk=job.checkpoint is not None,
    )  # fmt: skip


def _finish(result: MP2Result | None, job: Job, choice: Choice, mf: object, scf_seconds: float) -> MP2Result:
    """The result of `DFMP2` with what only the job knows: the molecule's name, why the backend was taken, SCF time."""
    assert result is not None and result.system is not None
    told = result.warnings
    if elements := generated_fitting_sets(mf):
        told = (f"no JK-fitting set in the library for {', '.join(elements)}: the SCF used a generated one", *told)
    return replace(
        result,
        system=replace(result.system, geometry=job.geometry),
        run=replace(result.run, note=choice.note),
        timings={"SCF": scf_seconds} | dict(result.timings),
        warnings=told,
    )


def _compare(
    main: MP2Result, mp: DFMP2, factors: Factors, job: Job, other: Choice, progress: Progress | None
) -> Comparison:
    stage = f"pairs on {other.backend.name}"
    step = run_pairs(
        factors.B, factors.eps_occ, factors.eps_vir, other, fused=job.fused, threads=job.threads,
        max_memory=mp.max_memory, progress=progress and (lambda done, total: progress(stage, done, total)),
        ranks=mp.ranks, schedule=mp.schedule,
    )  # fmt: skip
    os, ss = float(step.energies.os.sum()), float(step.energies.ss.sum())
    return Comparison(
        run=describe_run(step, factors.where),
        e_corr_os=os,
        e_corr_ss=ss,
        difference_os=os - main.e_corr_os,
        difference_ss=ss - main.e_corr_ss,
        estimated_error=step.error.corr,
        seconds=step.timings["pairs"],
    )
