"""Shell pairs of a molecule for the programs of seminumerical exchange, with bounds of their potentials.

A primitive pair is at most a sum of positive terms c r^k exp(-zeta r^2) with r = |r - P| (see `_bounds`). The potential
of such a term is largest at P, where it is 2 pi Gamma(k/2 + 1) zeta^-(k/2 + 1), and at a distance d it is at most
charge / d with the charge 2 pi Gamma((k + 3)/2) zeta^-((k + 3)/2).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import comb, pi, sqrt

import numpy as np
from pyscf import gto
from scipy.special import gamma

from trnqc.eri.classes import COEFFICIENT, CONTRACTION, ZETA, P
from trnqc.eri.kernels.angular import ncart, spherical
from trnqc.eri.seminumerical.program import CENTRE, CHARGE, EXTENTS, PEAK, PLACES, POTENTIAL, RADIUS
from trnqc.eri.shells.pairs import ShellPairs, pairs_of


@dataclass(frozen=True, eq=False)
class PointPairs:
    """The pairs of one class as arguments of its program, see `program.parameters`.

    `n_ab` and `n_b` are pairs of contractions, and contractions of b. The arrays are records [pairs, rows, W], centre
    [pairs, 6], extents [pairs, EXTENTS] and places [pairs, PLACES].
    """

    la: int
    lb: int
    n_ab: int
    n_b: int
    records: np.ndarray
    centre: np.ndarray
    extents: np.ndarray
    places: np.ndarray

    def __len__(self) -> int:
        return len(self.places)


def point_pairs(mol: gto.Mole, derivative: bool = False) -> tuple[PointPairs, ...]:
    """Return the classes of all unordered pairs of shells of a molecule, for K or for its gradient."""
    first = first_cartesians(mol)
    return tuple(_pairs(pairs, first) for pairs in pairs_of(mol, exponents=derivative))


def first_cartesians(mol: gto.Mole) -> np.ndarray:
    """Return the first Cartesian function of each shell, and their number at the end; [shells + 1]."""
    counts = [ncart(l) * n for l, n in mol._bas[:, [gto.ANG_OF, gto.NCTR_OF]]]
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)


def cartesian_matrix(mol: gto.Mole) -> np.ndarray:
    """Return the functions of a molecule as combinations of Cartesian functions without angular factors, [ncart, nao].

    The factors of s and p functions are part of the contraction coefficients, as in the records of pairs.
    """
    if mol.cart:
        return np.eye(mol.nao_nr())
    matrix = np.zeros((first_cartesians(mol)[-1], mol.nao_nr()))
    row = column = 0
    for l, n in mol._bas[:, [gto.ANG_OF, gto.NCTR_OF]]:
        block = spherical(l)
        for _ in range(n):
            matrix[row : row + block.shape[0], column : column + block.shape[1]] = block
            row, column = row + block.shape[0], column + block.shape[1]
    return matrix


def _pairs(pairs: ShellPairs, first: np.ndarray) -> PointPairs:
    records = np.ascontiguousarray(pairs.records)
    same = np.where(pairs.first == pairs.second, 0.5, 1.0)
    # From the COEFFICIENT of quartets, sqrt(2) pi^(5/4) K / zeta, to 2 pi K / zeta; half for a pair of a shell with
    # itself, because every pair is used in both orders.
    records[..., COEFFICIENT] *= (2 * pi / (sqrt(2) * pi**1.25)) * same[:, None]
    potential, charge = _bounds(pairs, records)
    records[..., PEAK] = potential
    extents = np.zeros((len(pairs), EXTENTS))
    extents[:, CENTRE : CENTRE + 3], extents[:, RADIUS] = _spheres(pairs)
    extents[:, POTENTIAL], extents[:, CHARGE] = potential.sum(axis=1), charge.sum(axis=1)
    places = np.zeros((len(pairs), PLACES), np.int64)
    columns = (pairs.count, first[pairs.first], first[pairs.second], pairs.first, pairs.second)
    places[:] = np.stack(columns, axis=1)
    centre = np.ascontiguousarray(pairs.centre)
    return PointPairs(pairs.la, pairs.lb, pairs.contractions, pairs.ncb, records, centre, extents, places)


def _spheres(pairs: ShellPairs) -> tuple[np.ndarray, np.ndarray]:
    """Return a sphere around the P of all primitives of each pair: centres [pairs, 3] and radii [pairs]."""
    points, real = pairs.records[..., P : P + 3], np.arange(pairs.records.shape[1]) < pairs.count[:, None]
    low = np.where(real[..., None], points, np.inf).min(axis=1)
    high = np.where(real[..., None], points, -np.inf).max(axis=1)
    middle = (low + high) / 2
    radius = np.where(real, np.linalg.norm(points - middle[:, None], axis=2), 0.0).max(axis=1)
    return middle, radius


def _bounds(pairs: ShellPairs, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds of the potential and the charge of each primitive pair, both [pairs, rows].

    From r_A <= r + |PA| follows |a b| <= sum_ij binomial(la, i) binomial(lb, j) |PA|^i |PB|^j r^(la + lb - i - j),
    times the coefficient and exp(-zeta r^2).
    """
    zeta, centre = records[..., ZETA], pairs.centre[:, None, :]
    pa = np.linalg.norm(records[..., P : P + 3] - centre[..., :3], axis=-1)
    pb = np.linalg.norm(records[..., P : P + 3] - (centre[..., :3] - centre[..., 3:]), axis=-1)
    size = np.abs(records[..., COEFFICIENT]) * zeta / (2 * pi)
    if pairs.general:
        size = size * np.abs(records[..., CONTRACTION : CONTRACTION + pairs.contractions]).max(axis=-1)
    potential, charge = np.zeros_like(zeta), np.zeros_like(zeta)
    for i, j in product(range(pairs.la + 1), range(pairs.lb + 1)):
        k = pairs.la + pairs.lb - i - j
        term = size * comb(pairs.la, i) * comb(pairs.lb, j) * pa**i * pb**j
        potential += term * 2 * pi * gamma(k / 2 + 1) * zeta ** -(k / 2 + 1)
        charge += term * 2 * pi * gamma((k + 3) / 2) * zeta ** -((k + 3) / 2)
    return potential, charge
