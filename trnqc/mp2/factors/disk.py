"""Factors B[i, a, Q] that do not fit into memory, or that are to outlive the process.

    blocks of P: (ia|P) for all i ─► integrals.h5 ─► rows i: all P, metric divided out ─► factors.h5

What is done is recorded block by block and row by row, each with its checksum; what is found done and sound is not done
again. Sums run in the order they have in memory, so the numbers are those of `factors` with blocks of the same width.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, as_completed
from functools import cache
from math import prod
from typing import Any, TypeVar

import numpy as np

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.errors import StorageError
from trnqc.host.memory import release_freed_memory
from trnqc.mp2.factors.disk_arrays import DiskArray, Rows, checksum
from trnqc.mp2.factors.metric import CholeskyMetric, EigenMetric, factorise
from trnqc.mp2.factors.shell_blocks import HalfFitted
from trnqc.mp2.jobs.checkpoint import Store

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) from the calling thread."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def stored_factors(
    half: HalfFitted, store: Store, threads: int, progress: Progress | None
) -> tuple[Rows, str, dict[str, float]]:
    """B on disk, the metric in words, and wall seconds by stage; StorageError."""
    timings: dict[str, float] = {}

    @cache
    def metric() -> CholeskyMetric | EigenMetric:
        return factorise(half.auxmol.intor("int2c2e", hermi=1))

    with single_threaded_pool(threads) as pool:
        start = time.perf_counter()
        kept = store.decide("metric", lambda: {"naux": metric().naux, "note": metric().note})
        B = store.array(Rows, "factors", "B", (*half.shape[:2], kept["naux"]))
        B.sums.update((row, total) for row, total in store.found("row"))
        missing = [i for i, sound in enumerate(pool.map(B.holds, range(len(B)))) if not sound]
        timings["metric"] = time.perf_counter() - start
        if missing:
            pieces = Pieces(store.array(DiskArray, "integrals", "iaP", (prod(half.shape),)), half)
            timings |= _integrals(pieces, store, pool, progress)
            release_freed_memory()
            start = time.perf_counter()
            _fit(pieces, metric(), B, missing, store, pool, progress)
            pieces.array.close()
            timings["fitting"] = time.perf_counter() - start
    store.remove("integrals")
    return B, kept["note"], timings


class Pieces:
    """(ia|P) on disk, block after block of P as [nocc, nvir, p], with a checksum for each i."""

    def __init__(self, array: DiskArray, half: HalfFitted) -> None:
        self.array, self.half = array, half
        self.sums: dict[int, list[int]] = {}

    def write(self, number: int) -> tuple[list[int], tuple[float, float]]:
        """Make a block; its checksums, and seconds of integrals and of transformation."""
        nocc, nvir, _ = self.half.shape
        p0, p1 = self.half.columns[number]
        out = np.empty((nocc, nvir, p1 - p0))
        seconds = self.half.fill(number, out)
        self.array.put(nocc * nvir * p0, out)
        self.sums[number] = [checksum(piece) for piece in out]
        return self.sums[number], seconds

    def read(self, number: int, i: int) -> np.ndarray:
        """[nvir, p] of orbital i; StorageError if that is not what was written."""
        nocc, nvir, _ = self.half.shape
        p0, p1 = self.half.columns[number]
        piece = np.empty((nvir, p1 - p0))
        self.array.get(nocc * nvir * p0 + i * piece.size, piece)
        if checksum(piece) != self.sums[number][i]:
            raise StorageError(
                f"{self.array.path}: block {number}, row {i} is not what was written there: something else has changed "
                "the file, or the disk fails. Start the job again: with a checkpoint it makes this block anew"
            )
        return piece

    def row(self, i: int) -> np.ndarray:
        """(ia|P) of orbital i, [nvir, naux]."""
        row = np.empty(self.half.shape[1:])
        for number, (p0, p1) in enumerate(self.half.columns):
            row[:, p0:p1] = self.read(number, i)
        return row

    def holds(self, number: int) -> bool:
        """Whether a block is there as it was written."""
        try:
            return all(self.read(number, i) is not None for i in range(self.half.shape[0]))
        except (StorageError, LookupError):
            return False


def _integrals(pieces: Pieces, store: Store, pool: Executor, progress: Progress | None) -> dict[str, float]:
    start = time.perf_counter()
    pieces.sums.update((number, sums) for number, sums in store.found("block"))
    numbers = range(len(pieces.half.blocks))
    missing = [n for n, sound in zip(numbers, pool.map(pieces.holds, numbers)) if not sound]
    spent = np.zeros(2)
    for number, (sums, seconds) in finished(pool, pieces.write, missing, "integrals", progress, len(numbers)):
        store.add("block", [number, sums])
        spent += seconds
    wall = time.perf_counter() - start
    shares = spent / (spent.sum() or 1.0)
    return dict(zip(("integrals", "transformation"), (wall * shares).tolist()))


def _fit(
    pieces: Pieces,
    metric: CholeskyMetric | EigenMetric,
    B: Rows,
    missing: list[int],
    store: Store,
    pool: Executor,
    progress: Progress | None,
) -> None:
    def fit(i: int) -> int:
        row = metric.fit(pieces.row(i))
        return B.write(i, np.ascontiguousarray(row[:, : metric.naux]))

    for i, total in finished(pool, fit, missing, "fitting", progress, len(B)):
        store.add("row", [i, total])


def finished(
    pool: Executor,
    task: Callable[[Item], Result],
    items: Iterable[Item],
    stage: str,
    progress: Progress | None,
    total: int | None = None,
) -> Iterator[tuple[Item, Result]]:
    """(item, task(item)) in the order in which they end; an error of one ends the others that have not begun.

    total: items there would be had none been done before.
    """
    futures: dict[Any, Item] = {pool.submit(task, item): item for item in items}
    total = len(futures) if total is None else total
    before = total - len(futures)
    try:
        for done, future in enumerate(as_completed(futures), start=before + 1):
            yield futures[future], future.result()
            if progress:
                progress(stage, done, total)
    finally:
        for future in futures:
            future.cancel()
