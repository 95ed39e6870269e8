"""Integrals (mu nu|P) by blocks of auxiliary shells, transformed to (ia|P).

    auxmol ordered by l -> blocks of shells -> (mu nu|P) packed -> (i nu|P) -> (ia|P)

Our kernels compute the integrals if there are enough of them to be worth compiling kernels, else PySCF does. Auxiliary
shells are ordered by l, so that the vectors of our kernels are full.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from pyscf import gto, lib

from trnqc.eri.compiled.programs import lanes, words
from trnqc.eri.integrals import PySCFThreeCentre, ThreeCentre
from trnqc.errors import CompilerError, UnsupportedClass
from trnqc.mp2.reference.orbitals import ActiveOrbitals

# Number of integrals (mu nu|P) from which on our kernels are used. PySCF needs one to two seconds for as many, which is
# about the time of loading or compiling our kernels.
MANY = 1e8

Block = tuple[int, int]
"""A range of shells [k0, k1)."""


class HalfFitted:
    """The integrals (ia|P), transformed but not fitted, by blocks of auxiliary shells.

    Parameters
    ----------
    mol, auxmol
        The molecule, and PySCF's molecule with the auxiliary functions.
    spins
        The orbitals of one or both spins.
    width
        Largest number of auxiliary functions in a block.

    Attributes
    ----------
    auxmol
        The auxiliary functions in the order of P.
    blocks, columns
        The range of shells of each block, and its range [p0, p1) of functions.
    shapes, shape
        (nocc, nvir, naux) of each spin, and of the first one.
    ran_on
        Description of what computes (mu nu|P).
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, spins: Sequence[ActiveOrbitals], width: int) -> None:
        self.auxmol = by_angular_momentum(auxmol)
        self._integrals, self.ran_on = three_centre_integrals(mol, self.auxmol)
        multiple = lanes() if isinstance(self._integrals, ThreeCentre) else 1
        loc = self.auxmol.ao_loc_nr()
        self.blocks = list(shell_blocks(loc, width, multiple))
        self.columns = [(int(loc[k0]), int(loc[k1])) for k0, k1 in self.blocks]
        self.shapes = [(spin.nocc, spin.nvir, int(loc[-1])) for spin in spins]
        self.shape = self.shapes[0]
        self._orbitals = [(np.ascontiguousarray(s.c_occ.T), np.ascontiguousarray(s.c_vir.T)) for s in spins]

    def fill(self, number: int, *outs: np.ndarray) -> tuple[float, float]:
        """Write (ia|P) of a block to an array [nocc, nvir, p1 - p0] of each spin. Returns seconds of integrals and of
        transformation.
        """
        start = time.perf_counter()
        packed = self._integrals(self.blocks[number])
        middle = time.perf_counter()
        self._transform(packed, outs)
        return middle - start, time.perf_counter() - middle

    def _transform(self, packed: np.ndarray, outs: Sequence[np.ndarray]) -> None:
        """Transform packed (mu nu|P) of a block, [P, mu >= nu], to (ia|P) of each spin."""
        p, nao = len(packed), self._orbitals[0][0].shape[1]
        # Squares are unpacked one after another into the same memory, because all of them exceed the cache.
        square, quarters = np.empty((nao, nao)), [np.empty((len(occ), p, nao)) for occ, _ in self._orbitals]
        for n, row in enumerate(packed):
            lib.unpack_tril(row, out=square)
            for (occ, _), quarter in zip(self._orbitals, quarters):
                np.matmul(occ, square, out=quarter[:, n])
        for (_, vir), quarter, out in zip(self._orbitals, quarters, outs):
            for i, rows in enumerate(quarter):
                np.matmul(vir, rows.T, out=out[i])


def divided(wall: float, spent: np.ndarray) -> dict[str, float]:
    """Divide the wall time of threads between integrals and transformation, in proportion to what they have spent."""
    return dict(zip(("integrals", "transformation"), (wall * spent / (spent.sum() or 1.0)).tolist()))


def by_angular_momentum(auxmol: gto.Mole) -> gto.Mole:
    """The same shells ordered by l. The integrals (ia|jb) do not depend on the order of P."""
    ordered = auxmol.copy(deep=False)
    ordered._bas = auxmol._bas[np.argsort(auxmol._bas[:, gto.ANG_OF], kind="stable")]
    return ordered


def shell_blocks(ao_loc: Sequence[int], width: int, multiple: int = 1) -> Iterator[Block]:
    """Divide shells into ranges [k0, k1) of at most `width` functions, or of one shell that has more.

    `ao_loc` is the index of the first function of each shell, followed by the number of functions. The number of shells
    in a range is a multiple of `multiple`, except in the last range and in smaller ones.
    """
    k0, last = 0, len(ao_loc) - 1
    while k0 < last:
        k1 = max(k0 + 1, bisect_right(ao_loc, ao_loc[k0] + width, lo=k0) - 1)
        if k1 < last and k1 - k0 >= multiple:
            k1 -= (k1 - k0) % multiple
        yield k0, k1
        k0 = k1


def three_centre_integrals(mol: gto.Mole, auxmol: gto.Mole) -> tuple[Callable[[Block], np.ndarray], str]:
    """A function of a range of shells that computes (mu nu|P), packed [P, mu >= nu], and a description of it."""
    nao = mol.nao_nr()
    if nao * (nao + 1) / 2 * auxmol.nao_nr() < MANY:
        return PySCFThreeCentre(mol, auxmol), "PySCF"
    try:
        return ThreeCentre(mol, auxmol), words()
    except (UnsupportedClass, CompilerError) as error:
        return PySCFThreeCentre(mol, auxmol), f"PySCF: {error}"
