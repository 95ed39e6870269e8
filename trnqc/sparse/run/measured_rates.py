"""The rates of the cost model on this machine, measured with small nests.

probes (probes.py) -> one compiled library -> seconds of each probe, twice -> rates of least squared relative error,
near the proportions of the defaults

The cost model is linear in its rates: how much of each kind of work a probe contains is the model's own estimate with
this rate at one and all others at zero.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from trnqc.host.blas import blas_threads
from trnqc.jit import Recipe, find_compiler, library
from trnqc.sparse.lower.program import nest_program
from trnqc.sparse.network.network import network
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.run.dense import by_matrices, multiply_adds
from trnqc.sparse.run.kernel import NestKernel
from trnqc.sparse.run.probes import Probe, empty_probe, probes
from trnqc.sparse.search.cost import CostModel
from trnqc.sparse.search.estimate import estimate
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.statistics import Statistics

# Fields of `WorkRates` that are not fitted: texts, sizes, and the rate of matrix products, which is measured directly.
NOT_FITTED = ("source", "matrix_product", "first_cache", "second_cache")
# Rates that are fitted to the times of the probes.
FITTED = tuple(field.name for field in fields(WorkRates) if field.name not in NOT_FITTED)
# Weight of the defaults' proportions relative to one probe: they decide only what the probes do not.
STEADINESS = 0.2
# Least-squares solutions of the fit, each with the weights of the one before.
ITERATIONS = 8
# Seconds assumed for a probe that takes no longer than a call.
SHORTEST = 1e-6
# A measurement is discarded if the two times of a typical (median) probe differ by more than this part: something else
# used the caches or the core.
DISTURBED = 0.1
# Order of contractions of the measured products of dense matrices.
PAIRS: Tree = ((0, 1), 2)


def measured_rates(known: WorkRates) -> WorkRates | None:
    """Measure the rates of this machine, in about a second of CPU time, a third of it in the compiler.

    `known` has the sizes of this machine's caches. Returns None if something disturbed the measurement, see DISTURBED.
    Raises CompilerError if the probes cannot be compiled.
    """
    chosen = list(probes())
    works = _compiled([empty_probe(), *chosen])
    rounds = np.array([[_least(work) for work in works] for _ in range(2)])
    times = rounds.min(axis=0)
    if np.median(rounds.max(axis=0) / times) > 1 + DISTURBED:
        return None
    work = np.array([_work(probe, known) for probe in chosen])
    rates: dict[str, Any] = fitted(work, np.maximum(times[1:] - times[0], SHORTEST))
    source = f"measured on this machine on {time.strftime('%Y-%m-%d')}"
    # Matrices come last: the first large arrays of a process cost page faults, which later ones do not.
    return replace(known, source=source, **rates, matrix_product=_matrix_product())


def fitted(work: np.ndarray, seconds: np.ndarray) -> dict[str, float]:
    """Return the rates of least squared relative error, none of them negative.

    Parameters
    ----------
    work
        [probes, rates]: the amount of each kind of work in each probe.
    seconds
        [probes]: the time of each probe, without that of the call itself.

    Notes
    -----
    The rates are x_r d_r with the defaults d. Over x and a common factor s, none of them negative, this minimises

        sum_p (t_p - seconds_p)^2 / (t_p seconds_p) + STEADINESS^2 sum_r (x_r - s)^2,   t_p = sum_r work_pr d_r x_r

    by repeated least squares, with the t_p of the denominator from the solution before. In this measure an estimate of
    half the time is as wrong as one of twice the time.
    """
    from scipy.optimize import nnls

    defaults = np.array([getattr(WorkRates(), name) for name in FITTED])
    count = len(defaults)
    terms = np.hstack([work * defaults, np.zeros((len(seconds), 1))])
    steady = STEADINESS * np.hstack([np.eye(count), -np.ones((count, 1))])
    scale = seconds
    for _ in range(ITERATIONS):
        target = np.concatenate([seconds / scale, np.zeros(count)])
        factors, _ = nnls(np.vstack([terms / scale[:, None], steady]), target)
        scale = np.sqrt(seconds * (terms @ factors))
    return dict(zip(FITTED, (defaults * factors[:count]).tolist()))


def _work(probe: Probe, known: WorkRates) -> list[float]:
    """Return the amount of work of every fitted kind that the cost model counts in a probe."""
    statistics = Statistics(probe.nest.network, probe.operands)
    amounts = []
    for one in FITTED:
        rates: dict[str, Any] = {name: float(name == one) for name in FITTED}
        amounts.append(estimate(probe.nest, CostModel(statistics, replace(known, **rates))).seconds)
    return amounts


def _compiled(probes: Sequence[Probe]) -> list[Callable[[], object]]:
    """Return a call of each probe. They are compiled together, and equal functions only once."""
    lanes = find_compiler().lanes()
    programs = [nest_program(probe.nest, lanes) for probe in probes]
    functions = dict.fromkeys(piece.function for each in programs for piece in each.pieces)
    named = {function: replace(function, name=f"probe{n}") for n, function in enumerate(functions)}
    loaded = library(Recipe.of(*named.values(), name="rates"))

    def call(n: int) -> Callable[[], object]:
        pieces = tuple(replace(piece, function=named[piece.function]) for piece in programs[n].pieces)
        kernel = NestKernel(replace(programs[n], pieces=pieces), loaded)
        return lambda: kernel(probes[n].operands)

    return [call(n) for n in range(len(probes))]


def _least(work: Callable[[], object], times: int = 5) -> float:
    """Return the least CPU time of this thread in several runs of some work, after one that is not counted."""
    work()
    seconds = []
    for _ in range(times):
        start = time.thread_time()
        work()
        seconds.append(time.thread_time() - start)
    return min(seconds)


def _matrix_product() -> float:
    """Return seconds per multiply-add of dense matrices in shapes typical of networks, with copies and sums."""
    net = network("Kmn,mi,nu->Kiu", [(96, 80, 80), (80, 24), (80, 80)])
    arrays = [np.ones(net.shape(labels)) for labels in net.inputs]
    with blas_threads(1):
        return _least(lambda: by_matrices(net, PAIRS, arrays), times=20) / multiply_adds(net, PAIRS)
