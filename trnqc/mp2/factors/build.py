"""Fitted factors B[i, a, Q] of the active orbitals. All steps are fp64.

    plan_factors -> blocks of (ia|P) into B[:, :, block] -> rows i: metric divided out     in memory
                 -> blocks of (ia|P) to disk -> rows i, fitted, to disk                    disk.py
                 -> blocks of (ia|P) on all ranks -> rows exchanged, fitted                ranks.py

The integrals are transformed before they are fitted, because the metric then has nocc * nvir right-hand sides instead
of nao^2 / 2. Blocks of P, and later rows i, are tasks of a pool of threads. BLAS and the integrals use one thread in
each task, so that threads wait for one another only between the stages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from pyscf import gto

from trnqc.fitted.disk import RowsOnDisk
from trnqc.host.arrays import release_freed_memory
from trnqc.host.memory import gigabytes
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.disk import stored_factors
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.factors.memory import plan_factors
from trnqc.mp2.factors.metric import fit_all
from trnqc.mp2.factors.ranks import spread_factors
from trnqc.mp2.factors.shell_blocks import HalfFitted, divided
from trnqc.mp2.reference.orbitals import ActiveOrbitals
from trnqc.mp2.store import JobStore, ScratchStore, SpinStore


def build_factors(
    mol: gto.Mole,
    auxmol: gto.Mole,
    spins: Sequence[ActiveOrbitals],
    execution: Execution,
    store: JobStore | None = None,
    beside: int = 0,
) -> Factors | SpinFactors:
    """Compute the factors of a closed shell, or of both spins of an open shell.

    All ranks of a job call this with the same arguments. `spins` are the correlated orbitals of each spin, one for a
    closed shell. `store` is where B is kept on disk and from which an interrupted job continues; on several ranks only
    rank 0 passes it. Without a store, B is in memory, or spread over the memory of several ranks, or in unnamed files
    on disk if it does not fit into the memory of one process. `beside` are the bytes that the step which reads B needs
    in addition to B.

    Raises MemoryLimit if the smallest buffers exceed the memory limit, which is that of all spins together;
    StorageError or CommunicationError if the disk or a rank fails.
    """
    ranks = execution.ranks
    kept = ranks.at_first(lambda: store is not None)
    planned = partial(plan_factors, auxmol, spins, execution, beside=beside, on_disk=kept)
    plan = ranks.at_first(planned) if kept else planned()  # Only rank 0 needs the memory of a step that goes to disk.
    if plan.on_disk and ranks.size == 1:
        store = store or ScratchStore()

    def of_spin(orbitals: ActiveOrbitals, name: str) -> Factors | None:
        if not (orbitals.nocc and orbitals.nvir):
            return None
        if plan.on_disk:
            own = SpinStore(store, name) if store and name else store
            return _on_disk(mol, auxmol, orbitals, execution, own, beside)
        half = HalfFitted(mol, auxmol, (orbitals,), plan.width)
        return spread_factors(half, orbitals, execution, name)

    parts: list[Factors | None]
    if plan.on_disk or ranks.size > 1:
        parts = list(map(of_spin, spins, ("alpha", "beta") if len(spins) > 1 else ("",)))
    else:
        parts = [*_in_memory(mol, auxmol, spins, plan.width, execution)]
        release_freed_memory()
    full = next(part for part in parts if part is not None)
    each = [part or _without_pairs(orbitals, full) for part, orbitals in zip(parts, spins)]
    return each[0] if len(each) == 1 else SpinFactors(*each)


def _without_pairs(orbitals: ActiveOrbitals, other: Factors) -> Factors:
    """The factors of a spin without pairs ia, beside the factors of the other spin."""
    B = np.empty((orbitals.nocc, orbitals.nvir, other.shape[2]))
    return Factors(B, orbitals.eps_occ, orbitals.eps_vir, other.metric, other.integrals)


def _on_disk(
    mol: gto.Mole, auxmol: gto.Mole, orbitals: ActiveOrbitals, execution: Execution, store: JobStore | None, beside: int
) -> Factors:
    """Factors that rank 0 writes to a file which all ranks open."""
    mine: list[Factors] = []

    def at_first() -> tuple[Factors, Path, dict[int, int]]:
        assert store is not None, "rank 0 has a store"
        mine.append(_written(mol, auxmol, orbitals, execution, store, beside))
        B = mine[0].B
        return replace(mine[0], B=np.empty((0, *B.shape))), B.path.resolve(), B.checksums

    execution.ranks.at("factors, which rank 0 writes to disk")
    factors, path, checksums = execution.ranks.at_first(at_first)
    if mine:
        return mine[0]
    rows = RowsOnDisk(path, "B", factors.B.shape[1:])
    rows.checksums.update(checksums)
    return replace(factors, B=rows)


def _written(
    mol: gto.Mole, auxmol: gto.Mole, orbitals: ActiveOrbitals, execution: Execution, store: JobStore, beside: int
) -> Factors:
    """Factors that this process writes to a file."""
    plan = plan_factors(auxmol, (orbitals,), execution, beside=beside, on_disk=True)
    width = store.decide("auxiliary functions a block", lambda: plan.width)
    plan_factors(auxmol, (orbitals,), execution, on_disk=True, width=width)  # Checks that recorded blocks still fit.
    half = HalfFitted(mol, auxmol, (orbitals,), width)
    B, metric, timings = stored_factors(half, store, execution)
    release_freed_memory()
    where = f"on disk, {gigabytes(B.nbytes)} at {store.directory}"
    return Factors(B, orbitals.eps_occ, orbitals.eps_vir, metric, half.ran_on, timings, where)


def _in_memory(
    mol: gto.Mole, auxmol: gto.Mole, spins: Sequence[ActiveOrbitals], width: int, execution: Execution
) -> list[Factors]:
    """The factors of each spin from the same integrals; the first has the wall seconds by stage."""
    half = HalfFitted(mol, auxmol, spins, width)
    Bs = [np.empty(shape) for shape in half.shapes]

    def of_block(number: int) -> tuple[float, float]:
        return half.fill(number, *(B[:, :, slice(*half.columns[number])] for B in Bs))

    with single_threaded_pool(execution.threads) as pool:
        start = time.perf_counter()
        blocks = range(len(half.blocks))
        spent = np.sum([seconds for _, seconds in execution.finished(pool, of_block, blocks, "integrals")], axis=0)
        timings = divided(time.perf_counter() - start, spent)
        metric, of_fit = fit_all(half.auxmol, (row for B in Bs for row in B), pool, execution)
    timings |= of_fit
    Bs = [_compacted(B, metric.naux) for B in Bs]
    each = zip(Bs, spins, (timings, {}))
    return [Factors(B, spin.eps_occ, spin.eps_vir, metric.note, half.ran_on, seconds) for B, spin, seconds in each]


def _compacted(B: np.ndarray, naux: int) -> np.ndarray:
    """B[:, :, :naux] as a contiguous array in the memory of B; rows are moved to the front in order."""
    nocc, nvir, _ = B.shape
    if naux == B.shape[2]:
        return B
    front = B.reshape(-1)[: nocc * nvir * naux].reshape(nocc, nvir, naux)
    for i in range(nocc):
        front[i] = B[i, :, :naux]
    return front
