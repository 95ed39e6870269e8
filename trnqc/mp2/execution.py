"""How a job runs: backend, precision, threads, memory and ranks. They are chosen once, when the job begins.

request (names, MB, None for defaults) -> choose -> Execution -> factors, pairs, result
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, as_completed
from dataclasses import dataclass
from typing import Any, TypeVar

from trnqc import backends
from trnqc.backends.base import Backend
from trnqc.backends.pair_step import PairStep
from trnqc.errors import InputError
from trnqc.ranks import ALONE, Ranks
from trnqc.types import PRECISIONS

Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) from the thread that runs the job."""


@dataclass(frozen=True)
class BackendChoice:
    """A backend, the precision it computes in, and a note that says why the backend was selected."""

    backend: Backend
    precision: str
    note: str


def choose(backend: str = "auto", precision: str | None = "fp64") -> BackendChoice:
    """Choose a backend and a precision.

    Parameters
    ----------
    backend
        The name of a backend, or "auto": a usable Trainium device that has the precision, else the CPU.
    precision
        One of `trnqc.types.PRECISIONS`; None selects fp64 if the backend has it, else fp32.

    Raises
    ------
    InputError
        If the backend or the precision is unknown.
    BackendUnavailable, UnsupportedPrecision
        If the backend cannot run on this machine, or does not have the precision.
    """
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision is None:
        chosen = backends.select(backend, "fp32").backend
        precision = "fp64" if "fp64" in chosen.precisions else "fp32"
    selection = backends.select(backend, precision)
    return BackendChoice(selection.backend, precision, selection.note)


@dataclass(frozen=True, eq=False)
class Execution:
    """Where and how one process runs its part of a job.

    Attributes
    ----------
    choice
        Backend and precision of the pair step. Integrals, metric and factors are fp64 on the host.
    threads
        Number of threads of this process.
    memory
        Bytes that the job may add to this process; infinite if there is no limit.
    fused
        Whether the energy expression is evaluated inside the product kernel.
    ranks
        The processes of the job.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.
    progress
        Called as progress(stage, done, total) if it is not None.
    """

    choice: BackendChoice
    threads: int = 1
    memory: float = math.inf
    fused: bool = True
    ranks: Ranks = ALONE
    schedule: str = "dynamic"
    progress: Progress | None = None

    def report(self, stage: str, done: int, total: int) -> None:
        """Report that `done` of `total` parts of a stage are finished."""
        if self.progress is not None:
            self.progress(stage, done, total)

    def finished(
        self,
        pool: Executor,
        task: Callable[[Item], Result],
        items: Iterable[Item],
        stage: str,
        total: int | None = None,
    ) -> Iterator[tuple[Item, Result]]:
        """Run a task for every item and yield (item, task(item)) in the order in which the tasks end.

        Progress of the stage is reported, which has `total` parts if some were finished before, else one for each item.
        The error of the first task that fails is raised, and tasks that have not begun are cancelled.
        """
        futures: dict[Any, Item] = {pool.submit(task, item): item for item in items}
        total = len(futures) if total is None else total
        before = total - len(futures)
        try:
            for done, future in enumerate(as_completed(futures), start=before + 1):
                yield futures[future], future.result()
                self.report(stage, done, total)
        finally:
            for future in futures:
                future.cancel()

    def pair_step(self, progress: Callable[[int, int], None] | None = None) -> PairStep:
        """The backend's pair step, called as progress(done_pairs, total_pairs)."""
        return self.choice.backend.pair_step(self.choice.precision, self.fused, self.threads, progress)
