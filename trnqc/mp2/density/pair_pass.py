"""The visit of all pairs, with sums that belong to sets of occupied orbitals.

    one process:               every block of pairs once -> sums of its two sets
    ranks, or a checkpoint:    every set, with all of its blocks -> sums of this set -> all ranks, record

The second way computes the amplitudes of a block once for each of its two sets, which is a third more work. In return,
the sums of a set are complete after one step, on one rank. The contributions to a set are added in the same order in
both ways, so that the digits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any

import numpy as np

from trnqc.backends.cpu.pair_amplitudes import make_amplitudes
from trnqc.errors import UnsupportedError
from trnqc.mp2.density.gamma import Gamma
from trnqc.mp2.density.pair_block import AmplitudeBlock, OrbitalRange, SideSums
from trnqc.mp2.density.sectors import DensitySector
from trnqc.mp2.density.sets import LEAST_GAP, PairMemory, elements, least_width, orbital_sets, require_block, widest
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.store import JobStore

# Name of the records of finished sets in a store.
RECORD = "density elements of a set"


class PairPass:
    """The sums while pairs are visited: Γ of each spin, and the energies [direct, exchange] by sector and set of left
    orbitals.

    `ran_on` describes the code that computes the sums on the host.
    """

    def __init__(
        self, factors: Sequence[Factors], sectors: Sequence[DensitySector], execution: Execution, store: JobStore | None
    ) -> None:
        self.factors, self.sectors, self.execution, self.store = factors, sectors, execution, store
        self._amplitudes = [
            make_amplitudes(s.weights, (factors[s.left].eps_vir, factors[s.right].eps_vir)) for s in sectors
        ]
        self.ran_on = f"NumPy, {self._amplitudes[0].label}, fp64"
        self.on_device = execution.choice.precision in execution.choice.backend.gamma_precisions
        if self.on_device and execution.ranks.size > 1:
            raise UnsupportedError(
                f"the backend {execution.choice.backend.name!r} computes densities in one process, found a job of "
                f"{execution.ranks.size} ranks: use the backend 'cpu'"
            )
        self.by_sets = not self.on_device and (store is not None or execution.ranks.size > 1)
        self.gap = LEAST_GAP[execution.choice.precision if self.on_device else "fp64"]
        memory = PairMemory(tuple(f.shape for f in factors), execution.threads)
        left = execution.memory - sum(f.bytes_in_memory for f in factors)
        least = least_width([f.eps_occ for f in factors], self.gap)
        on_disk = not memory.holds_gamma(left, least) or (self.by_sets and store is not None)
        self.room = left - (0 if on_disk else memory.factors)
        width = self._agreed(max(1, min(memory.comfortable(), memory.width(self.room))))
        self.sets = [orbital_sets(f.eps_occ, width, self.gap) for f in factors]
        require_block(memory, self.sets, self.room)
        kept = store if self.by_sets else None
        self.gamma = [Gamma(f.shape, on_disk, kept, f"gamma-{n}") for n, f in enumerate(factors)]
        self._occupied = [[elements(f.eps_occ[rows], self.gap) for rows in s] for f, s in zip(factors, self.sets)]
        self._virtual = [elements(f.eps_vir, self.gap) for f in factors]
        self._p_occ = [
            [np.zeros(rows.stop - rows.start + len(e)) for rows, e in zip(s, of_a_spin)]
            for s, of_a_spin in zip(self.sets, self._occupied)
        ]
        self._p_vir = [np.zeros((len(s), f.shape[1] + len(e))) for s, f, e in zip(self.sets, factors, self._virtual)]
        self.energies = [np.zeros((len(self.sets[sector.left]), 2)) for sector in sectors]
        self._done, self._total = 0, 0

    def p_occ(self, spin: int) -> np.ndarray:
        """Return P_ij [nocc, nocc], with zeros between orbitals of different energies."""
        density = np.zeros((self.factors[spin].shape[0],) * 2)
        for rows, which, values in zip(self.sets[spin], self._occupied[spin], self._p_occ[spin]):
            density[rows, rows] = _symmetric(rows.stop - rows.start, which, values)
        return density

    def p_vir(self, spin: int) -> np.ndarray:
        """Return P_ab [nvir, nvir], with zeros between orbitals of different energies."""
        return _symmetric(self.factors[spin].shape[1], self._virtual[spin], self._p_vir[spin].sum(axis=0))

    def run(self, pool: Executor) -> None:
        """Visit all pairs. All blocks use the same memory, because new memory is slow at first."""
        width, nvir = (
            widest([rows for of_a_spin in self.sets for rows in of_a_spin]),
            max(f.shape[1] for f in self.factors),
        )
        visit = partial(self._visit, pool, np.empty(width**2 * nvir**2))
        if self.by_sets:
            self._run_by_sets(visit)
            return
        blocks = [(number, *block) for number, sector in enumerate(self.sectors) for block in self._of_sector(sector)]
        self._total = len(blocks)
        for block in blocks:
            visit(*block, (True, True))

    def _run_by_sets(self, visit: Callable[..., None]) -> None:
        """Compute the sums of every set on one of the ranks; rank 0 records them in the store."""
        ranks = self.execution.ranks
        ranks.at("densities")
        recorded = self._take_recorded()
        waiting = [key for key in self._keys() if key not in recorded]
        self._total = sum(len(list(self._of_set(*key))) for key in waiting[ranks.rank :: ranks.size])
        for start in range(0, len(waiting), ranks.size):
            shared = waiting[start : start + ranks.size]
            if ranks.rank < len(shared):
                for block in self._of_set(*shared[ranks.rank]):
                    visit(*block)
            for owner, key in enumerate(shared):
                self._share(key, owner)
                self._record(key)

    def _of_sector(self, sector: DensitySector) -> Iterator[tuple[int, int]]:
        """The blocks of a sector as pairs of sets."""
        for left in range(len(self.sets[sector.left])):
            for right in range(left + 1 if sector.same else len(self.sets[sector.right])):
                yield left, right

    def _of_set(self, spin: int, own: int) -> Iterator[tuple[int, int, int, tuple[bool, bool]]]:
        """The blocks of a set in the order of `_of_sector`: sector, left set, right set, and which of the two this set
        is, as two bools.
        """
        for number, sector in enumerate(self.sectors):
            if sector.same and sector.left == spin:
                for other in range(len(self.sets[spin])):
                    yield number, max(own, other), min(own, other), (own >= other, own < other)
            elif not sector.same and sector.left == spin:
                yield from ((number, own, other, (True, False)) for other in range(len(self.sets[sector.right])))
            elif not sector.same and sector.right == spin:
                yield from ((number, other, own, (False, True)) for other in range(len(self.sets[sector.left])))

    def _visit(
        self, pool: Executor, buffer: np.ndarray, number: int, left: int, right: int, sides: tuple[bool, bool]
    ) -> None:
        """Compute a block, and add its sums to the sums of both sets or of one set."""
        sector = self.sectors[number]
        ours = self._side(sector.left, left)
        theirs = ours if sector.same and left == right else self._side(sector.right, right)
        block = AmplitudeBlock(sector, self._amplitudes[number], ours, theirs, buffer)
        to_left = self._sums(sector.left, left) if sides[0] else None
        to_right = to_left if block.one_set else self._sums(sector.right, right) if sides[1] else None
        block.run(to_left, to_right, pool)
        if to_left is not None:
            self.energies[number][left] += block.energies
            self._keep(sector.left, left, to_left)
        if to_right is not None and not block.one_set:
            self._keep(sector.right, right, to_right)
        self._done += 1
        self.execution.report("densities", self._done, self._total)

    def _side(self, spin: int, number: int) -> OrbitalRange:
        factors, rows = self.factors[spin], self.sets[spin][number]
        occupied, virtual = self._occupied[spin][number], self._virtual[spin]
        return OrbitalRange(rows, factors.rows(rows), factors.eps_occ[rows], factors.eps_vir, occupied, virtual)

    def _sums(self, spin: int, number: int) -> SideSums:
        """The sums of a set so far, to which a block adds."""
        gamma = None if self.on_device else self.gamma[spin].borrow(self.sets[spin][number])
        return SideSums(gamma, self._p_occ[spin][number], self._p_vir[spin][number])

    def _keep(self, spin: int, number: int, sums: SideSums) -> None:
        """Take the rows of Γ back."""
        if sums.gamma is not None:
            self.gamma[spin].give_back(self.sets[spin][number], sums.gamma)

    def _keys(self) -> list[tuple[int, int]]:
        """Spin and number of every set."""
        return [(spin, number) for spin, sets in enumerate(self.sets) for number in range(len(sets))]

    def _arrays(self, spin: int, number: int) -> list[np.ndarray]:
        """The sums of a set besides Γ, as views."""
        own = [e[number] for e, sector in zip(self.energies, self.sectors) if sector.left == spin]
        return [self._p_occ[spin][number], self._p_vir[spin][number], *own]

    def _share(self, key: tuple[int, int], owner: int) -> None:
        """Send the sums of a set from the rank that has them to all ranks."""
        (spin, number), ranks = key, self.execution.ranks
        if ranks.size == 1:
            return
        for array in self._arrays(*key):
            array[...] = ranks.sum(array if ranks.rank == owner else np.zeros_like(array))
        nothing, gamma = np.zeros(self.factors[spin].shape[1:]), self.gamma[spin]
        for i in range(self.factors[spin].shape[0])[self.sets[spin][number]]:
            row = ranks.sum(gamma[i : i + 1][0] if ranks.rank == owner else nothing)
            if ranks.rank != owner:
                gamma.put(i, row)

    def _record(self, key: tuple[int, int]) -> None:
        """Record a finished set in the store of rank 0."""
        if self.store is not None:
            spin, number = key
            values = [array.tolist() for array in self._arrays(*key)]
            self.store.add(RECORD, [spin, number, self.gamma[spin].checksums(self.sets[spin][number]), values])

    def _take_recorded(self) -> set[tuple[int, int]]:
        """Take the sums of recorded sets whose rows of Γ are unchanged, on all ranks; return the numbers of these
        sets.
        """
        recorded: dict[tuple[int, int], Any] = {}
        for spin, number, checksums, values in [] if self.store is None else self.store.recorded(RECORD):
            if self.gamma[spin].recall(self.sets[spin][number], checksums):
                recorded[spin, number] = values
        for key, values in recorded.items():
            for array, numbers in zip(self._arrays(*key), values, strict=True):
                array[...] = numbers
        ranks = self.execution.ranks
        keys = ranks.at_first(lambda: list(recorded)) if ranks.size > 1 else list(recorded)
        for key in keys:
            self._share(key, 0)
        return set(keys)

    def _agreed(self, width: int) -> int:
        """The number of orbitals in a set: the number of an interrupted run, or the one of rank 0."""
        ranks, store = self.execution.ranks, self.store
        weights = [(sector.direct, sector.exchange) for sector in self.sectors]

        def decide() -> int:
            if store is None or not self.by_sets:
                return width
            return int(store.decide(f"orbitals a set for densities with weights {weights}", lambda: width))

        return ranks.at_first(decide) if ranks.size > 1 else decide()


def _symmetric(size: int, which: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the symmetric matrix with these values on its diagonal and at the elements (p, q), and zeros elsewhere."""
    matrix = np.diag(values[:size])
    p, q = which.T
    matrix[p, q] = matrix[q, p] = values[size:]
    return matrix
