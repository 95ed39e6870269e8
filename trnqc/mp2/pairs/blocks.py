"""All occupied pairs as blocks of two sets of rows, for whoever does not hold all of B at once.

    nocc, width -> pair_blocks -> PairBlock: cost, energies of its rows

Blocks depend on nocc and width alone: whoever computes them, in whatever order, gets the same numbers, and a pair is in
one block only. Blocks next to one another in `pair_blocks` have a set of rows in common, so that one more set is enough
to read ahead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.mp2.jobs.choice import Choice
from trnqc.types import PairEnergies

# Sets of rows that are held while blocks are computed one after the other: two at work, one being read.
SETS = 3
# More blocks than this along an occupied axis read rows more often without any use.
LEAST_WIDTH = 8


@dataclass(frozen=True)
class PairBlock:
    """Pairs of orbitals i in [i0, i1) and j in [j0, j1): all where the ranges are apart, j <= i where they are one."""

    i0: int
    i1: int
    j0: int
    j1: int

    @property
    def rows(self) -> slice:
        return slice(self.i0, self.i1)

    @property
    def columns(self) -> slice:
        return slice(self.j0, self.j1)

    @property
    def diagonal(self) -> bool:
        return self.i0 == self.j0

    @property
    def pairs(self) -> int:
        m, n = self.i1 - self.i0, self.j1 - self.j0
        return m * (m + 1) // 2 if self.diagonal else m * n

    def cost(self, nvir: int, naux: int) -> float:
        """Operations, modelled: those of T_ij = B_i B_j^T, of which i = j needs half, and of the energy expression."""
        same = self.i1 - self.i0 if self.diagonal else 0
        return (self.pairs - same / 2) * nvir**2 * (2.0 * naux + 10)


def pair_blocks(nocc: int, width: int) -> tuple[PairBlock, ...]:
    """The blocks of all pairs i >= j over sets of `width` orbitals, each reaching over to the next by a set."""
    sets = [(i, min(i + width, nocc)) for i in range(0, nocc, width)]
    found = []
    for a, rows in enumerate(sets):
        across = sets[: a + 1] if a % 2 == 0 else sets[a::-1]
        found += [PairBlock(*rows, *columns) for columns in across]
    return tuple(found)


def default_width(nocc: int) -> int:
    """Orbitals a set where memory sets no limit: eight sets, or fewer where they would be too small to pay."""
    return min(nocc, max(LEAST_WIDTH, -(-nocc // 8)))


def held_bytes(
    width: int, nvir: int, naux: int, choice: Choice, fused: bool, threads: int | None, B: int | None = None
) -> int:
    """Bytes held while blocks of this width are computed: sets of rows, and what the backend allocates.

    B: its bytes where all of it is in memory, which then are held instead.
    """
    made = choice.backend.pair_block_bytes(
        width, width, nvir, naux, precision=choice.precision, fused=fused, threads=threads
    )
    return made + (8 * SETS * width * nvir * naux if B is None else B)


def least_bytes(nvir: int, naux: int, choice: Choice, fused: bool, threads: int | None) -> int:
    """Bytes that pairs need beside a B in memory, one orbital a set."""
    return held_bytes(1, nvir, naux, choice, fused, threads, B=0)


def widest(
    shape: tuple[int, int, int],
    choice: Choice,
    *,
    fused: bool,
    threads: int | None,
    limit: float | None,
    B: int | None = None,
) -> int:
    """The largest width up to `default_width` that keeps to `limit` bytes; MemoryLimit if one row a set does not.

    shape: of B; B as in `held_bytes`.
    """
    nocc, nvir, naux = shape
    width = default_width(nocc)
    if limit is None:
        return width
    while (needed := held_bytes(width, nvir, naux, choice, fused, threads, B)) > limit:
        if width == 1:
            where = "on disk" if B is None else "in memory"
            raise MemoryLimit(
                f"the pair step with B[{nocc}, {nvir}, {naux}] {where} needs at least {needed / 1e6:.4g} MB, "
                f"the limit is {limit / 1e6:.4g} MB: raise the limit or use fewer threads"
            )
        width -= 1
    return width


def block_energies(
    block: PairBlock,
    rows: np.ndarray,
    columns: np.ndarray,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    choice: Choice,
    *,
    fused: bool = True,
    threads: int | None = None,
) -> PairEnergies:
    """Energies of a block, [i1 - i0, j1 - j0], from rows B[i0:i1] and columns B[j0:j1] (fp64); eps_occ of all nocc.

    Diagonal blocks take `rows` alone and are lower-triangular.
    """
    if block.diagonal:
        return choice.backend.mp2_pairs(
            rows, eps_occ[block.rows], eps_vir, precision=choice.precision, fused=fused, threads=threads
        )
    return choice.backend.mp2_pair_block(
        rows, columns, eps_occ[block.rows], eps_occ[block.columns], eps_vir, precision=choice.precision, fused=fused,
        threads=threads,
    )  # fmt: skip
