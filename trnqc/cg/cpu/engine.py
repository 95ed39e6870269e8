"""A tensor product on the CPU as compiled functions of NumPy arrays.

problem, dtype -> target -> recipe (recipe.py) -> library (jit) -> function of a range of a batch, or of shares of nodes

A direction is compiled when it is first called. Threads compute ranges of a batch, or shares of the nodes of a graph.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence

import numpy as np

from trnqc.cg.cpu.interpreted import InterpretedEngine
from trnqc.cg.cpu.recipe import recipe
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.engine import Engine, check_operand
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import CONVOLUTIONS, DIRECTIONS
from trnqc.host.arrays import empty
from trnqc.host.threads import default_threads, in_parallel, parts_of
from trnqc.jit import CompiledFunction, Library, find_compiler, lacks_compiler, library

Arrays = Sequence[np.ndarray]
# Smallest number of edges of a batch that a thread computes at a time.
LEAST = 64
# Smallest number of edges of a graph that a thread computes at a time.
LEAST_OF_GRAPH = 32
# Number of partial sums of gradients of shared weights in a batch. It does not depend on the number of threads, so
# neither do the results.
SHARES = 16


class CpuEngine(Engine):
    """An engine for C-contiguous NumPy arrays of one dtype; see `engine_for`.

    Convolutions have the option `kahan`, whether sums over the edges of a node are compensated. Edges of a node are
    added in a fixed order, so results are bitwise equal for any number of threads.

    Parameters
    ----------
    problem : TPProblem
    dtype : {"float32", "float64"}
    threads : int or None
        Number of threads; None is one for each core.
    """

    def __init__(self, problem: TPProblem, dtype: str, threads: int | None) -> None:
        self.problem, self.dtype = problem, dtype
        self.threads = threads or default_threads()
        size = np.dtype(dtype).itemsize
        self.lanes = find_compiler().lanes(size)
        self.target = ProductTarget(problem, f"f{8 * size}", self.lanes)
        self._functions: dict[str, CompiledFunction] = {}
        self._seconds: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"Engine({self.problem}, {self.ran_on})"

    @property
    def ran_on(self) -> str:
        """Description of the machine, the compiler and the threads that run the calls."""
        return f"CPU, generated C, {find_compiler().label}, {self.lanes} lanes of {self.dtype}, {self.threads} threads"

    @property
    def build_report(self) -> str:
        """One line for each direction that was compiled."""
        return "\n".join(f"{name}: compiled or loaded in {s:.2f} s" for name, s in self._seconds.items())

    def _evaluate(
        self,
        name: str,
        operands: Arrays,
        graph: EdgeGraph | None = None,
        out: Arrays | None = None,
        kahan: bool = False,
    ) -> tuple[np.ndarray, ...]:
        direction, rows = DIRECTIONS[name], self._rows(operands, graph)
        shapes = {key: self.problem.shape_of(key, rows[key[-1]]) for key in direction.operands}
        arrays = dict(zip(direction.reads, operands, strict=True))
        for key, a in arrays.items():
            check_operand(key, a, shapes[key], self.dtype, graph)
        if out is None:
            results = {key: empty(shapes[key], self.dtype) for key in direction.writes}
        else:
            results = dict(zip(direction.writes, out, strict=True))
            for key, a in results.items():
                check_operand(key, a, shapes[key], self.dtype, graph, written=True)
        arrays |= results
        sums_weights = direction.gradients and self.problem.shared_weights
        if sums_weights:
            shares = SHARES if graph is None else len(graph.by_sender.shares) - 1
            arrays["gw"] = np.zeros((shares, *shapes["gw"]), self.dtype)
        if graph is None:
            self._run_batch(name, rows["x"], arrays)
        else:
            for key in CONVOLUTIONS[name]:
                self._run_graph(key, graph, arrays, kahan)
        if sums_weights:
            np.sum(arrays["gw"], axis=0, out=results["gw"])
        return tuple(results.values())

    def _run_batch(self, name: str, n: int, arrays: dict[str, np.ndarray]) -> None:
        direction = DIRECTIONS[name]
        call = self.function(name).bind(*(arrays[key] for key in direction.operands))
        by_share = direction.gradients and self.problem.shared_weights
        parts = SHARES if by_share else parts_of(n, LEAST, self.threads)

        def part(i: int) -> None:
            call(*[i] * direction.gradients, n * i // parts, n * (i + 1) // parts)

        in_parallel(part, parts, self.threads)

    def _run_graph(self, name: str, graph: EdgeGraph, arrays: dict[str, np.ndarray], kahan: bool) -> None:
        direction = DIRECTIONS[name]
        order = graph.by_receiver if direction.by == "receiver" else graph.by_sender
        shares = len(order.shares) - 1
        if not shares:
            return
        function = self.function(name + "_kahan" * kahan)
        operands = [arrays[key] for key in direction.operands]
        call = function.bind(order.shares, order.starts, order.edges, order.far, *operands)
        parts = min(shares, parts_of(len(order.edges), LEAST_OF_GRAPH, self.threads))
        in_parallel(lambda i: call(shares * i // parts, shares * (i + 1) // parts), parts, self.threads)

    def build(self, name: str) -> Library:
        """Compile a direction, or load it from the cache.

        Parameters
        ----------
        name : str
            Key in `DIRECTIONS`, followed by ``_kahan`` for compensated sums.

        Raises
        ------
        CompilerError
            If there is no compiler or it fails.
        MemoryLimit
            If the scratch of the function is larger than a thread's stack.
        """
        began = time.perf_counter()
        built = library(recipe(self.target, name))
        self._seconds.setdefault(name, time.perf_counter() - began)
        return built

    def function(self, name: str) -> CompiledFunction:
        """Return the function of a direction, which is built at the first call; for the name see `build`."""
        if name not in self._functions:
            self._functions[name] = getattr(self.build(name), name)
        return self._functions[name]


@functools.cache
def engine_for(problem: TPProblem, dtype: str, threads: int | None = None) -> Engine:
    """Return the engine of a problem, which is kept for later calls.

    Without a C compiler it is an `InterpretedEngine`, which one warning says.

    Parameters
    ----------
    problem : TPProblem
    dtype : {"float32", "float64"}
    threads : int, optional
        Number of threads of a call, by default one for each core.
    """
    if reason := lacks_compiler():
        return InterpretedEngine(problem, str(np.dtype(dtype)), reason)
    return compiled_engine(problem, dtype, threads)


@functools.cache
def compiled_engine(problem: TPProblem, dtype: str, threads: int | None = None) -> CpuEngine:
    """Return the engine of a problem for callers that need its compiled files.

    Raises CompilerError without a C compiler.
    """
    return CpuEngine(problem, str(np.dtype(dtype)), threads)
