"""Pairs of a molecule as a J/K build walks them: alike in primitives, by falling Schwarz bound, without idle ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trnqc.eri.classes import BOUND, CONTRACTION, QuartetClass
from trnqc.eri.jk.batch import CENTRE, COUNT, MEASURES, PLACE_A, PLACE_B, PLACES, SCHWARZ, SHELL_A, SHELL_B
from trnqc.eri.jk.layout import Layout
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.library.programs import lanes
from trnqc.eri.shells.pairs import ShellPairs
from trnqc.host.arrays import zeros
from trnqc.jit import Library

# A batch runs as many rows as its longest record has, so that records of like length should meet; a list that is
# too short leaves lanes idle.
LENGTHS = (1, 3, 6, 9, 18, 36)
FEWEST = 48


@dataclass(frozen=True, eq=False)
class Table:
    """Pairs of one class and like length, and what a driver reads of them (`batch.Batch.arrays`).

    at: where they begin among the elements of all pairs.
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
        """Of a segmented class as a general kernel reads them: one pair of contractions, of coefficient one."""
        return general(self.pairs)

    def records_for(self, cls: QuartetClass) -> np.ndarray:
        """The records as the kernel of a class reads them."""
        return self.general_records if cls.general else self.records


def general(pairs: ShellPairs) -> np.ndarray:
    """Records with contractions; those of a segmented class have a coefficient of one."""
    if pairs.records.shape[2] > CONTRACTION:
        return np.ascontiguousarray(pairs.records)
    return np.concatenate([pairs.records, np.ones((*pairs.records.shape[:2], 1))], axis=2)


def schwarz(pairs: ShellPairs, cls: QuartetClass, library: Library, omega: float) -> ShellPairs:
    """The pairs with `bound` computed; cls: of the quartet of the pair with itself."""
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
    classes: Sequence[ShellPairs], layout: Layout, libraries: Mapping[ShellPairs, tuple[QuartetClass, Library]],
    omega: float, cutoff: float,
) -> tuple[Table, ...]:  # fmt: skip
    """Tables of all pairs that can contribute more than `cutoff` to anything, in canonical order of their classes."""
    bounded = [schwarz(pairs, *libraries[pairs], omega) for pairs in classes]
    largest = max((float(pairs.bound.max(initial=0)) for pairs in bounded), default=0.0)
    found: list[Table] = []
    at = 0
    for pairs in bounded:
        matter = pairs.take(np.flatnonzero(pairs.bound * largest >= cutoff))
        for part in _by_length(matter):
            found.append(_table(part, layout, at))
            at += found[-1].elements
    return tuple(found)


def _by_length(pairs: ShellPairs) -> Iterator[ShellPairs]:
    """Parts of like record length, each by falling bound; parts that are too small join the next longer one."""
    group = np.searchsorted(LENGTHS, pairs.count)
    waiting: list[np.ndarray] = []
    for n in range(len(LENGTHS) + 1):
        waiting.append(np.flatnonzero(group == n))
        rows = np.concatenate(waiting)
        if len(rows) and (len(rows) >= FEWEST or not (group > n).any()):
            yield pairs.take(rows[np.argsort(-pairs.bound[rows], kind="stable")])
            waiting = []


def _table(pairs: ShellPairs, layout: Layout, at: int) -> Table:
    places = np.empty((len(pairs), PLACES), np.int64)
    places[:, COUNT] = pairs.count
    places[:, PLACE_A], places[:, PLACE_B] = layout.place[pairs.first], layout.place[pairs.second]
    places[:, SHELL_A], places[:, SHELL_B] = pairs.first, pairs.second
    measures = np.empty((len(pairs), MEASURES))
    measures[:, CENTRE : CENTRE + 6], measures[:, SCHWARZ] = pairs.centre, pairs.bound
    bounds = np.zeros((len(pairs), pairs.records.shape[1] + 1))
    bounds[:, :-1] = np.maximum.accumulate(pairs.records[::-1, :, BOUND], axis=0)[::-1]
    return Table(pairs, places, measures, bounds, at)
