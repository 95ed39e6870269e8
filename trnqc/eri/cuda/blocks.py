"""The blocks of bra and ket pairs that one launch takes, from the Schwarz bounds of a task and the room on a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trnqc.eri.jk.batch import SCHWARZ
from trnqc.eri.jk.tasks import QuartetTask

# Rows of a launch, and ket pairs of a row, at most. A stream has queues for so many quartets, 16 bytes each.
ROWS, KETS = 2048, 2048
# Rows of a launch for each worker, where bra pairs alone would not keep the workers busy.
ITEMS = 4
# The fewest vectors of ket pairs of a row: its last vector has lanes without a quartet.
FEWEST = 8


@dataclass(frozen=True)
class Kind:
    """What the launches of a pass depend on besides the tasks.

    Parameters
    ----------
    number, devices
        The number of this device, and of all that share the tasks. They take bra pairs in turn.
    multiprocessors
        Those of this device.
    divisor
        By what the workers are divided, where their buffers do not fit.
    count
        The number of densities.
    with_j, with_k
        Whether J and K are wanted.
    cutoff
        The threshold of integrals.
    """

    number: int
    devices: int
    multiprocessors: int
    divisor: int
    count: int
    with_j: bool
    with_k: bool
    cutoff: float


@dataclass(frozen=True)
class QuartetBlock:
    """Bra pairs begin .. end of a task, with ket pairs ket_begin .. ket_end in `parts` rows for each bra pair."""

    begin: int
    end: int
    ket_begin: int
    ket_end: int
    parts: int

    @property
    def ket_part(self) -> int:
        """Ket pairs of a row."""
        return -(-(self.ket_end - self.ket_begin) // self.parts)


def blocks_of(
    task: QuartetTask, kind: Kind, lanes: int, workers: int, most: int | None = None
) -> Iterator[QuartetBlock]:
    """Yield blocks of a task's pairs which contain all quartets that can matter, whatever the density.

    Both tables have falling Schwarz bounds, so that the bra pairs that can matter to a range of ket pairs are those
    before some pair.

    Parameters
    ----------
    task, kind
        The task, and what else its blocks depend on.
    lanes, workers
        The lanes of a vector, and the workers of a device.
    most
        The vectors of ket pairs that all rows of a device have together, at most; without it any number.
    """
    rows = max(1, ROWS // kind.divisor) * kind.devices
    bra, ket, same = task.bra.measures[:, SCHWARZ], task.ket.measures[:, SCHWARZ], task.bra is task.ket
    for start, stop in _ranges(len(ket), KETS if most is None else min(KETS, most * lanes)):
        begin = max(task.begin, start) if same else task.begin
        end = min(task.end, int(np.searchsorted(-bra * ket[start], -kind.cutoff, side="right")))
        if end > begin:
            vectors = -(-(stop - start) // lanes)
            parts = max(1, min(-(-ITEMS * workers * kind.devices // (end - begin)), vectors // FEWEST))
            step = max(1, rows // parts)
            if most is not None:
                parts, pairs = _within(stop - start, lanes, parts, most)
                step = min(step, pairs * kind.devices)
            yield from (
                QuartetBlock(n, min(n + step, end), start, stop, min(parts, rows)) for n in range(begin, end, step)
            )


def _ranges(kets: int, longest: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of ket pairs, of which none goes beyond one of KETS pairs: these have slots (slots.py)."""
    for start in range(0, kets, KETS):
        stop = min(start + KETS, kets)
        yield from ((n, min(n + longest, stop)) for n in range(start, stop, longest))


def _within(kets: int, lanes: int, parts: int, most: int) -> tuple[int, int]:
    """Return the rows of a bra pair, and the bra pairs whose rows have room for at most so many vectors."""
    vectors = parts * -(-kets // parts // lanes)
    if vectors > most:
        parts, vectors = 1, -(-kets // lanes)
    return parts, most // vectors
