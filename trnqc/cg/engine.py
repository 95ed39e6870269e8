"""A tensor product as compiled functions over NumPy arrays.

problem, dtype -> paths -> program (batch.py) -> C for this CPU's vectors -> compiler (jit) -> function
A direction is built when it is first called; a batch is cut into ranges that threads share.
"""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from trnqc.cg import batch
from trnqc.cg.paths import Paths
from trnqc.cg.problem import TPProblem
from trnqc.errors import OperandError
from trnqc.gen import emit_c
from trnqc.gen import statements as st
from trnqc.jit import compile_c, find_compiler, signature_of

Arrays = Sequence[np.ndarray]
KINDS = {"float64": "f64", "float32": "f32"}
BYTES = {"float64": 8, "float32": 4}
PROGRAMS: dict[str, Callable[[Paths], st.Function]] = {
    "forward": batch.forward,
    "backward": batch.backward,
    "double_backward": batch.double_backward,
}
# Edges that a thread takes at least, and rows that gradients of shared weights are summed in: as many for any number
# of threads, so that the sums are the same.
LEAST, SHARES = 64, 16
# Bytes of a cache line.
LINE = 64


@dataclass(frozen=True)
class Built:
    """One direction: its function, seconds to make its text and to compile or load it, and the length of the text."""

    function: Callable[..., None]
    made: float
    compiled: float
    size: int


class Engine:
    """Calls take and return C-contiguous NumPy arrays of one dtype; see `engine_for`."""

    def __init__(self, problem: TPProblem, dtype: str, threads: int | None) -> None:
        self.problem, self.dtype = problem, dtype
        self.threads = threads or len(os.sched_getaffinity(0))
        self.lanes = max(1, find_compiler().vector_bytes // BYTES[dtype])
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
        with _summed(gw, self.problem.shared_weights) as to:
            self._run("backward", n, (x, y, w, gz, gx, gy, to), shares=True)
        return gx, gy, gw

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
        with _summed(gw, self.problem.shared_weights) as to:
            self._run("double_backward", n, (x, y, w, gz, ggx, ggy, ggw, gx, gy, to, ggz), shares=True)
        return gx, gy, gw, ggz

    def double_backward_by_identity(
        self, x: np.ndarray, y: np.ndarray, w: np.ndarray, gz: np.ndarray, *gg: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """`double_backward` by three calls of `forward` and four of `backward`: z is linear in each operand."""
        ggx, ggy, ggw = gg
        ggz = self.forward(ggx, y, w) + self.forward(x, ggy, w) + self.forward(x, y, ggw)
        _, y_x, w_x = self.backward(ggx, y, w, gz)
        x_y, _, w_y = self.backward(x, ggy, w, gz)
        x_w, y_w, _ = self.backward(x, y, ggw, gz)
        return x_y + x_w, y_x + y_w, w_x + w_y, ggz

    def _run(self, name: str, n: int, arrays: Sequence[np.ndarray], shares: bool = False) -> None:
        function = self.build(name).function
        summed = shares and self.problem.shared_weights
        parts = SHARES if summed else min(self.threads, max(1, n // LEAST))
        ends = [n * i // parts for i in range(parts + 1)]

        def part(i: int) -> None:
            function(*arrays, *[i] * shares, ends[i], ends[i + 1])

        if parts == 1 or self.threads == 1:
            for i in range(parts):
                part(i)
        else:
            list(_pool(self.threads).map(part, range(parts)))

    def build(self, name: str) -> Built:
        """A direction by the name of its method, compiled or from the cache. Raises CompilerError."""
        if name not in self._built:
            began = time.perf_counter()
            program = PROGRAMS[name](self.paths)
            text = emit_c(program, lanes=self.lanes)
            made = time.perf_counter()
            library = compile_c(text, {name: signature_of(program)}, name=f"cg-{name}")
            done = time.perf_counter()
            self._built[name] = Built(getattr(library, name), made - began, done - made, len(text))
        return self._built[name]

    def _check(self, arrays: dict[str, np.ndarray], batch: int | None = None) -> int:
        """The batch that the arrays agree on, x's by default. Raises OperandError."""
        n = len(arrays["x"]) if batch is None else batch
        lengths = dict(zip("xyz", self.problem.dims))
        for name, a in arrays.items():
            shared = name[-1] == "w" and self.problem.shared_weights
            length = self.problem.weight_numel if name[-1] == "w" else lengths[name[-1]]
            shape = (length,) if shared else (n, length)
            if a.shape != shape or a.dtype != self.dtype or not a.flags.c_contiguous:
                raise OperandError(
                    f"{name}: expected {self.dtype}{list(shape)}, C-contiguous; found {a.dtype}{list(a.shape)}"
                    f"{'' if a.flags.c_contiguous else ' with strides ' + str(a.strides)}"
                )
        return n


def empty(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that begins where a cache line does: vectors that cross two lines are written at half the speed."""
    raw = np.empty(math.prod(shape) * BYTES[dtype] + LINE, np.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + raw.size - LINE].view(dtype).reshape(shape)


@contextmanager
def _summed(gw: np.ndarray, shared: bool) -> Iterator[np.ndarray]:
    """What the kernels write: gw itself, or rows whose sum becomes the gradient of shared weights."""
    if not shared:
        yield gw
        return
    rows = np.zeros((SHARES, *gw.shape), gw.dtype)
    yield rows
    np.sum(rows, axis=0, out=gw)


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="trnqc-cg")


@functools.cache
def engine_for(problem: TPProblem, dtype: str, threads: int | None = None) -> Engine:
    """The engine of a problem for "float32" or "float64"; threads: of a call, by default one a core of this process."""
    return Engine(problem, str(np.dtype(dtype)), threads)
