"""How a job runs: backend, precision, threads, memory, ranks. Chosen once, where the job begins, and then only read.

request (names, MB, None for defaults) -> choose -> Execution -> factors, pairs, result
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc import backends
from trnqc.backends.base import Backend
from trnqc.errors import InputError
from trnqc.ranks import ALONE, Ranks
from trnqc.types import PRECISIONS, PairEnergies

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) from the thread that runs the job."""


@dataclass(frozen=True)
class Choice:
    """A backend, the precision it computes in, and a note that says why it was taken."""

    backend: Backend
    precision: str
    note: str


def choose(backend: str = "auto", precision: str | None = "fp64") -> Choice:
    """Choose the backend and the precision of a request.

    Parameters
    ----------
    backend
        A backend's name, or "auto": a usable Trainium device that has the precision, else the CPU.
    precision
        One of `trnqc.types.PRECISIONS`; None takes fp64 if the chosen backend has it, else fp32.

    Raises
    ------
    InputError
        If there is no such backend or precision.
    BackendUnavailable, UnsupportedPrecision
        If the backend cannot run here, or does not have the precision.
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
        Threads of this process.
    memory
        Bytes that the job may add to this process; infinite for no limit.
    fused
        Whether the energy expression is part of the product kernel.
    ranks
        The processes of the job.
    schedule
        How tasks are divided among ranks, see `trnqc.ranks.dealt`.
    progress
        Called with stage, parts done and parts in all, if given.
    """

    choice: Choice
    threads: int = 1
    memory: float = math.inf
    fused: bool = True
    ranks: Ranks = ALONE
    schedule: str = "dynamic"
    progress: Progress | None = None

    def report(self, stage: str, done: int, total: int) -> None:
        """Say that `done` of `total` parts of a stage are done."""
        if self.progress is not None:
            self.progress(stage, done, total)

    def all_pairs(self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, **options: Any) -> PairEnergies:
        """Energies of all pairs i >= j, see `trnqc.backends.base.Backend.mp2_pairs`, which takes the options."""
        return self.choice.backend.mp2_pairs(B, eps_occ, eps_vir, **self._kernel, **options)

    def pairs_between(
        self, left: np.ndarray, right: np.ndarray, eps_left: np.ndarray, eps_right: np.ndarray, eps_vir: np.ndarray
    ) -> PairEnergies:
        """Energies of all pairs of two sets of orbitals, see `trnqc.backends.base.Backend.mp2_pair_block`."""
        return self.choice.backend.mp2_pair_block(left, right, eps_left, eps_right, eps_vir, **self._kernel)

    def pair_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """Bytes that the backend allocates for the pairs of m orbitals with n others."""
        return self.choice.backend.pair_block_bytes(m, n, nvir, naux, **self._kernel)

    @property
    def _kernel(self) -> dict[str, Any]:
        return {"precision": self.choice.precision, "fused": self.fused, "threads": self.threads}
