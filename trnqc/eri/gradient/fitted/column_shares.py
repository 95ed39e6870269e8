"""Arrays [Q, r, s] exchanged among ranks: from some rows Q on each rank to some columns r, and to other rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from trnqc.fitted.ranks import fill_from_every_rank
from trnqc.host.arrays import empty
from trnqc.ranks import Ranks

# Rows that are gathered at once for a message.
ROWS = 64


class ColumnShares:
    """The shares of ranks in the columns r of arrays [Q, r, s].

    This rank begins with the rows from `first` on, of `count` rows in all. Each rank ends with the rows whose numbers
    are in its element of `wanted`, in rising order. All ranks create this object and call its methods together. A
    single rank has all rows and all columns: nothing is copied.
    """

    def __init__(self, ranks: Ranks, first: int, count: int, wanted: Sequence[np.ndarray]) -> None:
        self._ranks, self._count, self._wanted = ranks, count, wanted
        firsts = np.zeros(ranks.size, np.int64)
        firsts[ranks.rank] = first
        self._rows = [slice(begin, end) for begin, end in pairwise([*ranks.sum(firsts).tolist(), count])]

    @property
    def rows(self) -> np.ndarray:
        """The rows with which this rank ends."""
        return self._wanted[self._ranks.rank]

    def columns(self, r: int, rank: int | None = None) -> slice:
        """Return the range of r columns that a rank has, by default this one."""
        rank = self._ranks.rank if rank is None else rank
        return slice(r * rank // self._ranks.size, r * (rank + 1) // self._ranks.size)

    def by_columns(self, mine: np.ndarray) -> np.ndarray:
        """Return the columns of this rank of all rows from all columns of the rows with which it begins."""
        if self._ranks.size == 1:
            return mine
        own = self.columns(mine.shape[1])
        whole = empty((self._count, own.stop - own.start, mine.shape[2]), mine.dtype)
        fill_from_every_rank(
            self._ranks,
            lambda to: [mine[:, self.columns(mine.shape[1], to)]],
            lambda source: [whole[self._rows[source]]],
        )
        return whole

    def by_rows(self, mine: np.ndarray, r: int) -> np.ndarray:
        """Return all r columns of the rows with which this rank ends from its columns of all rows."""
        if self._ranks.size == 1:
            return mine
        whole = empty((len(self.rows), r, mine.shape[2]), mine.dtype)
        fill_from_every_rank(
            self._ranks,
            lambda to: (mine[rows] for rows in _parts(self._wanted[to])),
            lambda source: _parts(whole[:, self.columns(r, source)]),
        )
        return whole


def _parts(rows: np.ndarray) -> Iterator[np.ndarray]:
    return (rows[first : first + ROWS] for first in range(0, len(rows), ROWS))
