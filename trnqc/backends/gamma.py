"""What a backend that computes Γ of MP2 takes, beside the arguments of `trnqc.backends.base.Backend.mp2_gamma`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trnqc.backends.pair_step import Progress


class FactorSet(Protocol):
    """Orbitals of one spin: factors B[nocc, nvir, naux] in memory or on disk, and orbital energies in Hartree."""

    @property
    def B(self) -> Any: ...

    @property
    def eps_occ(self) -> np.ndarray: ...

    @property
    def eps_vir(self) -> np.ndarray: ...


AddRows = Callable[[int, slice, np.ndarray], None]
"""Takes a part of Γ as add(side, rows, values): side 0 is the left set, 1 the right one; values [n, nvir, naux]."""


@dataclass(frozen=True)
class GammaOptions:
    """Which Γ is computed, and how; the options of `Backend.mp2_gamma` of these names."""

    direct: float
    exchange: float
    precision: str
    max_memory: float | None = None
    progress: Progress | None = None
