"""A tensor product on the CPU as compiled functions of NumPy arrays.

problem, dtype -> target -> program (batch.py, convolution.py) -> C for this CPU's vectors -> compiler (jit) -> function

A direction is compiled when it is first called. Threads compute ranges of a batch, or shares of the nodes of a graph.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from trnqc.cg.cpu import batch, convolution, stack
from trnqc.cg.cpu.interpreted import InterpretedEngine
from trnqc.cg.cpu.target import Target
from trnqc.cg.engine import Engine, check_operand
from trnqc.cg.problem.graph import Graph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import CONVOLUTIONS, DIRECTIONS
from trnqc.gen import emit_c
from trnqc.gen import statements as st
from trnqc.host.arrays import empty
from trnqc.host.threads import default_threads, in_parallel, parts_of
from trnqc.jit import CompiledFunction, Signature, compile_c, find_compiler, lacks_compiler

Arrays = Sequence[np.ndarray]
# Smallest number of edges of a batch that a thread computes at a time.
LEAST = 64
# Smallest number of edges of a graph that a thread computes at a time.
LEAST_OF_GRAPH = 32
# Number of partial sums of gradients of shared weights in a batch. It does not depend on the number of threads, so
# neither do the results.
SHARES = 16


@dataclass(frozen=True)
class CompiledDirection:
    """A compiled direction with its file, seconds of generation and compilation, and characters of its source."""

    function: CompiledFunction
    path: Path
    generation_time: float
    compile_time: float
    size: int


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
        self.target = Target(problem, f"f{8 * size}", self.lanes)
        self._compiled: dict[str, CompiledDirection] = {}

    def __repr__(self) -> str:
        return f"Engine({self.problem}, {self.ran_on})"

    @property
    def ran_on(self) -> str:
        """Description of the machine, the compiler and the threads that run the calls."""
        return f"CPU, generated C, {find_compiler().label}, {self.lanes} lanes of {self.dtype}, {self.threads} threads"

    @property
    def build_report(self) -> str:
        """One line for each direction that was compiled."""
        return "\n".join(
            f"{name}: {compiled.size / 1e3:.0f} kB of C generated in {compiled.generation_time:.2f} s, "
            f"compiled or loaded in {compiled.compile_time:.2f} s"
            for name, compiled in self._compiled.items()
        )

    def _evaluate(
        self, name: str, operands: Arrays, graph: Graph | None = None, out: Arrays | None = None, kahan: bool = False
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
        call = self.build(name).function.bind(*(arrays[key] for key in direction.operands))
        by_share = direction.gradients and self.problem.shared_weights
        parts = SHARES if by_share else parts_of(n, LEAST, self.threads)

        def part(i: int) -> None:
            call(*[i] * direction.gradients, n * i // parts, n * (i + 1) // parts)

        in_parallel(part, parts, self.threads)

    def _run_graph(self, name: str, graph: Graph, arrays: dict[str, np.ndarray], kahan: bool) -> None:
        direction = DIRECTIONS[name]
        order = graph.by_receiver if direction.by == "receiver" else graph.by_sender
        shares = len(order.shares) - 1
        if not shares:
            return
        function = self.build(name + "_kahan" * kahan).function
        operands = [arrays[key] for key in direction.operands]
        call = function.bind(order.shares, order.starts, order.edges, order.far, *operands)
        parts = min(shares, parts_of(len(order.edges), LEAST_OF_GRAPH, self.threads))
        in_parallel(lambda i: call(shares * i // parts, shares * (i + 1) // parts), parts, self.threads)

    def build(self, name: str) -> CompiledDirection:
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
        if name not in self._compiled:
            direction = DIRECTIONS[name.removesuffix("_kahan")]
            if direction.by:
                program = convolution.program(self.target, direction, compensated=name.endswith("_kahan"))
            else:
                program = batch.program(self.target, direction)
            stack.require(program, self.lanes, f"{name} of {self.problem.label or self.problem}")
            self._compiled[name] = _compile(name, program, self.lanes)
        return self._compiled[name]


def _compile(name: str, program: st.Function, lanes: int) -> CompiledDirection:
    began = time.perf_counter()
    text = emit_c(program, lanes=lanes)
    generated = time.perf_counter()
    library = compile_c(text, [Signature.of(program)], name=f"cg-{name}")
    done = time.perf_counter()
    return CompiledDirection(getattr(library, name), library.path, generated - began, done - generated, len(text))


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
