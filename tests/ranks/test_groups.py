"""How tasks are divided among ranks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from trnqc.errors import InputError
from trnqc.ranks import ALONE, Alone, balanced, dealt, dearest_first

costs = some.lists(some.floats(0, 1e6), max_size=60)


@given(costs, some.integers(1, 9))
def test_lpt_is_within_its_bound(costs, ranks):
    owners = balanced(costs, ranks)
    loads = np.bincount(owners, weights=costs, minlength=ranks) if costs else np.zeros(ranks)
    best = max(sum(costs) / ranks, max(costs, default=0.0))
    assert loads.max() <= (4 / 3) * max(best, _third(costs, ranks)) + 1e-6


def _third(costs, ranks):
    """With more tasks than ranks, some rank has two: at least the two smallest of the dearest ranks + 1."""
    ordered = sorted(costs, reverse=True)
    return ordered[ranks - 1] + ordered[ranks] if len(ordered) > ranks else 0.0


@given(some.lists(some.floats(0, 10), min_size=1, max_size=30))
def test_only_those_allowed_are_chosen(costs):
    allowed = [(n % 3, 4) for n in range(len(costs))]
    assert all(owner in allowed[n] for n, owner in enumerate(balanced(costs, 5, allowed)))


class Second(Alone):
    rank, size = 1, 3


class Sharing(Alone):
    """One of two ranks that count together."""

    size = 2

    def __init__(self, counters: Counter[str]) -> None:
        self.counters = counters

    def next_of(self, name: str) -> int:
        self.counters[name] += 1
        return self.counters[name] - 1


@given(costs)
def test_alone_one_has_everything_dearest_first(costs):
    for schedule in ("static", "dynamic"):
        assert list(dealt(costs, ALONE, schedule, "tasks")) == dearest_first(costs)


def test_a_task_is_dealt_once():
    owners = balanced([3.0, 1.0, 2.0, 2.0], 3)
    assert [n for n in dearest_first([3.0, 1.0, 2.0, 2.0]) if owners[n] == 1] == list(
        dealt([3.0, 1.0, 2.0, 2.0], Second(), "static")
    )
    counters: Counter[str] = Counter()
    ranks = Sharing(counters), Sharing(counters)
    for _ in range(2):  # Another set of tasks of the same name is dealt from its beginning.
        one, other = (dealt([3.0, 1.0, 2.0], rank, "dynamic", "a") for rank in ranks)
        assert [next(one), next(other), *one, *other] == [0, 2, 1]


def test_an_unknown_schedule_is_refused():
    with pytest.raises(InputError, match="static, dynamic"):
        list(dealt([1.0], ALONE, "guided"))
