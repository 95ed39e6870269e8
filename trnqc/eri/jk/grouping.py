"""Groups of quartets as tasks, divided in a way that depends on neither threads nor ranks.

The terms of one group are summed in its thread, and their sum is rounded once (exact_sums.py). So the division decides
the bits of J and K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import numpy as np

from trnqc.eri.shells.pairs import ShellPairs

# The fewest groups, where there is enough work: enough for several threads to end at about the same time.
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


def relative_cost(bra: ShellPairs, ket: ShellPairs, quartets: float) -> float:
    """Return the relative cost of a number of quartets of two classes of pairs.

    The terms stand for the recurrences of primitive quartets, the digestion of integrals, and the call of a kernel.
    Their weights were fitted to timings of J and K.
    """
    elements = np.prod([*bra.extents, *ket.extents]) * bra.contractions * ket.contractions
    order = bra.la + bra.lb + ket.la + ket.lb
    primitives = float(bra.count.mean() * ket.count.mean())
    return quartets * (primitives * (order + 1) ** 4 + 20.0 * float(elements) + 200.0)


def cost_of_group(total: float, elements: int) -> float:
    """Return the cost at which a group is complete, for the cost of all tasks and the elements of the matrices."""
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
