"""A tensor product as compiled functions over NumPy arrays.

problem, dtype -> paths -> program (batch.py) -> C for this CPU's vectors -> compiler (jit) -> function
A direction is built when it is first called; a batch is cut into ranges that threads share.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.cg.cpu import batch, convolution, stack
from trnqc.cg.cpu.convolution_calls import Convolutions
from trnqc.cg.cpu.operands import checked, shares_of, summed
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.paths import Paths
from trnqc.gen import emit_c
from trnqc.gen import statements as st
from trnqc.host.arrays import empty
from trnqc.host.threads import default_threads, in_parallel, parts_of
from trnqc.jit import CompiledFunction, Signature, compile_c, find_compiler

Arrays = Sequence[np.ndarray]
Program = Callable[[Paths], st.Function]
KINDS = {"float64": "f64", "float32": "f32"}
BYTES = {"float64": 8, "float32": 4}
PROGRAMS: dict[str, Program] = {
    "forward": batch.forward,
    "backward": batch.backward,
    "double_backward": batch.double_backward,
    **convolution.PROGRAMS,
}
# Edges of a part at least.
LEAST = 64
# Rows that gradients of shared weights are summed in: as many for any number of threads, so that sums are the same.
SHARES = 16


@dataclass(frozen=True)
class Built:
    """One direction: its function, seconds to make its text and to compile or load it, and the text's length."""

    function: CompiledFunction
    made: float
    compiled: float
    size: int


class Engine(Convolutions):
    """Calls take and return C-contiguous NumPy arrays of one dtype; see `engine_for`."""

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
        """One line a direction that was built."""
        return "\n".join(
            f"{name}: {built.size / 1e3:.0f} kB of C made in {built.made:.2f} s, "
            f"compiled or loaded in {built.compiled:.2f} s"
            for name, built in self._built.items()
        )

    def forward(self, x: np.ndarray, y: np.ndarray, w: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """z [B, d3] of x [B, d1], y [B, d2] and w [B, nw], shared: [nw]; written to `out` where that is given."""
        n = self._check({"x": x, "y": y, "w": w})
        z = empty((n, self.problem.dims[2]), self.dtype) if out is None else out
        self._check({"z": z}, n)
        self._run("forward", n, (x, y, w, z))
        return z

    def backward(
        self, x: np.ndarray, y: np.ndarray, w: np.ndarray, gz: np.ndarray, out: Arrays | None = None
    ) -> tuple[np.ndarray, ...]:
        """(gx, gy, gw), the gradients of <gz, z>, in the shapes of x, y and w; written to `out` where that is given."""
        n = self._check({"x": x, "y": y, "w": w, "gz": gz})
        gx, gy, gw = out or (empty(a.shape, self.dtype) for a in (x, y, w))
        self._check({"x": gx, "y": gy, "w": gw}, n)
        to = shares_of(gw, self.problem, SHARES)
        self._run("backward", n, (x, y, w, gz, gx, gy, to), shares=True)
        return gx, gy, summed(to, gw)

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
        """(gx, gy, gw, ggz): the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz."""
        n = self._check({"x": x, "y": y, "w": w, "gz": gz, "ggx": ggx, "ggy": ggy, "ggw": ggw})
        gx, gy, gw, ggz = out or (empty(a.shape, self.dtype) for a in (x, y, w, gz))
        self._check({"x": gx, "y": gy, "w": gw, "z": ggz}, n)
        to = shares_of(gw, self.problem, SHARES)
        self._run("double_backward", n, (x, y, w, gz, ggx, ggy, ggw, gx, gy, to, ggz), shares=True)
        return gx, gy, summed(to, gw), ggz

    def _run(self, name: str, n: int, arrays: Sequence[np.ndarray], shares: bool = False) -> None:
        call = self.build(name).function.bind(*arrays)
        parts = SHARES if shares and self.problem.shared_weights else parts_of(n, LEAST, self.threads)

        def part(i: int) -> None:
            call(*[i] * shares, n * i // parts, n * (i + 1) // parts)

        in_parallel(part, parts, self.threads)

    def build(self, name: str) -> Built:
        """A direction by the name of its method, compiled or from the cache. Raises CompilerError."""
        if name not in self._built:
            program = PROGRAMS[name](self.paths)
            stack.demand(program, self.lanes, f"{name} of {self.problem.label or self.problem}")
            self._built[name] = built(name, program, self.lanes)
        return self._built[name]

    def _check(self, arrays: dict[str, np.ndarray], batch: int | None = None) -> int:
        """The batch that the arrays agree on, x's by default. Raises OperandError."""
        n = len(arrays["x"]) if batch is None else batch
        for name, a in arrays.items():
            checked(name, a, self.problem, n, self.dtype, batch is not None)
        return n


def built(name: str, program: st.Function, lanes: int) -> Built:
    """The function `name` compiled for vectors of that many lanes, or taken from the cache. Raises CompilerError."""
    began = time.perf_counter()
    text = emit_c(program, lanes=lanes)
    made = time.perf_counter()
    library = compile_c(text, [Signature.of(program)], name=f"cg-{name}")
    done = time.perf_counter()
    return Built(getattr(library, name), made - began, done - made, len(text))


@functools.cache
def engine_for(problem: TPProblem, dtype: str, threads: int | None = None) -> Engine:
    """The engine of a problem for "float32" or "float64"; threads: of a call, by default one a core of this process."""
    return Engine(problem, str(np.dtype(dtype)), threads)
