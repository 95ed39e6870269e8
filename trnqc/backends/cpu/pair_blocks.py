"""The division of pairs of occupied orbitals into blocks that fit a memory limit. This uses no arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trnqc.errors import MemoryLimit

SLAB_BYTES = 4 << 20
"""The size of T in one task in bytes.

The GEMM writes T, and the energy pass reads it once. T should therefore fit into the outer caches, but a task should
also be large enough that the time for loading B_i does not matter.
"""


class PairBytes(Protocol):
    """The size of one loaded orbital (B_i in the format of the product) and of T of one pair, in bytes."""

    @property
    def orbital_bytes(self) -> int: ...

    @property
    def slab_bytes(self) -> int: ...


@dataclass(frozen=True)
class PairTask:
    """The pairs (i, j) with i in [i0, i1), j in [j0, j1) and j <= i."""

    i0: int
    i1: int
    j0: int
    j1: int

    @property
    def pairs(self) -> int:
        return sum(max(0, min(self.j1, i + 1) - self.j0) for i in range(self.i0, self.i1))


@dataclass(frozen=True)
class TaskPlan:
    """The division of the pairs of occupied orbitals into tasks.

    Parameters
    ----------
    nocc
        The number of correlated occupied orbitals.
    panel
        The number of orbitals i that are loaded at a time.
    block
        The number of orbitals j of one task.
    bytes
        The largest amount of memory that is used at once, including B if it is in memory.
    whole
        Whether all orbitals are loaded before the first product.
    """

    nocc: int
    panel: int
    block: int
    bytes: int
    whole: bool

    def panels(self) -> list[tuple[int, int]]:
        return [(i, min(i + self.panel, self.nocc)) for i in range(0, self.nocc, self.panel)]

    def tasks(self, i0: int, i1: int) -> list[PairTask]:
        """The tasks with i in [i0, i1), the largest first, so that threads finish at about the same time.

        Their size depends on the number of threads only through the memory limit.
        """
        rows = [(i, i + 1) for i in range(i0, i1)] if self.whole else [(i0, i1)]
        tasks = [
            PairTask(first, last, j, min(j + self.block, last))
            for first, last in rows
            for j in range(0, last, self.block)
        ]
        return sorted(tasks, key=lambda task: task.pairs, reverse=True)


def plan_triangle(nocc: int, sizes: PairBytes, *, threads: int, limit: float | None, fixed: int) -> TaskPlan:
    """Choose the panel and the block for all pairs j <= i of `nocc` orbitals.

    Parameters
    ----------
    nocc
        The number of correlated occupied orbitals.
    sizes
        The size of an orbital and of T of one pair.
    threads
        The number of threads, each of which has its own T.
    limit
        The memory limit in bytes; None for no limit.
    fixed
        The bytes that do not depend on the blocks: B if it is in memory, and temporaries.

    Returns
    -------
    TaskPlan
        The plan. All orbitals are loaded at once if the limit allows it.

    Raises
    ------
    MemoryLimit
        If the limit does not even allow a single orbital at a time.
    """
    slab, orbital = sizes.slab_bytes, sizes.orbital_bytes
    block = max(1, min(nocc, SLAB_BYTES // slab))
    whole = fixed + nocc * orbital
    if limit is None or whole + threads * slab <= limit:
        if limit is not None:
            block = min(block, int(limit - whole) // (threads * slab))
        return TaskPlan(nocc, nocc, block, whole + threads * block * slab, True)

    # Orbitals are loaded when they are needed: a panel of orbitals i, and a block of orbitals j for each thread.
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
    return TaskPlan(nocc, panel, block, fixed + block * per_block + panel * orbital, False)


def plan_block(m: int, n: int, sizes: PairBytes, right: PairBytes, *, threads: int) -> TaskPlan:
    """Plan all pairs of m orbitals with n others, which are loaded once.

    Parameters
    ----------
    sizes, right
        Bytes of the orbitals i and of T, and of the orbitals j.
    threads
        Number of threads, each of which has T of one task.

    Returns
    -------
    TaskPlan
        Its `bytes` do not include the rows of B that the caller holds.
    """
    block = max(1, min(n, SLAB_BYTES // sizes.slab_bytes))
    loaded = m * sizes.orbital_bytes + n * right.orbital_bytes
    return TaskPlan(m + n, m + n, block, loaded + threads * block * sizes.slab_bytes, True)
