"""The loop over sweeps that all iterative decompositions share: errors, the stopping rule, restarts and progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.host.progress import StageBars
from trnqc.sparse.api import plan
from trnqc.sparse.decompose.start import first_factors
from trnqc.sparse.run.plan import Plan
from trnqc.sparse.tensors.storage import SparseTensor

# Takes the factors, changes them in place, and returns the relative error and what else belongs to the model.
Sweep = Callable[[list[np.ndarray]], tuple[float, Any]]


@dataclass(frozen=True)
class Rules:
    """When sweeps stop, and how often they start.

    Sweeps stop after `n_iter_max`, or when the relative error changes by less than `tol`; all starts after the first
    are random.
    """

    n_iter_max: int
    tol: float
    restarts: int
    random_state: int | np.random.Generator | None

    def __post_init__(self) -> None:
        for name in ("n_iter_max", "restarts"):
            number = getattr(self, name)
            if not isinstance(number, int | np.integer) or number < 1:
                raise InputError(f"{name} is a positive whole number; found {number!r}")
        if not self.tol >= 0:
            raise InputError(f"tol is a number, 0 or more; found {self.tol!r}")


@dataclass(frozen=True, eq=False)
class Descent:
    """The factors after the last sweep, the error after each sweep, and further parts of the model."""

    factors: list[np.ndarray]
    errors: tuple[float, ...]
    converged: bool
    more: Any


def best_descent(
    tensor: SparseTensor, ranks: Sequence[int], init: Any, sweep: Sweep, rules: Rules, name: str
) -> tuple[Descent, tuple[float, ...], float]:
    """Return the descent with the smallest error, the last errors of all, and the wall time.

    On a terminal a bar shows the sweeps with their errors after two seconds.
    """
    began, rng, descents = time.perf_counter(), np.random.default_rng(rules.random_state), []
    with StageBars() as bars:
        for start in range(rules.restarts):
            factors = first_factors(tensor, ranks, init if start == 0 else "random", rng)
            stage = name if rules.restarts == 1 else f"{name}, start {start + 1} of {rules.restarts}"
            descents.append(_descent(factors, sweep, rules, lambda *at, stage=stage: bars(stage, *at)))
    best = min(descents, key=lambda descent: descent.errors[-1])
    return best, tuple(descent.errors[-1] for descent in descents), time.perf_counter() - began


def _descent(factors: list[np.ndarray], sweep: Sweep, rules: Rules, show: Callable[..., None]) -> Descent:
    errors: list[float] = []
    converged, more = False, None
    while len(errors) < rules.n_iter_max and not converged:
        error, more = sweep(factors)
        errors.append(error)
        converged = len(errors) > 1 and abs(errors[-2] - error) < rules.tol
        show(len(errors), rules.n_iter_max, f"error {error:.6e}")
    return Descent(factors, tuple(errors), converged, more)


def mode_plans(tensor: SparseTensor, ranks: Sequence[int], subscripts: Callable[[int, int], str]) -> list[Plan]:
    """Return the plans of the product of the tensor with all factors but one, for each mode."""
    # The planner looks at the elements of arrays; these have no zeros, and no pattern that it could use.
    rng = np.random.default_rng(0)
    shapes = [0.5 + rng.random(shape) for shape in zip(tensor.shape, ranks)]
    return [
        plan(subscripts(tensor.ndim, mode), tensor, *others(shapes, mode), out="dense") for mode in range(tensor.ndim)
    ]


def others(factors: Sequence[np.ndarray], mode: int) -> list[np.ndarray]:
    """Return the factors of all other modes."""
    return [factor for n, factor in enumerate(factors) if n != mode]
