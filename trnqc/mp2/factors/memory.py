"""How much memory the factor step needs, and where it puts B: decided before anything is allocated.

basis sizes, orbitals, execution -> plan_factors -> FactorPlan: width of the blocks of P, in memory or on disk
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyscf import gto

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.mp2.execution import Execution
from trnqc.mp2.pairs.blocks import SETS
from trnqc.mp2.pairs.distribution import AHEAD, Distribution
from trnqc.mp2.reference.orbitals import ActiveOrbitals

# Auxiliary functions of a block where memory allows it: the blocks of all threads then stay in the cache.
_COMFORTABLE_BLOCK = 64
# Blocks of P for every thread, so that threads end together.
_BLOCKS_OF_A_THREAD = 4
# Rows of B that a thread holds while it fits one: as it was read, as the metric returns it, and as it is written.
ROWS_OF_A_FIT = 3


@dataclass(frozen=True)
class FactorPlan:
    """Auxiliary functions in a block of integrals, and whether B is kept on disk."""

    width: int
    on_disk: bool


@dataclass(frozen=True)
class FactorMemory:
    """Bytes of the factor step by its sizes: atomic, active and auxiliary functions, and threads of the pool."""

    nao: int
    nocc: int
    nvir: int
    naux: int
    threads: int

    @property
    def factors(self) -> int:
        """Bytes of B."""
        return 8 * self.nocc * self.nvir * self.naux

    @property
    def metric(self) -> int:
        """Bytes of (P|Q), its factor and LAPACK's copy."""
        return 3 * 8 * self.naux**2

    @property
    def squares(self) -> int:
        """Bytes of one unpacked square of integrals for each thread."""
        return 8 * self.threads * self.nao**2

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the width of a block, with B in memory."""
        return self.factors + self.metric + self.squares

    @property
    def column(self) -> int:
        """Bytes of all threads' buffers for one auxiliary function: packed, half-transformed, one row of B."""
        return 8 * self.threads * (self.nao * (self.nao + 1) // 2 + self.nocc * self.nao + self.nvir)

    @property
    def row(self) -> int:
        """Bytes of B_i."""
        return 8 * self.nvir * self.naux

    @property
    def disk_column(self) -> int:
        """Bytes of all threads' buffers for one auxiliary function that goes to disk for all i at once."""
        return self.column + 8 * self.threads * self.nocc * self.nvir

    def on_disk(self, width: int) -> int:
        """Bytes with blocks of `width` functions and B on disk: the most of metric, integrals and fit of rows."""
        factor = self.metric // 3
        fit = factor + ROWS_OF_A_FIT * self.threads * self.row
        return max(self.metric, factor + self.squares + width * self.disk_column, fit)

    def in_memory(self, width: int) -> int:
        """Bytes with blocks of `width` functions and B in memory."""
        return self.fixed + width * self.column

    def on_a_rank(self, width: int, ranks: int, beside: int = 0) -> int:
        """Bytes of one of several ranks over which B is spread.

        While B is made: its columns, its rows, those being exchanged, the metric and the buffers. Later: its rows,
        those that visit from other ranks, and `beside` bytes of the step that uses B.
        """
        distribution = Distribution(self.nocc, self.nvir, self.naux, ranks)
        share = -(-self.factors // distribution.shards)
        factors = 2 * share + 2 * share // ranks + self.metric + self.squares + width * self.column
        return max(factors, share + (AHEAD + 1) * distribution.width * self.row + beside)

    def preferred_width(self, smallest: int) -> int:
        """Functions of a block where memory does not matter; `smallest` are those of the largest shell."""
        balanced = -(-self.naux // (_BLOCKS_OF_A_THREAD * self.threads))
        return max(smallest, min(_COMFORTABLE_BLOCK, balanced))

    def plan(self, limit: float, smallest: int, beside: int = 0, on_disk: bool = False) -> FactorPlan:
        """Keep B in memory if the factor step, and B with `beside` bytes, fit `limit` bytes, else put it on disk.

        Parameters
        ----------
        smallest
            Auxiliary functions that a block has at least: those of the largest shell.
        beside
            Bytes that the step which uses B needs beside it.
        on_disk
            Put B on disk even if it fits.

        Raises
        ------
        MemoryLimit
            If neither fits; the message gives the least that is needed.
        """
        wanted = self.preferred_width(smallest)
        whole = max(self.in_memory(smallest), self.factors + beside)
        if not on_disk and whole <= limit:
            return FactorPlan(int(min(wanted, (limit - self.fixed) / self.column)), False)
        if (needed := max(self.on_disk(smallest), beside + SETS * self.row)) > limit:
            needed = needed if on_disk else min(needed, whole)
            raise MemoryLimit(
                f"the factors B[{self.nocc}, {self.nvir}, {self.naux}] of {gigabytes(self.factors)} need at least "
                f"{gigabytes(needed)} of memory, wherever they are kept; the memory limit is {gigabytes(limit)}: "
                "raise the limit, use fewer threads, freeze more orbitals or take a smaller basis"
            )
        return FactorPlan(int(min(wanted, (limit - self.metric // 3 - self.squares) / self.disk_column)), True)

    def check_spread(self, width: int, ranks: int, limit: float, beside: int = 0) -> None:
        """Raise MemoryLimit if one rank's part of B does not fit `limit` bytes."""
        needed = self.on_a_rank(width, ranks, beside)
        if needed > limit:
            raise MemoryLimit(
                f"factors B{[self.nocc, self.nvir, self.naux]} spread over {ranks} ranks need {gigabytes(needed)} on "
                f"each, the memory limit of a rank is {gigabytes(limit)}: raise the limit, take more ranks, or name a "
                "checkpoint directory that all ranks see, where B then is"
            )


def plan_factors(
    auxmol: gto.Mole,
    orbitals: ActiveOrbitals,
    execution: Execution,
    *,
    beside: int = 0,
    on_disk: bool = False,
    width: int = 0,
) -> FactorPlan:
    """Decide how `build_factors` works, without doing it.

    Parameters
    ----------
    beside
        Bytes that the step which uses B needs beside it.
    on_disk
        Whether B goes to disk in any case, as it does with a checkpoint. On several ranks rank 0 then makes it;
        otherwise B is spread over them.
    width
        Auxiliary functions that a block has at least.

    Raises
    ------
    MemoryLimit
        If the factor step, or the one that uses B, does not fit the memory of this process.
    """
    memory = FactorMemory(orbitals.nao, orbitals.nocc, orbitals.nvir, auxmol.nao_nr(), execution.threads)
    smallest = max(width, int(np.diff(auxmol.ao_loc_nr()).max()))
    if execution.ranks.size == 1 or on_disk:
        return memory.plan(execution.memory, smallest, beside, on_disk)
    plan = FactorPlan(memory.preferred_width(smallest), False)
    memory.check_spread(plan.width, execution.ranks.size, execution.memory, beside)
    return plan
