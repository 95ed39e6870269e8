"""The order of assignments that holds few results at once.

A program is written for readers: all blocks of one tensor, then all blocks of the next. Each result is held from its
assignment to its last use, so that many are held in this order. Here the output comes next that needs the fewest
elements beside what is held, an assignment comes where the first output needs it, and one that frees at least what it
holds comes as soon as it can. The work is the same in every order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import or_

import numpy as np

from trnqc.contraction.order.network import flags


@dataclass(frozen=True)
class Task:
    """An assignment to `target`, which holds `elements` until its last use; 0 for outputs.

    `reads` are the names of the arrays that it needs, its target among them if it adds to it.
    """

    target: str
    reads: frozenset[str]
    elements: int


def demand_order(tasks: Sequence[Task]) -> tuple[int, ...]:
    """Return the numbers of the tasks in the order in which those that nothing follows need them.

    A task that reads or changes an array stays between the changes before and after it.
    """
    return _Order(tasks).result()


def _before(tasks: Sequence[Task]) -> list[list[int]]:
    """Return for each task the tasks that have to come before it."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    before = []
    for number, task in enumerate(tasks):
        earlier = {writer[name] for name in (*task.reads, task.target) if name in writer}
        earlier.update(readers.get(task.target, ()))
        before.append(sorted(earlier))
        for name in task.reads:
            readers.setdefault(name, []).append(number)
        writer[task.target] = number
        readers[task.target] = []
    return before


class _Order:
    """The search; `order` grows."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self.tasks = tasks
        self.before = _before(tasks)
        self.after: list[list[int]] = [[] for _ in tasks]
        for number, earlier in enumerate(self.before):
            for other in earlier:
                self.after[other].append(number)
        self.waiting = [len(earlier) for earlier in self.before]
        # Tasks that have still to read each result, and its elements.
        self.readers: dict[str, int] = {}
        for task in tasks:
            for name in task.reads:
                self.readers[name] = self.readers.get(name, 0) + 1
        self.elements = {task.target: task.elements for task in tasks}
        self.done: set[int] = set()
        self.order: list[int] = []

    def result(self) -> tuple[int, ...]:
        """Return the order."""
        last = [number for number, after in enumerate(self.after) if not after]
        needed, elements = self.needed(last), np.array([task.elements for task in self.tasks], float)
        missing = needed @ elements
        while (least := int(np.argmin(missing))) >= 0 and missing[least] < inf:
            begun = len(self.order)
            self.demand(last[least])
            missing -= needed[:, self.order[begun:]] @ elements[self.order[begun:]]
            missing[least] = inf
        return tuple(self.order)

    def needed(self, last: Sequence[int]) -> np.ndarray:
        """Return for each of these tasks which tasks it needs, itself among them, [tasks of `last`, tasks]."""
        needed: list[int] = []
        for number, earlier in enumerate(self.before):
            needed.append(reduce(or_, (needed[other] for other in earlier), 1 << number))
        return flags([needed[number] for number in last], len(self.tasks))

    def demand(self, number: int) -> None:
        """Append a task behind all that it needs, in the order in which they are written."""
        # Without recursion: chains of assignments may be long.
        todo = [number]
        while todo:
            here = todo[-1]
            missing = [] if here in self.done else [other for other in self.before[here] if other not in self.done]
            if missing:
                todo += reversed(missing)
                continue
            todo.pop()
            self.append(here)

    def append(self, number: int) -> None:
        """Append a task that can run, and those that can run then and free at least what they hold."""
        todo = [number]
        while todo:
            here = todo.pop()
            if here in self.done:
                continue
            self.done.add(here)
            self.order.append(here)
            for name in self.tasks[here].reads:
                self.readers[name] -= 1
            for other in self.after[here]:
                self.waiting[other] -= 1
            todo += [other for other in reversed(self.after[here]) if not self.waiting[other] and self.frees(other)]

    def frees(self, number: int) -> bool:
        """Return whether a task frees at least as many elements as it holds afterwards."""
        task = self.tasks[number]
        freed = sum(self.elements.get(name, 0) for name in task.reads if self.readers[name] == 1)
        return task.elements <= freed
