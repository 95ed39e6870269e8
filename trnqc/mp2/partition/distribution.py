"""Assignment of rows of B to ranks. Every rank computes the same assignment.

    nocc -> sets of rows -> shards, one for each rank (ranks share shards if there are more ranks than sets)

`rounds` assigns the pairs of these rows to ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

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
class RowDistribution:
    """The rows of B[nocc, nvir, naux] over `ranks` processes. Sets do not depend on the number of ranks."""

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
