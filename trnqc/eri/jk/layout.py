"""The order of density and exchange matrices by pairs of shells, in which the digestion of integrals reads and writes.

Each contraction counts as a shell here. Shells are sorted by l. For every two l there is a block [shells, shells, n, n]
of the matrix, so that the part of two shells is contiguous, and these blocks follow one another. J needs only the
elements of the pairs of a class, which `trnqc.eri.shells.pairs.pair_orbitals` finds in the matrix.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pyscf import gto

from trnqc.eri.shells.pairs import functions


@dataclass(frozen=True, eq=False)
class MatrixLayout:
    """The places of blocks in a matrix of a molecule: the functions [nao] sorted by l, and the position of each shell's
    first contraction among those of its l.

    `shells` and `sizes` are the contracted shells, and the functions of one, by l.
    """

    order: np.ndarray
    place: np.ndarray
    shells: tuple[int, ...]
    sizes: tuple[int, ...]

    @cached_property
    def at(self) -> dict[tuple[int, int], int]:
        """Where the block of two l begins."""
        at, begin = {}, 0
        for x, y, elements in self._blocks():
            at[x, y] = begin
            begin += elements
        return at

    def blocked(self, matrices: np.ndarray) -> np.ndarray:
        """Return matrices [n, nao, nao] as [n, nao nao] in this layout."""
        return matrices.reshape(len(matrices), -1).take(self._elements, axis=1)

    def matrices(self, blocked: np.ndarray) -> np.ndarray:
        """Return the matrices [n, nao, nao]; the inverse of `blocked`."""
        nao = self.order.size
        return blocked.take(self._places, axis=1).reshape(-1, nao, nao)

    @cached_property
    def _elements(self) -> np.ndarray:
        """The element of a matrix at each place of the layout."""
        nao, parts = self.order.size, [np.zeros(0, np.int64)]
        for x, y, _ in self._blocks():
            part = self._orbitals(x)[:, None] * nao + self._orbitals(y)
            part = part.reshape(self.shells[x], self.sizes[x], self.shells[y], self.sizes[y])
            parts.append(part.transpose(0, 2, 1, 3).ravel())
        return np.concatenate(parts)

    @cached_property
    def _places(self) -> np.ndarray:
        """The place of each element of a matrix."""
        places = np.empty_like(self._elements)
        places[self._elements] = np.arange(len(places))
        return places

    def _blocks(self) -> list[tuple[int, int, int]]:
        lengths = [n * m for n, m in zip(self.shells, self.sizes)]
        return [(x, y, n * m) for x, n in enumerate(lengths) for y, m in enumerate(lengths) if n * m]

    def _orbitals(self, l: int) -> np.ndarray:
        lengths = [n * m for n, m in zip(self.shells, self.sizes)]
        begin = sum(lengths[:l])
        return self.order[begin : begin + lengths[l]]


def layout_of(mol: gto.Mole) -> MatrixLayout:
    """Return the layout of a molecule's matrices."""
    bas, loc = mol._bas, mol.ao_loc_nr()
    l, contractions = bas[:, gto.ANG_OF], bas[:, gto.NCTR_OF]
    place, order, shells = np.zeros(len(bas), np.int64), [], []
    for angular in range(int(l.max(initial=0)) + 1):
        ids = np.flatnonzero(l == angular)
        place[ids] = np.cumsum(contractions[ids]) - contractions[ids]
        order += [np.arange(loc[i], loc[i + 1]) for i in ids]
        shells.append(int(contractions[ids].sum()))
    sizes = tuple(functions(n, mol.cart) for n in range(len(shells)))
    return MatrixLayout(np.concatenate(order) if order else np.zeros(0, np.int64), place, tuple(shells), sizes)


def block_maxima(mol: gto.Mole, matrices: np.ndarray) -> np.ndarray:
    """Return the largest |element| of each block of two shells over all matrices [n, nao, nao], as [shells, shells]."""
    loc = mol.ao_loc_nr()[:-1]
    largest = np.abs(matrices).max(axis=0)
    return np.maximum.reduceat(np.maximum.reduceat(largest, loc, axis=0), loc, axis=1)
