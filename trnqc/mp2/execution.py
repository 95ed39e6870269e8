"""How a job runs: backend, precision, threads, memory and ranks. They are chosen once, when the job begins.

request (names, MB, None for defaults) -> choose -> Execution -> factors, pairs, result
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from trnqc import backends
from trnqc.backends.base import Backend
from trnqc.backends.pair_step import PairStep
from trnqc.errors import InputError
from trnqc.ranks import ALONE, Ranks
from trnqc.types import PRECISIONS

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) from the thread that runs the job."""


@dataclass(frozen=True)
class Choice:
    """A backend, the precision it computes in, and a note that says why the backend was selected."""

    backend: Backend
    precision: str
    note: str


def choose(backend: str = "auto", precision: str | None = "fp64") -> Choice:
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
    return Choice(selection.backend, precision, selection.note)


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

    choice: Choice
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

    def pair_step(self, progress: Callable[[int, int], None] | None = None) -> PairStep:
        """The backend's pair step, called as progress(done_pairs, total_pairs)."""
        return self.choice.backend.pair_step(self.choice.precision, self.fused, self.threads, progress)
