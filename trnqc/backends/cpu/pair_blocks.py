"""Blocks of occupied pairs under a memory limit: pure arithmetic, no arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trnqc.errors import MemoryLimit

SLAB_BYTES = 4 << 20
"""Bytes of T in one task.

The GEMM writes them and the energy pass reads them once, so they should still be in the outer caches by then; and the
task should be wide enough that the packing of B_i is worth its time.
"""


class Sizes(Protocol):
    """Bytes of one loaded orbital (B_i as it is multiplied) and of T of one pair."""

    @property
    def orbital_bytes(self) -> int: ...

    @property
    def slab_bytes(self) -> int: ...


@dataclass(frozen=True)
class Task:
    """Pairs (i, j) with i in [i0, i1), j in [j0, j1) and j <= i."""

    i0: int
    i1: int
    j0: int
    j1: int

    @property
    def pairs(self) -> int:
        return sum(max(0, min(self.j1, i + 1) - self.j0) for i in range(self.i0, self.i1))


@dataclass(frozen=True)
class BlockPlan:
    """How the pairs of `nocc` orbitals are cut into tasks.

    Parameters
    ----------
    nocc
        Correlated occupied orbitals.
    panel
        Orbitals i that are loaded at a time; nocc when all of B is.
    block
        Orbitals j of one task.
    bytes
        The most that is held at once, including B when it is in memory.
    whole
        Whether all orbitals are loaded once, before the first product.
    """

    nocc: int
    panel: int
    block: int
    bytes: int
    whole: bool

    def panels(self) -> list[tuple[int, int]]:
        return [(i, min(i + self.panel, self.nocc)) for i in range(0, self.nocc, self.panel)]

    def tasks(self, i0: int, i1: int) -> list[Task]:
        """Largest first, so that the last ones to finish are short. Their extent never depends on the thread count."""
        rows = [(i, i + 1) for i in range(i0, i1)] if self.whole else [(i0, i1)]
        tasks = [
            Task(first, last, j, min(j + self.block, last)) for first, last in rows for j in range(0, last, self.block)
        ]
        return sorted(tasks, key=lambda task: task.pairs, reverse=True)


def plan_triangle(nocc: int, sizes: Sizes, *, threads: int, limit: float | None, fixed: int) -> BlockPlan:
    """Choose panel and block for all pairs j <= i of `nocc` orbitals.

    Parameters
    ----------
    limit
        Bytes, None for no limit.
    fixed
        Bytes that are held whatever the blocks are: B where it is in memory, and scratch.

    Raises
    ------
    MemoryLimit
        If not even one orbital at a time fits.
    """
    slab, orbital = sizes.slab_bytes, sizes.orbital_bytes
    block = max(1, min(nocc, SLAB_BYTES // slab))
    whole = fixed + nocc * orbital
    if limit is None or whole + threads * slab <= limit:
        if limit is not None:
            block = min(block, int(limit - whole) // (threads * slab))
        return BlockPlan(nocc, nocc, block, whole + threads * block * slab, True)

    # Orbitals are loaded as they are needed: a panel of i, and a block of j for each thread.
    per_block = threads * (slab + orbital)
    least = fixed + per_block + orbital
    if least > limit:
        raise MemoryLimit(
            f"the pair step on {threads} threads needs at least {least / 1e6:.4g} MB ({fixed / 1e6:.4g} MB of it "
            f"for B and fixed buffers); the limit is {limit / 1e6:.4g} MB. "
            "Raise the limit, use fewer threads, or keep B on disk"
        )
    block = max(1, min(block, int((limit - fixed) / 2 // per_block)))
    panel = max(1, min(nocc, int(limit - fixed - block * per_block) // max(orbital, 1)))
    return BlockPlan(nocc, panel, block, fixed + block * per_block + panel * orbital, False)


def plan_block(m: int, n: int, sizes: Sizes, right: Sizes, *, threads: int) -> BlockPlan:
    """Plan all pairs of m orbitals with n others, which are loaded once.

    Parameters
    ----------
    sizes, right
        Bytes of the orbitals i and of T, and of the orbitals j.
    threads
        Number of threads, each of which has T of one task.

    Returns
    -------
    BlockPlan
        Its `bytes` do not include the rows of B that the caller holds.
    """
    block = max(1, min(n, SLAB_BYTES // sizes.slab_bytes))
    loaded = m * sizes.orbital_bytes + n * right.orbital_bytes
    return BlockPlan(m + n, m + n, block, loaded + threads * block * sizes.slab_bytes, True)
