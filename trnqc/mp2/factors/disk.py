"""Factors B[i, a, Q] on disk, because they do not fit into memory or belong to a checkpoint.

    blocks of P: (ia|P) for all i ─► integrals.h5 ─► rows i: all P, metric divided out ─► factors.h5

Every finished block and row is recorded with its checksum. A recorded block or row is not computed again if its
checksum is right. Sums have the same order as in memory, so that B has the same digits as factors that `build` keeps in
memory, if the blocks have the same width.
"""

from __future__ import annotations

import time
from concurrent.futures import Executor
from functools import cache, partial
from math import prod

import numpy as np

from trnqc.errors import StorageError
from trnqc.fitted.disk import RowsOnDisk, checksum, verified
from trnqc.host.arrays import release_freed_memory
from trnqc.host.disk_arrays import DiskArray
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.metric import metric_of
from trnqc.mp2.factors.shell_blocks import HalfFitted, divided
from trnqc.mp2.store import JobStore


def stored_factors(half: HalfFitted, store: JobStore, execution: Execution) -> tuple[RowsOnDisk, str, dict[str, float]]:
    """Compute the missing parts of B in a file of the store; return B[nocc, nvir, naux], a description of the
    factorisation of the metric, and wall seconds by stage. Raises StorageError if the disk is full or fails.
    """
    timings: dict[str, float] = {}

    metric = cache(partial(metric_of, half.auxmol))
    with single_threaded_pool(execution.threads) as pool:
        start = time.perf_counter()
        kept = store.decide("metric", lambda: {"naux": metric().naux, "note": metric().note})
        B = store.array(RowsOnDisk, "factors", "B", (*half.shape[:2], kept["naux"]))
        B.checksums.update((row, total) for row, total in store.recorded("row"))
        missing = [i for i, sound in enumerate(pool.map(B.holds, range(len(B)))) if not sound]
        timings["metric"] = time.perf_counter() - start
        if missing:
            integrals = IntegralsOnDisk(store.array(DiskArray, "integrals", "iaP", (prod(half.shape),)), half)
            timings |= _write_integrals(integrals, store, pool, execution)
            release_freed_memory()
            start, factor = time.perf_counter(), metric()

            def fit(i: int) -> int:
                return B.write(i, np.ascontiguousarray(factor.fit_rows(integrals.row(i))))

            for i, total in execution.finished(pool, fit, missing, "fitting", len(B)):
                store.add("row", [i, total])
            integrals.array.close()
            timings["fitting"] = time.perf_counter() - start
    store.remove("integrals")
    return B, kept["note"], timings


class IntegralsOnDisk:
    """(ia|P) on disk by blocks of P, each as [nocc, nvir, p] with a checksum for each i."""

    def __init__(self, array: DiskArray, half: HalfFitted) -> None:
        self.array, self.half = array, half
        self.checksums: dict[int, list[int]] = {}

    def write(self, number: int) -> tuple[list[int], tuple[float, float]]:
        """Compute and write a block. Returns its checksums, and seconds of integrals and of transformation."""
        nocc, nvir, _ = self.half.shape
        p0, p1 = self.half.columns[number]
        out = np.empty((nocc, nvir, p1 - p0))
        seconds = self.half.fill(number, out)
        self.array.put(nocc * nvir * p0, out)
        self.checksums[number] = [checksum(piece) for piece in out]
        return self.checksums[number], seconds

    def read(self, number: int, i: int) -> np.ndarray:
        """Read a block [nvir, p] of orbital i. Raises StorageError if its checksum is wrong."""
        nocc, nvir, _ = self.half.shape
        p0, p1 = self.half.columns[number]
        piece = np.empty((nvir, p1 - p0))
        self.array.get(nocc * nvir * p0 + i * piece.size, piece)
        return verified(piece, self.checksums[number][i], f"{self.array.path}: block {number}, row {i}")

    def row(self, i: int) -> np.ndarray:
        """Read (ia|P) of orbital i, [nvir, naux]."""
        row = np.empty(self.half.shape[1:])
        for number, (p0, p1) in enumerate(self.half.columns):
            row[:, p0:p1] = self.read(number, i)
        return row

    def holds(self, number: int) -> bool:
        """Whether a block has been written and its checksums are right."""
        try:
            return all(self.read(number, i) is not None for i in range(self.half.shape[0]))
        except (StorageError, LookupError):
            return False


def _write_integrals(
    integrals: IntegralsOnDisk, store: JobStore, pool: Executor, execution: Execution
) -> dict[str, float]:
    """Compute the missing blocks. Returns wall seconds of integrals and of transformation."""
    start = time.perf_counter()
    integrals.checksums.update((number, sums) for number, sums in store.recorded("block"))
    numbers = range(len(integrals.half.blocks))
    missing = [n for n, sound in zip(numbers, pool.map(integrals.holds, numbers)) if not sound]
    spent = np.zeros(2)
    for number, (sums, seconds) in execution.finished(pool, integrals.write, missing, "integrals", len(numbers)):
        store.add("block", [number, sums])
        spent += seconds
    return divided(time.perf_counter() - start, spent)
