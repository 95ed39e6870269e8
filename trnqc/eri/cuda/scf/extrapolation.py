"""The coefficients of DIIS from products of error vectors, by PySCF's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import lib


class DiisCoefficients(lib.diis.DIIS):
    """PySCF's DIIS, whose vectors are unit vectors: what it extrapolates are the coefficients of the vectors elsewhere.

    Parameters
    ----------
    scf
        The object whose log is written to.
    space
        The most vectors, at least 2.
    """

    _bookkeep: list[int]
    _H: Any

    def __init__(self, scf: Any, space: int) -> None:
        super().__init__(scf)
        self.space = space
        self._units = np.eye(space)

    @property
    def slot(self) -> int:
        """Where the next vector goes: the first place that is free, or that of the oldest vector."""
        return int(self._head) if self._head < self.space else 0

    @property
    def vectors(self) -> int:
        """The number of vectors once the next one is there. They have the first places."""
        return min(len(self._bookkeep) + 1, self.space)

    def add(self, products: np.ndarray) -> np.ndarray:
        """Return the coefficients of all vectors, after one was put into `slot`.

        products: those of the new error vector with the error vectors of all places, its own included.
        """
        place, count = self.slot, self.vectors
        if len(self._bookkeep) >= self.space:
            self._bookkeep = self._bookkeep[1 - self.space :]
        self._bookkeep.append(place)
        self._head = place + 1
        if self._H is None:
            self._H = np.zeros((self.space + 1, self.space + 1))
            self._H[0, 1:] = self._H[1:, 0] = 1
        self._H[self._head, 1 : count + 1] = self._H[1 : count + 1, self._head] = products
        return np.asarray(self.extrapolate(count))[:count]

    def get_vec(self, idx: int) -> np.ndarray:
        return np.asarray(self._units[idx])
