"""The quartets of a molecule as tasks for threads, and their division into groups, which ranks and threads share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from trnqc.eri.classes import QuartetClass
from trnqc.eri.jk.screening import Table
from trnqc.eri.shells.pairs import ShellPairs

# Groups at the least, so that a few threads finish at about the same time.
FEWEST = 32
# Cost of a group, in units of `cost_of` per element of J and K: adding up a group's J and K is then a few per cent.
WORTH = 4000.0
# Groups at most: no more are ever dealt out.
MOST = 1 << 14

Classify = Callable[[ShellPairs, ShellPairs], QuartetClass]


@dataclass(frozen=True)
class Task:
    """Bra pairs begin .. end of a table with all ket pairs of another."""

    bra: Table
    ket: Table
    cls: QuartetClass
    begin: int
    end: int
    cost: float


def cost_of(bra: Table, ket: Table) -> float:
    """The relative cost of all quartets of two tables."""
    a, b = bra.pairs, ket.pairs
    elements = np.prod([*a.extents, *b.extents]) * a.contractions * b.contractions
    order = a.la + a.lb + b.la + b.lb
    primitives = float(a.count.mean() * b.count.mean())
    quartets = len(bra) * len(ket) / (2 if bra is ket else 1)
    return quartets * (primitives * (order + 1) ** 4 + 20.0 * float(elements) + 200.0)


def tasks_of(tables: Sequence[Table], classify: Classify, most: float = np.inf) -> list[Task]:
    """All quartets, the most expensive task first; tasks that cost more than `most` are cut if they can be."""
    tasks = []
    for n, a in enumerate(tables):
        for b in tables[: n + 1]:
            cost = cost_of(a, b)
            parts = int(min(len(a), max(1, np.ceil(cost / most))))
            edges = np.linspace(0, len(a), parts + 1).astype(int).tolist()
            cls = classify(a.pairs, b.pairs)
            tasks += [Task(a, b, cls, i, j, cost / parts) for i, j in pairwise(edges)]
    return sorted(tasks, key=lambda task: -task.cost)


def groups_of(tables: Sequence[Table], classify: Classify, nao: int) -> list[list[Task]]:
    """All quartets in groups of similar cost. The division depends on neither the threads nor the ranks."""
    total = sum(cost_of(a, b) for n, a in enumerate(tables) for b in tables[: n + 1])
    share = total / min(MOST, max(FEWEST, total / (WORTH * nao**2)))
    groups: list[list[Task]] = []
    cost = share
    for task in tasks_of(tables, classify, share):
        if cost + task.cost > share:
            groups.append([])
            cost = 0.0
        groups[-1].append(task)
        cost += task.cost
    return groups
