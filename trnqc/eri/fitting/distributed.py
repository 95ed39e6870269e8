"""Fitted integrals distributed over ranks, and J and K from them, with the bits of one process.

blocks of shells i, one run of blocks for each rank -> its pairs ij: (P|ij) for all P -> fitted rows Q of these pairs
-> all ranks exchange -> all pairs of this rank's rows Q, whole groups of them -> J and K, summed exactly over ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.compiled import programs
from trnqc.eri.fitting import jk
from trnqc.eri.fitting.fitted_integrals import columns_of, fitted_columns, metric_factor, shell_blocks
from trnqc.eri.fitting.rounded import HostProducts, RoundedJK
from trnqc.eri.fitting.tagged import fitted_jk
from trnqc.eri.integrals import ThreeCentre
from trnqc.fitted.memory import memory_left
from trnqc.fitted.metric import MetricFactor
from trnqc.fitted.ranks import UNDER_WAY, fill_from_every_rank
from trnqc.host.arrays import empty
from trnqc.ranks import Ranks


def bytes_of_a_rank(mol: gto.Mole, auxmol: gto.Mole, ranks: int) -> float:
    """Return the most that a rank holds while it computes: its columns, its rows, and messages under way."""
    nao, naux = mol.nao_nr(), auxmol.nao_nr()
    return 8.0 * naux * (naux + nao * (nao + 1) / ranks) + UNDER_WAY


class DistributedFitting:
    """Fitted integrals of which each rank has the rows Q of some groups. All ranks create it and call `get_jk`
    together.

    `factor` is the result of `prepared`, the same on all ranks. Raises CompilerError or CommunicationError if kernels
    cannot be compiled, or another rank is lost.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, factor: MetricFactor, ranks: Ranks) -> None:
        self.mol, self.auxmol, self.factor, self.ranks = mol, auxmol, factor, ranks
        blocks = shell_blocks(mol)
        runs = _runs([b - a for a, b in columns_of(mol, blocks)], ranks.size)
        spans = [columns_of(mol, blocks)[i:j] for i, j in runs]
        edges = [(span[0][0], span[-1][1]) if span else (0, 0) for span in spans]
        i, j = runs[ranks.rank]
        columns = fitted_columns(mol, auxmol, factor, blocks[i:j])
        self.norms = self._norms(columns, edges[ranks.rank])
        self.rows = self._exchanged(columns, edges, factor.naux)

    @property
    def ran_on(self) -> str:
        """Description of the code that computed the integrals."""
        threads = int(lib.num_threads())
        return f"{programs.words()}, {threads} thread{'s' * (threads > 1)} on each of {self.ranks.size} ranks"

    def get_jk(self, dm: Any, with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """Compute J and K of real densities [..., nao, nao], the same on every rank, which may have PySCF's tags."""
        room = memory_left(self.mol.max_memory)
        return fitted_jk(self.rows, dm, self.norms, with_j, with_k, room, self.ranks)

    @property
    def first(self) -> int:
        """The number of the first row of this rank."""
        return _rows_of(self.factor.naux, self.ranks.rank, self.ranks.size)[0]

    def rounded(self) -> RoundedJK:
        """Return what computes J and K in single precision, which all ranks create and call together."""
        return RoundedJK(self.rows, HostProducts(self.rows, self.ranks), self.ranks)

    def _norms(self, columns: np.ndarray, edges: tuple[int, int]) -> np.ndarray:
        nao = self.mol.nao_nr()
        packed = np.zeros(nao * (nao + 1) // 2)
        packed[slice(*edges)] = jk.norms_of(columns)
        return lib.unpack_tril(self.ranks.sum(packed))

    def _exchanged(self, columns: np.ndarray, edges: Sequence[tuple[int, int]], naux: int) -> np.ndarray:
        """Return all pairs of this rank's rows."""
        me, size = self.ranks.rank, self.ranks.size
        rows_of = [_rows_of(naux, rank, size) for rank in range(size)]
        rows = empty((rows_of[me][1] - rows_of[me][0], max(end for _, end in edges)), np.float64)
        fill_from_every_rank(
            self.ranks,
            lambda to: [columns[slice(*rows_of[to])]],
            lambda source: [rows[:, slice(*edges[source])]],
        )
        return rows


def prepared(mol: gto.Mole, auxmol: gto.Mole) -> MetricFactor:
    """Compile the kernels and factorise the metric on one rank, for all ranks, before the ranks meet. Raises
    UnsupportedClass, CompilerError.
    """
    ThreeCentre(mol, auxmol)
    return metric_factor(mol, auxmol)


def _runs(costs: Sequence[int], ranks: int) -> list[tuple[int, int]]:
    """Divide blocks into one run for each rank, of about equal cost; with fewer blocks than ranks, some are empty."""
    sums = np.cumsum([0, *costs])
    cuts = [int(np.abs(sums - share).argmin()) for share in np.linspace(0, sums[-1], ranks + 1)[1:-1]]
    return list(pairwise([0, *cuts, len(costs)]))


def _rows_of(naux: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the range of rows Q of a rank, which are whole groups."""
    groups = -(-naux // jk.GROUP)
    first, last = (min(naux, jk.GROUP * (groups * n // ranks)) for n in (rank, rank + 1))
    return first, last
