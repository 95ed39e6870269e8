"""A tensor product on the CPU as compiled functions of NumPy arrays.

problem, dtype -> paths -> program (batch.py, convolution.py) -> C for this CPU's vectors -> compiler (jit) -> function

A direction is built when it is first called. Threads take ranges of a batch, or shares of a graph's nodes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.cg.cpu import batch, convolution, stack
from trnqc.cg.cpu.operands import checked, shape_of, shares_of, summed
from trnqc.cg.cpu.slots import Paths
from trnqc.cg.problem.graph import Graph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.gen import emit_c
from trnqc.gen import statements as st
from trnqc.host.arrays import empty
from trnqc.host.threads import default_threads, in_parallel, parts_of
from trnqc.jit import CompiledFunction, Signature, compile_c, find_compiler

Arrays = Sequence[np.ndarray]
KINDS = {"float64": "f64", "float32": "f32"}
BYTES = {"float64": 8, "float32": 4}
# The kernels of a convolution's directions.
CONVOLUTIONS = {
    "forward": ("conv_forward",),
    "backward": ("conv_backward",),
    "double_backward": ("conv_double_outputs", "conv_double_inputs"),
}
# The least number of edges that a thread takes of a batch and of a graph.
LEAST, LEAST_OF_GRAPH = 64, 32
# Rows in which gradients of shared weights are summed; their number does not depend on the threads, nor do the sums.
SHARES = 16


@dataclass(frozen=True)
class Built:
    """A compiled direction.

    Parameters
    ----------
    function : CompiledFunction
    generated, compiled : float
        Seconds to generate the text, and to compile or load it.
    size : int
        Characters of the text.
    """

    function: CompiledFunction
    generated: float
    compiled: float
    size: int


class Engine:
    """Directions of a problem on C-contiguous NumPy arrays of one dtype; see `engine_for`."""

    def __init__(self, problem: TPProblem, dtype: str, threads: int | None) -> None:
        self.problem, self.dtype = problem, dtype
        self.threads = threads or default_threads()
        self.lanes = find_compiler().lanes(BYTES[dtype])
        self.paths = Paths(problem, KINDS[dtype], self.lanes)
        self._built: dict[str, Built] = {}

    def __repr__(self) -> str:
        return f"Engine({self.problem}, {self.ran_on})"

    @property
    def ran_on(self) -> str:
        """Where and by what the calls are run, in words."""
        return f"CPU, generated C, {find_compiler().label}, {self.lanes} lanes of {self.dtype}, {self.threads} threads"

    @property
    def build_report(self) -> str:
        """One line for each direction that was built."""
        return "\n".join(
            f"{name}: {built.size / 1e3:.0f} kB of C generated in {built.generated:.2f} s, "
            f"compiled or loaded in {built.compiled:.2f} s"
            for name, built in self._built.items()
        )

    def forward(self, x: np.ndarray, y: np.ndarray, w: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Return z [B, d3] of x [B, d1], y [B, d2] and w [B, nw] or, if shared, [nw], in `out` if that is not None."""
        return self._evaluate("forward", (x, y, w), None if out is None else (out,))[0]

    def backward(
        self, x: np.ndarray, y: np.ndarray, w: np.ndarray, gz: np.ndarray, out: Arrays | None = None
    ) -> tuple[np.ndarray, ...]:
        """Return (gx, gy, gw), the gradients of <gz, z> with respect to x, y and w, in `out` if that is not None."""
        return self._evaluate("backward", (x, y, w, gz), out)

    def double_backward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        gz: np.ndarray,
        ggx: np.ndarray,
        ggy: np.ndarray,
        ggw: np.ndarray,
        out: Arrays | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Return gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz."""
        return self._evaluate("double_backward", (x, y, w, gz, ggx, ggy, ggw), out)

    def conv_forward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        graph: Graph,
        *,
        kahan: bool = False,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return z [V, d3], the products of x at the senders with y, summed at the receivers.

        Parameters
        ----------
        x : numpy.ndarray
            [V, d1]
        y, w : numpy.ndarray
            [E, d2] and [E, nw], or [nw] for shared weights, in the order of the graph's edges.
        graph : Graph
            The edges.
        kahan : bool, optional
            Whether the sums over the edges of a node are compensated.
        out : numpy.ndarray, optional
            Array for the result.

        Notes
        -----
        The edges of a node are added in a fixed order, so results are bitwise equal for any number of threads.
        """
        return self._evaluate("forward", (x, y, w), None if out is None else (out,), graph, kahan)[0]

    def conv_backward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        gz: np.ndarray,
        graph: Graph,
        *,
        kahan: bool = False,
        out: Arrays | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Return (gx, gy, gw) as `backward` does, for a convolution."""
        return self._evaluate("backward", (x, y, w, gz), out, graph, kahan)

    def conv_double_backward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        gz: np.ndarray,
        ggx: np.ndarray,
        ggy: np.ndarray,
        ggw: np.ndarray,
        graph: Graph,
        *,
        kahan: bool = False,
        out: Arrays | None = None,
    ) -> tuple[np.ndarray, ...]:
        """Return (gx, gy, gw, ggz) as `double_backward` does, for a convolution."""
        return self._evaluate("double_backward", (x, y, w, gz, ggx, ggy, ggw), out, graph, kahan)

    def _evaluate(
        self, name: str, operands: Arrays, out: Arrays | None, graph: Graph | None = None, kahan: bool = False
    ) -> tuple[np.ndarray, ...]:
        """The results of a direction. Raises OperandError."""
        direction, n = DIRECTIONS[name], len(operands[0])
        nodes, edges = (n, n) if graph is None else (graph.n_nodes, graph.n_edges)
        rows = {"x": nodes, "y": edges, "w": edges, "z": nodes}
        arrays = dict(zip(direction.reads, operands, strict=True))
        for key, a in arrays.items():
            checked(key, a, self.problem, rows[key[-1]], self.dtype, False, graph)
        if out is None:
            shapes = {key: shape_of(key, self.problem, rows[key[-1]]) for key in direction.writes}
            results = {key: empty(shape, self.dtype) for key, shape in shapes.items()}
        else:
            results = dict(zip(direction.writes, out, strict=True))
            for key, a in results.items():
                checked(key, a, self.problem, rows[key[-1]], self.dtype, True, graph)
        arrays |= results
        if direction.gradients:
            shares = SHARES if graph is None else len(graph.by_sender.shares) - 1
            arrays["gw"] = shares_of(results["gw"], self.problem, shares)
        if graph is None:
            self._run_batch(name, n, arrays)
        else:
            for key in CONVOLUTIONS[name]:
                self._run_graph(key, graph, arrays, kahan)
        if direction.gradients:
            summed(arrays["gw"], results["gw"])
        return tuple(results.values())

    def _run_batch(self, name: str, n: int, arrays: dict[str, np.ndarray]) -> None:
        direction = DIRECTIONS[name]
        call = self.build(name).function.bind(*(arrays[key] for key in (*direction.reads, *direction.writes)))
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
        operands = [arrays[key] for key in (*direction.reads, *direction.writes)]
        function = self.build(name + "_kahan" * kahan).function
        call = function.bind(order.shares, order.starts, order.edges, order.far, *operands)
        parts = min(shares, parts_of(len(order.edges), LEAST_OF_GRAPH, self.threads))
        in_parallel(lambda i: call(shares * i // parts, shares * (i + 1) // parts), parts, self.threads)

    def build(self, name: str) -> Built:
        """A direction by its key in `DIRECTIONS`, compiled or from the cache. Raises CompilerError."""
        if name not in self._built:
            program = self._program(name)
            stack.demand(program, self.lanes, f"{name} of {self.problem.label or self.problem}")
            self._built[name] = built(name, program, self.lanes)
        return self._built[name]

    def _program(self, name: str) -> st.Function:
        direction = DIRECTIONS[name.removesuffix("_kahan")]
        if direction.by:
            return convolution.program(self.paths, direction, compensated=name.endswith("_kahan"))
        return batch.program(self.paths, direction)


def built(name: str, program: st.Function, lanes: int) -> Built:
    """The function `name` compiled for vectors of that many lanes, or taken from the cache. Raises CompilerError."""
    began = time.perf_counter()
    text = emit_c(program, lanes=lanes)
    generated = time.perf_counter()
    library = compile_c(text, [Signature.of(program)], name=f"cg-{name}")
    done = time.perf_counter()
    return Built(getattr(library, name), generated - began, done - generated, len(text))


@functools.cache
def engine_for(problem: TPProblem, dtype: str, threads: int | None = None) -> Engine:
    """The engine of a problem for "float32" or "float64"; threads: of a call, by default one per core."""
    return Engine(problem, str(np.dtype(dtype)), threads)
