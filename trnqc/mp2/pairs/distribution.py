"""Which rank holds which rows of B and computes which pairs: arithmetic that every rank does for itself.

    nocc -> sets of rows -> shards, one for each rank (several ranks share one where there are more ranks than sets)
    pair_blocks -> each block to a rank that holds its rows or its columns -> rounds of visiting sets

The other set of a block is sent to that rank and visits it. All ranks go through the sets in a ring, each from its own
shard on and one set a round, so that in no round many ranks ask one rank for rows. Ranks are not in step: messages are
sent some rounds ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.mp2.pairs.blocks import PairBlock, pair_blocks
from trnqc.ranks import balanced

# Most orbitals in a set.
WIDEST = 8
# Sets at least, where there are as many orbitals, so that there are enough blocks to share.
SETS = 10
# Most bytes of a set, so that several of them can be sent ahead.
SET_BYTES = 1 << 26
# Sets at most, so that this plan itself takes seconds; wins over the limits above.
MOST = 400
# Rounds whose messages are sent ahead: a slow rank holds up another only when it is that many rounds behind.
AHEAD = 4


def set_width(nocc: int, nvir: int, naux: int) -> int:
    """Orbitals in a set of rows of B[nocc, nvir, naux], for any number of ranks."""
    return max(1, -(-nocc // MOST), min(WIDEST, nocc // SETS, SET_BYTES // (8 * nvir * naux)))


@dataclass(frozen=True)
class Visit:
    """The blocks that a rank computes while it has the rows of set `number`; None: those of its own rows alone."""

    number: int | None
    blocks: tuple[PairBlock, ...]


@dataclass(frozen=True)
class Distribution:
    """B[nocc, nvir, naux] and its pairs over `ranks`. Blocks do not depend on ranks, so that digits do not."""

    nocc: int
    nvir: int
    naux: int
    ranks: int

    @cached_property
    def width(self) -> int:
        """Orbitals in a set."""
        return set_width(self.nocc, self.nvir, self.naux)

    @cached_property
    def sets(self) -> tuple[range, ...]:
        """The orbitals of each set."""
        return tuple(range(i, min(i + self.width, self.nocc)) for i in range(0, self.nocc, self.width))

    @cached_property
    def shards(self) -> int:
        """Parts of B, each held by one rank or by several."""
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
        """The rank that sends a set to rank `to`; holders take turns."""
        holders = self.holders(number)
        return holders[to // self.shards % len(holders)]

    @cached_property
    def blocks(self) -> tuple[PairBlock, ...]:
        """All blocks of pairs."""
        return pair_blocks(self.nocc, self.width)

    def numbers(self, block: PairBlock) -> tuple[int, int]:
        """Sets of the block's rows and columns."""
        return block.i0 // self.width, block.j0 // self.width

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The rank that computes each block: one of those that hold its rows or its columns."""
        costs = [block.cost(self.nvir, self.naux) for block in self.blocks]
        shards = [{number % self.shards for number in self.numbers(block)} for block in self.blocks]
        allowed = [[rank for shard in both for rank in self._holders[shard]] for both in shards]
        return balanced(costs, self.ranks, allowed)

    @cached_property
    def visits(self) -> tuple[tuple[Visit, ...], ...]:
        """By rank: what it computes from its own rows, then one visit a round."""
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
        """(sender, receiver, set) of the visits of a round, in the same order on all ranks."""
        return [
            (self.sender(number, rank), rank, number)
            for rank, visits in enumerate(self.visits)
            if round < len(visits) and (number := visits[round].number) is not None
        ]

    @property
    def rounds(self) -> int:
        """Rounds until the last visit."""
        return max(len(visits) for visits in self.visits)
