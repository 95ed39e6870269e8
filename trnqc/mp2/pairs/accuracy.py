"""The error of a reduced precision, measured: a sample of pairs is computed again in fp64 on the host.

Errors grow with the pair's energy, so pairs are sampled with probability proportional to w_k = |E_k| + mean|E| / 10:
sorted by w, those at n evenly spaced quantiles of its running sum W, the same in every run. With
d_k = E_k(as run) - E_k(fp64), every x_k = W d_k / w_k estimates the error of the whole sum, and

    |mean(x)| + 2 std(x) / sqrt(n) + eps64 sqrt(naux) sum_k |E_k|

is reported: their mean, twice its standard error, and the rounding of fp64 itself. Up to n pairs all are computed and
the first two terms are the exact |sum_k d_k|.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.host.blas import single_threaded
from trnqc.types import PairEnergies

Exact = Callable[[np.ndarray, np.ndarray], np.ndarray]

SAMPLE = 24
"""Pairs computed again: enough for an estimate of one to four times the error, for a few per cent of the work."""


@dataclass(frozen=True)
class ErrorEstimate:
    """Estimated absolute errors in Hartree, from ``sampled`` of ``pairs`` pairs recomputed in fp64."""

    corr: float
    os: float
    ss: float
    sampled: int
    pairs: int


def estimate_error(
    energies: PairEnergies, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, exact_of: Exact | None = None
) -> ErrorEstimate:
    """Estimate the errors of ``energies``, computed at any precision from B[nocc, nvir, naux].

    exact_of: `pair_energy` of pairs i, j as [pairs, 2], for whoever does not have all rows B[i].
    """
    i, j = np.tril_indices(len(eps_occ))
    found = np.stack([energies.os[i, j], energies.ss[i, j]], axis=1)
    weights = np.abs(found).sum(axis=1)
    weights += weights.mean() / 10 or 1.0
    picked, times = np.unique(sample(weights), return_counts=True)
    with single_threaded():  # products too small to share among threads
        if exact_of is None:
            exact = np.array([pair_energy(B, eps_occ, eps_vir, i[k], j[k]) for k in picked])
        else:
            exact = exact_of(i[picked], j[picked])
    difference = found[picked] - exact

    def error(columns: list[int]) -> float:
        rounding = np.finfo(float).eps * np.sqrt(B.shape[2]) * np.abs(found[:, columns]).sum()
        d = difference[:, columns].sum(axis=1)
        if len(picked) == len(i):
            return float(abs(d.sum()) + rounding)
        x = np.repeat(weights.sum() * d / weights[picked], times)
        return float(abs(x.mean()) + 2 * x.std(ddof=1) / np.sqrt(len(x)) + rounding)

    return ErrorEstimate(error([0, 1]), error([0]), error([1]), len(picked), len(i))


def sample(weights: np.ndarray) -> np.ndarray:
    """Indices of the pairs to compute again, heavy ones possibly more than once; all of them, up to SAMPLE pairs."""
    if len(weights) <= SAMPLE:
        return np.arange(len(weights))
    order = np.argsort(-weights, kind="stable")
    running = np.cumsum(weights[order])
    return order[np.searchsorted(running, (np.arange(SAMPLE) + 0.5) / SAMPLE * running[-1])]


def pair_energy(B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, i: int, j: int) -> tuple[float, float]:
    """Opposite- and same-spin energy of the pair (ij and ji together) in fp64, Hartree; docs/conventions.md."""
    t = B[i] @ B[j].T
    over_d = t / (eps_occ[i] + eps_occ[j] - eps_vir[:, None] - eps_vir)
    weight = 1.0 if i == j else 2.0
    direct, exchange = np.vdot(over_d, t), np.vdot(over_d, t.T)
    return weight * direct, weight * (direct - exchange)
