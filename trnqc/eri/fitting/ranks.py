"""Fitted integrals spread over ranks, and J and K from them, with the bits of one process.

pairs ij by blocks of shells, a run of blocks a rank -> (P|ij) of all P -> L^-1 (P|ij) -> every rank sends every other
its rows -> rows Q, whole groups of them a rank -> J and K, summed exactly over ranks (fitted_jk.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.fitting import jk
from trnqc.eri.fitting.df import SHARE_OF_MEMORY, Fit, columns_of, exchange_of, shell_blocks
from trnqc.eri.integrals import ThreeCentre, int3c2e
from trnqc.eri.library import programs
from trnqc.ranks import Ranks


def bytes_of_a_rank(mol: gto.Mole, auxmol: gto.Mole, ranks: int) -> float:
    """The most that a rank holds while the integrals are made: its columns, its rows, and messages under way."""
    nao, naux = mol.nao_nr(), auxmol.nao_nr()
    return 8.0 * naux * (naux + 3 * nao * (nao + 1) / 2 / ranks)


class SpreadFitting:
    """L^-1 (P|ij) of which this rank has the rows Q of some groups. All ranks make it and call `get_jk` together.

    fit: of `prepared`, the same on all ranks. Raises CompilerError, CommunicationError.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, fit: Fit, ranks: Ranks) -> None:
        self.mol, self.ranks = mol, ranks
        blocks = shell_blocks(mol)
        cuts = _runs([b - a for a, b in columns_of(mol, blocks)], ranks.size)
        spans = [columns_of(mol, blocks)[i:j] for i, j in cuts]
        edges = [(span[0][0], span[-1][1]) if span else (0, 0) for span in spans]
        i, j = cuts[ranks.rank]
        columns = _columns(mol, auxmol, fit, blocks[i:j])
        self.norms = self._norms(columns, edges[ranks.rank])
        self.rows = self._exchanged(columns, edges, fit.naux)

    @property
    def ran_on(self) -> str:
        threads = int(lib.num_threads())
        return f"{programs.words()}, {threads} thread{'s' * (threads > 1)} on each of {self.ranks.size} ranks"

    def get_jk(self, dm: Any, with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """J and K of real densities [..., nao, nao], the same on every rank; tags as PySCF's."""
        dms = np.asarray(dm, float)
        square = dms.reshape(-1, *dms.shape[-2:])
        vj = jk.coulomb(self.rows, square, self.norms, self.ranks).reshape(dms.shape) if with_j else None
        if not with_k:
            return vj, None
        room = SHARE_OF_MEMORY * 1e6 * max(self.mol.max_memory - lib.current_memory()[0], 0)
        return vj, exchange_of(self.rows, dm, square, self.norms, room, self.ranks).reshape(dms.shape)

    def _norms(self, columns: np.ndarray, edges: tuple[int, int]) -> np.ndarray:
        nao = self.mol.nao_nr()
        packed = np.zeros(nao * (nao + 1) // 2)
        packed[slice(*edges)] = jk.norms_of(columns)
        return lib.unpack_tril(self.ranks.sum(packed))

    def _exchanged(self, columns: np.ndarray, edges: Sequence[tuple[int, int]], naux: int) -> np.ndarray:
        """All pairs of this rank's rows; in every step each rank sends to one and receives from one."""
        me, size = self.ranks.rank, self.ranks.size
        held = [_rows(naux, rank, size) for rank in range(size)]
        rows = np.empty((held[me][1] - held[me][0], max(end for _, end in edges)))
        rows[:, slice(*edges[me])] = columns[slice(*held[me])]
        for step in range(1, size):
            to, source = (me + step) % size, (me - step) % size
            arriving = np.empty((len(rows), edges[source][1] - edges[source][0]))
            leaving = np.ascontiguousarray(columns[slice(*held[to])])
            self.ranks.exchange([(to, leaving)], [(source, arriving)]).wait()
            rows[:, slice(*edges[source])] = arriving
        return rows


def prepared(mol: gto.Mole, auxmol: gto.Mole) -> Fit:
    """What one rank makes for all, before they meet: the metric, and compiled kernels in the cache.

    Raises UnsupportedClass, CompilerError.
    """
    ThreeCentre(mol, auxmol)
    return Fit.of(mol, auxmol)


def _columns(mol: gto.Mole, auxmol: gto.Mole, fit: Fit, blocks: Sequence[tuple[int, int]]) -> np.ndarray:
    if not blocks:
        return np.zeros((fit.naux, 0))
    shells = (blocks[0][0], blocks[-1][1])
    return fit.divide_out(int3c2e(mol, auxmol, "s2ij", (*shells, 0, shells[1])).T, columns_of(mol, blocks))


def _runs(costs: Sequence[int], ranks: int) -> list[tuple[int, int]]:
    """A run of blocks for each rank, of about the same cost; empty where there are fewer blocks than ranks."""
    done = np.cumsum(costs)
    cuts = np.searchsorted(done, np.linspace(0, done[-1], ranks + 1)[1:-1]).tolist()
    edges = [0, *cuts, len(costs)]
    return list(pairwise(edges))


def _rows(naux: int, rank: int, ranks: int) -> tuple[int, int]:
    """Rows Q of a rank: whole groups."""
    groups = -(-naux // jk.GROUP)
    first, last = (min(naux, jk.GROUP * (groups * n // ranks)) for n in (rank, rank + 1))
    return first, last
