"""Blocks of pairs between two sets of occupied orbitals, for a pair step that does not hold all of B in memory.

    nocc, width -> pair_blocks -> PairBlock -> block_energies

Every pair belongs to one block, and the blocks depend on nocc and the width alone. The digits of pair energies
therefore do not depend on the order of the blocks and on the process that computes them. Consecutive blocks share a set
of rows, so that reading ahead needs memory for only one more set.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.types import PairEnergies

# Number of sets of rows in memory: the two of the current block, and one that is being read.
SETS = 3
# Smallest number of orbitals in a set if memory is not limited. Smaller sets save little memory and read the rows of B
# more often.
LEAST_WIDTH = 8


@dataclass(frozen=True)
class PairBlock:
    """Pairs of orbitals i in [i0, i1) and j in [j0, j1). If the ranges are equal, only pairs i >= j belong to it."""

    i0: int
    i1: int
    j0: int
    j1: int

    @property
    def rows(self) -> slice:
        """Orbitals i."""
        return slice(self.i0, self.i1)

    @property
    def columns(self) -> slice:
        """Orbitals j."""
        return slice(self.j0, self.j1)

    @property
    def bounds(self) -> tuple[int, int, int, int]:
        """(i0, i1, j0, j1), which identify the block in a checkpoint."""
        return self.i0, self.i1, self.j0, self.j1

    @property
    def diagonal(self) -> bool:
        """Whether the ranges are equal."""
        return self.i0 == self.j0

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        m, n = self.i1 - self.i0, self.j1 - self.j0
        return m * (m + 1) // 2 if self.diagonal else m * n

    def cost(self, nvir: int, naux: int) -> float:
        """Floating-point operations of the products T_ij = B_i B_j^T and of the energies. Pairs i = j count half."""
        same = self.i1 - self.i0 if self.diagonal else 0
        return (self.pairs - same / 2) * nvir**2 * (2.0 * naux + 10)


def pair_blocks(nocc: int, width: int) -> tuple[PairBlock, ...]:
    """The blocks of all pairs i >= j over sets of `width` orbitals, in an order in which neighbours share a set."""
    sets = [(i, min(i + width, nocc)) for i in range(0, nocc, width)]
    blocks = []
    for a, rows in enumerate(sets):
        across = sets[: a + 1] if a % 2 == 0 else sets[a::-1]
        blocks += [PairBlock(*rows, *columns) for columns in across]
    return tuple(blocks)


def default_width(nocc: int) -> int:
    """Number of orbitals in a set if memory is not limited: an eighth of all, but at least LEAST_WIDTH."""
    return min(nocc, max(LEAST_WIDTH, -(-nocc // 8)))


def held_bytes(width: int, factors: Factors, execution: Execution) -> int:
    """Bytes of a pair step with blocks of this width: B or sets of its rows, and the arrays of the backend."""
    _, nvir, naux = factors.shape
    rows = factors.bytes_in_memory or 8 * SETS * width * nvir * naux
    return rows + execution.pair_bytes(width, width, nvir, naux)


def widest(factors: Factors, execution: Execution) -> int:
    """The largest width, up to `default_width`, that respects the memory limit.

    Raises
    ------
    MemoryLimit
        If sets of one orbital exceed the limit.
    """
    width = default_width(len(factors.eps_occ))
    while execution.memory < (needed := held_bytes(width, factors, execution)):
        if width == 1:
            where = "in memory" if factors.bytes_in_memory else "on disk"
            raise MemoryLimit(
                f"the pair step with B{list(factors.shape)} {where} needs at least {needed / 1e6:.4g} MB, "
                f"the limit is {execution.memory / 1e6:.4g} MB: raise the limit or use fewer threads"
            )
        width -= 1
    return width


def block_energies(
    block: PairBlock, rows: np.ndarray, columns: np.ndarray, factors: Factors, execution: Execution
) -> PairEnergies:
    """Compute the energies of a block of pairs.

    Parameters
    ----------
    block
        The pairs.
    rows, columns
        B[i0:i1] and B[j0:j1], fp64. A diagonal block reads `rows` only.
    factors
        The factors, of which only the orbital energies are used.
    execution
        Backend, precision and threads.

    Returns
    -------
    PairEnergies
        [i1 - i0, j1 - j0]; lower-triangular for a diagonal block.
    """
    eps_occ, eps_vir = factors.eps_occ, factors.eps_vir
    with np.errstate(all="ignore"):  # `run_pairs` reports energies that are not finite.
        if block.diagonal:
            return execution.all_pairs(rows, eps_occ[block.rows], eps_vir)
        return execution.pairs_between(rows, columns, eps_occ[block.rows], eps_occ[block.columns], eps_vir)
