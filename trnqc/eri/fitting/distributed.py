"""Fitted integrals distributed over ranks, and J and K from them, with the bits of one process.

blocks of pairs ij, some in each round on the threads of every rank: (P|ij) for all P -> fitted rows Q of these pairs
-> all ranks exchange -> all pairs of this rank's rows Q, whole groups of them -> J and K, summed exactly over ranks
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.compiled import programs
from trnqc.eri.fitting import jk
from trnqc.eri.fitting.fitted_integrals import columns_of, metric_factor, shell_blocks
from trnqc.eri.fitting.rounded import HostProducts, RoundedJK
from trnqc.eri.fitting.tagged import fitted_jk
from trnqc.eri.integrals import ThreeCentre
from trnqc.fitted.memory import memory_left
from trnqc.fitted.metric import MetricFactor
from trnqc.fitted.ranks import UNDER_WAY, fill_from_every_rank
from trnqc.host.arrays import empty
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.ranks import Ranks

# Blocks of a thread in a round.
SHARE = 2

Columns = tuple[int, int]
"""A range of pairs ij, i >= j."""


def bytes_of_a_rank(mol: gto.Mole, auxmol: gto.Mole, ranks: int) -> float:
    """Return the most that a rank holds while it computes: the metric, its rows, a round of blocks and messages."""
    naux, pairs = auxmol.nao_nr(), mol.nao_nr() * (mol.nao_nr() + 1) / 2
    blocks = SHARE * lib.num_threads() * max(end - begin for begin, end in columns_of(mol, shell_blocks(mol)))
    return 8.0 * naux * (naux + pairs / ranks + min(blocks, pairs)) + UNDER_WAY


class DistributedFitting:
    """Fitted integrals of which each rank has the rows Q of some groups. All ranks create it and call `get_jk`
    together.

    `factor` is the result of `prepared`, the same on all ranks. Raises CompilerError or CommunicationError if kernels
    cannot be compiled, or another rank is lost.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, factor: MetricFactor, ranks: Ranks) -> None:
        self.mol, self.auxmol, self.factor, self.ranks = mol, auxmol, factor, ranks
        self.rows, packed = self._computed(columns_of(mol, shell_blocks(mol)))
        self.norms = lib.unpack_tril(ranks.sum(packed))

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

    def _computed(self, blocks: Sequence[Columns]) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows of this rank, and the norms of the pairs that it has computed, or zero."""
        me, size, naux = self.ranks.rank, self.ranks.size, self.factor.naux
        rows_of = [slice(*_rows_of(naux, rank, size)) for rank in range(size)]
        rows = empty((rows_of[me].stop - rows_of[me].start, blocks[-1][1]), np.float64)
        # All ranks have the same number of rounds.
        count = SHARE * self.ranks.at_first(lib.num_threads)
        of_rank = [blocks[slice(*run)] for run in _runs([end - begin for begin, end in blocks], size)]
        rounds = zip_longest(*(_batches(own, count) for own in of_rank), fillvalue=())
        widest = max(end - begin for begin, end in blocks)
        memory = empty((min(count, len(of_rank[me])), self.factor.nfit * widest), np.float64)
        integrals, norms = ThreeCentre(self.mol, self.auxmol), np.zeros(blocks[-1][1])

        def compute(columns: Columns, memory: np.ndarray) -> np.ndarray:
            block = integrals.of_pairs(*columns, memory)
            self.factor.fit_columns(block)
            fitted = block[:naux]
            norms[slice(*columns)] = np.sqrt(np.einsum("qp,qp->p", fitted, fitted))
            return fitted

        with single_threaded_pool(lib.num_threads()) as pool:
            for of_round in rounds:
                fitted = list(pool.map(compute, of_round[me], memory))
                places = [[rows[:, slice(*columns)] for columns in own] for own in of_round]
                leaving = [[block[part] for block in fitted] for part in rows_of]
                fill_from_every_rank(self.ranks, leaving.__getitem__, places.__getitem__)
        return rows, norms


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


def _batches(blocks: Sequence[Columns], count: int) -> Iterator[Sequence[Columns]]:
    """Yield the blocks, up to `count` of them at a time."""
    return (blocks[first : first + count] for first in range(0, len(blocks), count))


def _rows_of(naux: int, rank: int, ranks: int) -> tuple[int, int]:
    """Return the range of rows Q of a rank, which are whole groups."""
    groups = -(-naux // jk.GROUP)
    first, last = (min(naux, jk.GROUP * (groups * n // ranks)) for n in (rank, rank + 1))
    return first, last
