"""Which sub-products to compute once for several terms, planned together with the order of every term.

A candidate is a sub-product (of any order of contraction) that stands in two or more places, up to names of labels and
declared symmetry. Candidates are taken, and dropped again, as long as the total work falls; the order of each term is
the exact optimum given what is shared, so a term may take a detour that pays only because of the sharing.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.contraction.order.canonical import Canonical, Item, Key, canonical
from trnqc.contraction.order.network import Network, Splits, bits
from trnqc.contraction.time_limit import SHARING, out_of_time
from trnqc.expression.symmetry import Symmetry

# Terms of more factors are planned each for itself: they have too many sub-products.
MOST = 9
# What is left out where the time for planning is over.
SHARED = "products that terms share"


@dataclass(frozen=True, eq=False)
class Term:
    """A product and the labels that are kept of it."""

    items: tuple[Item, ...]
    kept: tuple[str, ...]
    extents: Mapping[str, int]
    symmetries: Mapping[str, tuple[Symmetry, ...]]

    @cached_property
    def network(self) -> Network:
        return Network.of([item.labels for item in self.items], self.kept, self.extents)

    @cached_property
    def parts(self) -> dict[int, Canonical]:
        """Every sub-product of two or more factors."""
        if len(self.items) > MOST:
            return {}
        found = {}
        for part in range(1, self.network.everything + 1):
            if out_of_time(SHARED, SHARING):
                return {}
            if part.bit_count() > 1:
                found[part] = canonical([self.items[k] for k in bits(part)], self.labels(part), self.symmetries)
        return found

    def labels(self, part: int) -> frozenset[str]:
        """What is kept of a sub-product."""
        outside = set(self.kept)
        for k in bits(self.network.everything ^ part):
            outside.update(self.items[k].labels)
        return frozenset(label for k in bits(part) for label in self.items[k].labels if label in outside)

    @cached_property
    def keys(self) -> frozenset[Key]:
        return frozenset(found.key for found in self.parts.values())

    @cached_property
    def _merges(self) -> dict[tuple[int, int], int]:
        return {}

    def merge(self, left: int, right: int) -> int:
        found = self._merges.get((left, right))
        if found is None:
            found = self._merges[left, right] = self.network.merge(left, right)
        return found

    def plan(self, part: int, shared: frozenset[Key]) -> tuple[int, Splits, tuple[int, ...]]:
        """(work, splits, shared sub-products used) of the best order of a part that is itself not taken as shared."""
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
    """One of each pair of parts that make up this one: those that hold its lowest operand."""
    low = part & -part
    rest = part ^ low
    half = rest
    while half:
        half = (half - 1) & rest
        yield half | low


class Sharing:
    """The search for the sub-products to share among these terms; `chosen` is its result."""

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = terms
        self.home: dict[Key, tuple[Term, int]] = {}
        seen: Counter[Key] = Counter()
        for term in terms:
            for part, found in term.parts.items():
                seen[found.key] += 1
                self.home.setdefault(found.key, (term, part))
        self.candidates = [key for key, times in seen.items() if times > 1]
        self._memory: dict[tuple[int, int, frozenset[Key]], tuple[int, tuple[int, ...]]] = {}
        self.chosen = self._search()

    def whole(self, term: Term, shared: frozenset[Key]) -> bool:
        """Whether all of a term is a shared product."""
        everything = term.network.everything
        return everything in term.parts and term.parts[everything].key in shared

    def total(self, shared: frozenset[Key]) -> tuple[int, frozenset[Key]]:
        """(work of all terms and of what they share, the shared products that are really used)."""
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

    def _plan(self, term: Term, part: int, shared: frozenset[Key]) -> tuple[int, list[Key]]:
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
        """Passes over all candidates, until one changes nothing."""
        shared: frozenset[Key] = frozenset()
        best = self.total(shared)[0]
        before = -1
        while best != before and not out_of_time(SHARED, SHARING):
            before = best
            best, shared = self._taken(best, shared)
            best, shared = self._dropped(best, shared)
        return self.total(shared)[1]

    def _taken(self, best: int, shared: frozenset[Key]) -> tuple[int, frozenset[Key]]:
        """Take what saves most, again and again.

        What one candidate saves seldom grows by taking others: only the best of the last known savings are looked at
        again before one is taken.
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

    def _dropped(self, best: int, shared: frozenset[Key]) -> tuple[int, frozenset[Key]]:
        """Drop what saves nothing any more."""
        for key in sorted(shared):
            if out_of_time(SHARED, SHARING):
                break
            cost = self.total(shared - {key})[0]
            if cost <= best:
                best, shared = cost, shared - {key}
        return best, shared
