"""How much memory a job needs, said before it is taken."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.mp2.pairs.blocks import SETS

_COMFORTABLE_BLOCK = 64
ROWS_A_FIT = 3
"""Rows of B that a thread holds while it fits one: as it was read, what the metric makes of it, as it is written."""


@dataclass(frozen=True)
class FactorPlan:
    """width: auxiliary functions a block. on_disk: where B goes."""

    width: int
    on_disk: bool


@dataclass(frozen=True)
class FactorMemory:
    """Sizes of the factor step: nao atomic, nocc and nvir active orbitals, naux auxiliary functions, pool threads."""

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
        """Bytes of one unpacked square for each thread."""
        return 8 * self.threads * self.nao**2

    @property
    def fixed(self) -> int:
        """Bytes that do not depend on the width of a block."""
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
        """Bytes with blocks of ``width`` functions and B on disk: the most of metric, integrals and fit of rows."""
        factor = self.metric // 3
        fit = factor + ROWS_A_FIT * self.threads * self.row
        return max(self.metric, factor + self.squares + width * self.disk_column, fit)

    def in_memory(self, width: int) -> int:
        """Bytes with blocks of ``width`` functions and B in memory."""
        return self.fixed + width * self.column

    def plan(self, limit: float | None, smallest: int, pairs: int = 0, on_disk: bool = False) -> FactorPlan:
        """In memory if that and ``pairs`` bytes beside B for the pair step fit ``limit`` bytes, else on disk, where the
        pair step holds some rows.

        smallest: functions a block has at least, those of the largest shell. on_disk: even if B fits. MemoryLimit, with
        the least that will do, if nothing fits.
        """
        balanced = -(-self.naux // (4 * self.threads))
        wanted = max(smallest, min(_COMFORTABLE_BLOCK, balanced))
        if limit is None:
            return FactorPlan(wanted, on_disk)
        whole = max(self.in_memory(smallest), self.factors + pairs)
        if not on_disk and whole <= limit:
            return FactorPlan(min(wanted, int((limit - self.fixed) / self.column)), False)
        if (needed := max(self.on_disk(smallest), pairs + SETS * self.row)) > limit:
            needed = needed if on_disk else min(needed, whole)
            raise MemoryLimit(
                f"the factors B[{self.nocc}, {self.nvir}, {self.naux}] of {gigabytes(self.factors)} need at least "
                f"{gigabytes(needed)} of memory, wherever they are kept; the memory limit is {gigabytes(limit)}: "
                "raise the limit, use fewer threads, freeze more orbitals or take a smaller basis"
            )
        return FactorPlan(min(wanted, int((limit - self.metric // 3 - self.squares) / self.disk_column)), True)
