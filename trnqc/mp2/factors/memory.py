"""Memory of the factor step, and the decision between memory and disk, made before anything is allocated.

basis sizes, orbitals, execution -> plan_factors -> FactorPlan: width of the blocks of P, in memory or on disk
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyscf import gto

from trnqc.errors import MemoryLimit
from trnqc.fitted.memory import preferred_width
from trnqc.fitted.ranks import UNDER_WAY
from trnqc.host.memory import gigabytes
from trnqc.mp2.execution import Execution
from trnqc.mp2.partition.blocks import SETS
from trnqc.mp2.partition.distribution import AHEAD, RowDistribution
from trnqc.mp2.reference.orbitals import ActiveOrbitals

# Copies of a row of B that a thread holds while it fits the row: the integrals, the fitted row, and the written row.
ROWS_OF_A_FIT = 3


@dataclass(frozen=True)
class FactorPlan:
    """The number of auxiliary functions in a block of integrals, and whether B is kept on disk."""

    width: int
    on_disk: bool


@dataclass(frozen=True)
class FactorMemory:
    """Bytes of the factor step from the numbers of orbitals, auxiliary functions and threads.

    For two spins, `nocc` and `nvir` are the larger ones. `pairs` counts ia over all spins; by default nocc * nvir.
    """

    nao: int
    nocc: int
    nvir: int
    naux: int
    threads: int
    pairs: int = 0

    @property
    def factors(self) -> int:
        """Bytes of B of all spins."""
        return 8 * (self.pairs or self.nocc * self.nvir) * self.naux

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
        """Bytes per auxiliary function of all threads' buffers: packed, half-transformed, one row of B."""
        return 8 * self.threads * (self.nao * (self.nao + 1) // 2 + self.nocc * self.nao + self.nvir)

    @property
    def row(self) -> int:
        """Bytes of B_i."""
        return 8 * self.nvir * self.naux

    @property
    def disk_column(self) -> int:
        """Bytes per auxiliary function of all threads' buffers if blocks of all i are written to disk."""
        return self.column + 8 * self.threads * self.nocc * self.nvir

    def on_disk(self, width: int) -> int:
        """Bytes with blocks of `width` functions and B on disk: the largest of metric, integrals and fit."""
        factor = self.metric // 3
        fit = factor + ROWS_OF_A_FIT * self.threads * self.row
        return max(self.metric, factor + self.squares + width * self.disk_column, fit)

    def in_memory(self, width: int) -> int:
        """Bytes with blocks of `width` functions and B in memory."""
        return self.fixed + width * self.column

    def on_a_rank(self, width: int, ranks: int, beside: int = 0) -> int:
        """Bytes on each of several ranks over which B is spread.

        While B is computed, these are the columns and rows of the rank, the messages under way, the metric and the
        buffers. Afterwards they are the rows of the rank, those received from other ranks, and `beside` bytes of the
        step that reads B.
        """
        distribution = RowDistribution(self.nocc, self.nvir, self.naux, ranks)
        share = -(-self.factors // distribution.shards)
        factors = 2 * share + UNDER_WAY + self.metric + self.squares + width * self.column
        return max(factors, share + (AHEAD + 1) * distribution.width * self.row + beside)

    @property
    def _shape(self) -> str:
        closed = self.pairs in (0, self.nocc * self.nvir)
        return f"B[{self.nocc}, {self.nvir}, {self.naux}]" if closed else f"B[{self.pairs} pairs ia, {self.naux}]"

    def plan(self, limit: float, smallest: int, beside: int = 0, on_disk: bool = False) -> FactorPlan:
        """Plan B in memory if the factor step, and B with `beside` bytes for its reader, need at most `limit` bytes,
        else on disk.

        `smallest` is the size of the largest shell, the smallest number of auxiliary functions in a block. `on_disk`
        keeps B on disk in any case. Raises MemoryLimit, which states the smallest sufficient limit, if neither is
        possible.
        """
        wanted = preferred_width(self.naux, self.threads, smallest)
        whole = max(self.in_memory(smallest), self.factors + beside)
        if not on_disk and whole <= limit:
            return FactorPlan(int(min(wanted, (limit - self.fixed) / self.column)), False)
        if (needed := max(self.on_disk(smallest), beside + SETS * self.row)) > limit:
            needed = needed if on_disk else min(needed, whole)
            raise MemoryLimit(
                f"the factors {self._shape} of {gigabytes(self.factors)} need at least "
                f"{gigabytes(needed)} of memory, even on disk; the memory limit is {gigabytes(limit)}: "
                "raise the limit, use fewer threads, freeze more orbitals or use a smaller basis"
            )
        return FactorPlan(int(min(wanted, (limit - self.metric // 3 - self.squares) / self.disk_column)), True)

    def check_spread(self, width: int, ranks: int, limit: float, beside: int = 0) -> None:
        """Raise MemoryLimit if the part of one rank needs more than `limit` bytes."""
        needed = self.on_a_rank(width, ranks, beside)
        if needed > limit:
            raise MemoryLimit(
                f"factors {self._shape} spread over {ranks} ranks need {gigabytes(needed)} on "
                f"each, the memory limit of a rank is {gigabytes(limit)}: raise the limit, use more ranks, or keep B "
                "in a checkpoint directory that all ranks can read"
            )


def plan_factors(
    auxmol: gto.Mole,
    spins: Sequence[ActiveOrbitals],
    execution: Execution,
    *,
    beside: int = 0,
    on_disk: bool = False,
    width: int = 0,
) -> FactorPlan:
    """Decide how `build_factors` will work, without computing anything.

    Parameters
    ----------
    auxmol
        PySCF's molecule with the auxiliary functions.
    spins
        The correlated orbitals of each spin: one for a closed shell.
    execution
        Threads, memory limit and ranks.
    beside
        Bytes that the step which reads B needs in addition to B.
    on_disk
        Whether B is kept on disk in any case, as with a checkpoint. On several ranks, rank 0 then computes it;
        otherwise B is spread over the ranks.
    width
        Smallest number of auxiliary functions in a block, beside the size of the largest shell.

    Raises
    ------
    MemoryLimit
        If the factor step, or the step that reads B, does not fit into the memory of this process.
    """
    nocc, nvir = max(spin.nocc for spin in spins), max(spin.nvir for spin in spins)
    pairs = sum(spin.nocc * spin.nvir for spin in spins)
    memory = FactorMemory(spins[0].nao, nocc, nvir, auxmol.nao_nr(), execution.threads, pairs)
    smallest = max(width, int(np.diff(auxmol.ao_loc_nr()).max()))
    if execution.ranks.size == 1 or on_disk:
        return memory.plan(execution.memory, smallest, beside, on_disk)
    plan = FactorPlan(preferred_width(memory.naux, memory.threads, smallest), False)
    memory.check_spread(plan.width, execution.ranks.size, execution.memory, beside)
    return plan
