"""Sets of occupied orbitals whose pairs are computed together, and the memory that a block of pairs takes.

Orbitals whose energies are nearly the same are kept in one set, because elements of the density between different sets
are divided by differences of orbital energies (`pair_sums`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes

# Hartree. Rounding errors of the products for Γ, about 1e-16 and 1e-8 by precision, are divided by at least this
# difference of orbital energies: elements of the density are right to about 1e-12 and 1e-6. That of bf16x3 is as
# that of fp32, with errors of about 1e-5.
LEAST_GAP = {"fp64": 1e-4, "fp32": 1e-2, "bf16x6": 1e-2, "bf16x3": 1e-2, "bf16": 1e-2}
# Occupied orbitals in a set where memory allows it: matrix products hardly become faster with
# more, and large new arrays are slow at first.
_WIDEST = 8
# Bytes of one block of pairs where memory sets no limit.
_COMFORTABLE = 512e6
# Pairs of one orbital i whose integrals a thread computes by one matrix product. More do not make it faster, and their
# integrals would not stay in the outer caches.
PRODUCT_PAIRS = 4
# Arrays [nvir, nvir] that a thread needs for the sums of a pair. `NumpyAmplitudes` needs most.
_TEMPORARIES = 3
# Arrays [nvir, nvir] beside the amplitudes: the indices of elements of P_ab for two sets, sums of orbital energies,
# P_ab, and Y_ab.
_SQUARES = 5
# Rows of Γ while a block is added to a file: a row that is read, its sum, and the one that is checked.
_ROWS = 3


@dataclass(frozen=True)
class PairMemory:
    """Bytes of a block of pairs by the sizes of the factors of one or two spins."""

    shapes: tuple[tuple[int, int, int], ...]
    threads: int

    @property
    def factors(self) -> int:
        """Bytes of all factors, and of Γ, which has the same size."""
        return sum(8 * nocc * nvir * naux for nocc, nvir, naux in self.shapes)

    def block(self, width: int) -> int:
        """Bytes of a block of pairs of two sets of `width` orbitals: amplitudes, rows of B, and products for Γ."""
        nvir, naux = max(shape[1] for shape in self.shapes), self.shapes[0][2]
        a_thread = min(width, PRODUCT_PAIRS) + _TEMPORARIES
        pairs = (width**2 + a_thread * self.threads + _SQUARES) * nvir**2
        return 8 * (pairs + (4 * width + _ROWS + self.threads) * nvir * naux)

    def holds_gamma(self, room: float, width: int = 1) -> bool:
        """Return whether `room` bytes hold Γ and a block of sets of `width` orbitals."""
        return room >= self.factors + self.block(width)

    def width(self, limit: float) -> int:
        """Return the largest number of orbitals in a set for which a block fits into `limit` bytes; 0 if none does."""
        width = _WIDEST
        while width and self.block(width) > limit:
            width -= 1
        return width

    def comfortable(self) -> int:
        """Return the number of orbitals in a set where memory sets no limit."""
        return max(1, self.width(_COMFORTABLE))


def orbital_sets(energies: np.ndarray, width: int, gap: float = LEAST_GAP["fp64"]) -> tuple[slice, ...]:
    """Divide orbitals into ranges of about `width`. Energies in different ranges differ by `gap` Hartree or more.

    Orbitals need not be in the order of their energies: all that lie between two of the same energy are in their range.

    >>> orbital_sets(np.array([-2.0, -1.0, -1.0, -0.5]), 2)
    (slice(0, 1, None), slice(1, 3, None), slice(3, 4, None))
    >>> orbital_sets(np.array([-1.0, -2.0, -1.0, -0.5]), 2)
    (slice(0, 3, None), slice(3, 4, None))
    """
    count = len(energies)
    last_alike = np.array([np.flatnonzero(np.abs(energies - energy) < gap)[-1] for energy in energies], dtype=int)
    reach = np.maximum.accumulate(last_alike)
    cuts = [0, *(k for k in range(1, count) if reach[k - 1] < k), count]
    sets, first = [], 0
    while first < count:
        following = [cut for cut in cuts if cut > first]
        last = max((cut for cut in following if cut - first <= width), default=following[0])
        sets.append(slice(first, last))
        first = last
    return tuple(sets)


def elements(energies: np.ndarray, gap: float) -> np.ndarray:
    """Return the elements (p, q), p > q, of a density whose orbitals have (nearly) the same energy, int64 [n, 2].

    >>> elements(np.array([-2.0, -1.0, -1.0]), 1e-4).tolist()
    [[2, 1]]
    """
    return np.array(
        [
            (p, q)
            for same in orbital_sets(energies, 1, gap)
            for p in range(same.start, same.stop)
            for q in range(same.start, p)
        ],
        dtype=np.int64,
    ).reshape(-1, 2)


def least_width(energies: Sequence[np.ndarray], gap: float) -> int:
    """Return the number of orbitals in the largest set if sets are as small as possible; energies by spin."""
    return max(widest(orbital_sets(of_a_spin, 1, gap)) for of_a_spin in energies)


def widest(sets: Sequence[slice]) -> int:
    """Return the number of orbitals in the largest set."""
    return max((rows.stop - rows.start for rows in sets), default=0)


def require_block(memory: PairMemory, sets: Sequence[Sequence[slice]], room: float) -> None:
    """Raise MemoryLimit if the blocks of these sets need more than `room` bytes."""
    width = max(widest(of_a_spin) for of_a_spin in sets)
    if memory.block(width) > room:
        raise MemoryLimit(
            f"the densities of {width} occupied orbitals at a time, which is the smallest number that keeps (nearly) "
            f"degenerate orbitals together, need {gigabytes(memory.block(width))}; {gigabytes(max(room, 0))} are left "
            "of the memory limit: raise the limit or freeze the core"
        )
