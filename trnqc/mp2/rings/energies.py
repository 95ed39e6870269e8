"""Opposite-spin MP2 by Laplace quadrature and direct RPA correlation, from the factors B of each spin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from trnqc.errors import InputError, MoleculeError
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.rings.gram import gram_matrices
from trnqc.mp2.rings.quadrature import exponential_sum, frequencies

EXPECTED = 0.05
"""Hartree of opposite-spin energy that an occupied orbital is expected to have. The quadrature is chosen for it, and
again if the energy turns out to be larger."""


@dataclass(frozen=True)
class RingEnergy:
    """A correlation energy by quadrature with `points` points, and a bound on the quadrature's error, Hartree; the
    error is None where there is only experience.
    """

    energy: float
    error: float | None
    points: int

    def scaled(self, factor: float) -> RingEnergy:
        """The energy and its error times a positive factor."""
        return RingEnergy(factor * self.energy, self.error and factor * self.error, self.points)


def opposite_spin_energy(channels: Sequence[Factors], execution: Execution, tolerance: float = 1e-6) -> RingEnergy:
    """Opposite-spin MP2 energy by Laplace quadrature, in O(N^4) operations, from factors of a closed shell or of two
    spins.

    E_os = -sum_iajb (ia|jb)^2 / D with D = eps_a + eps_b - eps_i - eps_j, alpha ia and beta jb, becomes -sum_k w_k
    sum_PQ X^alpha_PQ(t_k) X^beta_PQ(t_k) with X_PQ(t) = sum_ia exp(-t (eps_a - eps_i)) B_iaP B_iaQ (Jung, Lochan, Dutoi
    and Head-Gordon, J. Chem. Phys. 121, 9793 (2004), eqs. 14-19). All terms have the same sign, so the relative error
    of the exponential sum bounds that of the energy, which is at most `tolerance` (Hartree).

    Raises InputError if the tolerance is not positive; MoleculeError if an occupied orbital does not lie below all
    virtual ones, where the Laplace integral diverges; NotConverged if no quadrature reaches the tolerance.
    """
    if not tolerance > 0:
        raise InputError(f"tolerance must be a positive energy in Hartree, got {tolerance!r}")
    if not all(_has_pairs(factors) for factors in channels):
        return RingEnergy(0.0, 0.0, 0)
    lowest = sum(_gap(factors) for factors in _pair(channels))
    highest = sum(float(factors.eps_vir.max() - factors.eps_occ.min()) for factors in _pair(channels))
    relative = tolerance / (EXPECTED * sum(factors.shape[0] for factors in _pair(channels)) / 2)
    while True:
        series = exponential_sum(lowest, highest, relative)
        exponents = series.exponents

        def weight(k: int, gaps: np.ndarray, exponents: np.ndarray = exponents) -> np.ndarray:
            return np.exp(-exponents[k] * gaps)

        grams = gram_matrices(channels, weight, len(exponents), execution, "Laplace points")
        energy = -sum(w * _trace_of_product(x[0], x[-1]) for w, x in zip(series.weights, grams))
        error = series.relative_error * abs(energy) / (1 - series.relative_error)
        if error <= tolerance:
            return RingEnergy(float(energy), float(error), len(exponents))
        relative = 0.5 * tolerance / abs(energy)


def rpa_energy(
    channels: Sequence[Factors], execution: Execution, points: int = 40, frequency_scale: float = 0.5
) -> RingEnergy:
    """Correlation energy of the direct random-phase approximation, in O(N^4) operations, from factors of a closed shell
    or of two spins.

    E_c = 1 / (2 pi) times the integral of Tr[ln(1 + Q(i w)) - Q(i w)] over w from 0 to infinity, with Q_PQ(i w) =
    sum_ia 2 n d / (w^2 + d^2) B_iaP B_iaQ, d = eps_a - eps_i, and n the electrons of an orbital (Eshuis, Yarkony and
    Furche, J. Chem. Phys. 132, 234114 (2010), eqs. 19-22). `points` frequencies on the imaginary axis are spread about
    `frequency_scale` (Hartree). Raises MoleculeError if an occupied orbital does not lie below all virtual ones, where
    the response has no sign.
    """
    if points < 1:
        raise InputError(f"points must be a positive number of frequencies, got {points!r}")
    electrons = 2.0 if len(channels) == 1 else 1.0
    channels = [factors for factors in channels if _has_pairs(factors)]
    for factors in channels:
        _gap(factors)
    omega, w = frequencies(points, frequency_scale)

    def weight(k: int, gaps: np.ndarray) -> np.ndarray:
        return 2 * electrons * gaps / (omega[k] ** 2 + gaps**2)

    energy = 0.0
    for factor, responses in zip(w / (2 * np.pi), gram_matrices(channels, weight, points, execution, "frequencies")):
        energy += factor * _ring_trace(sum(responses[1:], responses[0]))
    return RingEnergy(float(energy), None, points)


def _ring_trace(Q: np.ndarray) -> float:
    """Tr[ln(1 + Q) - Q] of a positive semidefinite matrix from its lower triangle."""
    trace = np.trace(Q)
    Q[np.diag_indices_from(Q)] += 1
    diagonal = np.diag(linalg.cholesky(Q, lower=True, overwrite_a=True, check_finite=False))
    return float(2 * np.log(diagonal).sum() - trace)


def _trace_of_product(a: np.ndarray, b: np.ndarray) -> float:
    """Tr[A B] of symmetric matrices from their lower triangles."""
    return float(2 * np.vdot(a, b) - np.vdot(a.diagonal(), b.diagonal()))


def _pair(channels: Sequence[Factors]) -> tuple[Factors, Factors]:
    return channels[0], channels[-1]


def _has_pairs(factors: Factors) -> bool:
    """Whether the spin has occupied and virtual orbitals to correlate, which one spin of an open shell may lack."""
    return 0 not in factors.shape[:2]


def _gap(factors: Factors) -> float:
    """Difference of the lowest virtual and the highest occupied energy, Hartree."""
    gap = float(factors.eps_vir.min() - factors.eps_occ.max())
    if not gap > 0:
        raise MoleculeError(
            f"the highest occupied orbital lies {-gap:.4f} Hartree above the lowest virtual one: ring correlation "
            "needs a positive gap, so look for another SCF solution (mf.stability())"
        )
    return gap
