"""Blocks of pairs between two sets of occupied orbitals, for a pair step that does not hold all of B in memory.

    nocc, width -> pair_blocks -> PairBlock

Every pair belongs to one block, and the blocks depend on nocc and the width alone. The digits of pair energies
therefore do not depend on the order of the blocks and on the process that computes them. Consecutive blocks share a set
of rows, so that reading ahead needs memory for only one more set.
"""

from __future__ import annotations

from dataclasses import dataclass

# Number of sets of rows in memory: the two of the current block, and one that is being read.
SETS = 3
# Smallest number of orbitals in a set if memory is not limited. Smaller sets save little memory and read the rows of B
# more often.
LEAST_WIDTH = 8


@dataclass(frozen=True)
class PairBlock:
    """Pairs of orbitals i in [i0, i1) and j in [j0, j1), which have the opposite spin if `opposite`.

    If the ranges are equal and the spins too, only pairs i >= j belong to the block.
    """

    i0: int
    i1: int
    j0: int
    j1: int
    opposite: bool = False

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
        """Whether only the pairs i >= j of one range belong to the block."""
        return self.i0 == self.j0 and not self.opposite

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        m, n = self.i1 - self.i0, self.j1 - self.j0
        return m * (m + 1) // 2 if self.diagonal else m * n

    def cost(self, nvir: int | tuple[int, int], naux: int) -> float:
        """Floating-point operations of the products T_ij = B_i B_j^T and of the energies. Pairs i = j count half."""
        same = self.i1 - self.i0 if self.diagonal else 0
        rows, columns = nvir if isinstance(nvir, tuple) else (nvir, nvir)
        return (self.pairs - same / 2) * rows * columns * (2.0 * naux + 10)


def pair_blocks(nocc: int, width: int) -> tuple[PairBlock, ...]:
    """The blocks of all pairs i >= j over sets of `width` orbitals, in an order in which neighbours share a set."""
    sets = _ranges(nocc, width)
    blocks = []
    for a, rows in enumerate(sets):
        across = sets[: a + 1] if a % 2 == 0 else sets[a::-1]
        blocks += [PairBlock(*rows, *columns) for columns in across]
    return tuple(blocks)


def opposite_blocks(m: int, n: int, width: int, other_width: int) -> tuple[PairBlock, ...]:
    """The blocks of all pairs of m orbitals with n of the opposite spin, over sets of `width` and `other_width`."""
    columns = _ranges(n, other_width)
    blocks = []
    for a, rows in enumerate(_ranges(m, width)):
        blocks += [PairBlock(*rows, *across, True) for across in (columns if a % 2 == 0 else columns[::-1])]
    return tuple(blocks)


def _ranges(count: int, width: int) -> list[tuple[int, int]]:
    return [(i, min(i + width, count)) for i in range(0, count, width)]


def default_width(nocc: int) -> int:
    """Number of orbitals in a set if memory is not limited: an eighth of all, but at least LEAST_WIDTH."""
    return min(nocc, max(LEAST_WIDTH, -(-nocc // 8)))
