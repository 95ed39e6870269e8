"""The quartets of a molecule as tasks, and their division into groups, which threads and ranks share.

The terms of one group are summed in its thread, and their sum is rounded once (exact_sums.py). So the division decides
the bits of J and K, and depends on neither threads nor ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from trnqc.eri.classes import QuartetClass
from trnqc.eri.jk.screening import Table
from trnqc.eri.shells.pairs import ShellPairs, quartet_class

# The fewest groups, where there is enough work: a few threads then end at about the same time.
FEWEST = 32
# The least relative cost of a group for each element of J and K. To add a group's matrices to the sums is then a few
# per cent of its work.
WORTH = 4000.0
# The most groups, so that ranks need not ask for them too often.
MOST = 1 << 14


class Costed(Protocol):
    """A task with a relative cost."""

    @property
    def cost(self) -> float: ...


T = TypeVar("T", bound=Costed)


@dataclass(frozen=True)
class QuartetTask:
    """Bra pairs begin .. end of a table with all ket pairs of another, and their relative cost."""

    bra: Table
    ket: Table
    cls: QuartetClass
    begin: int
    end: int
    cost: float


def relative_cost(bra: ShellPairs, ket: ShellPairs, quartets: float) -> float:
    """Return the relative cost of a number of quartets of two classes of pairs.

    The terms stand for the recurrences of primitive quartets, the digestion of integrals, and the call of a kernel.
    """
    elements = np.prod([*bra.extents, *ket.extents]) * bra.contractions * ket.contractions
    order = bra.la + bra.lb + ket.la + ket.lb
    primitives = float(bra.count.mean() * ket.count.mean())
    return quartets * (primitives * (order + 1) ** 4 + 20.0 * float(elements) + 200.0)


def tasks_of(tables: Sequence[Table], operator: str, most: float = np.inf) -> list[QuartetTask]:
    """Return tasks for all quartets, the most expensive first. None costs more than `most` if it can be cut."""
    tasks = []
    for n, a in enumerate(tables):
        for b in tables[: n + 1]:
            cost = relative_cost(a.pairs, b.pairs, _quartets(a, b))
            parts = int(min(len(a), max(1, np.ceil(cost / most))))
            edges = np.linspace(0, len(a), parts + 1).astype(int).tolist()
            cls = quartet_class(a.pairs, b.pairs, operator)
            tasks += [QuartetTask(a, b, cls, i, j, cost / parts) for i, j in pairwise(edges)]
    return sorted(tasks, key=lambda task: -task.cost)


def _quartets(bra: Table, ket: Table) -> float:
    return len(bra) * len(ket) / (2 if bra is ket else 1)


def groups_of(tables: Sequence[Table], operator: str, nao: int) -> list[list[QuartetTask]]:
    """Return all quartets of a molecule in groups of similar cost."""
    total = sum(relative_cost(a.pairs, b.pairs, _quartets(a, b)) for n, a in enumerate(tables) for b in tables[: n + 1])
    cost = cost_of_group(total, nao**2)
    return grouped(tasks_of(tables, operator, cost), cost)


def cost_of_group(total: float, elements: int) -> float:
    """Return the cost at which a group is complete, for the cost of all tasks and the elements of a matrix."""
    return total / min(MOST, max(FEWEST, total / (WORTH * max(elements, 1))))


def grouped(tasks: Sequence[T], cost_of_group: float) -> list[list[T]]:
    """Divide tasks, in their order, into groups of about this cost."""
    groups: list[list[T]] = []
    cost = cost_of_group
    for task in tasks:
        if cost + task.cost > cost_of_group:
            groups.append([])
            cost = 0.0
        groups[-1].append(task)
        cost += task.cost
    return groups
