"""Searches over a finite list of points, as generators: a search yields proposals and is sent their costs.

    search = halving(points, seed, budget); proposal = next(search); proposal = search.send(cost) ...

A cost is in nanoseconds, or None for a candidate that failed. Equal seeds and costs give equal proposals, so that a
killed run is resumed by replaying it with the costs in its journal.
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
    """Time point number `index` on the given fraction of the workload (1: all of it)."""

    index: int
    fraction: float = 1.0


FRACTIONS = (0.25, 0.5, 1.0)
"""Fractions of the workload in the rounds of halving."""
Conversation = Generator[Proposal, float | None, None]


def exhaustive(points: list[Point], seed: int, budget: int) -> Conversation:
    """Every point, in order, up to the budget."""
    for index in range(min(len(points), budget)):
        yield Proposal(index)


def halving(points: list[Point], seed: int, budget: int) -> Conversation:
    """Successive halving: many points on a quarter of the work, the better half on half of it, its better half on all.

    (Jamieson and Talwalkar, AISTATS 2016.) Each round costs the same; the budget counts whole workloads. The first
    point, the kernel's default, always takes part.
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
    """Candidates in each round of halving."""
    start = max(1, min(size, int(budget / sum(f / 2**n for n, f in enumerate(FRACTIONS)))))
    return [max(1, start // 2**n) for n in range(len(FRACTIONS))]


def model(points: list[Point], seed: int, budget: int) -> Conversation:
    """Search guided by Optuna's tree-structured Parzen estimator over the knobs (Bergstra et al., NeurIPS 2011).

    Points that the rules cut are never timed; the sampler is told a cost above all that it has seen. If 20 proposals in
    a row are not new, one of the remaining points is taken at random.
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
    """A logarithm of cost above all so far: what failed or is cut is worse than what runs, by a finite amount."""
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
    """The largest number of candidates that a search proposes."""
    return sum(_rounds(size, budget)) if name == "halving" else min(size, budget)


def pick(name: str, size: int, budget: int) -> tuple[str, str]:
    """The search and the reason: "auto" is exhaustive within the budget, else model with Optuna, else halving."""
    if name in SEARCHES:
        return name, "asked for"
    if name != "auto":
        raise InputError(f"searches are auto, {', '.join(SEARCHES)}; {name!r} was asked for")
    if size <= budget:
        return "exhaustive", f"{size} feasible points are within the budget of {budget}"
    if importlib.util.find_spec("optuna") is not None:
        return "model", f"{size} feasible points exceed the budget of {budget}; Optuna is installed"
    return "halving", f"{size} feasible points exceed the budget of {budget}; Optuna is not installed ({EXTRA})"
