"""Sub-products that several terms share and that are computed once, chosen together with the order of every term.

A candidate is a sub-product, of any order of contraction, that occurs at least twice, up to names of labels and
declared symmetry. Candidates are added and removed as long as the total work decreases. The order of each term is the
exact optimum for the products that are shared, so a term may take a longer way that pays because of the sharing.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.contraction.order.canonical import Canonical, Item, Key, canonical
from trnqc.contraction.order.network import LabelNetwork, Splits, bits
from trnqc.contraction.time_limit import SHARING, out_of_time
from trnqc.expression.symmetry import Symmetry

# Largest number of factors of a term whose sub-products are shared; longer terms have too many of them.
MOST = 9
# Name of this search in the plan's list of what was not searched.
SHARED = "products that terms share"


@dataclass(frozen=True, eq=False)
class PlannedTerm:
    """A product of factors and the labels that its result keeps, with the costs of its sub-products."""

    items: tuple[Item, ...]
    kept: tuple[str, ...]
    extents: Mapping[str, int]
    symmetries: Mapping[str, tuple[Symmetry, ...]]

    @cached_property
    def network(self) -> LabelNetwork:
        """The factors as a network."""
        return LabelNetwork.of([item.labels for item in self.items], self.kept, self.extents)

    @cached_property
    def parts(self) -> dict[int, Canonical]:
        """The canonical form of every sub-product of two or more factors."""
        if len(self.items) > MOST:
            return {}
        parts = {}
        for part in range(1, self.network.everything + 1):
            if out_of_time(SHARED, SHARING):
                return {}
            if part.bit_count() > 1:
                parts[part] = canonical([self.items[k] for k in bits(part)], self.labels(part), self.symmetries)
        return parts

    def labels(self, part: int) -> frozenset[str]:
        """Return the labels that are kept of a sub-product."""
        outside = set(self.kept)
        for k in bits(self.network.everything ^ part):
            outside.update(self.items[k].labels)
        return frozenset(label for k in bits(part) for label in self.items[k].labels if label in outside)

    @cached_property
    def keys(self) -> frozenset[Key]:
        """The keys of all sub-products."""
        return frozenset(form.key for form in self.parts.values())

    @cached_property
    def _merges(self) -> dict[tuple[int, int], int]:
        return {}

    def merge(self, left: int, right: int) -> int:
        """Return the multiply-adds of multiplying two sub-products."""
        cost = self._merges.get((left, right))
        if cost is None:
            cost = self._merges[left, right] = self.network.merge(left, right)
        return cost

    def plan(self, part: int, shared: frozenset[Key]) -> tuple[int, Splits, tuple[int, ...]]:
        """Return (work, order, shared sub-products used) of the best order of a part, which is itself not shared."""
        costs: dict[int, int] = {}
        halves: dict[int, tuple[int, int]] = {}
        chosen = part & -part
        while True:
            if chosen.bit_count() == 1 or (chosen != part and self.parts[chosen].key in shared):
                costs[chosen] = 0
            else:
                costs[chosen], halves[chosen] = min(
                    (costs[half] + costs[chosen ^ half] + self.merge(half, chosen ^ half), (half, chosen ^ half))
                    for half in _halves(chosen)
                )
            if chosen == part:
                break
            chosen = (chosen - part) & part
        splits: Splits = {}
        used = []
        todo = [part] if part.bit_count() > 1 else []
        while todo:
            chosen = todo.pop()
            if chosen not in halves:
                used.append(chosen)
                continue
            splits[chosen] = halves[chosen]
            todo += [half for half in halves[chosen] if half.bit_count() > 1]
        return costs[part], splits, tuple(used)


def _halves(part: int) -> Iterable[int]:
    """Yield one part of every split of a part in two: the one that holds its lowest operand."""
    low = part & -part
    rest = part ^ low
    half = rest
    while half:
        half = (half - 1) & rest
        yield half | low


class Sharing:
    """The search for sub-products to share among terms; `home` has the (term, part) where each key first occurs."""

    def __init__(self, terms: Sequence[PlannedTerm]) -> None:
        self.terms = terms
        self.home: dict[Key, tuple[PlannedTerm, int]] = {}
        seen: Counter[Key] = Counter()
        for term in terms:
            for part, form in term.parts.items():
                seen[form.key] += 1
                self.home.setdefault(form.key, (term, part))
        self.candidates = [key for key, times in seen.items() if times > 1]
        self._memory: dict[tuple[int, int, frozenset[Key]], tuple[int, tuple[int, ...]]] = {}
        self.chosen = self._search()

    def whole(self, term: PlannedTerm, shared: frozenset[Key]) -> bool:
        """Return whether all of a term is a shared product."""
        everything = term.network.everything
        return everything in term.parts and term.parts[everything].key in shared

    def total(self, shared: frozenset[Key]) -> tuple[int, frozenset[Key]]:
        """Return (work of all terms and of their shared products, keys of the shared products that are used)."""
        work, used, todo = 0, set(), []
        for term in self.terms:
            everything = term.network.everything
            if self.whole(term, shared):
                work += term.network.size(term.network.output)
                todo.append(term.parts[everything].key)
            else:
                cost, keys = self._plan(term, everything, shared)
                work += cost
                todo += keys
        while todo:
            key = todo.pop()
            if key not in used:
                used.add(key)
                cost, keys = self._plan(*self.home[key], shared - {key})
                work += cost
                todo += keys
        return work, frozenset(used)

    def _plan(self, term: PlannedTerm, part: int, shared: frozenset[Key]) -> tuple[int, list[Key]]:
        """Return the work of a part, and the keys of the shared products that it uses."""
        if part.bit_count() == 1:
            return term.network.size(term.network.operands[part.bit_length() - 1]), []
        if not term.parts:
            return 0, []
        at = id(term), part, shared & term.keys
        if at not in self._memory:
            cost, _, used = term.plan(part, at[2])
            self._memory[at] = cost, used
        cost, used = self._memory[at]
        return cost, [term.parts[k].key for k in used]

    def _search(self) -> frozenset[Key]:
        """Add and remove candidates until nothing changes."""
        shared: frozenset[Key] = frozenset()
        best = self.total(shared)[0]
        before = -1
        while best != before and not out_of_time(SHARED, SHARING):
            before = best
            best, shared = self._extended(best, shared)
            best, shared = self._reduced(best, shared)
        return self.total(shared)[1]

    def _extended(self, best: int, shared: frozenset[Key]) -> tuple[int, frozenset[Key]]:
        """Add the candidate that saves most, repeatedly.

        What a candidate saves seldom increases when others are added. So only the candidate of the largest known saving
        is evaluated again before it is added.
        """
        queue = []
        for number, key in enumerate(self.candidates):
            if out_of_time(SHARED, SHARING):
                break
            if key not in shared and (saved := best - self.total(shared | {key})[0]) > 0:
                queue.append((-saved, number))
        heapq.heapify(queue)
        while queue and not out_of_time(SHARED, SHARING):
            _, number = heapq.heappop(queue)
            trial = shared | {self.candidates[number]}
            saved = best - self.total(trial)[0]
            if saved > 0 and queue and -saved > queue[0][0]:
                heapq.heappush(queue, (-saved, number))
            elif saved > 0:
                best, shared = best - saved, trial
        return best, shared

    def _reduced(self, best: int, shared: frozenset[Key]) -> tuple[int, frozenset[Key]]:
        """Remove candidates that no longer save work."""
        for key in sorted(shared):
            if out_of_time(SHARED, SHARING):
                break
            cost = self.total(shared - {key})[0]
            if cost <= best:
                best, shared = cost, shared - {key}
        return best, shared
