"""A symmetric contraction on the CPU as compiled functions of NumPy arrays.

problem, dtype -> recipe (contraction.py) -> compiled function; elements of the nodes -> groups -> threads
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from trnqc import jit
from trnqc.cg.cpu.contraction import kernel_name, recipe
from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.errors import OperandError
from trnqc.host.arrays import empty, zeros
from trnqc.host.threads import default_threads, in_parallel
from trnqc.jit import TYPES, CompiledFunction, Library, find_compiler

# Number of nodes of a group. While a group is computed, their features stay in the cache, and each coefficient is read
# from the second level of the cache once for all of them.
NODES = 16


@dataclass(frozen=True)
class Groups:
    """Nodes in ranges of one element: group g has the nodes nodes[starts[g]:starts[g + 1]]. All arrays are int64."""

    starts: np.ndarray
    elements: np.ndarray
    nodes: np.ndarray

    def __len__(self) -> int:
        return len(self.elements)


def groups_of(elements: np.ndarray, size: int | None = None) -> Groups:
    """Return the nodes grouped by their elements, int64 [nodes], in groups of at most `size` nodes if it is given."""
    nodes = np.argsort(elements, kind="stable")
    numbers, starts = np.unique(elements[nodes], return_index=True)
    ends = [*starts[1:], len(nodes)]
    ranges = [
        (start, element)
        for element, begin, end in zip(numbers, starts, ends)
        for start in range(begin, end, size or max(1, len(nodes)))
    ]
    firsts = np.array([*(start for start, _ in ranges), len(nodes)], np.int64)
    return Groups(firsts, np.array([element for _, element in ranges], np.int64), nodes)


def packed(coefficients: np.ndarray, lanes: int) -> np.ndarray:
    """Return coefficients [elements, terms, channels] in the layout of the programs, [elements, blocks, terms, lanes].

    The last block is filled up with zeros.
    """
    elements, terms, channels = coefficients.shape
    result = zeros((elements, -(-channels // lanes), terms, lanes), coefficients.dtype)
    for block in range(result.shape[1]):
        part = coefficients[:, :, block * lanes : (block + 1) * lanes]
        result[:, block, :, : part.shape[2]] = part
    return result


def unpacked(coefficients: np.ndarray, channels: int) -> np.ndarray:
    """The inverse of `packed` for a number of channels."""
    elements, _, terms, lanes = coefficients.shape
    result = empty((elements, terms, channels), coefficients.dtype)
    for block in range(coefficients.shape[1]):
        part = result[:, :, block * lanes : (block + 1) * lanes]
        part[...] = coefficients[:, block, :, : part.shape[2]]
    return result


class ContractionEngine:
    """A symmetric contraction and its derivatives on NumPy arrays of one dtype; see `contraction_engine`.

    With N nodes, E elements, T terms, C channels and the dimensions (I, M) of the problem, c and gc have the shape [E,
    T, C], x, gx and the directions h the shape [N, I, C], B and gb the shape [N, M, C]. Elements are int64 [N]. The
    results are bitwise equal for any number of threads.
    """

    def __init__(self, problem: ContractionProblem, dtype: str, threads: int | None) -> None:
        self.problem, self.dtype = problem, dtype
        self.threads = threads or default_threads()
        self.lanes = find_compiler().lanes(np.dtype(dtype).itemsize)
        self.blocks = -(-problem.channels // self.lanes)
        self._functions: dict[tuple[str, int], CompiledFunction] = {}

    def value(self, c: np.ndarray, x: np.ndarray, elements: np.ndarray, *along: np.ndarray) -> np.ndarray:
        """Return B, or its derivative along the directions `along`."""
        operands = self._operands(c, elements, x, *along)
        out = empty((len(x), self.problem.dims[1], self.blocks * self.lanes), self.dtype)
        self._run("value", len(along), groups_of(elements, NODES), *operands, out)
        return self._cut(out)

    def gradient(
        self, c: np.ndarray, x: np.ndarray, elements: np.ndarray, gb: np.ndarray, *along: np.ndarray
    ) -> np.ndarray:
        """Return the gradient with respect to x of <gb, value>."""
        operands = self._operands(c, elements, x, *along)
        out = empty(operands[1].shape, self.dtype)
        self._run("gradient", len(along), groups_of(elements, NODES), *operands, self._row("gb", gb, len(x)), out)
        return self._cut(out)

    def gradients(
        self, c: np.ndarray, x: np.ndarray, elements: np.ndarray, gb: np.ndarray, *along: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients with respect to x and c of <gb, value>."""
        operands = self._operands(c, elements, x, *along)
        out, gc = empty(operands[1].shape, self.dtype), zeros(operands[0].shape, self.dtype)
        self._run("gradients", len(along), groups_of(elements), *operands, self._row("gb", gb, len(x)), out, gc)
        return self._cut(out), unpacked(gc, self.problem.channels)

    def build(self, kind: str, directions: int) -> Library:
        """Return the library of a program of `contraction`, which is compiled or loaded from the cache."""
        return jit.library(recipe(self.problem, kind, directions, TYPES[self.dtype], self.lanes))

    def function(self, kind: str, directions: int) -> CompiledFunction:
        """Return a program of `contraction`, which is built at the first call."""
        key = kind, directions
        if key not in self._functions:
            self._functions[key] = getattr(self.build(kind, directions), kernel_name(kind, directions))
        return self._functions[key]

    def _run(self, kind: str, directions: int, groups: Groups, *operands: np.ndarray) -> None:
        count = len(groups) * (self.blocks if kind == "gradients" else 1)
        if not count:
            return
        call = self.function(kind, directions).bind(
            self.blocks, groups.starts, groups.elements, groups.nodes, *operands
        )
        parts = min(count, self.threads)
        in_parallel(lambda i: call(count * i // parts, count * (i + 1) // parts), parts, self.threads)

    def _operands(self, c: np.ndarray, elements: np.ndarray, *rows: np.ndarray) -> list[np.ndarray]:
        """Return c and the operands of the shape of x in the layout of the programs, after checking them."""
        shape = (len(c), len(self.problem.terms), self.problem.channels)
        if c.shape != shape or c.dtype != self.dtype:
            raise OperandError(f"c: expected {self.dtype}{list(shape)}, found {c.dtype}{list(c.shape)}")
        if elements.shape != rows[0].shape[:1] or elements.dtype != np.int64:
            raise OperandError(
                f"elements: expected int64[{len(rows[0])}], one for each node, found "
                f"{elements.dtype}{list(elements.shape)}"
            )
        if len(elements) and not (elements.min() >= 0 and elements.max() < len(c)):
            wrong = elements[(elements < 0) | (elements >= len(c))][0]
            raise OperandError(f"elements: expected numbers from 0 to {len(c) - 1}, found {wrong}")
        names = ["x", *(f"h{n}" for n in range(1, len(rows)))]
        return [packed(c, self.lanes), *(self._row(name, row, len(elements)) for name, row in zip(names, rows))]

    def _row(self, name: str, a: np.ndarray, nodes: int) -> np.ndarray:
        """Return an operand with contiguous channels in whole blocks, after checking it."""
        shape = (nodes, self.problem.dims[name == "gb"], self.problem.channels)
        if a.shape != shape or a.dtype != self.dtype:
            raise OperandError(f"{name}: expected {self.dtype}{list(shape)}, found {a.dtype}{list(a.shape)}")
        if self.blocks * self.lanes == shape[2] and a.flags.c_contiguous and a.flags.aligned:
            return a
        result = empty((*shape[:2], self.blocks * self.lanes), self.dtype)
        result[:, :, : shape[2]] = a
        result[:, :, shape[2] :] = 0
        return result

    def _cut(self, a: np.ndarray) -> np.ndarray:
        channels = self.problem.channels
        return a if a.shape[2] == channels else np.ascontiguousarray(a[:, :, :channels])


@functools.cache
def contraction_engine(problem: ContractionProblem, dtype: str, threads: int | None = None) -> ContractionEngine:
    """Return the engine of a problem, kept for later calls; by default with one thread for each core."""
    return ContractionEngine(problem, str(np.dtype(dtype)), threads)
