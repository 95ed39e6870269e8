"""The energies of one block of pairs, and the memory that blocks need.

PairSector, Execution -> widest: number of orbitals in a set        PairBlock, rows of B -> block_energies
"""

from __future__ import annotations

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.mp2.execution import Execution
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.mp2.partition.blocks import SETS, PairBlock, default_width
from trnqc.types import PairEnergies


def block_bytes(width: int, sector: PairSector, execution: Execution) -> int:
    """Bytes that the backend allocates for a block with `width` orbitals on each side."""
    if sector.right is None:
        return execution.pair_step().block_bytes(width, width, sector.nvir[0], sector.naux)
    return execution.pair_step().opposite_spin_bytes(width, width, sector.nvir, sector.naux)


def held_bytes(width: int, sector: PairSector, execution: Execution, in_memory: int) -> int:
    """Bytes of a pair step with sets of `width` orbitals: B or sets of its rows, and the arrays of the backend.

    `in_memory` are the bytes of all factors of the job that are in memory; 0 if they are on disk.
    """
    rows = in_memory or 8 * SETS * width * max(sector.nvir) * sector.naux
    return rows + block_bytes(width, sector, execution)


def widest(sector: PairSector, execution: Execution, in_memory: int = 0) -> int:
    """The largest width, up to `default_width`, that respects the memory limit; raises MemoryLimit if one orbital
    exceeds it. Arguments are as in `held_bytes`.
    """
    width = default_width(max(sector.shape))
    while execution.memory < (needed := held_bytes(width, sector, execution, in_memory)):
        if width == 1:
            where = "in memory" if in_memory else "on disk"
            raise MemoryLimit(
                f"the pair step with B{list(sector.left.shape)} {where} needs at least {needed / 1e6:.4g} MB, "
                f"the limit is {execution.memory / 1e6:.4g} MB: raise the limit or use fewer threads"
            )
        width -= 1
    return width


def block_energies(
    block: PairBlock, rows: np.ndarray, columns: np.ndarray, sector: PairSector, execution: Execution
) -> PairEnergies:
    """Compute the energies of a block of pairs, [i1 - i0, j1 - j0]; lower-triangular for a diagonal block.

    `rows` are rows i0 to i1 of the left B and `columns` rows j0 to j1 of the right B, fp64; a diagonal block reads
    `rows` only. Of the sector, only the orbital energies are used.
    """
    left, right = sector.left, sector.sides[-1]
    eps_left, eps_right = left.eps_occ[block.rows], right.eps_occ[block.columns]
    step = execution.pair_step()
    with np.errstate(all="ignore"):  # `run_pairs` reports energies that are not finite.
        if block.opposite:
            return step.opposite_spin(rows, columns, (eps_left, eps_right), (left.eps_vir, right.eps_vir))
        if block.diagonal:
            return step.triangle(rows, eps_left, left.eps_vir)
        return step.block(rows, columns, eps_left, eps_right, left.eps_vir)
