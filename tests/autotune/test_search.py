"""The searches on cost functions that are known everywhere."""

import itertools
import math
import sys

import pytest

from autotune.search import SEARCHES, expected, halving, model, pick
from trnqc.errors import InputError, UnsupportedError

POINTS = [{"a": a, "b": b, "c": c} for a, b, c in itertools.product([1, 2, 4, 8], [16, 32, 64], [0, 1, 2, 3])]
# Points of a grid that rules have cut into an irregular shape.
RAGGED = [p for p in POINTS if p["a"] * p["b"] <= 256 and (p["c"] != 1 or p["a"] == 2)]


def cost(point):
    return 100.0 + 10 * (point["a"] - 4) ** 2 + abs(point["b"] - 32) + 7 * point["c"]


def play(search, points, fail=lambda point: False):
    """[(index, fraction)] of all proposals, each answered with its cost."""
    steps = []
    try:
        proposal = next(search)
        while True:
            steps.append((proposal.index, proposal.fraction))
            point = points[proposal.index]
            proposal = search.send(None if fail(point) else cost(point) * proposal.fraction)
    except StopIteration:
        return steps


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_same_seed_and_costs_give_the_same_proposals(name, seed):
    runs = [play(SEARCHES[name](RAGGED, seed, 12), RAGGED) for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("budget", [1, 2, 7, 1000])
def test_the_budget_holds_and_nothing_is_measured_twice(name, budget):
    steps = play(SEARCHES[name](RAGGED, 0, budget), RAGGED)
    assert len(set(steps)) == len(steps) >= 1
    assert sum(fraction for _, fraction in steps) <= max(budget, 1.75)
    assert any(fraction == 1.0 for _, fraction in steps)
    assert len(steps) <= expected(name, len(RAGGED), budget)


@pytest.mark.parametrize("name", SEARCHES)
def test_the_default_point_takes_part(name):
    assert play(SEARCHES[name](RAGGED, 3, 5), RAGGED)[0][0] == 0


@pytest.mark.parametrize("name", SEARCHES)
def test_with_budget_for_all_the_best_point_is_found(name):
    steps = play(SEARCHES[name](RAGGED, 0, 10 * len(RAGGED)), RAGGED)
    best = min(cost(RAGGED[index]) for index, fraction in steps if fraction == 1.0)
    assert best == min(map(cost, RAGGED))


@pytest.mark.parametrize("name", ["halving", "model"])
def test_a_third_of_the_budget_comes_close(name):
    """Averaged over seeds: better than as many random points are expected to be."""
    budget = len(POINTS) // 3
    collected = []
    for seed in range(8):
        steps = play(SEARCHES[name](POINTS, seed, budget), POINTS)
        collected.append(min(cost(POINTS[index]) for index, fraction in steps if fraction == 1.0))
    ordered = sorted(map(cost, POINTS))
    n, k = len(ordered), budget
    expected = sum(c * math.comb(n - 1 - i, k - 1) for i, c in enumerate(ordered)) / math.comb(n, k)
    assert sum(collected) / len(collected) <= expected


@pytest.mark.parametrize("name", SEARCHES)
def test_failing_points_do_not_stop_the_search(name):
    steps = play(SEARCHES[name](RAGGED, 0, 10 * len(RAGGED)), RAGGED, fail=lambda point: point["a"] == 4)
    alive = [cost(RAGGED[i]) for i, f in steps if f == 1.0 and RAGGED[i]["a"] != 4]
    assert min(alive) == min(cost(p) for p in RAGGED if p["a"] != 4)


@pytest.mark.parametrize("name", SEARCHES)
def test_all_points_failing_ends_the_search(name):
    assert len(play(SEARCHES[name](RAGGED, 0, 9), RAGGED, fail=lambda point: True)) <= 40


def test_halving_drops_failures_before_good_points():
    steps = play(halving(RAGGED, 0, 8), RAGGED, fail=lambda point: point["a"] != 2)
    last = [RAGGED[i] for i, f in steps if f == 1.0]
    assert last and all(point["a"] == 2 for point in last)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_single_point(name):
    assert {index for index, _ in play(SEARCHES[name](POINTS[:1], 0, 5), POINTS[:1])} == {0}


def test_what_auto_picks_is_said(monkeypatch):
    assert pick("auto", 10, 10) == ("exhaustive", "10 feasible points are within the budget of 10")
    assert pick("auto", 11, 10)[0] == "model"
    assert pick("halving", 3, 10) == ("halving", "asked for")
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    name, why = pick("auto", 11, 10)
    assert name == "halving" and "Optuna is not installed (pip install 'trnqc[tune]')" in why
    with pytest.raises(UnsupportedError, match=r"needs Optuna, which is not installed: pip install 'trnqc\[tune\]'"):
        next(model(POINTS, 0, 5))


def test_unknown_searches_are_refused():
    with pytest.raises(InputError, match="a search is one of auto, exhaustive, halving, model; found 'random'"):
        pick("random", 1, 1)
