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
from pathlib import Path

import numpy as np
from pyscf import gto

from trnqc.host.memory import gigabytes, release_freed_memory
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.disk import finished, stored_factors
from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.factors.memory import plan_factors
from trnqc.mp2.factors.metric import factorise
from trnqc.mp2.factors.ranks import spread_factors
from trnqc.mp2.factors.shell_blocks import HalfFitted, transform
from trnqc.mp2.reference.orbitals import ActiveOrbitals
from trnqc.mp2.storage.disk_arrays import RowsOnDisk
from trnqc.mp2.storage.store import Scratch, SpinStore, Store


def build_spin_factors(
    mol: gto.Mole,
    auxmol: gto.Mole,
    spins: Sequence[ActiveOrbitals],
    execution: Execution,
    store: Store | None = None,
    beside: int = 0,
) -> Factors | SpinFactors:
    """Compute the factors of a closed shell, or of both spins of an open shell.

    Parameters
    ----------
    spins
        The correlated orbitals of each spin: one for a closed shell, else two.
    mol, auxmol, execution, store, beside
        As in `build_factors`. The memory limit is that of both spins together.

    Raises
    ------
    MemoryLimit, StorageError, CommunicationError
        As in `build_factors`.
    """
    if len(spins) == 1:
        return build_factors(mol, auxmol, spins[0], execution, store, beside)
    ranks = execution.ranks
    kept = ranks.at_first(lambda: store is not None) if ranks.size > 1 else store is not None
    plan = plan_factors(auxmol, spins, execution, beside=beside, on_disk=kept)
    if ranks.size == 1 and not plan.on_disk:
        half = HalfFitted(mol, auxmol, spins[0].c_occ, spins[0].c_vir, plan.width)
        halves = [half, half.with_orbitals(spins[1].c_occ, spins[1].c_vir)]
        Bs, metric, timings = _in_memory(halves, execution)
        release_freed_memory()
        alpha, beta = (
            Factors(B, o.eps_occ, o.eps_vir, metric, half.ran_on, t) for B, o, t in zip(Bs, spins, (timings, {}))
        )
        return SpinFactors(alpha, beta)
    if plan.on_disk and store is None:
        store = Scratch()
    parts: list[Factors | None] = []
    for orbitals, name in zip(spins, ("alpha", "beta")):
        of_spin = None if store is None else SpinStore(store, name)
        some = orbitals.nocc and orbitals.nvir
        parts.append(build_factors(mol, auxmol, orbitals, execution, of_spin, beside, name) if some else None)
    full = next(part for part in parts if part is not None)
    return SpinFactors(*(part or _without_pairs(o, full) for part, o in zip(parts, spins)))


def _without_pairs(orbitals: ActiveOrbitals, other: Factors) -> Factors:
    """The factors of a spin without pairs ia, beside the factors of the other spin."""
    B = np.empty((orbitals.nocc, orbitals.nvir, other.shape[2]))
    return Factors(B, orbitals.eps_occ, orbitals.eps_vir, other.metric, other.integrals, {}, "in memory")


def build_factors(
    mol: gto.Mole,
    auxmol: gto.Mole,
    orbitals: ActiveOrbitals,
    execution: Execution,
    store: Store | None = None,
    beside: int = 0,
    spin: str = "",
) -> Factors:
    """Compute the factors of the active orbitals of one spin. All ranks of a job call this with the same arguments.

    `store` is where B is kept on disk and from which an interrupted job continues; on several ranks only rank 0 passes
    it. Without a store, B is in memory, or spread over the memory of several ranks, or in unnamed files on disk if it
    does not fit into the memory of one process. `beside` are the bytes that the step which reads B needs in addition to
    B, and `spin` is "alpha" or "beta" of an open shell.

    Raises MemoryLimit if the smallest buffers exceed the memory limit; StorageError or CommunicationError if the disk
    or a rank fails.
    """
    ranks = execution.ranks
    if ranks.size == 1:
        return _on_one_process(mol, auxmol, orbitals, execution, store, beside)
    if ranks.at_first(lambda: store is not None):
        return _on_disk_for_all(mol, auxmol, orbitals, execution, store, beside)
    plan = plan_factors(auxmol, orbitals, execution, beside=beside)
    half = HalfFitted(mol, auxmol, orbitals.c_occ, orbitals.c_vir, plan.width)
    return spread_factors(half, orbitals, execution, spin)


def _on_one_process(
    mol: gto.Mole,
    auxmol: gto.Mole,
    orbitals: ActiveOrbitals,
    execution: Execution,
    store: Store | None,
    beside: int,
) -> Factors:
    plan = plan_factors(auxmol, orbitals, execution, beside=beside, on_disk=store is not None)
    B: np.ndarray | RowsOnDisk
    if plan.on_disk:
        store = store or Scratch()
        width = store.decide("auxiliary functions a block", lambda: plan.width)
        plan_factors(auxmol, orbitals, execution, on_disk=True, width=width)  # Checks that recorded blocks still fit.
        half = HalfFitted(mol, auxmol, orbitals.c_occ, orbitals.c_vir, width)
        B, metric, timings = stored_factors(half, store, execution)
        where = f"on disk, {gigabytes(B.nbytes)} at {store.directory}"
    else:
        half = HalfFitted(mol, auxmol, orbitals.c_occ, orbitals.c_vir, plan.width)
        (B,), metric, timings = _in_memory([half], execution)
        where = "in memory"
    release_freed_memory()
    return Factors(B, orbitals.eps_occ, orbitals.eps_vir, metric, half.ran_on, timings, where)


def _on_disk_for_all(
    mol: gto.Mole,
    auxmol: gto.Mole,
    orbitals: ActiveOrbitals,
    execution: Execution,
    store: Store | None,
    beside: int,
) -> Factors:
    """Factors that rank 0 writes to a file which all ranks open."""
    mine: list[Factors] = []

    def at_first() -> tuple[Factors, Path, dict[int, int]]:
        mine.append(_on_one_process(mol, auxmol, orbitals, execution, store, beside))
        B = mine[0].B
        assert isinstance(B, RowsOnDisk)
        return replace(mine[0], B=np.empty((0, *B.shape))), B.path.resolve(), B.checksums

    execution.ranks.at("factors, which rank 0 writes to disk")
    factors, path, checksums = execution.ranks.at_first(at_first)
    if mine:
        return mine[0]
    rows = RowsOnDisk(path, "B", factors.B.shape[1:])
    rows.checksums.update(checksums)
    return replace(factors, B=rows)


def _in_memory(halves: Sequence[HalfFitted], execution: Execution) -> tuple[list[np.ndarray], str, dict[str, float]]:
    """B of each spin from the same integrals, a description of the metric, and wall seconds by stage."""
    half = halves[0]
    Bs = [np.empty(spin.shape) for spin in halves]
    timings = {}

    def fill(number: int) -> tuple[float, float]:
        (p0, p1), start = half.columns[number], time.perf_counter()
        packed = half.integrals(number)
        middle = time.perf_counter()
        transform(packed, halves, [B[:, :, p0:p1] for B in Bs])
        return middle - start, time.perf_counter() - middle

    with single_threaded_pool(execution.threads) as pool:
        start = time.perf_counter()
        blocks = range(len(half.blocks))
        shares = np.sum([share for _, share in finished(pool, fill, blocks, "integrals", execution)], axis=0)
        wall = time.perf_counter() - start
        timings["integrals"], timings["transformation"] = (wall * shares / shares.sum()).tolist()

        start = time.perf_counter()
        metric = factorise(half.auxmol.intor("int2c2e", hermi=1))
        timings["metric"] = time.perf_counter() - start

        start = time.perf_counter()
        for _ in finished(pool, metric.fit, [row for B in Bs for row in B], "fitting", execution):
            pass
        Bs = [_compacted(B, metric.naux) for B in Bs]
        timings["fitting"] = time.perf_counter() - start
    return Bs, metric.note, timings


def _compacted(B: np.ndarray, naux: int) -> np.ndarray:
    """B[:, :, :naux] as a contiguous array in the memory of B; rows are moved to the front in order."""
    nocc, nvir, _ = B.shape
    if naux == B.shape[2]:
        return B
    front = B.reshape(-1)[: nocc * nvir * naux].reshape(nocc, nvir, naux)
    for i in range(nocc):
        front[i] = B[i, :, :naux]
    return front
