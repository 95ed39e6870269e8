"""The pairs of a molecule that contribute to J and K, in tables of like length, by falling Schwarz bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trnqc.eri.classes import BOUND, QuartetClass
from trnqc.eri.compiled.programs import lanes
from trnqc.eri.jk.batch import CENTRE, COUNT, MEASURES, PLACE_A, PLACE_B, PLACES, SCHWARZ, SHELL_A, SHELL_B
from trnqc.eri.jk.layout import MatrixLayout
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.shells.pairs import ShellPairs, general_records
from trnqc.host.arrays import zeros
from trnqc.jit import Library

# The largest numbers of primitive pairs in the tables of a class. All lanes of a vector take as long as the longest of
# their records, so that records of like length should be together.
LENGTHS = (1, 3, 6, 9, 18, 36)
# The fewest pairs of a table, because short tables leave lanes idle.
FEWEST = 48


@dataclass(frozen=True, eq=False)
class Table:
    """Pairs of one class with records of like length, with the arrays that a driver reads (`batch.Batch.arrays`).

    `at` is where the elements of these pairs begin among those of all tables.
    """

    pairs: ShellPairs
    places: np.ndarray
    measures: np.ndarray
    bounds: np.ndarray
    at: int

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def elements(self) -> int:
        na, nb = self.pairs.extents
        return len(self) * self.pairs.contractions * na * nb

    @cached_property
    def records(self) -> np.ndarray:
        return np.ascontiguousarray(self.pairs.records)

    @cached_property
    def general_records(self) -> np.ndarray:
        """The records in the form that a general kernel reads."""
        return general_records(self.pairs.records)

    def records_for(self, cls: QuartetClass) -> np.ndarray:
        """Return the records in the form that the kernel of a class reads."""
        return self.general_records if cls.general else self.records


def schwarz(pairs: ShellPairs, cls: QuartetClass, library: Library, omega: float) -> ShellPairs:
    """Return the pairs with their Schwarz bounds computed. cls: the class of a pair with itself."""
    na, nb = pairs.extents
    n_ab, rows, width = pairs.contractions, pairs.records.shape[1], lanes()
    bound = np.zeros(len(pairs))
    getattr(library, f"schwarz_{cls.name}")(
        rows=rows,
        n_ab=n_ab,
        omega=omega,
        records=np.ascontiguousarray(pairs.records),
        centre=pairs.centre,
        count=pairs.count,
        ones=np.ones(rows + 1),
        boys=boys.table(cls.order),
        lane=np.arange(width),
        bound=bound,
        lanes_ket=zeros((rows * pairs.records.shape[2], width)),
        lanes_centre=zeros((6, width)),
        work=zeros((work_size(cls, n_ab, n_ab), width)),
        out=zeros(((n_ab * na * nb) ** 2, width)),
        groups_begin=0,
        groups_end=len(pairs),
    )
    return replace(pairs, bound=bound)


def tables(
    classes: Sequence[ShellPairs],
    layout: MatrixLayout,
    libraries: Mapping[ShellPairs, tuple[QuartetClass, Library]],
    omega: float,
    cutoff: float,
) -> tuple[Table, ...]:
    """Return tables of all pairs that can contribute more than `cutoff` to J or K, class by class."""
    bounded = [schwarz(pairs, *libraries[pairs], omega) for pairs in classes]
    largest = max((float(pairs.bound.max(initial=0)) for pairs in bounded), default=0.0)
    tables: list[Table] = []
    at = 0
    for pairs in bounded:
        matter = pairs.take(np.flatnonzero(pairs.bound * largest >= cutoff))
        for part in _by_length(matter):
            tables.append(_table(part, layout, at))
            at += tables[-1].elements
    return tuple(tables)


def _by_length(pairs: ShellPairs) -> Iterator[ShellPairs]:
    """Yield parts of like record length, each by falling bound. Parts that are too small join the next longer one."""
    group = np.searchsorted(LENGTHS, pairs.count)
    waiting: list[np.ndarray] = []
    for n in range(len(LENGTHS) + 1):
        waiting.append(np.flatnonzero(group == n))
        rows = np.concatenate(waiting)
        if len(rows) and (len(rows) >= FEWEST or not (group > n).any()):
            yield pairs.take(rows[np.argsort(-pairs.bound[rows], kind="stable")])
            waiting = []


def _table(pairs: ShellPairs, layout: MatrixLayout, at: int) -> Table:
    places = np.empty((len(pairs), PLACES), np.int64)
    places[:, COUNT] = pairs.count
    places[:, PLACE_A], places[:, PLACE_B] = layout.place[pairs.first], layout.place[pairs.second]
    places[:, SHELL_A], places[:, SHELL_B] = pairs.first, pairs.second
    measures = np.empty((len(pairs), MEASURES))
    measures[:, CENTRE : CENTRE + 6], measures[:, SCHWARZ] = pairs.centre, pairs.bound
    bounds = np.zeros((len(pairs), pairs.records.shape[1] + 1))
    bounds[:, :-1] = np.maximum.accumulate(pairs.records[::-1, :, BOUND], axis=0)[::-1]
    return Table(pairs, places, measures, bounds, at)
