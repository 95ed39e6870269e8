"""Blocks that are kept until the grid or the basis changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyscf import gto

from trnqc.xc.blocks import CUTOFF, Blocks

# Divisions that are kept: those of two grids, for two orders of derivatives.
KEPT = 4


@dataclass(frozen=True, eq=False)
class _Entry:
    """Blocks, and the settings and copies of all arrays from which they were made."""

    settings: tuple[int, float]
    arrays: tuple[np.ndarray | None, ...]
    blocks: Blocks


class BlocksCache:
    """The blocks of the last grids that were asked for."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def get(
        self, mol: gto.Mole, points: np.ndarray, weights: np.ndarray | None, order: int, cutoff: float = CUTOFF
    ) -> Blocks:
        """Return the blocks of a grid; see `Blocks.of`.

        Arrays are compared by their values, so that changes in place are seen.
        """
        # The slots before PTR_ENV_START hold settings, and no shells.
        arrays = (points, weights, mol._atm, mol._bas, mol._env[gto.PTR_ENV_START :], np.array([mol.cart]))
        for entry in self._entries:
            if entry.settings == (order, cutoff) and all(map(_same, entry.arrays, arrays)):
                return entry.blocks
        blocks = Blocks.of(mol, points, weights, order, cutoff=cutoff)
        copies = tuple(None if a is None else np.array(a) for a in arrays)
        self._entries = [_Entry((order, cutoff), copies, blocks), *self._entries[: KEPT - 1]]
        return blocks


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)
