"""The error of a reduced precision, estimated from a sample of pairs that is computed again in fp64 on the host.

Errors grow with the energy of a pair. Therefore pair k is sampled with a probability proportional to its weight
w_k = |E_k| + mean|E| / 10: pairs are sorted by w, and those at n evenly spaced quantiles of the running sum of w are
selected, so that every run selects the same ones. With W = sum_k w_k and d_k = E_k(as run) - E_k(fp64), every
x_k = W d_k / w_k estimates the error of the correlation energy. The reported error is

    |mean(x)| + 2 std(x) / sqrt(n) + eps64 sqrt(naux) sum_k |E_k|,

which is the mean, twice its standard error, and the rounding error of fp64. If there are at most n pairs, all of them
are computed again, and the first two terms are replaced by the exact |sum_k d_k|.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import PrecisionError
from trnqc.host.blas import single_threaded
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.types import PairEnergies

Exact = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""A function of the numbers of sectors and the orbitals i and j that returns energies of these pairs, [pairs, 2]."""

# Number of pairs that are computed again. In tests with fp32 and bf16x3 the estimate was then one to four times the
# error, for a few per cent of the work.
SAMPLE = 24
# The estimate of a sample can be this many times the error, see SAMPLE.
MARGIN = 4.0
# The error in Hartree of the correlation energy, and of each of its spin parts, that a precision promises. Of energies
# above 1 Hartree it is this fraction (docs/conventions.md).
PROMISED = {"fp64": 1e-9, "fp32": 1e-6, "bf16x15": 1e-6, "bf16x6": 1e-6, "bf16x3": 1e-6, "bf16": 5e-3}


@dataclass(frozen=True)
class ErrorEstimate:
    """Estimated absolute errors in Hartree.

    Attributes
    ----------
    corr, os, ss
        Errors of the correlation energy and of its opposite- and same-spin parts.
    sampled, pairs
        Number of pairs that were computed again in fp64, and number of all pairs.
    """

    corr: float
    os: float
    ss: float
    sampled: int
    pairs: int


def require_promise(error: ErrorEstimate, energy: float, precision: str, ran_on: str) -> None:
    """Raise PrecisionError if the error of the correlation energy or of a spin part exceeds the promise of the
    precision.

    `error` is exact if all pairs were computed again; otherwise the error may be `MARGIN` times as large.
    """
    promised = PROMISED[precision] * max(1.0, abs(energy))
    allowed = promised if error.sampled == error.pairs else MARGIN * promised
    largest = float(np.max([error.corr, error.os, error.ss]))
    if not largest <= allowed:
        raise PrecisionError(
            f"precision {precision!r} promises an error of {promised:.1e} Hartree, but that of the energies by "
            f"{ran_on} is estimated as {largest:.1e} from {error.sampled} of {error.pairs} pairs in fp64: use the "
            "precision fp64 of the backend 'cpu', or a higher precision of this backend"
        )


def estimate_error(
    energies: Sequence[PairEnergies], sectors: Sequence[PairSector], exact: Exact | None = None
) -> ErrorEstimate:
    """Estimate the errors of pair energies that were computed at any precision.

    Parameters
    ----------
    energies
        The pair energies of each sector.
    sectors
        The pairs, with their factors in fp64.
    exact
        Computes pairs in fp64 if this process does not have all rows of B.
    """
    indices = [sector.indices() for sector in sectors]
    number = np.concatenate([np.full(len(i), n) for n, (i, _) in enumerate(indices)] or [np.empty(0, int)])
    i, j = (np.concatenate([pair[k] for pair in indices] or [np.empty(0, int)]) for k in (0, 1))
    computed = np.concatenate([_values(*parts) for parts in zip(energies, sectors, indices)] or [np.empty((0, 2))])
    if not len(computed):
        return ErrorEstimate(0.0, 0.0, 0.0, 0, 0)
    weights = np.abs(computed).sum(axis=1)
    weights += weights.mean() / 10 or 1.0
    picked, times = np.unique(sample(weights), return_counts=True)
    with single_threaded():  # The products are too small to share among threads.
        exactly = (exact or _exact_from(sectors))(number[picked], i[picked], j[picked])
    difference = computed[picked] - exactly
    naux = sectors[0].naux

    def error(columns: list[int]) -> float:
        rounding = np.finfo(float).eps * np.sqrt(naux) * np.abs(computed[:, columns]).sum()
        d = difference[:, columns].sum(axis=1)
        if len(picked) == len(i):
            return float(abs(d.sum()) + rounding)
        x = np.repeat(weights.sum() * d / weights[picked], times)
        return float(abs(x.mean()) + 2 * x.std(ddof=1) / np.sqrt(len(x)) + rounding)

    return ErrorEstimate(error([0, 1]), error([0]), error([1]), len(picked), len(i))


def _values(energies: PairEnergies, sector: PairSector, indices: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Opposite- and same-spin energies of the pairs of a sector, [pairs, 2]."""
    return np.stack([energies.os[indices], energies.ss[indices]], axis=1) * sector.weights


def _exact_from(sectors: Sequence[PairSector]) -> Exact:
    def exact(number: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        return np.array([sector_energy(sectors[n], *pair) for n, *pair in zip(number, i, j)])

    return exact


def sector_energy(
    sector: PairSector, i: int, j: int, row: np.ndarray | None = None, column: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the opposite- and same-spin energy of a pair of a sector in fp64, Hartree; `row` and `column` are rows i
    and j of the factors, read from the sector if None.
    """
    left, right = sector.left, sector.sides[-1]
    row = np.asarray(left.B[i]) if row is None else row
    column = np.asarray(right.B[j]) if column is None else column
    if sector.right is None:
        both = pair_energy({i: row, j: column}, left.eps_occ, left.eps_vir, i, j)
        return sector.weights[0] * both[0], sector.weights[1] * both[1]
    t = row @ column.T
    return float(np.sum(t * t / (left.eps_occ[i] + right.eps_occ[j] - left.eps_vir[:, None] - right.eps_vir))), 0.0


def sample(weights: np.ndarray) -> np.ndarray:
    """Indices of the pairs to compute again: all, if there are at most SAMPLE; else with repetitions of heavy ones."""
    if len(weights) <= SAMPLE:
        return np.arange(len(weights))
    order = np.argsort(-weights, kind="stable")
    running = np.cumsum(weights[order])
    return order[np.searchsorted(running, (np.arange(SAMPLE) + 0.5) / SAMPLE * running[-1])]


def pair_energy(B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, i: int, j: int) -> tuple[float, float]:
    """Opposite- and same-spin energy of the pairs ij and ji together, in fp64 and Hartree (docs/conventions.md)."""
    t = B[i] @ B[j].T
    over_d = t / (eps_occ[i] + eps_occ[j] - eps_vir[:, None] - eps_vir)
    weight = 1.0 if i == j else 2.0
    direct, exchange = np.vdot(over_d, t), np.vdot(over_d, t.T)
    return weight * direct, weight * (direct - exchange)
