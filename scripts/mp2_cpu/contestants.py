"""The programs that scripts/bench_mp2_cpu.py compares, each kind in a process of its own.

An OpenBLAS chooses its kernels when it is loaded, by OPENBLAS_CORETYPE: contestants that differ in it cannot share a
process. A worker reads one JSON request a line, {"do": name, ...}, and answers with one JSON line.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts import ROOT, vectors


def inherited_core() -> str | None:
    """The OPENBLAS_CORETYPE of a plain install: none, or that of the vectors which a run is kept to."""
    return vectors.AVX2[vectors.CORE_VARIABLE] if vectors.current() == "avx2" else None


class Worker:
    """A contestant process; `core` is its OPENBLAS_CORETYPE, None for that of a plain install."""

    def __init__(self, kind: str, core: str | None = None) -> None:
        environment = {key: value for key, value in os.environ.items() if key != vectors.CORE_VARIABLE}
        core = core or inherited_core()
        if core:
            environment[vectors.CORE_VARIABLE] = core
        # Contestants are told their thread numbers in each request; this bounds what libraries start at load.
        environment["OMP_NUM_THREADS"] = str(os.cpu_count() or 1)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "scripts.mp2_cpu.contestants", kind],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def ask(self, **request: Any) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a worker ended with status {self.process.wait()} on {request}")
        return json.loads(answer)

    def close(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait()


def timed(work: Callable[[], Any]) -> dict[str, Any]:
    """Wall and process seconds of a call, and what it returned."""
    wall, cpu = time.perf_counter(), time.process_time()
    value = work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "value": value}


class Contestant:
    """What all kinds do: load a case, say which libraries they run on."""

    def load(self, case: str) -> None:
        from pyscf import gto, scf

        data = np.load(case)
        self.mol = gto.loads(str(data["mol"]))
        self.mol.verbose = 0
        self.mf = scf.RHF(self.mol)
        self.mf.mo_coeff, self.mf.mo_energy, self.mf.mo_occ = data["mo_coeff"], data["mo_energy"], data["mo_occ"]
        self.mf.e_tot, self.mf.converged = float(data["e_tot"]), True
        self.frozen = int(data["frozen"])
        self.B, self.eps_occ, self.eps_vir = np.load(Path(case).with_suffix(".B.npy")), data["eps_occ"], data["eps_vir"]

    def libraries(self) -> list[dict[str, Any]]:
        from threadpoolctl import threadpool_info

        keys = ("internal_api", "version", "architecture", "num_threads", "threading_layer")
        return [
            {key: lib.get(key) for key in keys} | {"file": "/".join(Path(lib["filepath"]).parts[-2:])}
            for lib in threadpool_info()
            if lib["user_api"] == "blas"
        ]


class Trnqc(Contestant):
    """Our pair step, and its products without the energy pass: compiled ones, and GEMMs of NumPy's BLAS."""

    def status(self) -> dict[str, str]:
        from trnqc import backends

        return dict(backends.get("cpu").status().versions)

    def pairs(self, threads: int, precision: str) -> dict[str, Any]:
        from trnqc import backends

        cpu = backends.get("cpu")
        run = timed(lambda: cpu.pair_step(precision, threads=threads).triangle(self.B, self.eps_occ, self.eps_vir))
        energies = run.pop("value")
        return run | {"os": energies.os.sum(), "ss": energies.ss.sum(), "ran_on": energies.ran_on}

    def products(self, threads: int, precision: str, compiled: bool) -> dict[str, Any]:
        from trnqc.backends.cpu.pair_loop import triangle_sums
        from trnqc.backends.cpu.pair_products import make_products

        def no_energy(slab: object, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(len(e_pair)), np.zeros(len(e_pair))

        def run() -> None:
            triangle_sums(self.B, self.eps_occ, make_products(self.B, precision, compiled), no_energy, threads=threads)

        return timed(run)

    def whole(self, threads: int, precision: str) -> dict[str, Any]:
        from trnqc.mp2.dfmp2 import DFMP2

        method: Any = DFMP2(self.mf, frozen=self.frozen, precision=precision, backend="cpu", threads=threads)
        run = timed(method.kernel)
        e_corr, _ = run.pop("value")
        return run | {"e_corr": e_corr, "stages": dict(method.result.timings)}

    def peak(self) -> dict[str, float]:
        """GFLOP/s of multiply-add alone on one core by dtype: the ceiling of every product here."""
        from trnqc import jit

        text, rates = (Path(__file__).parent / "fma_peak.c").read_text(), {}
        for dtype, real in (("float64", "double"), ("float32", "float")):
            result = jit.Parameter("result", jit.TYPES[dtype], array=True, ndim=1, written=True)
            signature = jit.Signature("multiply_add", (jit.Parameter("steps", "i64"), result), returns="i64")
            library = jit.compile_c(text, [signature], name="fma_peak", defines=(f"REAL={real}",))
            runs = [timed(partial(library.multiply_add, 5_000_000, np.empty(1, dtype))) for _ in range(9)]
            rates[dtype] = max(run["value"] / run["cpu"] for run in runs) / 1e9
        return rates


class Pyscf(Contestant):
    """PySCF's dfmp2 without amplitudes, with the MP2-fitting basis."""

    def method(self, threads: int) -> Any:
        from pyscf import df, lib
        from pyscf.mp import dfmp2

        lib.num_threads(threads)
        method = dfmp2.DFMP2(self.mf, frozen=self.frozen)
        method.with_df = df.DF(self.mol)
        method.with_df.auxbasis = df.make_auxbasis(self.mol, mp2fit=True)
        method.max_memory = 1e6
        return method

    def pairs(self, threads: int) -> dict[str, Any]:
        from pyscf.mp import dfmp2

        method = self.method(threads)
        factors = method.ao2mo(ovL=self.B.reshape(-1, self.B.shape[2]))
        run = timed(lambda: dfmp2.kernel(method, eris=factors, with_t2=False))
        energy, _ = run.pop("value")
        return run | {"os": float(energy.e_corr_os), "ss": float(energy.e_corr_ss)}

    def whole(self, threads: int) -> dict[str, Any]:
        from pyscf.mp import dfmp2
        from threadpoolctl import threadpool_limits

        method = self.method(threads)

        def run() -> float:
            factors = method.ao2mo()
            middle.append(time.perf_counter())
            return float(dfmp2.kernel(method, eris=factors, with_t2=False)[0])

        middle: list[float] = []
        start = time.perf_counter()
        with threadpool_limits(threads, user_api="blas"):
            result = timed(run)
        stages = {"ao2mo": middle[0] - start, "pairs": start + result["wall"] - middle[0]}
        return result | {"e_corr": result.pop("value"), "stages": stages}

    def rate(self) -> float:
        """GFLOP/s of the pair step on made-up factors, one thread: which core type is best is measured, not assumed."""
        from pyscf import gto, scf
        from pyscf.mp import dfmp2

        nocc, nvir, naux = 6, 200, 600
        self.mol = gto.M(atom="Ne", basis="sto-3g", verbose=0)
        self.mf = scf.RHF(self.mol)
        self.mf.mo_coeff = np.zeros((1, nocc + nvir))
        self.mf.mo_energy = np.concatenate((np.full(nocc, -1.0), np.full(nvir, 1.0)))
        self.mf.mo_occ = np.concatenate((np.full(nocc, 2.0), np.zeros(nvir)))
        self.mf.converged, self.frozen = True, 0
        method = self.method(1)
        B = np.random.default_rng(0).standard_normal((nocc * nvir, naux))
        factors = method.ao2mo(ovL=B)
        seconds = min(timed(lambda: dfmp2.kernel(method, eris=factors, with_t2=False))["cpu"] for _ in range(3))
        return nocc * (nocc + 1) * nvir**2 * naux / seconds / 1e9


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not be taken for an answer
    contestant = {"trnqc": Trnqc, "pyscf": Pyscf}[sys.argv[1]]()
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(contestant, request.pop("do"))(**request)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
