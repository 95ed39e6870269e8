"""The pair loop: tasks dealt to threads, for each one GEMM on one thread and one energy pass over its result."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.backends.base import Progress
from trnqc.backends.cpu_kernels.blas import single_threaded
from trnqc.backends.cpu_kernels.energy import EnergyPass
from trnqc.backends.cpu_kernels.formats import FORMATS, Format, encode
from trnqc.backends.cpu_kernels.plan import Plan, Task, make_plan


def pair_sums(
    B: Any,
    eps_occ: np.ndarray,
    energies: EnergyPass,
    *,
    precision: str,
    threads: int,
    max_memory: float | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """[nocc, nocc] sums that `energies` makes of T_ij for each i >= j, zero above the diagonal. max_memory: bytes."""
    rows = _Rows(B, precision)
    plan = make_plan(
        B.shape,
        FORMATS[precision],
        threads=threads,
        limit=max_memory,
        in_memory=isinstance(B, np.ndarray) and not isinstance(B, np.memmap),
        reuses=rows.reused,
    )
    step = _PairStep(rows, eps_occ, plan, energies, threads)
    with single_threaded():
        _deal(step, threads, progress)
    return step.os, step.x


@dataclass(frozen=True)
class _Rows:
    """Encoded rows of B: all of them at once where they fit, else fetched when asked for."""

    B: Any
    precision: str

    def fetch(self, i0: int, i1: int) -> np.ndarray:
        """[i1 - i0, nvir, copies * naux], encoded row by row so that temporaries stay small."""
        if self.reused:
            return self.B[i0:i1]
        _, nvir, naux = self.B.shape
        form = FORMATS[self.precision]
        rows = np.empty((i1 - i0, nvir, form.copies * naux), dtype=form.dtype)
        for i in range(i0, i1):
            rows[i - i0] = encode(np.asarray(self.B[i], dtype=np.float64), self.precision)
        return rows

    @property
    def reused(self) -> bool:
        return self.precision == "fp64" and isinstance(self.B, np.ndarray)


class _PairStep:
    """One call of mp2_pairs: the buffers, the results, and the work of one task."""

    def __init__(self, rows: _Rows, eps_occ: np.ndarray, plan: Plan, energies: EnergyPass, threads: int) -> None:
        self.rows, self.eps_occ, self.plan, self.energies = rows, eps_occ, plan, energies
        self.form: Format = FORMATS[rows.precision]
        nocc, self.nvir, _ = rows.B.shape
        self.os, self.x = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        self.slabs: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        for _ in range(threads):
            self.slabs.put(np.empty(plan.block * self.nvir**2, dtype=self.form.dtype))

    def run(self, task: Task, panel: np.ndarray, first: int) -> int:
        """All pairs of a task; `panel` holds the encoded rows from `first` on. Returns their number."""
        block = panel[task.j0 : task.j1] if self.plan.whole else self.rows.fetch(task.j0, task.j1)
        slab = self.slabs.get()
        try:
            for i in range(max(task.i0, task.j0), task.i1):
                n = min(task.j1, i + 1) - task.j0
                self._pairs_of(i, task.j0, self.form.left_of(panel[i - first]), self.form.right_of(block[:n]), slab)
        finally:
            self.slabs.put(slab)
        return task.pairs

    def _pairs_of(self, i: int, j0: int, left: np.ndarray, right: np.ndarray, slab: np.ndarray) -> None:
        n, nvir = len(right), self.nvir
        T = slab[: n * nvir * nvir].reshape(nvir, n * nvir)
        np.matmul(left, right.reshape(n * nvir, right.shape[-1]).T, out=T)
        js = slice(j0, j0 + n)
        self.os[i, js], self.x[i, js] = self.energies(T, self.eps_occ[i] + self.eps_occ[js])

    def work(self) -> Iterator[tuple[Task, np.ndarray, int] | None]:
        """Tasks with the rows they need; None marks where all tasks before must have ended."""
        for i0, i1 in self.plan.panels():
            panel = self.rows.fetch(i0, i1)
            for task in self.plan.tasks(i0, i1):
                yield task, panel, i0
            yield None


def _deal(step: _PairStep, threads: int, progress: Progress | None) -> None:
    nocc = len(step.eps_occ)
    done, total = 0, nocc * (nocc + 1) // 2
    with ThreadPoolExecutor(threads, thread_name_prefix="trnqc-mp2") as pool:
        futures = []
        try:
            for item in step.work():
                if item is not None:
                    futures.append(pool.submit(step.run, *item))
                    continue
                for future in as_completed(futures):
                    done += future.result()
                    if progress is not None:
                        progress(done, total)
                futures.clear()
        finally:
            for future in futures:
                future.cancel()
