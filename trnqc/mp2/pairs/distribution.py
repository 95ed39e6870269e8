"""Assignment of rows of B and of pairs to ranks. Every rank computes the same assignment.

    nocc -> sets of rows -> shards, one for each rank (ranks share shards if there are more ranks than sets)
    pair_blocks -> each block to a rank that holds its rows or its columns -> rounds of visiting sets

A rank that computes a block holds one of its sets and receives the other, which visits it. All ranks go through the
sets in a ring, one set in each round, and each rank begins at its own shard, so that no rank has to send rows to many
ranks in one round. Ranks are not synchronised; messages are sent a few rounds ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.mp2.pairs.blocks import PairBlock, pair_blocks
from trnqc.ranks import balanced

# Largest number of orbitals in a set.
WIDEST = 8
# Smallest number of sets if there are as many orbitals, so that there are enough blocks for all ranks.
SETS = 10
# Largest size of a set in bytes, so that several sets can be sent ahead.
SET_BYTES = 1 << 26
# Largest number of sets, so that the assignment itself takes only seconds. It has priority over the limits above.
MOST = 400
# Number of rounds by which messages are sent ahead. A rank waits for another only if that is so many rounds behind.
AHEAD = 4


def set_width(nocc: int, nvir: int, naux: int) -> int:
    """Number of orbitals in a set of rows of B[nocc, nvir, naux]. It does not depend on the number of ranks."""
    return max(1, -(-nocc // MOST), min(WIDEST, nocc // SETS, SET_BYTES // (8 * nvir * naux)))


@dataclass(frozen=True)
class Visit:
    """The blocks that a rank computes while set `number` visits it, or from its own rows alone if that is None."""

    number: int | None
    blocks: tuple[PairBlock, ...]


@dataclass(frozen=True)
class Distribution:
    """B[nocc, nvir, naux] and its pairs over `ranks` processes.

    Blocks do not depend on the number of ranks, and therefore digits do not either.
    """

    nocc: int
    nvir: int
    naux: int
    ranks: int

    @cached_property
    def width(self) -> int:
        """Number of orbitals in a set."""
        return set_width(self.nocc, self.nvir, self.naux)

    @cached_property
    def sets(self) -> tuple[range, ...]:
        """The orbitals of each set."""
        return tuple(range(i, min(i + self.width, self.nocc)) for i in range(0, self.nocc, self.width))

    @cached_property
    def shards(self) -> int:
        """Number of parts of B, each of which one or several ranks hold."""
        copies = -(-self.ranks // len(self.sets))
        return -(-self.ranks // copies)

    def holds(self, rank: int) -> list[int]:
        """Numbers of the sets whose rows a rank holds."""
        return list(range(rank % self.shards, len(self.sets), self.shards))

    def holders(self, number: int) -> list[int]:
        """Ranks that hold a set."""
        return self._holders[number % self.shards]

    @cached_property
    def _holders(self) -> list[list[int]]:
        return [list(range(shard, self.ranks, self.shards)) for shard in range(self.shards)]

    def sender(self, number: int, to: int) -> int:
        """The rank that sends a set to rank `to`. The ranks that hold it take turns."""
        holders = self.holders(number)
        return holders[to // self.shards % len(holders)]

    @cached_property
    def blocks(self) -> tuple[PairBlock, ...]:
        """All blocks of pairs."""
        return pair_blocks(self.nocc, self.width)

    def numbers(self, block: PairBlock) -> tuple[int, int]:
        """Numbers of the sets of the block's rows and columns."""
        return block.i0 // self.width, block.j0 // self.width

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The rank that computes each block, which holds its rows or its columns."""
        costs = [block.cost(self.nvir, self.naux) for block in self.blocks]
        shards = [{number % self.shards for number in self.numbers(block)} for block in self.blocks]
        allowed = [[rank for shard in both for rank in self._holders[shard]] for both in shards]
        return balanced(costs, self.ranks, allowed)

    @cached_property
    def visits(self) -> tuple[tuple[Visit, ...], ...]:
        """The visits of each rank: first the blocks of its own rows alone, then one visit in each round."""
        by_rank: list[dict[int | None, list[PairBlock]]] = [{None: []} for _ in range(self.ranks)]
        for block, rank in zip(self.blocks, self.owners):
            away = [n for n in self.numbers(block) if rank not in self.holders(n)]
            assert len(away) <= 1, "a block is computed by a rank that holds one of its sets"
            by_rank[rank].setdefault(away[0] if away else None, []).append(block)
        return tuple(tuple(self._ring(rank, by_set)) for rank, by_set in enumerate(by_rank))

    def _ring(self, rank: int, by_set: dict[int | None, list[PairBlock]]) -> Sequence[Visit]:
        visitors = sorted((n for n in by_set if n is not None), key=lambda n: (n - rank) % len(self.sets))
        return [Visit(n, tuple(by_set[n])) for n in (None, *visitors)]

    def messages(self, round: int) -> list[tuple[int, int, int]]:
        """(sender, receiver, set) of all messages of a round, in the same order on all ranks."""
        return [
            (self.sender(number, rank), rank, number)
            for rank, visits in enumerate(self.visits)
            if round < len(visits) and (number := visits[round].number) is not None
        ]

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return max(len(visits) for visits in self.visits)
