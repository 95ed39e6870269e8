"""What has a place in the tile of a launch: slots for the shells of its ket pairs, and their first pairs.

The shells c and d of a range of ket pairs are numbered by how many of the pairs have them, the most first, so that the
slots of a tile go to those that are met most often, however many there are. What does not fit is added to memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda.tile import share_slots
from trnqc.eri.jk.batch import PLACE_A, PLACE_B
from trnqc.eri.jk.screening import Table
from trnqc.eri.jk.tasks import QuartetTask

# J of a bra pair takes at most one part in so many of a tile, and goes through it in pieces.
BRA_SHARE = 4
_known: WeakKeyDictionary[Table, dict[tuple[int, bool], ShellSlots]] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class ShellSlots:
    """The shells of a table's ranges of pairs, each of so many pairs.

    Parameters
    ----------
    of_pairs : i64 [pairs, 2]
        The numbers of c and d of each pair in its range.
    shells : i64
        The shells of all ranges by these numbers, as positions among those of their l.
    begins, counts : for c and for d, by range
        Where the shells of a range begin in `shells`, and how many there are.
    """

    of_pairs: np.ndarray
    shells: np.ndarray
    begins: tuple[Sequence[int], Sequence[int]]
    counts: tuple[Sequence[int], Sequence[int]]


def slots_of(table: Table, length: int, alike: bool) -> ShellSlots:
    """Return the slots of a table with ranges of `length` pairs. alike: whether shells share them as c and as d."""
    of_table = _known.setdefault(table, {})
    if (length, alike) not in of_table:
        of_table[length, alike] = _slots(table, length, alike)
    return of_table[length, alike]


def _slots(table: Table, length: int, alike: bool) -> ShellSlots:
    places = table.places[:, [PLACE_A, PLACE_B]]
    of_pairs = np.empty_like(places)
    shells: list[np.ndarray] = []
    begins: tuple[list[int], list[int]] = ([], [])
    counts: tuple[list[int], list[int]] = ([], [])
    at = 0
    for start in range(0, len(table), length):
        some = slice(start, start + length)
        for columns in ([0, 1],) if alike else ([0], [1]):
            own, numbers = _by_frequency(places[some][:, columns])
            of_pairs[some, columns[0] : columns[-1] + 1] = numbers
            for column in columns:
                begins[column].append(at)
                counts[column].append(len(own))
            shells.append(own)
            at += len(own)
    return ShellSlots(of_pairs, np.concatenate(shells or [np.zeros(1, np.int64)]), begins, counts)


def _by_frequency(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different numbers, the most frequent first, and for each element which of them it is."""
    found, inverse, times = np.unique(places, return_inverse=True, return_counts=True)
    order = np.argsort(-times, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return found[order], rank[inverse].reshape(places.shape)


@dataclass(frozen=True)
class Wants:
    """What the sums of a task would take: elements of J of a bra pair, of K of a slot c and d, and of J of a ket pair.

    Elements of what is not wanted are 0.
    """

    bra: int
    c: int
    d: int
    pair: int

    @classmethod
    def of(cls, task: QuartetTask, densities: int, with_j: bool, with_k: bool) -> Wants:
        """Return the numbers of a task."""
        bra, ket = task.bra.pairs, task.ket.pairs
        na, nb, nc, nd = task.cls.extents
        n_a, n_c = bra.contractions // bra.ncb, ket.contractions // ket.ncb
        rows = densities * with_k * (n_a * na + bra.ncb * nb)
        own = densities * with_j * bra.contractions * na * nb
        return cls(own, rows * n_c * nc, rows * ket.ncb * nd, densities * with_j * ket.contractions * nc * nd)


def divided(
    tile: int, wants: Wants, cls: QuartetClass, slots: ShellSlots, n: int, pairs: int, again: bool
) -> dict[str, int]:
    """Divide a tile for the n-th range of a table; returns the numbers `tile.PLACES`.

    K has the first claim, because all quartets of a row share it. J of the ket pairs gets the rest, unless no two rows
    of a block meet one.

    Parameters
    ----------
    tile
        Elements of the tile.
    wants, cls, slots
        What the sums of the task would take, its class, and the slots of its ket pairs.
    n, pairs
        The number of the range, and its pairs.
    again
        Whether a block has several rows.
    """
    bra = min(wants.bra, max(1, tile // BRA_SHARE))
    room, alike = tile - bra, share_slots(cls)
    count_c, count_d = (counts[n] for counts in slots.counts)
    if not wants.c:
        slots_c = slots_d = 0
    elif alike:
        slots_c = slots_d = min(count_c, room // wants.c)
    else:
        slots_c = min(count_c, max(room // 2, room - count_d * wants.d) // wants.c)
        slots_d = min(count_d, (room - slots_c * wants.c) // wants.d)
    at_d = bra if alike else bra + slots_c * wants.c
    at_j = at_d + slots_d * wants.d
    kept = min(pairs, (tile - at_j) // wants.pair) if wants.pair and again else 0
    return {
        "tile_ab": max(1, bra),
        "slots_c": slots_c,
        "slots_d": slots_d,
        "at_c": bra,
        "at_d": at_d,
        "step_c": wants.c,
        "step_d": wants.d,
        "shells_c": slots.begins[0][n],
        "shells_d": slots.begins[1][n],
        "tile_pairs": kept,
        "at_j": at_j,
    }
