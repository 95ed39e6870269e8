"""The interface of the MP2 pair step, which `Backend.mp2_pairs` and its companions call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trnqc.types import PairEnergies

Progress = Callable[[int, int], None]
"""Called as progress(done_pairs, total_pairs)."""


@dataclass(frozen=True)
class PairOptions:
    """How a pair step runs. See the parameters of `Backend.mp2_pairs` with the same names."""

    precision: str
    fused: bool = True
    threads: int | None = None
    progress: Progress | None = None


class PairStep(Protocol):
    """The MP2 pair step of a backend with certain options."""

    def triangle(self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None) -> PairEnergies:
        """See `Backend.mp2_pairs`."""
        ...

    def block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
    ) -> PairEnergies:
        """See `Backend.mp2_pair_block`."""
        ...

    def block_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """See `Backend.pair_block_bytes`."""
        ...

    def opposite_spin(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_occ: tuple[np.ndarray, np.ndarray],
        eps_vir: tuple[np.ndarray, np.ndarray],
    ) -> PairEnergies:
        """See `Backend.mp2_opposite_spin`."""
        ...

    def opposite_spin_bytes(self, m: int, n: int, nvir: tuple[int, int], naux: int) -> int:
        """See `Backend.opposite_spin_bytes`."""
        ...
