"""Searches over a finite list of points. A search is a generator that yields proposals and receives their costs.

    search = halving(points, seed, budget); proposal = next(search); proposal = search.send(cost) ...

A cost is a time in nanoseconds, or None for a candidate that failed. The same seed and costs give the same proposals,
so that a killed run can be repeated with the costs in its journal.
"""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import ModuleType

from autotune.spaces import Point
from trnqc.errors import InputError, UnsupportedError

EXTRA = "pip install 'trnqc[tune]'"


@dataclass(frozen=True)
class Proposal:
    """The proposal to time point number `index` with a fraction of the workload."""

    index: int
    fraction: float = 1.0


FRACTIONS = (0.25, 0.5, 1.0)
"""The fractions of the workload in the rounds of `halving`."""
Conversation = Generator[Proposal, float | None, None]


def exhaustive(points: list[Point], seed: int, budget: int) -> Conversation:
    """All points in order, up to the budget."""
    for index in range(min(len(points), budget)):
        yield Proposal(index)


def halving(points: list[Point], seed: int, budget: int) -> Conversation:
    """Successive halving (K. Jamieson and A. Talwalkar, AISTATS 2016).

    Many points are timed with a quarter of the work, the better half of them with half of it, and the better half of
    these with all of it. Each round takes the same time. The budget is in units of the whole workload. The first point,
    the default of the kernel, is always included.
    """
    counts = _rounds(len(points), budget)
    alive = [0, *random.Random(seed).sample(range(1, len(points)), counts[0] - 1)]
    for n, fraction in enumerate(FRACTIONS):
        costs = {}
        for index in alive:
            cost = yield Proposal(index, fraction)
            costs[index] = math.inf if cost is None else cost
        survivors = [index for index in alive if costs[index] < math.inf]
        alive = sorted(survivors, key=lambda index: costs[index])[: counts[n + 1]] if n + 1 < len(counts) else []


def _rounds(size: int, budget: int) -> list[int]:
    """The number of candidates in each round of `halving`."""
    start = max(1, min(size, int(budget / sum(f / 2**n for n, f in enumerate(FRACTIONS)))))
    return [max(1, start // 2**n) for n in range(len(FRACTIONS))]


def model(points: list[Point], seed: int, budget: int) -> Conversation:
    """The tree-structured Parzen estimator of Optuna over the knobs (J. Bergstra et al., NeurIPS 2011).

    Points that break a rule are not timed; the sampler receives a cost that is higher than all others. If 20 proposals
    in a row are not new, a random one of the remaining points is taken.
    """
    optuna = _optuna()
    number = {tuple(sorted(point.items())): index for index, point in enumerate(points)}
    values = {knob: sorted({point[knob] for point in points}) for knob in points[0]}
    sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, n_startup_trials=max(4, budget // 4))
    study = optuna.create_study(sampler=sampler)
    chance = random.Random(seed)
    costs: dict[int, float] = {}
    study.enqueue_trial({knob: values[knob].index(value) for knob, value in points[0].items()})
    while len(costs) < min(budget, len(points)):
        for _ in range(20):
            trial = study.ask()
            point = {knob: values[knob][trial.suggest_int(knob, 0, len(values[knob]) - 1)] for knob in values}
            index = number.get(tuple(sorted(point.items())))
            if index is not None and index not in costs:
                break
            study.tell(trial, _penalty(costs) if index is None else costs[index])
        else:
            index = chance.choice([n for n in range(len(points)) if n not in costs])
            study.enqueue_trial({knob: values[knob].index(value) for knob, value in points[index].items()})
            trial = study.ask()
            for knob in values:
                trial.suggest_int(knob, 0, len(values[knob]) - 1)
        cost = yield Proposal(index)
        costs[index] = _penalty(costs) if cost is None else math.log(cost)
        study.tell(trial, costs[index])


def _penalty(costs: dict[int, float]) -> float:
    """The logarithm of the cost of a point that fails or breaks a rule: higher than all others, but finite."""
    return max(costs.values(), default=0.0) + 1.0


def _optuna() -> ModuleType:
    if importlib.util.find_spec("optuna") is None:
        raise UnsupportedError(f"the model-guided search needs Optuna, which is not installed: {EXTRA}")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


SEARCHES: dict[str, Callable[[list[Point], int, int], Conversation]] = {
    "exhaustive": exhaustive,
    "halving": halving,
    "model": model,
}


def expected(name: str, size: int, budget: int) -> int:
    """The largest number of proposals of a search."""
    return sum(_rounds(size, budget)) if name == "halving" else min(size, budget)


def pick(name: str, size: int, budget: int) -> tuple[str, str]:
    """The name of a search and the reason for it. "auto" is exhaustive within the budget, else model or halving."""
    if name in SEARCHES:
        return name, "asked for"
    if name != "auto":
        raise InputError(f"a search is one of auto, {', '.join(SEARCHES)}; found {name!r}")
    if size <= budget:
        return "exhaustive", f"{size} feasible points are within the budget of {budget}"
    if importlib.util.find_spec("optuna") is not None:
        return "model", f"{size} feasible points exceed the budget of {budget}; Optuna is installed"
    return "halving", f"{size} feasible points exceed the budget of {budget}; Optuna is not installed ({EXTRA})"
