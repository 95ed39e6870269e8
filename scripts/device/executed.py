"""What the launches of a J/K build execute on a GPU, counted from their arguments: vectors, primitives and additions.

The screening of the device is repeated in NumPy for every row of every launch, so that all counts are exact. A vector
is a batch of ket pairs, one on each lane of a block, of which the last of a row has lanes without a quartet.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from trnqc.eri.classes import BOUND
from trnqc.eri.cuda.launches import BlockLaunch
from trnqc.eri.jk.batch import COUNT, REALS, SCHWARZ, SHELL_A, SHELL_B
from trnqc.eri.jk.run import JKPass
from trnqc.eri.jk.tasks import QuartetTask


@dataclass(frozen=True)
class Executed:
    """Counts of some launches of a class.

    Attributes
    ----------
    launches, rows
        Launches of all programs, and rows of these: a bra pair with a range of ket pairs.
    quartets, vectors
        Quartets that pass the test, and batches of them.
    ket_rows, bras, primitives
        Sums over the vectors: primitive pairs of the ket records, primitive pairs of the bra, and primitive quartets
        that all lanes compute together.
    """

    launches: int = 0
    rows: int = 0
    quartets: int = 0
    vectors: int = 0
    ket_rows: int = 0
    bras: int = 0
    primitives: int = 0

    def __add__(self, other: Executed) -> Executed:
        return Executed(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def executed(launch: BlockLaunch, task: QuartetTask, run: JKPass) -> Executed:
    """Return the counts of the launches of one block."""
    a = launch.arguments
    total = Executed(launches=len(launch.steps), rows=launch.rows)
    for first in range(0, launch.rows, a["parts"]):
        pair = a["first_pair"] + first // a["parts"] * a["step"]
        for begin in range(a["ket_begin"], a["ket_end"], a["ket_part"]):
            stop = min(begin + a["ket_part"], a["ket_end"], pair + 1 if task.bra is task.ket else a["ket_end"])
            if stop > begin:
                queue = begin + matters(task, run, pair, begin, stop)
                total += of_row(task, run, pair, queue, launch.programs.work.lanes)
    return total


def matters(task: QuartetTask, run: JKPass, pair: int, begin: int, stop: int) -> np.ndarray:
    """Return which of the ket pairs begin .. stop pass the test of the screening program, counted from begin."""
    dm, ket, some = run.maxima, task.ket, slice(begin, stop)
    a, b = task.bra.places[pair, [SHELL_A, SHELL_B]]
    c, d = ket.places[some, SHELL_A], ket.places[some, SHELL_B]
    largest = np.maximum(np.maximum(dm[a, c], dm[a, d]), np.maximum(dm[b, c], dm[b, d]))
    largest = np.minimum(1.0, np.maximum(largest, 4.0 * np.maximum(dm[a, b], dm[c, d])))
    bounds = task.bra.measures[pair, SCHWARZ] * ket.measures[some, SCHWARZ] * largest
    return np.flatnonzero(bounds >= run.reals[REALS.index("cutoff")])


def of_row(task: QuartetTask, run: JKPass, pair: int, queue: np.ndarray, lanes: int) -> Executed:
    """Return the counts of a row whose queue has these ket pairs. The first pair of a vector has bounds for all."""
    if not len(queue):
        return Executed()
    bra = task.bra.records_for(task.cls)[pair, : task.bra.places[pair, COUNT], BOUND]
    ket = task.ket.bounds[queue[::lanes], :-1]
    large = bra[None, :, None] * ket[:, None, :] >= run.reals[REALS.index("primitive")]
    bras = np.maximum(1, large[:, :, 0].sum(axis=1))
    return Executed(0, 0, len(queue), len(ket), int(large[:, 0].sum()), int(bras.sum()), int(large.sum()))


def by_class(launches: Iterator[BlockLaunch], tasks: list[QuartetTask], run: JKPass) -> dict[str, Executed]:
    """Return the counts of all launches by the digits of the class."""
    totals: dict[str, Executed] = {}
    for launch in launches:
        task = tasks[launch.arguments["task"]]
        digits = task.cls.digits
        totals[digits] = totals.get(digits, Executed()) + executed(launch, task, run)
    return totals
