"""The bra or ket side of an array of integrals: classes of pairs, and the position of each product of functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyscf import gto

from trnqc.eri.shells.pairs import ShellPairs, fitting_shells, pair_orbitals, pairs_between, pairs_of


@dataclass(frozen=True, eq=False)
class ArraySide:
    """One side of an array of integrals: the axes in `shape`, and the classes of its pairs.

    The pairs of a class are in the order of their first positions, so that neighbours in a class are written to
    neighbouring elements. `places` are the positions along the flattened axes for each class, i64
    [pairs, variants, contractions, functions]. A side over all ordered pairs has two variants, (ij| and (ji|.
    """

    shape: tuple[int, ...]
    classes: tuple[ShellPairs, ...]
    places: tuple[np.ndarray, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def variants(self) -> int:
        return self.places[0].shape[1] if self.places else 1

    def within(self, first: int, last: int) -> ArraySide:
        """Return the pairs whose first position along one axis is at least `first` and below `last`, counted from
        `first`.

        The side has one axis, and all positions of these pairs are in the range, as in a range of shells of `triangle`.
        """
        ranges = [slice(*np.searchsorted(place[:, 0, 0, 0], (first, last))) for place in self.places]
        found = [(c.take(r), p[r] - first) for c, p, r in zip(self.classes, self.places, ranges) if r.stop > r.start]
        return ArraySide((last - first,), tuple(c for c, _ in found), tuple(p for _, p in found))


def part(mol: gto.Mole, shells: tuple[int, int]) -> gto.Mole:
    """Return the molecule with only the shells of a range."""
    if shells == (0, mol.nbas):
        return mol
    copy = mol.copy(deep=False)
    copy._bas = mol._bas[shells[0] : shells[1]]
    return copy


def fitting_side(auxmol: gto.Mole) -> ArraySide:
    """Return the side with one index P."""
    classes = fitting_shells(auxmol)
    return ArraySide((auxmol.nao_nr(),), classes, tuple(pair_orbitals(p)[0][:, None] for p in classes))


def triangle(mol: gto.Mole, shells: tuple[int, int] | None = None) -> ArraySide:
    """Return the side with one index i (i + 1) / 2 + j, i >= j.

    shells: the range of i; the index is then counted from the first i.
    """
    i0, i1 = shells or (0, mol.nbas)
    first, last = (int(mol.ao_loc_nr()[n]) for n in (i0, i1))
    start = first * (first + 1) // 2
    classes, places = [], []
    for pairs in pairs_of(part(mol, (0, i1))):
        rows = np.flatnonzero(np.maximum(pairs.first, pairs.second) >= i0)
        if not len(rows):
            continue
        pairs = pairs if len(rows) == len(pairs) else pairs.take(rows)
        i, j = pair_orbitals(pairs)
        n, m = np.maximum(i, j), np.minimum(i, j)
        place = n * (n + 1) // 2 + m - start
        classes.append(pairs)
        places.append(place[:, None])
    return _in_order((last * (last + 1) // 2 - start,), classes, places)


def square(mol: gto.Mole, shells: tuple[int, int]) -> ArraySide:
    """Return the side with two indices i, j over the same shells."""
    inside = part(mol, shells)
    n = inside.nao_nr()
    classes = pairs_of(inside)
    index = [pair_orbitals(pairs) for pairs in classes]
    return _in_order((n, n), classes, [np.stack([i * n + j, j * n + i], axis=1) for i, j in index])


def rectangle(mol: gto.Mole, i: tuple[int, int], j: tuple[int, int], fortran: bool = False) -> ArraySide:
    """Return the side with two indices over two ranges of shells; fortran: the first index runs fastest."""
    one, two = part(mol, i), part(mol, j)
    n, m = one.nao_nr(), two.nao_nr()
    classes = pairs_between(one, two)
    places = []
    for pairs in classes:
        first, second = pair_orbitals(pairs)[:: -1 if pairs.swapped else 1]
        places.append((first + n * second if fortran else first * m + second)[:, None])
    return _in_order((n, m), classes, places)


def _in_order(shape: tuple[int, ...], classes: Sequence[ShellPairs], places: Sequence[np.ndarray]) -> ArraySide:
    orders = [np.argsort(place[:, 0, 0, 0], kind="stable") for place in places]
    return ArraySide(
        shape,
        tuple(pairs.take(order) for pairs, order in zip(classes, orders)),
        tuple(place[order] for place, order in zip(places, orders)),
    )
