"""Types that several packages share. Energies are in Hartree; i and j are occupied orbitals."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

PRECISIONS = ("fp64", "fp32", "bf16x15", "bf16x6", "bf16x3", "bf16")


@dataclass(frozen=True, eq=False)
class PairEnergies:
    """MP2 correlation energy of each pair of occupied orbitals.

    Attributes
    ----------
    os, ss
        Opposite- and same-spin energies, float64 [nocc, nocc], in Hartree. They are lower-triangular: entry [i, j] with
        i >= j is the sum of the contributions of ij and ji, so that the sum of all entries is the correlation energy.
    ran_on
        Description of the backend and device that computed the energies.
    """

    os: np.ndarray
    ss: np.ndarray
    ran_on: str

    @property
    def e_os(self) -> float:
        """Opposite-spin energy, Hartree."""
        return float(self.os.sum())

    @property
    def e_ss(self) -> float:
        """Same-spin energy, Hartree."""
        return float(self.ss.sum())


@dataclass(frozen=True, eq=False)
class SpinPairEnergies:
    """MP2 correlation energy of each pair of occupied orbitals of an open shell.

    Attributes
    ----------
    aa, bb
        Energies of two alpha and of two beta orbitals, float64 [nocc, nocc] of that spin, in Hartree. They are
        lower-triangular: entry [i, j] with i > j is the energy of the pair, and the diagonal is zero.
    ab
        Energies of an alpha orbital i and a beta orbital j, float64 [nocc_alpha, nocc_beta].
    ran_on
        Description of the backend and device that computed the energies.
    """

    aa: np.ndarray
    ab: np.ndarray
    bb: np.ndarray
    ran_on: str

    @property
    def e_os(self) -> float:
        """Opposite-spin energy, Hartree."""
        return float(self.ab.sum())

    @property
    def e_ss(self) -> float:
        """Same-spin energy, Hartree."""
        return float(self.aa.sum()) + float(self.bb.sum())
