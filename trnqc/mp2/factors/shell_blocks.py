"""Integrals (mu nu|P) by blocks of auxiliary shells, transformed to (ia|P).

    auxmol by l -> blocks of shells -> (mu nu|P) packed -> (i nu|P) -> (ia|P)

Where there are so many integrals that it shows, they come from our kernels, else from PySCF; fitting shells of one l
then stand together, so that vectors are full.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from pyscf import gto, lib

from trnqc.eri.integrals import ThreeCentre
from trnqc.eri.library.programs import lanes, words
from trnqc.errors import CompilerError, UnsupportedClass

# Integrals (mu nu|P) from which on kernels are worth compiling: a second or two of PySCF's.
MANY = 1e8

Block = tuple[int, int]


class HalfFitted:
    """(ia|P) of the orbitals c_occ[nao, nocc], c_vir[nao, nvir] by blocks of auxiliary shells of `auxmol`.

    width: functions a block; blocks: ranges of shells; columns: their functions [p0, p1). made_by: in words, what makes
    (mu nu|P).
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, c_occ: np.ndarray, c_vir: np.ndarray, width: int) -> None:
        self.auxmol = by_angular_momentum(auxmol)
        self._integrals, self.made_by = _integrals(mol, self.auxmol)
        multiple = lanes() if isinstance(self._integrals, ThreeCentre) else 1
        loc = self.auxmol.ao_loc_nr()
        self.blocks = list(shell_blocks(loc, width, multiple))
        self.columns = [(int(loc[k0]), int(loc[k1])) for k0, k1 in self.blocks]
        self.shape = (c_occ.shape[1], c_vir.shape[1], int(loc[-1]))
        self._c_occ_t, self._c_vir_t = np.ascontiguousarray(c_occ.T), np.ascontiguousarray(c_vir.T)

    def fill(self, number: int, out: np.ndarray) -> tuple[float, float]:
        """out[nocc, nvir, p1 - p0] = (ia|P) of a block; seconds of integrals and of transformation."""
        p0, p1 = self.columns[number]
        nao = self._c_occ_t.shape[1]
        start = time.perf_counter()
        packed = self._integrals(self.blocks[number])
        middle = time.perf_counter()
        # One square after the other in the same place: all of them at once are far more than a cache holds.
        square, half = np.empty((nao, nao)), np.empty((len(self._c_occ_t), p1 - p0, nao))
        for n, row in enumerate(packed):
            np.matmul(self._c_occ_t, lib.unpack_tril(row, out=square), out=half[:, n])
        for i, rows in enumerate(half):
            np.matmul(self._c_vir_t, rows.T, out=out[i])
        return middle - start, time.perf_counter() - middle


def by_angular_momentum(auxmol: gto.Mole) -> gto.Mole:
    """The same shells, those of one l together; B in terms of them gives the same integrals."""
    copy = auxmol.copy(deep=False)
    copy._bas = auxmol._bas[np.argsort(auxmol._bas[:, gto.ANG_OF], kind="stable")]
    return copy


def shell_blocks(ao_loc: Sequence[int], width: int, multiple: int = 1) -> Iterator[Block]:
    """Ranges of shells [k0, k1) of at most ``width`` functions each (one shell where a single one is wider).

    Where a block has as many as ``multiple`` shells and others follow, it is cut to a multiple of that.
    """
    k0, last = 0, len(ao_loc) - 1
    while k0 < last:
        k1 = max(k0 + 1, bisect_right(ao_loc, ao_loc[k0] + width, lo=k0) - 1)
        if k1 < last and k1 - k0 >= multiple:
            k1 -= (k1 - k0) % multiple
        yield k0, k1
        k0 = k1


def _integrals(mol: gto.Mole, auxmol: gto.Mole) -> tuple[Callable[[Block], np.ndarray], str]:
    """(mu nu|P) packed [P, mu >= nu] of a range of shells, as a function, and in words whose it is."""
    nao = mol.nao_nr()
    if nao * (nao + 1) / 2 * auxmol.nao_nr() < MANY:
        return _PySCF(mol, auxmol), "PySCF"
    try:
        return ThreeCentre(mol, auxmol), words()
    except (UnsupportedClass, CompilerError) as error:
        return _PySCF(mol, auxmol), f"PySCF: {error}"


class _PySCF:
    """PySCF's integrals of a range of fitting shells."""

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole) -> None:
        self.nbas = mol.nbas
        self.int3c = gto.moleintor.ascint3(mol._add_suffix("int3c2e"))
        self.env = gto.mole.conc_env(mol._atm, mol._bas, mol._env, auxmol._atm, auxmol._bas, auxmol._env)
        self.ao_loc = gto.moleintor.make_loc(self.env[1], self.int3c)
        self.optimiser = gto.moleintor.make_cintopt(*self.env, self.int3c)

    def __call__(self, shells: Block) -> np.ndarray:
        k0, k1 = (self.nbas + k for k in shells)
        wanted = (0, self.nbas, 0, self.nbas, k0, k1)
        packed = gto.moleintor.getints3c(self.int3c, *self.env, wanted, 1, "s2ij", self.ao_loc, self.optimiser)
        return np.ascontiguousarray(packed.T)
