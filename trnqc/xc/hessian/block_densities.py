"""Densities on the points of one block, and their derivatives by the positions of atoms at a constant density matrix.

AO values [component, N, points], density matrices [N, N] -> products X -> variables of the functional

The variables of a functional are the density rho, its gradient, and the kinetic-energy density tau = 1/2 sum D_ij (d_c
i) (d_c j): one of them for LDA, four for GGA, and five for meta-GGA.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

# The number of variables of each kind of functional, and the order of derivatives of AO values that a matrix of the
# potential needs.
VARIABLES = {"LDA": 1, "GGA": 4, "MGGA": 5}
ORDER = {"LDA": 0, "GGA": 1, "MGGA": 1}
# Components of AO values, in PySCF's order of derivatives.
SECOND = np.array([[4, 5, 6], [5, 7, 8], [6, 8, 9]])
_THIRD = {"xxx": 10, "xxy": 11, "xxz": 12, "xyy": 13, "xyz": 14, "xzz": 15, "yyy": 16, "yyz": 17, "yzz": 18, "zzz": 19}
THIRD = np.array([[["".join(sorted(a + b + c)) for c in "xyz"] for b in "xyz"] for a in "xyz"])
THIRD = np.vectorize(_THIRD.__getitem__)(THIRD)


@dataclass(frozen=True, eq=False)
class BlockDensities:
    """The densities [spins, N, N] of one or of two spins on one block, with AO values [components, N, points] of its
    functions.
    """

    ao: np.ndarray
    dms: np.ndarray
    variables: int

    @cached_property
    def products(self) -> np.ndarray:
        """X[spin, c, i] = sum_j D_ij (d_c j), where c = 0 is the function itself; [spins, 1 or 4, N, points]."""
        count = 1 if self.variables == 1 else 4
        return np.matmul(self.dms[:, None], self.ao[:count])

    @cached_property
    def values(self) -> np.ndarray:
        """The variables, [spins, variables, points]."""
        x, ao = self.products, self.ao
        rows = [np.einsum("sig,ig->sg", x[:, 0], ao[0])]
        if self.variables > 1:
            rows += [2 * np.einsum("sig,ig->sg", x[:, 0], ao[c]) for c in (1, 2, 3)]
        if self.variables > 4:
            rows.append(0.5 * sum(np.einsum("sig,ig->sg", x[:, c], ao[c]) for c in (1, 2, 3)))
        return np.stack(rows, axis=1)

    def by_atoms(self, starts: np.ndarray) -> np.ndarray:
        """Return the derivatives of the variables by each atom, [atoms, 3, spins, variables, points].

        starts: the first function of each atom of the block.
        """
        x, ao = self.products, self.ao
        result = np.empty((len(starts), 3, len(x), self.variables, ao.shape[2]))
        for spin, own in enumerate(x):
            for axis in range(3):
                first, into = ao[1 + axis], result[:, axis, spin]
                into[:, 0] = _summed(first * own[0], starts)
                if self.variables > 1:
                    for c in (1, 2, 3):
                        into[:, c] = _summed(first * own[c] + ao[SECOND[axis, c - 1]] * own[0], starts)
                if self.variables > 4:
                    total = sum(ao[SECOND[axis, c - 1]] * own[c] for c in (1, 2, 3))
                    into[:, 4] = 0.5 * _summed(total, starts)
        result *= -2.0
        return result


def _summed(values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    return np.add.reduceat(values, starts, axis=0)


def half_potentials(ao: np.ndarray, weights: np.ndarray, weigh: Callable[..., None], lanes: int) -> np.ndarray:
    """Return halves H of the matrices V = H + H^T of potentials; [n, N, N].

    weights [n, variables, points]: the weights of each variable at the points.
    weigh: the program `point_programs.weighted` for GGA and meta-GGA, which adds up weighted derivatives of functions.
    """
    n, variables, points = weights.shape
    size = ao.shape[1]
    if variables == 1:
        left = (0.5 * weights) * ao[0]
    else:
        left, halved = np.empty((n, size, points)), weights[:, :4].copy()
        halved[:, 0] *= 0.5
        for own, out in zip(halved, left):
            weigh(functions=size, vectors=points // lanes, ao=ao, weights=own, out=out)
    half = left.reshape(n * size, points) @ ao[0].T
    if variables > 4:
        for c in (1, 2, 3):
            half += ((0.25 * weights[:, 4:]) * ao[c]).reshape(n * size, points) @ ao[c].T
    return half.reshape(n, size, size)
