"""Which of a test's parametrisations run by default: enough that every two values of different parameters meet.

A test with parameters a and b of 5 values each and c of 4 has 100 parametrisations, and 25 or a few more cover every pair.
Defects that need three values at once are rare (D. R. Kuhn, D. R. Wallace, A. M. Gallo, IEEE Trans. Softw. Eng. 30, 418
(2004)), and ``--every-combination`` runs all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

import pytest

Row = tuple[str, ...]

# A test with fewer parametrisations runs all of them.
FEW = 8


def covering(rows: Sequence[Row]) -> list[int]:
    """The numbers of rows that have every pair of values of two columns that occurs, chosen greedily.

    Each next row has the most pairs that no chosen one has; of equal ones it is the first.
    """
    left = [set(_pairs(row)) for row in rows]
    open_pairs = set().union(*left) if left else set()
    chosen = []
    while open_pairs:
        best = max(range(len(rows)), key=lambda n: (len(left[n] & open_pairs), -n))
        chosen.append(best)
        open_pairs -= left[best]
    return sorted(chosen)


def _pairs(row: Row) -> Iterator[tuple[int, str, int, str]]:
    for a, b in combinations(range(len(row)), 2):
        yield a, row[a], b, row[b]


def pairwise(items: Iterable[pytest.Function]) -> tuple[list[pytest.Function], list[pytest.Function]]:
    """Divide collected tests into those that run and those that are left out, both in their order."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    run: list[pytest.Function] = []
    for same in tests.values():
        rows = [_row(item) for item in same]
        few = len(same) < FEW or not rows[0] or len(rows[0]) < 3 or len({len(row) for row in rows}) > 1
        run += same if few else [same[n] for n in covering(rows)]
    kept = set(map(id, run))
    items = list(items)
    return [item for item in items if id(item) in kept], [item for item in items if id(item) not in kept]


def _row(item: pytest.Function) -> Row:
    """The name of the value of each decorator's parameters."""
    callspec = getattr(item, "callspec", None)
    return () if callspec is None else tuple(callspec._idlist)
