"""Assignment of pairs to ranks that hold the rows of B. Every rank computes the same assignment.

    blocks of pairs -> each block to a rank that holds its rows or its columns -> rounds of visiting sets

A rank that computes a block holds one of its sets and receives the other, which visits it. All ranks go through the
sets in a ring, one set in each round, and each rank begins at its own shard, so that no rank has to send rows to many
ranks in one round. Ranks are not synchronised; messages are sent a few rounds ahead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trnqc.mp2.partition.blocks import PairBlock, opposite_blocks, pair_blocks
from trnqc.mp2.partition.distribution import RowDistribution
from trnqc.ranks import balanced

RowSet = tuple[int, int]
"""A set of rows: the side of the pairs, 0 for orbitals i and 1 for orbitals j of the opposite spin, and its number."""


@dataclass(frozen=True)
class Visit:
    """The blocks that a rank computes while a set visits it, or from its own rows alone if that is None."""

    visitor: RowSet | None
    blocks: tuple[PairBlock, ...]


@dataclass(frozen=True)
class Rounds:
    """All pairs of one spin case over the ranks that hold the rows; `right` are the rows of orbitals j of the opposite
    spin.

    Blocks do not depend on the number of ranks, and therefore digits do not either.
    """

    left: RowDistribution
    right: RowDistribution | None = None

    @cached_property
    def sides(self) -> tuple[RowDistribution, ...]:
        """The rows of each spin that takes part."""
        return (self.left,) if self.right is None else (self.left, self.right)

    @cached_property
    def blocks(self) -> tuple[PairBlock, ...]:
        """All blocks of pairs."""
        if self.right is None:
            return pair_blocks(self.left.nocc, self.left.width)
        return opposite_blocks(self.left.nocc, self.right.nocc, self.left.width, self.right.width)

    def sets(self, block: PairBlock) -> tuple[RowSet, RowSet]:
        """The sets of the block's rows and columns."""
        right = int(block.opposite)
        return (0, block.i0 // self.left.width), (right, block.j0 // self.sides[right].width)

    def holders(self, rows: RowSet) -> list[int]:
        """Ranks that hold a set."""
        return self.sides[rows[0]].holders(rows[1])

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The rank that computes each block, which holds its rows or its columns."""
        nvir, naux = (self.left.nvir, self.sides[-1].nvir), self.left.naux
        costs = [block.cost(nvir, naux) for block in self.blocks]
        allowed = [
            list(dict.fromkeys(rank for rows in self.sets(block) for rank in self.holders(rows)))
            for block in self.blocks
        ]
        return balanced(costs, self.left.ranks, allowed)

    @cached_property
    def visits(self) -> tuple[tuple[Visit, ...], ...]:
        """The visits of each rank: first the blocks of its own rows alone, then one visit in each round."""
        by_rank: list[dict[RowSet | None, list[PairBlock]]] = [{None: []} for _ in range(self.left.ranks)]
        for block, rank in zip(self.blocks, self.owners):
            away = [rows for rows in dict.fromkeys(self.sets(block)) if rank not in self.holders(rows)]
            assert len(away) <= 1, "a block is computed by a rank that holds one of its sets"
            by_rank[rank].setdefault(away[0] if away else None, []).append(block)
        return tuple(tuple(self._ring(rank, by_set)) for rank, by_set in enumerate(by_rank))

    def _ring(self, rank: int, by_set: dict[RowSet | None, list[PairBlock]]) -> list[Visit]:
        first, total = len(self.left.sets), sum(len(side.sets) for side in self.sides)
        visitors = sorted(
            (rows for rows in by_set if rows is not None), key=lambda rows: (first * rows[0] + rows[1] - rank) % total
        )
        return [Visit(rows, tuple(by_set[rows])) for rows in (None, *visitors)]

    def messages(self, round: int) -> list[tuple[int, int, RowSet]]:
        """(sender, receiver, set) of all messages of a round, in the same order on all ranks."""
        return [
            (self.sides[rows[0]].sender(rows[1], rank), rank, rows)
            for rank, visits in enumerate(self.visits)
            if round < len(visits) and (rows := visits[round].visitor) is not None
        ]

    @property
    def count(self) -> int:
        """Number of rounds."""
        return max(len(visits) for visits in self.visits)
