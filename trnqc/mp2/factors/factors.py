"""Three-index factors B[i, a, Q] with (ia|jb) = sum_Q B[i, a, Q] B[j, b, Q], in fp64 throughout.

    sizes, limit -> plan -> blocks of (ia|P) into B[:, :, block] -> metric divided out by row i      in memory
                         -> blocks of (ia|P) to disk -> rows i, fitted, to disk                      disk_factors

Transform first, then fit: the metric is solved for nocc * nvir right-hand sides instead of nao^2 / 2. Blocks of P,
and then rows i, are tasks for a pool of threads, each with one-thread BLAS and integrals of one thread: no barriers
inside a task.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.host.memory import gigabytes, release_freed_memory
from trnqc.mp2.factors.disk import Progress, finished, stored_factors
from trnqc.mp2.factors.disk_arrays import Rows
from trnqc.mp2.factors.metric import factorise
from trnqc.mp2.factors.shell_blocks import HalfFitted
from trnqc.mp2.jobs.checkpoint import Scratch, Store
from trnqc.mp2.jobs.memory import FactorMemory, FactorPlan


@dataclass(frozen=True, eq=False)
class Factors:
    """B: float64 [nocc, nvir, naux], Hartree^1/2: a C-contiguous array, rows on disk that B[i0:i1] reads, or
    rows spread over ranks (rank_factors.SpreadRows).

    naux is below the number of auxiliary functions where linearly dependent ones were dropped; ``metric`` says so in
    words.
    timings: wall seconds by stage; the integrals' and the transformation's share of their common pool is by thread
    time. integrals: in words, what made (mu nu|P). where: in words, where B is.
    """

    B: Any
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    metric: str
    integrals: str
    timings: dict[str, float] = field(default_factory=dict)
    where: str = "in memory"


def build_factors(
    mol: gto.Mole,
    auxmol: gto.Mole,
    c_occ: np.ndarray,
    c_vir: np.ndarray,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    *,
    max_bytes: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    store: Store | None = None,
    pairs: int = 0,
) -> Factors:
    """Factors for the active orbitals c_occ[nao, nocc], c_vir[nao, nvir] with energies in Hartree.

    max_bytes bounds everything allocated here; where B, the metric and the smallest buffers, or B and `pairs` bytes for
    the step that follows, do not fit, B goes to disk; MemoryLimit if the rest does not fit either. store: where B is
    kept in any case and from which work is taken up again. threads: of the machine, default PySCF's (OMP_NUM_THREADS).
    Raises StorageError.
    """
    threads = threads or lib.num_threads()
    sizes = (auxmol, len(c_occ), c_occ.shape[1], c_vir.shape[1], max_bytes, threads)
    plan = plan_factors(*sizes, pairs=pairs, on_disk=store is not None)
    B: np.ndarray | Rows
    if plan.on_disk:
        store = store or Scratch()
        width = store.decide("auxiliary functions a block", lambda: plan.width)
        plan_factors(*sizes, on_disk=True, width=width)
        half = HalfFitted(mol, auxmol, c_occ, c_vir, width)
        B, note, timings = stored_factors(half, store, threads, progress)
        where = f"on disk, {gigabytes(B.nbytes)} at {store.directory}"
    else:
        half = HalfFitted(mol, auxmol, c_occ, c_vir, plan.width)
        B, note, timings = _in_memory(half, threads, progress)
        where = "in memory"
    release_freed_memory()
    return Factors(B, np.array(eps_occ), np.array(eps_vir), note, half.made_by, timings, where)


def plan_factors(
    auxmol: gto.Mole,
    nao: int,
    nocc: int,
    nvir: int,
    max_bytes: float | None,
    threads: int | None = None,
    *,
    pairs: int = 0,
    on_disk: bool = False,
    width: int = 0,
) -> FactorPlan:
    """What `build_factors` will do within max_bytes, or MemoryLimit; width: functions that a block has at least."""
    memory = FactorMemory(nao, nocc, nvir, auxmol.nao_nr(), threads or lib.num_threads())
    return memory.plan(max_bytes, max(width, int(np.diff(auxmol.ao_loc_nr()).max())), pairs, on_disk)


def _in_memory(half: HalfFitted, threads: int, progress: Progress | None) -> tuple[np.ndarray, str, dict[str, float]]:
    B = np.empty(half.shape)
    timings = {}

    def fill(number: int) -> tuple[float, float]:
        p0, p1 = half.columns[number]
        return half.fill(number, B[:, :, p0:p1])

    with single_threaded_pool(threads) as pool:
        start = time.perf_counter()
        blocks = range(len(half.blocks))
        shares = np.sum([share for _, share in finished(pool, fill, blocks, "integrals", progress)], axis=0)
        wall = time.perf_counter() - start
        timings["integrals"], timings["transformation"] = (wall * shares / shares.sum()).tolist()

        start = time.perf_counter()
        metric = factorise(half.auxmol.intor("int2c2e", hermi=1))
        timings["metric"] = time.perf_counter() - start

        start = time.perf_counter()
        for _ in finished(pool, metric.fit, list(B), "fitting", progress):
            pass
        B = _compacted(B, metric.naux)
        timings["fitting"] = time.perf_counter() - start
    return B, metric.note, timings


def _compacted(B: np.ndarray, naux: int) -> np.ndarray:
    """B[:, :, :naux] as a contiguous array in B's own memory: rows move up, none over one still to be moved."""
    nocc, nvir, _ = B.shape
    if naux == B.shape[2]:
        return B
    front = B.reshape(-1)[: nocc * nvir * naux].reshape(nocc, nvir, naux)
    for i in range(nocc):
        front[i] = B[i, :, :naux]
    return front
