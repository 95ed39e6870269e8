"""How a job runs: backend, precision, threads, memory and ranks. They are chosen once, when the job begins.

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

    def all_pairs(self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, **options: Any) -> PairEnergies:
        """Compute the energies of all pairs i >= j by `trnqc.backends.base.Backend.mp2_pairs`."""
        return self.choice.backend.mp2_pairs(B, eps_occ, eps_vir, **self._kernel, **options)

    def pairs_between(
        self, left: np.ndarray, right: np.ndarray, eps_left: np.ndarray, eps_right: np.ndarray, eps_vir: np.ndarray
    ) -> PairEnergies:
        """Compute the energies of pairs between two sets by `trnqc.backends.base.Backend.mp2_pair_block`."""
        return self.choice.backend.mp2_pair_block(left, right, eps_left, eps_right, eps_vir, **self._kernel)

    def pair_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """Bytes that the backend allocates for the pairs of m orbitals with n other orbitals."""
        return self.choice.backend.pair_block_bytes(m, n, nvir, naux, **self._kernel)

    def opposite_spin(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_occ: tuple[np.ndarray, np.ndarray],
        eps_vir: tuple[np.ndarray, np.ndarray],
        **options: Any,
    ) -> PairEnergies:
        """Compute the energies of pairs of opposite spin by `trnqc.backends.base.Backend.mp2_opposite_spin`."""
        return self.choice.backend.mp2_opposite_spin(left, right, eps_occ, eps_vir, **self._kernel, **options)

    def opposite_spin_bytes(self, m: int, n: int, nvir: tuple[int, int], naux: int) -> int:
        """Bytes that the backend allocates for the pairs of m alpha orbitals with n beta orbitals."""
        return self.choice.backend.opposite_spin_bytes(m, n, nvir, naux, **self._kernel)

    @property
    def _kernel(self) -> dict[str, Any]:
        return {"precision": self.choice.precision, "fused": self.fused, "threads": self.threads}
