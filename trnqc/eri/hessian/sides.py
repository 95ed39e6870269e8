"""Pairs of shells sorted by the atoms of their first shells, as a pass over the integrals of one atom needs them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trnqc.eri.compiled import programs as library
from trnqc.eri.shells.lane_packing import PackedPairs, packed
from trnqc.eri.shells.pairs import ShellPairs, pair_orbitals


@dataclass(frozen=True, eq=False)
class OrientedPairs:
    """Pairs (one, other) of shells of two bases, of one class, with the atom of the shell `one` of each pair.

    The properties put the shell `one` first, in whichever order the pairs have the shells.
    """

    pairs: ShellPairs
    atoms: np.ndarray

    @property
    def order(self) -> int:
        """1, or -1 where the first shell of the pairs is `other`."""
        return -1 if self.pairs.swapped else 1

    @property
    def shells(self) -> tuple[np.ndarray, np.ndarray]:
        """The shells one and other."""
        one, other = (self.pairs.first, self.pairs.second)[:: self.order]
        return one, other

    @property
    def orbitals(self) -> tuple[np.ndarray, np.ndarray]:
        """The functions of one and of other in each product, [npair, contractions, na nb]."""
        one, other = pair_orbitals(self.pairs)[:: self.order]
        return one, other

    def take(self, which: np.ndarray) -> OrientedPairs:
        return OrientedPairs(self.pairs.take(which), self.atoms[which])


def side_of(pairs: ShellPairs, atom_of: np.ndarray | None = None) -> OrientedPairs:
    """Return pairs with the atoms of their shells `one`, atom_of [shells]; by default all are of atom -1."""
    plain = OrientedPairs(pairs, np.full(len(pairs), -1))
    return plain if atom_of is None else replace(plain, atoms=atom_of[plain.shells[0]])


@dataclass(frozen=True, eq=False)
class Ket:
    """Ket pairs on lanes: a vector has pairs of one atom only, by falling bound."""

    side: OrientedPairs
    packed: PackedPairs
    factor: np.ndarray

    @property
    def atoms(self) -> np.ndarray:
        """The atom of each vector."""
        return self.side.atoms[self.packed.members[:, 0]]

    @property
    def filled(self) -> np.ndarray:
        """Whether a lane has a pair of its own, [vectors, lanes]."""
        flat = self.packed.members.ravel()
        return (np.diff(flat, prepend=-1) != 0).reshape(self.packed.members.shape)

    @cached_property
    def share(self) -> np.ndarray:
        """The factor of each lane's pair, 0 on lanes that only fill up a vector."""
        return np.where(self.filled, self.factor[self.packed.members], 0.0)

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the value of each pair, by vector and lane."""
        return np.ascontiguousarray(values[self.packed.members])

    def on_lanes(self, values: np.ndarray) -> np.ndarray:
        """Return values [npair, ...] as [vectors, ..., lanes]."""
        return np.ascontiguousarray(np.moveaxis(values[self.packed.members], 1, -1))

    def by_pair(self, values: np.ndarray) -> np.ndarray:
        """Return values [vectors, ..., lanes] as [npair, ...]."""
        result = np.empty((len(self.side.pairs), *values.shape[1:-1]))
        result[self.packed.members[self.filled]] = np.moveaxis(values, -1, 1)[self.filled]
        return result

    def reach(self, largest: np.ndarray, other: bool) -> np.ndarray:
        """Return the largest of [shells, ket shells] for each vector, by the pair's shell `one` or `other`."""
        return np.ascontiguousarray(largest[:, self.of(self.side.shells[other])].max(axis=-1))


def ket_of(side: OrientedPairs, factor: np.ndarray) -> Ket:
    """Pack pairs of one atom and of like bounds together. factor [npair]: what each pair's sums are multiplied with."""
    order = np.argsort(-side.pairs.bound, kind="stable")
    side = side.take(order)
    return Ket(side, packed(side.pairs, library.lanes(), side.atoms), factor[order])


def bra_of(side: OrientedPairs) -> OrientedPairs:
    """Sort bra pairs by their atoms, and by falling bound within an atom."""
    return side.take(np.lexsort((-side.pairs.bound, side.atoms)))
