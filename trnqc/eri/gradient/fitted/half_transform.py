"""Three-centre integrals, or fitted ones, half-transformed to the orbitals of densities and projected on densities.

packed rows of fitting functions -> a thread takes a range: unpacked row -> W^T (rs|P), and sums of (rs|P) D_rs
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.fitting.fitted_integrals import metric_factor
from trnqc.eri.gradient.fitted.densities import SpinDensities
from trnqc.eri.integrals import ThreeCentre, int3c2e
from trnqc.eri.operators import signed_omega
from trnqc.fitted.metric import MetricFactor
from trnqc.host.arrays import empty
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.ranks import ALONE, Ranks

# The fewest fitting functions whose integrals a thread computes at once: each call takes milliseconds.
FUNCTIONS = 32
# Bytes of packed integrals that a thread computes at once, where these are of more functions.
BYTES = 1.28e8
# Integrals may differ from those that fitted rows give by this share of the largest one.
AGREEMENT = 1e-8


class ComputedRows:
    """Rows (rs|P), r >= s, computed when they are read."""

    fitted, ranks, first, factor = False, ALONE, 0, None

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole) -> None:
        self._integrals, self._loc = ThreeCentre(mol, auxmol), auxmol.ao_loc_nr()
        pairs = mol.nao_nr() * (mol.nao_nr() + 1) // 2
        most = max(FUNCTIONS, BYTES / (8 * max(pairs, 1)))
        edges = [0]
        for shell in range(1, auxmol.nbas + 1):
            if shell == auxmol.nbas or self._loc[shell + 1] - self._loc[edges[-1]] > most:
                edges.append(shell)
        self._shells = {int(self._loc[i]): (i, j) for i, j in pairwise(edges)}
        self.ranges = [(int(self._loc[i]), int(self._loc[j])) for i, j in pairwise(edges)]
        self.count = int(self._loc[-1])

    def __call__(self, begin: int, end: int) -> np.ndarray:
        """Return the rows of one of `ranges`."""
        return self._integrals(self._shells[begin])


class FittedRows:
    """Rows Q of fitted integrals L^-1 (rs|P), r >= s, that are in memory.

    Each of several `ranks` has an `array` of rows [n, pairs] from the number `first` on, of `count` rows in all.
    `factor` is the factorised metric if it is known.
    """

    fitted = True

    def __init__(
        self,
        rows: np.ndarray,
        factor: MetricFactor | None = None,
        *,
        first: int = 0,
        count: int | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self.array, self.first, self.factor, self.ranks = rows, first, factor, ranks
        self.count, end = len(rows) if count is None else count, first + len(rows)
        self.ranges = [(n, min(n + FUNCTIONS, end)) for n in range(first, end, FUNCTIONS)]

    @property
    def pairs(self) -> int:
        """The length of a row."""
        return int(self.array.shape[1])

    def __call__(self, begin: int, end: int) -> np.ndarray:
        """Return a range of rows."""
        return self.array[begin - self.first : end - self.first]


def rows_of(fitting: Any, omega: float | None = None) -> FittedRows | None:
    """Return the fitted integrals of a density-fitting object of PySCF if they are L^-1 (rs|P) in memory, else None.

    The rows of the last shell are compared with integrals, because the metric may have been factorised in another way,
    and because the object may hold integrals of another origin. omega: as in `exact_jk_gradient`; `fitting` may be
    None.
    """
    rows: Any
    mol: Any
    auxmol: Any
    rows, mol, auxmol = (getattr(fitting, name, None) for name in ("_cderi", "mol", "auxmol"))
    if not isinstance(rows, np.ndarray) or auxmol is None or mol.cart != auxmol.cart:
        return None
    nao, signed = mol.nao_nr(), signed_omega(mol, omega)
    if rows.shape != (auxmol.nao_nr(), nao * (nao + 1) // 2) or rows.dtype != np.float64:
        return None
    last = (mol.nbas - 1, mol.nbas, 0, mol.nbas, 0, auxmol.nbas)
    with mol.with_range_coulomb(signed), auxmol.with_range_coulomb(signed):
        metric = metric_factor(mol, auxmol)
        integrals = int3c2e(mol, auxmol, "s2ij", last, threads=1).T
    if not metric.is_lower:
        return None
    there = metric.matrix @ rows[:, -integrals.shape[1] :]
    same = np.abs(there - integrals).max(initial=0.0) <= AGREEMENT * np.abs(integrals).max(initial=0.0)
    return FittedRows(rows, metric) if same else None


def half_transformed(
    source: ComputedRows | FittedRows, spins: Sequence[SpinDensities], densities: Sequence[np.ndarray], threads: int
) -> tuple[list[np.ndarray], np.ndarray]:
    """Transform and project the rows of this rank. All ranks call this together.

    Return sum_r W_ri (rs|Q) [rows, r, nao] for each spin, or sum_rs W_ri (rs|Q) W_sj [rows, r, r] where the other
    density lies inside; and sum_rs (rs|Q) D_rs [n, naux] of all rows for symmetric densities D [nao, nao].
    """
    nao, first, last = len(densities[0]), source.first, max((end for _, end in source.ranges), default=source.first)
    i, j = np.tril_indices(nao)
    # A pair i > j stands for two elements of the density.
    folded = np.array([(d + d.T)[i, j] * np.where(i == j, 0.5, 1.0) for d in densities])
    half = [empty((last - first, spin.rank, len(spin.other)), np.float64) for spin in spins]
    left = [np.ascontiguousarray(spin.orbitals.T) for spin in spins]
    projections = np.zeros((len(folded), source.count))

    def transform(numbers: tuple[int, int]) -> None:
        packed = source(*numbers)
        projections[:, slice(*numbers)] = folded @ packed.T
        square = np.empty((nao, nao))
        for number, row in zip(range(*numbers), packed if spins else ()):
            lib.unpack_tril(row, out=square)
            for spin, orbitals, to in zip(spins, left, half):
                if spin.inside:
                    np.matmul(orbitals @ square, spin.orbitals, out=to[number - first])
                else:
                    np.matmul(orbitals, square, out=to[number - first])

    with single_threaded_pool(threads) as pool:
        list(pool.map(transform, source.ranges))
    return half, source.ranks.sum(projections)
