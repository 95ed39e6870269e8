"""Passes over the blocks of a grid, on threads.

blocks, in parts -> each thread: AO values -> densities -> the caller's function of them -> part of V
parts of V, added in the order of the parts: the result has the same bits for any number of threads
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from trnqc.host.arrays import empty
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.densities import ORDER, VARIABLES, DensityMatrix, DensityOnPoints
from trnqc.xc.potential import PotentialOfBlock

# The most blocks of a part. One part's matrices are added to the sum at a time.
PART = 8
# Parts that threads share if there are so many blocks: with fewer, some threads would wait for the others at the end.
PARTS = 32

# Takes a block and its densities [densities, variables, points]; returns the derivatives of the functional by these
# variables, of the same shape and precision, times the weights of the points.
Derivatives = Callable[[PointBlock, np.ndarray], np.ndarray]
# What a thread does with the numbers of the parts that it takes; returns the seconds of each step.
Work = Callable[[Iterator[int]], Mapping[str, float]]


class OrderedSum:
    """A sum of arrays of one shape that threads compute in any order, added in the order of their numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.total = np.zeros(shape)
        self._next, self._lock = 0, threading.Lock()
        self._waiting: dict[int, np.ndarray] = {}

    def add(self, number: int, term: np.ndarray) -> None:
        """Add the term with this number, 0, 1, ..., as soon as all terms with lower numbers have been added."""
        with self._lock:
            self._waiting[number] = term
            while self._next in self._waiting:
                self.total += self._waiting.pop(self._next)
                self._next += 1


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Integration over the points of a grid, for a kind "LDA", "GGA" or "MGGA" of functional.

    The blocks were made for the derivatives that the functional needs or higher ones. `seconds` are those that all
    threads together have spent, by step; every pass adds to them. In single `precision`, np.float32, products and the
    densities on points are rounded; AO values are computed, and the contributions of blocks added, in double precision.
    """

    blocks: Blocks
    kind: str
    threads: int
    seconds: dict[str, float] = field(default_factory=dict)
    precision: type[np.floating] = np.float64

    def densities(self, densities: Sequence[DensityMatrix]) -> np.ndarray:
        """Return the density variables on all points, in the order of `blocks`; [densities, variables, points]."""
        rho = np.empty((len(densities), VARIABLES[self.kind], self.blocks.points.shape[1]))

        def work(parts: Iterator[int]) -> Mapping[str, float]:
            step = _Step(self, densities)
            for number in parts:
                for block in self._part(number):
                    rho[:, :, block.span] = step.densities(block)
            return step.seconds

        self._run(work)
        return rho

    def potentials(self, densities: Sequence[DensityMatrix], derivatives: Derivatives) -> np.ndarray:
        """Return the potential [densities, nao, nao] of each density: symmetric matrices, in Hartree.

        `derivatives`, the functional, is called on several threads, once for each block.
        """
        nao = self.blocks.contractions.nao
        total = OrderedSum((len(densities), nao, nao))

        def work(parts: Iterator[int]) -> Mapping[str, float]:
            step = _Step(self, densities)
            for number in parts:
                matrices = np.zeros(total.total.shape)
                for block in self._part(number):
                    step.add_potentials(block, derivatives, matrices)
                total.add(number, matrices)
            return step.seconds

        self._run(work)
        lower = total.total
        return lower + np.tril(lower, -1).transpose(0, 2, 1)

    def _part(self, number: int) -> tuple[PointBlock, ...]:
        return self.blocks.blocks[number * self._size : (number + 1) * self._size]

    @property
    def _size(self) -> int:
        """The blocks of a part, the same for any number of threads, so that the sums are the same too."""
        return min(max(len(self.blocks.blocks) // PARTS, 1), PART)

    def _run(self, work: Work) -> None:
        """Call `work` on every thread with an iterator over the parts, of which each is taken once."""
        count = -(-len(self.blocks.blocks) // self._size)
        numbers, lock = iter(range(count)), threading.Lock()

        def parts() -> Iterator[int]:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                yield number

        threads = min(self.threads, count)
        if threads:
            with single_threaded_pool(threads) as pool:
                for running in [pool.submit(work, parts()) for _ in range(threads)]:
                    for name, seconds in running.result().items():
                        self.seconds[name] = self.seconds.get(name, 0.0) + seconds


class _Step:
    """The work of one thread on a block, with the seconds of each step."""

    def __init__(self, quadrature: Quadrature, densities: Sequence[DensityMatrix]) -> None:
        blocks, kind = quadrature.blocks, quadrature.kind
        self._densities = densities
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._aos = AtomicOrbitals(blocks, ORDER[kind])
        self._density = DensityOnPoints(blocks, kind, densities, quadrature.precision)
        self._potential = PotentialOfBlock(blocks, kind, quadrature.precision)
        self._buffer, self._variables = self._aos.buffer(), VARIABLES[kind]
        self._rounded = empty(self._buffer.shape, quadrature.precision) if quadrature.precision != np.float64 else None
        self._ao = self._buffer

    def densities(self, block: PointBlock) -> np.ndarray:
        """Return the density variables of all densities; [densities, variables, points]."""
        begin = time.perf_counter()
        self._ao = self._aos(block, self._buffer)
        if self._rounded is not None:
            rounded = self._rounded[: self._ao.size].reshape(self._ao.shape)
            np.copyto(rounded, self._ao, casting="same_kind")
            self._ao = rounded
        middle = time.perf_counter()
        rho = np.empty((len(self._densities), self._variables, block.points), self._ao.dtype)
        for density, part in zip(self._densities, rho):
            self._density(density, block, self._ao, part)
        self.seconds["atomic orbitals"] += middle - begin
        self.seconds["density"] += time.perf_counter() - middle
        return rho

    def add_potentials(self, block: PointBlock, derivatives: Derivatives, matrices: np.ndarray) -> None:
        """Add the contribution of a block to the potential of each density, in the lower triangles."""
        rho = self.densities(block)
        begin = time.perf_counter()
        weighted = derivatives(block, rho)
        middle = time.perf_counter()
        for part, matrix in zip(weighted, matrices):
            self._potential(block, self._ao, part, matrix)
        self.seconds["functional"] += middle - begin
        self.seconds["potential"] += time.perf_counter() - middle
