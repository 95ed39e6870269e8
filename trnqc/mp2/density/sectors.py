"""The spin sectors of MP2: which spins a pair of electrons has, and what its amplitudes contribute.

With K = (ia|jb) and t = K / (ε_i + ε_j - ε_a - ε_b), all quantities of this folder are sums over weighted amplitudes

    T̃_ij^ab = direct t_ij^ab - exchange t_ij^ba

A closed shell has one sector, whose weights combine both spin components. Two spins have the sectors αα, ββ and αβ.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.backends.cpu.pair_amplitudes import AmplitudeWeights


@dataclass(frozen=True)
class DensitySector:
    """Pairs whose electrons have the spins `left` and `right`, and the weights of T̃."""

    left: int
    right: int
    direct: float
    exchange: float

    @property
    def same(self) -> bool:
        """Whether the pairs ij and ji are the same pair."""
        return self.left == self.right

    @property
    def weights(self) -> AmplitudeWeights:
        """The weights in the form in which the functions for T̃ take them."""
        return AmplitudeWeights(self.direct, self.exchange, self.same)


@dataclass(frozen=True)
class SpinEnergies:
    """Correlation energies of opposite and of same spin without scaling factors, Hartree."""

    os: float
    ss: float


def sectors(spins: int, scaling: tuple[float, float]) -> tuple[DensitySector, ...]:
    """Return the sectors of a closed shell (`spins` = 1) or of two spins; `scaling` are the factors (c_os, c_ss)."""
    c_os, c_ss = scaling
    if spins == 1:
        return (DensitySector(0, 0, c_os + c_ss, c_ss),)
    return DensitySector(0, 0, c_ss, c_ss), DensitySector(1, 1, c_ss, c_ss), DensitySector(0, 1, c_os, 0.0)


def spin_energies(spins: int, sums: np.ndarray) -> SpinEnergies:
    """Combine the sums Σ K t (direct) and Σ K_ij^ba t (exchange) of each sector, [sector, 2], to energies."""
    direct, exchange = sums[:, 0], sums[:, 1]
    if spins == 1:
        return SpinEnergies(float(direct[0]), float(direct[0] - exchange[0]))
    return SpinEnergies(float(direct[2]), float((direct[:2] - exchange[:2]).sum() / 2))
