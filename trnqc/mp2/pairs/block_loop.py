"""All pairs of one process, block by block. Rows are read ahead, and finished blocks are recorded.

pair_blocks ─ without those recorded ─► sets of rows (two in use, one being read) ─► block_energies ─► os, ss
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import tee

import numpy as np

from trnqc.fitted.rows import read_ahead
from trnqc.mp2.execution import Execution
from trnqc.mp2.pairs.block_energies import block_energies
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.mp2.partition.blocks import SETS, PairBlock
from trnqc.mp2.store import JobStore
from trnqc.types import PairEnergies


def pairs_by_blocks(
    sector: PairSector, execution: Execution, width: int, store: JobStore | None = None
) -> PairEnergies:
    """Compute the energies of all pairs with at most SETS times `width` rows of B in memory.

    Parameters
    ----------
    sector
        The pairs, with their factors in memory or on disk.
    execution
        Backend, precision and threads.
    width
        Number of orbitals in a set.
    store
        Records of finished blocks, which are not computed again. The digits do not depend on it.

    Raises
    ------
    StorageError
        If rows cannot be read or energies cannot be recorded.
    """
    os, ss = np.zeros((2, *sector.shape))
    blocks = {block.bounds: block for block in sector.blocks(width)}
    total, ran_on = sector.pairs, ""
    for bounds, os_of_block, ss_of_block, how in [] if store is None else store.recorded(sector.record):
        block, ran_on = blocks.pop(tuple(bounds)), how
        os[block.rows, block.columns], ss[block.rows, block.columns] = os_of_block, ss_of_block
    done = total - sum(block.pairs for block in blocks.values())
    for block, rows, columns in in_turn(sector, blocks.values()):
        energies = block_energies(block, rows, columns, sector, execution)
        os[block.rows, block.columns], ss[block.rows, block.columns] = energies.os, energies.ss
        ran_on = f"{energies.ran_on}, blocks of {width} orbitals"
        if store is not None:
            store.add(sector.record, [list(block.bounds), energies.os.tolist(), energies.ss.tolist(), ran_on])
        done += block.pairs
        execution.report("pairs", done, total)
    return PairEnergies(os, ss, ran_on)


def in_turn(sector: PairSector, blocks: Iterable[PairBlock]) -> Iterator[tuple[PairBlock, np.ndarray, np.ndarray]]:
    """Yield each block with its rows and columns, while the rows and columns of the next block are read."""

    def read(orbitals: tuple[int, int, int]) -> np.ndarray:
        side, first, last = orbitals
        return sector.sides[side].rows(slice(first, last))

    blocks, again = tee(blocks)
    sets = (((0, block.i0, block.i1), (int(block.opposite), block.j0, block.j1)) for block in again)
    for (rows, columns), block in zip(read_ahead(sets, read, SETS), blocks):
        yield block, rows, columns
