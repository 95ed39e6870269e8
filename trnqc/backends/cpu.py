"""The CPU backend: NumPy's BLAS for the products, one compiled pass over each slab of them for the energies.

    B -> format of the precision (formats.py) -> tasks of one i and a block of j (plan.py), dealt to threads
      -> T_j = B_i B_j^T, one GEMM a task on one thread -> pair_energy.c -> E_os[i,j], E_ss[i,j]

Threads run over tasks, not inside GEMMs: products of this size are too small to share, and a busy machine stalls
a shared one at every barrier. Each pair's sums are made by one thread in one order, so results are the same for any
number of threads.
"""

from __future__ import annotations

import os
import platform
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from trnqc import jit
from trnqc.backends.base import BackendStatus, Progress, check_precision
from trnqc.backends.cpu_kernels.blas import numpy_blas, single_threaded
from trnqc.backends.cpu_kernels.formats import FORMATS, Format, encode
from trnqc.backends.cpu_kernels.plan import Plan, Task, make_plan
from trnqc.errors import CompilerError, InputError
from trnqc.types import PRECISIONS, PairEnergies

# (slab, nvir, e_pair[n]) -> sums over a, b of T^2 / D and of T T^T / D for each of the n pairs
EnergyPass = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def _compiled_pass(eps_vir: np.ndarray, dtype: type) -> EnergyPass:
    """The energy expression in one pass of compiled code; raises CompilerError."""
    function = _pair_kernel(np.dtype(dtype).name).pair_energies
    nvir = len(eps_vir)

    def run(slab: np.ndarray, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(e_pair)
        os_sums, x_sums = np.empty(n), np.empty(n)
        function(slab, n, nvir, n * nvir, nvir, eps_vir, e_pair, os_sums, x_sums)
        return os_sums, x_sums

    return run


def _numpy_pass(eps_vir: np.ndarray) -> EnergyPass:
    """The energy expression as whole-array operations, apart from the GEMM."""

    def run(slab: np.ndarray, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nvir, n = len(eps_vir), len(e_pair)
        T = slab.reshape(nvir, n, nvir).transpose(1, 0, 2).astype(np.float64)
        weighted = T / (e_pair[:, None, None] - eps_vir[:, None] - eps_vir)
        return (weighted * T).sum((1, 2)), (weighted * T.transpose(0, 2, 1)).sum((1, 2))

    return run


def _pair_kernel(dtype: str) -> jit.Library:
    """pair_energy.c compiled for slabs of `dtype`."""
    source = resources.files("trnqc.backends.cpu_kernels").joinpath("pair_energy.c").read_text()
    real = {"float64": "double", "float32": "float"}[dtype]
    vector, result = jit.Array("float64", ndim=1), jit.Array("float64", ndim=1, written=True)
    arguments = (jit.Array(dtype, ndim=2), "int64", "int64", "int64", "int64", vector, vector, result, result)
    return jit.compile_c(
        source, {"pair_energies": jit.Signature(arguments)}, name="pair_energy", defines=(f"REAL={real}",)
    )


@dataclass(frozen=True)
class _Rows:
    """Encoded rows of B: all of them at once where they fit, else fetched when asked for."""

    B: Any
    precision: str

    def fetch(self, i0: int, i1: int) -> np.ndarray:
        """[i1 - i0, nvir, copies * naux], encoded row by row so that temporaries stay small."""
        if self.reused:
            return self.B[i0:i1]
        _, nvir, naux = self.B.shape
        form = FORMATS[self.precision]
        rows = np.empty((i1 - i0, nvir, form.copies * naux), dtype=form.dtype)
        for i in range(i0, i1):
            rows[i - i0] = encode(np.asarray(self.B[i], dtype=np.float64), self.precision)
        return rows

    @property
    def reused(self) -> bool:
        return self.precision == "fp64" and isinstance(self.B, np.ndarray)


class _PairStep:
    """One call of mp2_pairs: the buffers, the results, and the work of one task."""

    def __init__(self, rows: _Rows, eps_occ: np.ndarray, plan: Plan, energies: EnergyPass, threads: int) -> None:
        self.rows, self.eps_occ, self.plan, self.energies = rows, eps_occ, plan, energies
        self.form: Format = FORMATS[rows.precision]
        nocc, self.nvir, _ = rows.B.shape
        self.os, self.x = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        self.slabs: queue.SimpleQueue[np.ndarray] = queue.SimpleQueue()
        for _ in range(threads):
            self.slabs.put(np.empty(plan.block * self.nvir**2, dtype=self.form.dtype))

    def run(self, task: Task, panel: np.ndarray, first: int) -> int:
        """All pairs of a task; `panel` holds the encoded rows from `first` on. Returns their number."""
        block = panel[task.j0 : task.j1] if self.plan.whole else self.rows.fetch(task.j0, task.j1)
        slab = self.slabs.get()
        try:
            for i in range(max(task.i0, task.j0), task.i1):
                n = min(task.j1, i + 1) - task.j0
                self._pairs_of(i, task.j0, self.form.left_of(panel[i - first]), self.form.right_of(block[:n]), slab)
        finally:
            self.slabs.put(slab)
        return task.pairs

    def _pairs_of(self, i: int, j0: int, left: np.ndarray, right: np.ndarray, slab: np.ndarray) -> None:
        n, nvir = len(right), self.nvir
        T = slab[: n * nvir * nvir].reshape(nvir, n * nvir)
        np.matmul(left, right.reshape(n * nvir, right.shape[-1]).T, out=T)
        js = slice(j0, j0 + n)
        self.os[i, js], self.x[i, js] = self.energies(T, self.eps_occ[i] + self.eps_occ[js])

    def work(self) -> Iterator[tuple[Task, np.ndarray, int] | None]:
        """Tasks with the rows they need; None marks where all tasks before must have ended."""
        for i0, i1 in self.plan.panels():
            panel = self.rows.fetch(i0, i1)
            for task in self.plan.tasks(i0, i1):
                yield task, panel, i0
            yield None


def _deal(step: _PairStep, threads: int, progress: Progress | None) -> None:
    nocc = len(step.eps_occ)
    done, total = 0, nocc * (nocc + 1) // 2
    with ThreadPoolExecutor(threads, thread_name_prefix="trnqc-mp2") as pool:
        futures = []
        try:
            for item in step.work():
                if item is not None:
                    futures.append(pool.submit(step.run, *item))
                    continue
                for future in as_completed(futures):
                    done += future.result()
                    if progress is not None:
                        progress(done, total)
                futures.clear()
        finally:
            for future in futures:
                future.cancel()


def default_threads() -> int:
    """OMP_NUM_THREADS where it is set, as for PySCF, else the CPUs that this process may use."""
    text = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise InputError(f"OMP_NUM_THREADS is {text!r}; expected a positive number")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _product(a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
    """a_t[..., K, M], b[..., K, N] -> [..., M, N]; the contracted index is last while the operands are encoded."""
    form = FORMATS[precision]
    left = form.left_of(encode(np.swapaxes(a_t, -1, -2).astype(np.float64), precision))
    right = form.right_of(encode(np.swapaxes(b, -1, -2).astype(np.float64), precision))
    return np.matmul(left, np.swapaxes(right, -1, -2))


class Cpu:
    """The default backend; see trnqc.backends.base.Backend for the meaning of arguments."""

    name = "cpu"
    precisions = PRECISIONS

    def status(self) -> BackendStatus:
        blas = numpy_blas()
        versions = {"numpy": np.__version__, "BLAS": f"{blas} (threads a call: {blas.threads or 'unknown'})"}
        reason = hint = ""
        try:
            _pair_kernel("float64")
            versions["C compiler"] = jit.find_compiler().version
            versions["pair kernel"] = "compiled"
        except CompilerError as error:
            versions["pair kernel"] = "not compiled"
            reason = "the fused pair kernel cannot be compiled; GEMMs and the unfused pair step work"
            hint = str(error)
        device = f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs"
        return BackendStatus(True, reason, hint, versions, (device,))

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        return _product(a_t, b, precision)

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        return _product(a_t, b, precision)

    def mp2_pairs(
        self,
        B: Any,
        eps_occ: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        max_memory: float | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        """See Backend.mp2_pairs. fused=True raises CompilerError where there is no C compiler."""
        check_precision(self, precision)
        threads = threads or default_threads()
        form, rows = FORMATS[precision], _Rows(B, precision)
        plan = make_plan(
            B.shape,
            form,
            threads=threads,
            limit=max_memory,
            in_memory=isinstance(B, np.ndarray) and not isinstance(B, np.memmap),
            reuses=rows.reused,
        )
        eps_occ, eps_vir = (np.ascontiguousarray(e, dtype=np.float64) for e in (eps_occ, eps_vir))
        energies = _compiled_pass(eps_vir, form.dtype) if fused else _numpy_pass(eps_vir)
        step = _PairStep(rows, eps_occ, plan, energies, threads)
        blas = numpy_blas()
        with single_threaded():
            _deal(step, threads, progress)
        twice = 2.0 - np.eye(len(eps_occ))
        how = f"compiled pair kernel ({jit.find_compiler().label})" if fused else "GEMM and NumPy expression apart"
        return PairEnergies(twice * step.os, twice * (step.os - step.x), f"{blas}, {threads} threads, {how}")
