"""Densities as passes over derivative integrals read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.eri.hessian.sides import Ket, OrientedPairs


class Densities:
    """Densities in the Cartesian functions, and their products with the derivative basis.

    d [n, nao, nao]: D. p [n, 3, n_mixed, nao]: P_x[i', c], the weight of i' in d_x p, times D_pc. q [n, 3, 3, n_mixed,
    n_mixed]: the same with both indices. The arrays `largest_` are maxima by blocks of shells.
    """

    def __init__(self, basis: Any, dms: np.ndarray) -> None:
        to, gradient = basis.transform, basis.gradient
        self.d = np.array([to @ dm @ to.T for dm in dms])
        self.p = np.array([[axis @ dm @ to.T for axis in gradient] for dm in dms])
        self.q = np.array([[[one @ dm @ two.T for two in gradient] for one in gradient] for dm in dms])
        mixed, plain = basis.mol.ao_loc_nr()[:-1], basis.cartesian.ao_loc_nr()[:-1]
        self.largest_d = _maxima(self.d, plain, plain)
        self.largest_p = _maxima(self.p, mixed, plain)
        self.largest_q = _maxima(self.q, mixed, mixed)

    @property
    def q_total(self) -> np.ndarray:
        return self.q.sum(axis=0)

    def weights(self, side: OrientedPairs) -> np.ndarray:
        """Return the spin-summed P_x of every pair (i', v), [npair, 3, contractions, na nb]."""
        total = self.p.sum(axis=0)
        return np.ascontiguousarray(np.array([axis[side.orbitals] for axis in total]).swapaxes(0, 1))

    def folded(self, ket: Ket) -> np.ndarray:
        """Return share (D_cd + D_dc) of the spin-summed density for every vector of kets."""
        total = self.d.sum(axis=0)
        c, d = ket.side.orbitals
        return np.ascontiguousarray(ket.on_lanes(total[c, d] + total[d, c]) * ket.share[:, None, None, :])


def _maxima(matrices: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return the largest absolute value in each block of shells, over all matrices."""
    size = abs(matrices).reshape(-1, *matrices.shape[-2:]).max(axis=0)
    return np.maximum.reduceat(np.maximum.reduceat(size, rows, axis=0), columns, axis=1)


def largest_of_pairs(weights: np.ndarray) -> np.ndarray:
    """Return the largest absolute value of each pair, [npair]."""
    return abs(weights).reshape(len(weights), -1).max(axis=1, initial=0.0)
