"""The loop over tasks on several threads. A task runs products and the energy pass over their results on one thread."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import replace
from typing import Any

import numpy as np

from trnqc.backends.cpu.pair_blocks import PairTask, TaskPlan, plan_block, plan_triangle
from trnqc.backends.cpu.pair_energies import EnergyPass
from trnqc.backends.cpu.pair_products import PairProducts
from trnqc.backends.pair_step import Progress


def triangle_sums(
    B: Any,
    eps_occ: np.ndarray,
    products: PairProducts,
    energies: EnergyPass,
    *,
    threads: int,
    max_memory: float | None = None,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the energy pass over T_ij for all pairs i >= j.

    Parameters
    ----------
    B
        The factors [nocc, nvir, naux], in memory or on disk.
    eps_occ
        The energies of the occupied orbitals in Hartree.
    products
        Computes T from B.
    energies
        The energy pass.
    threads
        The number of threads.
    max_memory
        The memory limit in bytes; None for no limit.
    progress
        Called as progress(done_pairs, total_pairs).

    Returns
    -------
    tuple of ndarray
        The two sums of the energy pass, [nocc, nocc], zero above the diagonal.

    Raises
    ------
    MemoryLimit
        If the limit is too small.
    """
    held = B.size * 8 if isinstance(B, np.ndarray) and not isinstance(B, np.memmap) else 0
    fixed = held + threads * products.scratch_bytes
    plan = plan_triangle(B.shape[0], products, threads=threads, limit=max_memory, fixed=fixed)
    step = _PairStep(products, eps_occ, plan, energies, threads)
    with products.alone(), ThreadPoolExecutor(threads, thread_name_prefix="trnqc-mp2") as pool:
        _run_tasks(step.run, step.work(pool.map), pool, progress, plan.nocc * (plan.nocc + 1) // 2)
    return step.os, step.x


def block_sums(
    left: PairProducts,
    right: PairProducts,
    eps_left: np.ndarray,
    eps_right: np.ndarray,
    energies: EnergyPass,
    *,
    threads: int,
    progress: Progress | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The sums of the energy pass, [m, n], over T_ij for all orbitals i of `left` and j of `right`.

    No orbital is in both. In the plan, the orbitals of `left` have the numbers [n, n + m), and those of `right` the
    numbers [0, n). The pairs form a block below the diagonal, in which no T is symmetric.
    """
    m, n = len(eps_left), len(eps_right)
    plan = plan_block(m, n, left, right, threads=threads)
    step = _PairStep(left, np.concatenate((eps_right, eps_left)), plan, energies, threads)
    with left.alone(), ThreadPoolExecutor(threads, thread_name_prefix="trnqc-mp2") as pool:
        rows, columns = replace(left.load(0, m, pool.map), first=n), right.load(0, n, pool.map)
        tasks = (
            PairTask(i, i + 1, j, min(j + plan.block, n)) for i in range(n, n + m) for j in range(0, n, plan.block)
        )
        work = [*((task, rows, columns) for task in tasks), None]
        _run_tasks(step.run, work, pool, progress, m * n)
    return step.os[n:, :n], step.x[n:, :n]


class _PairStep:
    """One pair step: its buffers, its results, and the work of one task."""

    def __init__(
        self, products: PairProducts, eps_occ: np.ndarray, plan: TaskPlan, energies: EnergyPass, threads: int
    ) -> None:
        self.products, self.eps_occ, self.plan, self.energies = products, eps_occ, plan, energies
        nocc = len(eps_occ)
        self.os, self.x = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        self.slabs: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        for _ in range(threads):
            self.slabs.put(products.slab(plan.block))

    def run(self, task: PairTask, panel: Any, block: Any) -> int:
        """Compute all pairs of a task, and return their number.

        `panel` contains the orbitals i, and `block` the orbitals j. If it is None, they are loaded.
        """
        block = self.products.load(task.j0, task.j1) if block is None else block
        slab_buffer = self.slabs.get()
        try:
            for i in range(max(task.i0, task.j0), task.i1):
                js = slice(task.j0, min(task.j1, i + 1))
                slab = self.products.multiply(panel, block, i, js.start, js.stop, slab_buffer)
                self.os[i, js], self.x[i, js] = self.energies(slab, self.eps_occ[i] + self.eps_occ[js])
        finally:
            self.slabs.put(slab_buffer)
        return task.pairs

    def work(self, map: Callable[..., Any]) -> Iterator[tuple[PairTask, Any, Any] | None]:
        """Yield the arguments of `run`, and None wherever all tasks so far must end so that orbitals can be freed."""
        for i0, i1 in self.plan.panels():
            panel = self.products.load(i0, i1, map)
            for task in self.plan.tasks(i0, i1):
                yield task, panel, panel if self.plan.whole else None
            yield None
            del panel


def _run_tasks(
    run: Callable[..., int],
    work: Iterable[tuple[PairTask, Any, Any] | None],
    pool: ThreadPoolExecutor,
    progress: Progress | None,
    total: int,
) -> None:
    """Submit the work to the pool, wait at each None, and report progress in the thread of the caller."""
    done = 0
    futures: list[Future[int]] = []
    try:
        for item in work:
            if item is not None:
                futures.append(pool.submit(run, *item))
                continue
            for future in as_completed(futures):
                done += future.result()
                if progress is not None:
                    progress(done, total)
            futures.clear()
    finally:
        for future in futures:
            future.cancel()
