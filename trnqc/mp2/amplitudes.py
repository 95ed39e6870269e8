"""First-order amplitudes t_ij^ab = (ia|jb) / (eps_i + eps_j - eps_a - eps_b) in memory, in PySCF's order of indices.

They are for small molecules and for programs that need them whole; energies and densities do not use them.
"""

from __future__ import annotations

import math

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.mp2.factors.factors import Factors, SpinFactors

SpinAmplitudes = tuple[np.ndarray, np.ndarray, np.ndarray]
"""The blocks aa, ab and bb of an open shell."""


def amplitudes(factors: Factors | SpinFactors, memory: float = math.inf) -> np.ndarray | SpinAmplitudes:
    """Return the amplitudes [nocc, nocc, nvir, nvir] of a closed shell, or the blocks aa, ab and bb of an open shell.
    Raises MemoryLimit if they exceed `memory` bytes.

    In aa and bb the numerators are antisymmetrised: (ia|jb) - (ib|ja) over the denominator.
    """
    if isinstance(factors, Factors):
        _check(factors, factors, memory)
        return _direct(factors, factors)
    alpha, beta = factors
    for left, right in ((alpha, alpha), (alpha, beta), (beta, beta)):
        _check(left, right, memory)
    aa, bb = (_direct(spin, spin) for spin in (alpha, beta))
    return aa - aa.swapaxes(2, 3), _direct(alpha, beta), bb - bb.swapaxes(2, 3)


def _direct(left: Factors, right: Factors) -> np.ndarray:
    t = np.empty((left.shape[0], right.shape[0], left.shape[1], right.shape[1]))
    for i in range(left.shape[0]):
        row = np.asarray(left.B[i])
        for j in range(right.shape[0]):
            denominator = left.eps_occ[i] + right.eps_occ[j] - left.eps_vir[:, None] - right.eps_vir
            t[i, j] = row @ np.asarray(right.B[j]).T / denominator
    return t


def _check(left: Factors, right: Factors, memory: float) -> None:
    needed = 16 * math.prod(left.shape[:2]) * math.prod(right.shape[:2])
    if needed > memory:
        raise MemoryLimit(
            f"the amplitudes need {gigabytes(needed)} of memory, the limit is {gigabytes(memory)}: raise max_memory, "
            "or use energies and densities, which do not need them"
        )
