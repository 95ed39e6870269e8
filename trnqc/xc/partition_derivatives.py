"""Derivatives by the nuclei of the weights of atoms in Becke's partition of space, at points that move with an atom.

points of an atom -> distances, mu_ij -> switching functions s(nu_ij) -> shares p_i = P_i / sum_j P_j
-> first derivatives of the atom's own share, sums of its second derivatives

The names are those of `programs/partition.py`. P_i is a product, so that its logarithm L_i is a sum over pairs. With
the average <x> = sum_i p_i x_i, the share of atom a has the derivatives

    d p   = p (d L_a - <d L>)
    d d p = p ((d L_a - <d L>)^2 + <d L>^2 - <(d L)^2> + d d L_a - <d d L>)

The points of an atom move with it. Its own distances then do not change, and its own derivatives are minus the sum of
those by all other atoms, which are computed with the points at rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from pyscf import lib

from trnqc.errors import UnsupportedError
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.xc.grids import ADJUSTMENTS, SCHEMES, shifts
from trnqc.xc.programs.partition import WIDTH

T = TypeVar("T")

# Elements of an array over pairs of atoms and points, so that a few of them stay in the cache of a core.
ELEMENTS = 1 << 16
# Values of a switching function below this are taken as zeros.
SMALLEST = 1e-100


def moved_with(terms: np.ndarray, owner: int, axis: int) -> np.ndarray:
    """Return derivatives by the atoms (on `axis`) of a function of points that move with the atom `owner`, from those
    with the points at rest.

    A translation of all atoms and points changes nothing, so that the points' derivatives are minus the sum of those by
    the atoms.
    """
    result = terms.copy()
    own = (slice(None),) * (axis % terms.ndim) + (owner,)
    result[own] -= terms.sum(axis=axis)
    return result


def why_not(grids: Any) -> str:
    """Return in words why the derivatives of the weights of a grid are not those of `Partition`, or ""."""
    if grids.becke_scheme not in SCHEMES:
        return f"the partition of space is {_name(grids.becke_scheme)}, not that of Becke or Stratmann"
    if grids.radii_adjust not in ADJUSTMENTS:
        return f"the radii of atoms are adjusted by {_name(grids.radii_adjust)}, not as by Becke or Treutler"
    return ""


def _name(function: Any) -> str:
    return getattr(function, "__name__", repr(function))


@dataclass(frozen=True, eq=False)
class Partition:
    """The partition of the space of a molecule among its atoms.

    `centres` [natm, 3] are in Bohr, `shift` [natm, natm] are the shifts of the boundaries by radii, and `scheme` is one
    of `programs.partition.SCHEMES`.
    """

    centres: np.ndarray
    shift: np.ndarray
    scheme: str

    @classmethod
    def of(cls, grids: Any) -> Partition:
        """Return the partition of a grid of PySCF. Raises UnsupportedError for schemes of the user and of LKO."""
        if reason := why_not(grids):
            raise UnsupportedError(f"derivatives of the weights of grid points are not available: {reason}")
        shift = shifts(grids.mol, grids.radii_adjust, grids.atomic_radii)
        return cls(grids.mol.atom_coords(), shift, SCHEMES[grids.becke_scheme])

    def shares(self, owner: int, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the share of an atom at its points [n, 3], [n], and its first derivatives [natm, 3, n] in 1/Bohr."""
        parts = list(self._over(points, lambda part: self._pairs(owner, points[part]).first()))
        share = np.concatenate([one for one, _ in parts] or [np.zeros(0)])
        first = np.concatenate([one for _, one in parts] or [np.zeros((len(self.centres), 3, 0))], axis=2)
        first[owner] = 0.0
        return share, moved_with(first, owner, 0)

    def second(self, owner: int, points: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Return sum_g factors_g d_A d_B p_g, [natm, natm, 3, 3] in 1/Bohr^2, for an atom's share p at its points."""
        natm = len(self.centres)
        total = np.zeros((natm, natm, 3, 3))
        for part in self._over(points, lambda part: self._pairs(owner, points[part]).second(factors[part])):
            total += part
        total[owner] = total[:, owner] = 0.0
        return moved_with(moved_with(total, owner, 0), owner, 1)

    def _over(self, points: np.ndarray, one: Callable[[slice], T]) -> Iterator[T]:
        """Yield one(part) for parts of the points in order, computed on threads."""
        step = max(16, ELEMENTS // len(self.centres) ** 2)
        parts = [slice(begin, begin + step) for begin in range(0, len(points), step)]
        with single_threaded_pool(lib.num_threads()) as pool:
            yield from pool.map(one, parts)

    def _pairs(self, owner: int, points: np.ndarray) -> _Pairs:
        return _Pairs(self, owner, points)


class _Pairs:
    """The switching functions of all pairs of atoms at some points of one atom, and their derivatives by the other
    atoms, with the points at rest. What is a derivative by the atom itself has no meaning.
    """

    def __init__(self, partition: Partition, owner: int, points: np.ndarray) -> None:
        centres, natm, self.owner = partition.centres, len(partition.centres), owner
        between = centres[:, None] - centres
        lengths = np.linalg.norm(between, axis=2) + np.eye(natm)
        # 1 / R_ij, and 0 on the diagonal.
        self.inverse = 1 / lengths - np.eye(natm)
        self.axis = between / lengths[..., None]
        vectors = centres[:, :, None] - points.T
        distance = np.sqrt(np.einsum("ixg,ixg->ig", vectors, vectors))
        self.inverse_distance = 1 / np.maximum(distance, np.finfo(float).tiny)
        # The distance of the atom from its own points is constant.
        self.inverse_distance[owner] = 0.0
        self.unit = vectors * self.inverse_distance[:, None]
        self.mu = (distance[:, None] - distance) * self.inverse[..., None]
        switch, self.slope, self.curvature = _logarithmic(partition, self.mu)
        products = switch.prod(axis=1)
        self.share = products / products.sum(axis=0)
        # d mu_ij by atom i, [i, 3, j, g]; by atom j it is minus that of mu_ji.
        self.change = self.unit[:, :, None] - self.mu[:, None] * self.axis.swapaxes(1, 2)[..., None]
        self.change *= self.inverse[:, None, :, None]

    def logarithms(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return d L_i by all atoms [A, 3, i, g], their average <d L> [A, 3, g], and d L_a - <d L> [A, 3, g]."""
        each = -self.slope.swapaxes(0, 1)[:, None] * self.change
        atoms = np.arange(len(each))
        each[atoms, :, atoms] = np.einsum("ijg,ixjg->ixg", self.slope, self.change)
        mean = np.einsum("ig,axig->axg", self.share, each)
        return each, mean, each[:, :, self.owner] - mean

    def first(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the share [g] and its derivatives [natm, 3, g]."""
        own = self.share[self.owner]
        return own, own * self.logarithms()[2]

    def second(self, factors: np.ndarray) -> np.ndarray:
        """Return the sum of second derivatives of the share with factors [g], [natm, natm, 3, 3]."""
        natm, weights = len(self.share), factors * self.share[self.owner]
        each, mean, own = (part.reshape(3 * natm, -1) for part in self.logarithms())
        total = (own * weights) @ own.T + (mean * weights) @ mean.T
        total -= (each * (weights * self.share).reshape(-1)) @ each.T
        blocks = total.reshape(natm, 3, natm, 3).swapaxes(1, 2)
        shares = -weights * self.share
        shares[self.owner] += weights
        slope, curvature = shares[:, None] * self.slope, shares[:, None] * self.curvature
        # mu_ji = -mu_ij, so that the terms of both are those of one of them.
        blocks += self._squares(curvature + curvature.swapaxes(0, 1))
        blocks += self._curves(slope - slope.swapaxes(0, 1))
        return blocks

    def _squares(self, factors: np.ndarray) -> np.ndarray:
        """Return sum_(ij, i<j) factors_ij (d mu_ij)^2, [natm, natm, 3, 3]."""
        natm, change = len(factors), self.change
        weighted = change * factors[:, None]
        blocks = -(weighted.transpose(0, 2, 1, 3) @ change.transpose(2, 0, 3, 1))
        by_atom = weighted.reshape(natm, 3, -1) @ change.reshape(natm, 3, -1).swapaxes(1, 2)
        atoms = np.arange(natm)
        blocks[atoms, atoms] = by_atom
        return blocks

    def _curves(self, factors: np.ndarray) -> np.ndarray:
        """Return sum_(ij, i<j) factors_ij d d mu_ij, [natm, natm, 3, 3]."""
        inverse, axis, atoms = self.inverse, self.axis, np.arange(len(factors))
        along = np.einsum("ijg,ixg->ijx", factors, self.unit)
        tensor = 3 * np.einsum("ijx,ijy->ijxy", axis, axis) - np.eye(3)
        tensor *= np.einsum("ijg,ijg->ij", factors, self.mu)[..., None, None]
        outer = np.einsum("ijx,ijy->ijxy", along, axis)
        squared = (inverse**2)[..., None, None]
        blocks = (outer + outer.transpose(1, 0, 3, 2) - tensor) * squared
        own = ((tensor - outer - outer.swapaxes(2, 3)) * squared).sum(axis=1)
        bent = np.einsum("ijg,ij,ig->ig", factors, inverse, self.inverse_distance, optimize=True)
        own += bent.sum(axis=1)[:, None, None] * np.eye(3) - (self.unit * bent[:, None]) @ self.unit.swapaxes(1, 2)
        blocks[atoms, atoms] = own
        return blocks


def _logarithmic(partition: Partition, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return s and the first and second derivatives of ln s by mu, [natm, natm, g]; 1, 0 and 0 for an atom itself."""
    shift, atoms = partition.shift[..., None], np.arange(len(mu))
    nu, by_mu = mu + shift * (1 - mu**2), 1 - 2 * shift * mu
    value, first, second = SWITCHES[partition.scheme](nu)
    value[atoms, atoms], first[atoms, atoms], second[atoms, atoms] = 1.0, 0.0, 0.0
    # A product with s = 0 is negligible with its derivatives.
    inverse = np.divide(1.0, value, out=np.zeros_like(value), where=value > SMALLEST)
    first, second = first * inverse, second * inverse
    slope = first * by_mu
    curvature = second * by_mu**2 - 2 * shift * first - slope**2
    return value, slope, curvature


def _becke(nu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Becke's function s = t / 2 with its derivatives, where t -> t^2 (3 - t) / 2 three times, from t = 1 - nu on.

    It has full relative accuracy where s is small, unlike the same polynomial of nu.
    """
    t = np.maximum(1 - nu, 0.0)
    first, second = -np.ones_like(t), np.zeros_like(t)
    for _ in range(3):
        slope = 1.5 * t * (2 - t)
        second = slope * second + 3 * (1 - t) * first**2
        t, first = 0.5 * t**2 * (3 - t), slope * first
    return t / 2, first / 2, second / 2


def _stratmann(nu: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The function of Stratmann et al. with its derivatives; s = (1 - x)^4 (16 + 29 x + 20 x^2 + 5 x^3) / 32."""
    x = np.clip(nu / WIDTH, -1.0, 1.0)
    rest, slope = 1 - x, 1 - x**2
    value = rest**4 * (16 + x * (29 + x * (20 + 5 * x))) / 32
    return value, -35 / 32 / WIDTH * slope**3, 105 / 16 / WIDTH**2 * x * slope**2


# The switching functions by the names of `programs.partition.SCHEMES`.
SWITCHES = {"becke": _becke, "stratmann": _stratmann}
