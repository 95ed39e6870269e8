"""Blocks of fitting functions, with the shells of each as vectors that kernels read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pyscf import gto

from trnqc.eri.classes import COEFFICIENT
from trnqc.eri.compiled.programs import lanes
from trnqc.eri.shells.lane_packing import PackedPairs, packed
from trnqc.eri.shells.pairs import ShellPairs, fitting_shells, pair_orbitals


@dataclass(frozen=True, eq=False)
class FittingShells:
    """Fitting shells of one class in a block, with the position of their first functions in the block."""

    pairs: ShellPairs
    packed: PackedPairs
    place: np.ndarray

    @property
    def shells(self) -> np.ndarray:
        """The number of the shell on each lane of each vector, flattened."""
        return self.pairs.first[self.packed.members].ravel()


@dataclass(frozen=True, eq=False)
class FittingBlock:
    """A block of fitting functions: their numbers, in the order of the block, and the classes of their shells."""

    functions: np.ndarray
    shells: tuple[FittingShells, ...]


def segmented(mol: gto.Mole) -> gto.Mole:
    """Return the molecule with a shell for each contraction; its functions are the same, in the same order."""
    if (mol._bas[:, gto.NCTR_OF] == 1).all():
        return mol
    rows = []
    for row in mol._bas:
        for contraction in range(row[gto.NCTR_OF]):
            new = row.copy()
            new[gto.NCTR_OF] = 1
            new[gto.PTR_COEFF] += contraction * row[gto.NPRIM_OF]
            rows.append(new)
    copy = mol.copy(deep=False)
    copy._bas = np.array(rows, dtype=np.int32)
    return copy


def blocks_of(auxmol: gto.Mole, most: float) -> Iterator[FittingBlock]:
    """Yield blocks of up to `most` functions, or of one shell.

    Shells that fill a vector together stay together, if as many fit into a block.
    """
    block: list[tuple[ShellPairs, int]] = []
    size = 0.0
    for pairs in fitting_shells(segmented(auxmol)):
        functions = pairs.extents[0]
        step = lanes() if lanes() * functions <= most else 1
        for first in range(0, len(pairs), step):
            shells = [(pairs, n) for n in range(first, min(first + step, len(pairs)))]
            if block and size + len(shells) * functions > most:
                yield _block(block)
                block, size = [], 0.0
            block += shells
            size += len(shells) * functions
    if block:
        yield _block(block)


def _block(shells: Sequence[tuple[ShellPairs, int]]) -> FittingBlock:
    classes = dict.fromkeys(pairs for pairs, _ in shells)
    parts = [pairs.take(np.array([n for other, n in shells if other is pairs])) for pairs in classes]
    functions, kets, size = [], [], 0
    for part in parts:
        numbers = pair_orbitals(part)[0].reshape(len(part), -1)
        place = size + np.arange(len(part)) * numbers.shape[1]
        vectors = packed(part, lanes())
        # A lane that only fills up the last vector repeats a shell, with integrals of zero.
        vectors.records[-1, :, COEFFICIENT, (len(part) - 1) % lanes() + 1 :] = 0.0
        kets.append(FittingShells(part, vectors, place[vectors.members]))
        functions.append(numbers.ravel())
        size += numbers.size
    return FittingBlock(np.concatenate(functions), tuple(kets))
