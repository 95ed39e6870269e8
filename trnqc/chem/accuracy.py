"""The error of a reduced precision, measured: a sample of pairs is computed again in fp64 on the host.

With N pairs, n of them sampled and d_k = E_k(as run) - E_k(fp64), the error of the sum is estimated as

    |N mean(d)| + 2 N s / sqrt(n) sqrt(1 - n/N) + eps64 sqrt(naux) sum_k |E_k|

the mean carried over to all pairs, twice the standard error of that for sampling without replacement (s: standard
deviation of d), and the rounding of fp64 itself. The sample is evenly spaced over the pairs in lower-triangular
order, so it is the same in every run, and exact in the first term where all pairs fit into it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from trnqc.types import PairEnergies

_SHARE, _LEAST, _MOST = 32, 10, 16


@dataclass(frozen=True)
class ErrorEstimate:
    """Estimated absolute errors in Hartree, from ``sampled`` of ``pairs`` pairs recomputed in fp64."""

    corr: float
    os: float
    ss: float
    sampled: int
    pairs: int


def estimate_error(energies: PairEnergies, B: np.ndarray, eps_occ: np.ndarray, eps_vir: np.ndarray) -> ErrorEstimate:
    """Estimate the errors of ``energies``, computed at any precision from B[nocc, nvir, naux]."""
    i, j = np.tril_indices(len(eps_occ))
    picked = sample(len(i))
    with threadpool_limits(1, user_api="blas"):  # products too small to share among threads
        exact = np.array([pair_energy(B, eps_occ, eps_vir, i[k], j[k]) for k in picked])
    found = np.stack([energies.os[i, j], energies.ss[i, j]], axis=1)
    difference = found[picked] - exact

    def bound(columns: list[int]) -> float:
        rounding = np.finfo(float).eps * np.sqrt(B.shape[2]) * np.abs(found[:, columns]).sum()
        return float(_carry_over(difference[:, columns].sum(axis=1), len(i)) + rounding)

    return ErrorEstimate(bound([0, 1]), bound([0]), bound([1]), len(picked), len(i))


def sample(pairs: int) -> np.ndarray:
    """Indices of the sampled pairs: one in 32, at least 10 and at most 16, evenly spaced."""
    count = min(pairs, max(_LEAST, min(_MOST, -(-pairs // _SHARE))))
    return np.unique(np.linspace(0, pairs - 1, count).round().astype(int))


def pair_energy(B: np.ndarray, eps_occ: np.ndarray, eps_vir: np.ndarray, i: int, j: int) -> tuple[float, float]:
    """Opposite- and same-spin energy of the pair (ij and ji together) in fp64, Hartree; docs/conventions.md."""
    t = B[i] @ B[j].T
    over_d = t / (eps_occ[i] + eps_occ[j] - eps_vir[:, None] - eps_vir)
    weight = 1.0 if i == j else 2.0
    direct, exchange = np.vdot(over_d, t), np.vdot(over_d, t.T)
    return weight * direct, weight * (direct - exchange)


def _carry_over(d: np.ndarray, pairs: int) -> float:
    n = len(d)
    spread = d.std(ddof=1) if n > 1 else 0.0
    return abs(pairs * d.mean()) + 2 * pairs * spread / np.sqrt(n) * np.sqrt(1 - n / pairs)
