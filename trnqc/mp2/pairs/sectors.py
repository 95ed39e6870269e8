"""The spin cases of the pairs of occupied orbitals: one for a closed shell, three for an open shell.

    Factors -> all pairs i >= j         SpinFactors -> alpha-alpha, alpha-beta, beta-beta

Pairs of equal spin are those of a closed shell with these orbitals: its same-spin energy is the sum of two spins, so
that each spin has half of it. Pairs of opposite spin have rectangular integrals and no exchange.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.mp2.factors.factors import Factors, SpinFactors
from trnqc.mp2.partition.blocks import PairBlock, opposite_blocks, pair_blocks
from trnqc.mp2.partition.distribution import set_width
from trnqc.types import PairEnergies, SpinPairEnergies


@dataclass(frozen=True, eq=False)
class PairSector:
    """The pairs of one spin case.

    Attributes
    ----------
    left
        Factors of the orbitals i.
    right
        Factors of the orbitals j, if they have another spin.
    name
        "aa", "ab" or "bb"; empty for a closed shell.
    """

    left: Factors
    right: Factors | None = None
    name: str = ""

    @property
    def sides(self) -> tuple[Factors, ...]:
        """The factors of each spin that takes part."""
        return (self.left,) if self.right is None else (self.left, self.right)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of orbitals i and j."""
        return len(self.left.eps_occ), len(self.sides[-1].eps_occ)

    @property
    def nvir(self) -> tuple[int, int]:
        """Numbers of virtual orbitals a and b."""
        return self.left.shape[1], self.sides[-1].shape[1]

    @property
    def naux(self) -> int:
        """Number of auxiliary functions."""
        return self.left.shape[2]

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        m, n = self.shape
        return m * n if self.right is not None else m * (m + 1) // 2

    @property
    def record(self) -> str:
        """The kind of record that a checkpoint has of its blocks."""
        return f"pairs {self.name}".rstrip()

    @property
    def weights(self) -> tuple[float, float]:
        """The parts of the energies of `PairEnergies` that belong to opposite and to the same spin."""
        return {"": (1.0, 1.0), "ab": (1.0, 0.0)}.get(self.name, (0.0, 0.5))

    @property
    def rank_width(self) -> int:
        """Number of orbitals in a set of rows for any number of ranks."""
        return min(set_width(*side.shape) for side in self.sides)

    def indices(self) -> tuple[np.ndarray, np.ndarray]:
        """The orbitals i and j of all pairs."""
        m, n = self.shape
        if self.right is None:
            return np.tril_indices(m)
        i, j = np.indices((m, n)).reshape(2, -1)
        return i, j

    def blocks(self, width: int) -> tuple[PairBlock, ...]:
        """The blocks of all pairs over sets of `width` orbitals."""
        m, n = self.shape
        return pair_blocks(m, width) if self.right is None else opposite_blocks(m, n, width, width)


def sectors_of(factors: Factors | SpinFactors) -> tuple[PairSector, ...]:
    """The spin cases that have pairs."""
    if isinstance(factors, Factors):
        return (PairSector(factors),)
    alpha, beta = factors
    cases = (PairSector(alpha, name="aa"), PairSector(alpha, beta, "ab"), PairSector(beta, name="bb"))
    return tuple(case for case in cases if case.pairs and min(case.nvir))


def joined(
    factors: Factors | SpinFactors, sectors: tuple[PairSector, ...], energies: list[PairEnergies]
) -> PairEnergies | SpinPairEnergies:
    """The energies of a closed shell, or of an open shell from its spin cases."""
    if isinstance(factors, Factors):
        return energies[0]
    m, n = (len(spin.eps_occ) for spin in factors)
    parts = {"aa": np.zeros((m, m)), "ab": np.zeros((m, n)), "bb": np.zeros((n, n))}
    for sector, part in zip(sectors, energies):
        parts[sector.name] = part.os if sector.name == "ab" else 0.5 * part.ss
    ran_on = energies[0].ran_on if energies else "no pairs to compute"
    return SpinPairEnergies(**parts, ran_on=ran_on)
