"""Values that cross the borders between rooms. Energies in Hartree; i, j occupied, a, b virtual, P, Q auxiliary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PRECISIONS = ("fp64", "fp32", "bf16x3", "bf16")


@dataclass(frozen=True, eq=False)
class PairEnergies:
    """MP2 energy by occupied pair.

    os, ss: float64 [nocc, nocc], lower-triangular: entry [i, j], i >= j, holds the whole contribution of the pair
    (ij and ji together), so that ``os.sum()`` and ``ss.sum()`` are the opposite- and same-spin energies in Hartree.
    ran_on: in words, what really computed them.
    """

    os: np.ndarray
    ss: np.ndarray
    ran_on: str
