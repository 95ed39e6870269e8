"""Rotations of orbitals, and the linear equations that their relaxation solves.

    constant + response_part(G[P + z]) + fock_part(z) = 0

The left side is the derivative of the energy with respect to the rotations. P are the densities before relaxation,
`response_part` and `fock_part` are linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from trnqc.mp2.reference.spins import SpinOrbitals


class Rotations(Protocol):
    """The rotations of a reference, as elements of a vector x; `gap` is about the diagonal of the equations, positive
    for a stable solution of the SCF.
    """

    @property
    def gap(self) -> np.ndarray: ...

    def blocks(self, x: np.ndarray) -> list[np.ndarray]:
        """Return the elements P_ai = P_ia = z[a, i] of the density of each spin."""
        ...

    def fock_part(self, x: np.ndarray) -> np.ndarray:
        """Return the part of the equations that has the Fock matrix of the reference."""
        ...

    def response_part(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return the part of the equations that has G[P]_qi [nmo, nocc] of each spin."""
        ...


class CanonicalRotations:
    """Rotations of the occupied into the virtual orbitals of each spin, which diagonalise the Fock matrix.

    fock_part is (ε_a - ε_i) z_ai and response_part is G_ai. x contains z[a, i] of all spins.
    """

    def __init__(self, spins: Sequence[SpinOrbitals]) -> None:
        self._spins = tuple(spins)
        gaps = [np.subtract.outer(s.energies[~s.occupied], s.energies[s.occupied]) for s in spins]
        self._shapes = [gap.shape for gap in gaps]
        self.gap = self.flat(gaps)

    def flat(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Return the vector of matrices [a, i] of each spin."""
        return np.concatenate([part.ravel() for part in parts])

    def blocks(self, x: np.ndarray) -> list[np.ndarray]:
        """Return z[a, i] of each spin."""
        ends = np.cumsum([rows * columns for rows, columns in self._shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(x, ends), self._shapes)]

    def fock_part(self, x: np.ndarray) -> np.ndarray:
        """Return (ε_a - ε_i) z_ai."""
        return self.gap * x

    def response_part(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return G_ai."""
        return self.flat([g[~spin.occupied] for spin, g in zip(self._spins, columns)])
