"""The pair loop: tasks dealt to threads, for each one product on one thread and one energy pass over its result."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np

from trnqc.backends.base import Progress
from trnqc.backends.cpu_kernels.energy import EnergyPass
from trnqc.backends.cpu_kernels.plan import Plan, Task, make_plan
from trnqc.backends.cpu_kernels.products import Products


def pair_sums(
    B: Any,
    eps_occ: np.ndarray,
    products: Products,
    energies: EnergyPass,
    *,
    threads: int,
    max_memory: float | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """[nocc, nocc] sums that `energies` makes of T_ij for each i >= j, zero above the diagonal. max_memory: bytes."""
    held = B.size * 8 if isinstance(B, np.ndarray) and not isinstance(B, np.memmap) else 0
    fixed = held + threads * products.scratch_bytes
    plan = make_plan(B.shape[0], products, threads=threads, limit=max_memory, fixed=fixed)
    step = _PairStep(products, eps_occ, plan, energies, threads)
    with products.alone(), ThreadPoolExecutor(threads, thread_name_prefix="trnqc-mp2") as pool:
        _deal(step, pool, progress)
    return step.os, step.x


class _PairStep:
    """One pair step: the buffers, the results, and the work of one task."""

    def __init__(self, products: Products, eps_occ: np.ndarray, plan: Plan, energies: EnergyPass, threads: int) -> None:
        self.products, self.eps_occ, self.plan, self.energies = products, eps_occ, plan, energies
        nocc = len(eps_occ)
        self.os, self.x = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        self.rooms: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        for _ in range(threads):
            self.rooms.put(products.slab(plan.block))

    def run(self, task: Task, panel: Any) -> int:
        """All pairs of a task; `panel` holds its rows i. Returns their number."""
        block = panel if self.plan.whole else self.products.load(task.j0, task.j1)
        room = self.rooms.get()
        try:
            for i in range(max(task.i0, task.j0), task.i1):
                js = slice(task.j0, min(task.j1, i + 1))
                slab = self.products.multiply(panel, block, i, js.start, js.stop, room)
                self.os[i, js], self.x[i, js] = self.energies(slab, self.eps_occ[i] + self.eps_occ[js])
        finally:
            self.rooms.put(room)
        return task.pairs

    def work(self, map: Callable) -> Iterator[tuple[Task, Any] | None]:
        """Tasks with the rows they need; None where all tasks before must end, so that their rows can go."""
        for i0, i1 in self.plan.panels():
            panel = self.products.load(i0, i1, map)
            for task in self.plan.tasks(i0, i1):
                yield task, panel
            yield None
            del panel


def _deal(step: _PairStep, pool: ThreadPoolExecutor, progress: Progress | None) -> None:
    nocc = len(step.eps_occ)
    done, total = 0, nocc * (nocc + 1) // 2
    futures = []
    try:
        for item in step.work(pool.map):
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
