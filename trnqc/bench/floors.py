"""The least time of a job's parts: their matrix products at the rate that NumPy's BLAS reaches on this machine.

sizes of a job -> operations of the products that no algorithm of the kind avoids -> seconds at the measured rate

    python -m trnqc.bench.floors caffeine def2-svp b3lyp

runs a density-fitted job of ours, times some of its parts, and prints them with their floors as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from trnqc.errors import TrnqcError


def product_rate(threads: int = 1, size: int = 1024, rounds: int = 5) -> float:
    """Operations per second of matrix products on so many threads together, each of which has matrices of its own."""
    from trnqc.host.blas import single_threaded

    def product(_: int) -> None:
        np.matmul(a, a)

    a = np.ones((size, size))
    with single_threaded(), ThreadPoolExecutor(threads) as pool:
        list(pool.map(product, range(threads)))
        seconds = min(timed(lambda: list(pool.map(product, range(threads)))) for _ in range(rounds))
    return 2.0 * threads * size**3 / seconds


def timed(work: Callable[[], Any]) -> float:
    """Wall seconds of a call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def quadrature(blocks: Any, kind: str, nocc: int) -> float:
    """The multiplications and additions of the matrix products of one pass, with the cheaper form of the density.

    Density: psi = C^T chi, for gradients also C psi, for tau psi of three derivatives; or D chi. Potential: half of a
    product of LDA, a whole one of gradients, three halves more of tau.
    """
    density = {"LDA": (1, 1), "GGA": (2, 1), "MGGA": (4, 4)}[kind]
    potential = {"LDA": 0.5, "GGA": 1.0, "MGGA": 2.5}[kind]
    total = 0.0
    for block in blocks:
        n = len(block.functions)
        total += 2.0 * block.points * n * (min(density[0] * nocc, density[1] * n) + potential * n)
    return total


def fitted_exchange(naux: int, nao: int, nocc: int) -> float:
    """The operations of K from fitted integrals: X_Q = B_Q C, and the lower triangle of the sum of X_Q X_Q^T."""
    return 2.0 * naux * nao**2 * nocc + float(naux * nocc * nao * (nao + 1))


def division_by_metric(naux: int, pairs: int) -> float:
    """The operations of L^-1 (P|ij) for the triangular matrix L [naux, naux] and so many pairs ij."""
    return float(naux) ** 2 * pairs


def over_floor(seconds: float, floor: float) -> dict[str, float]:
    """Seconds of a part, its floor, and how many times as long it took."""
    return {"wall_s": seconds, "floor_s": floor, "over_floor": seconds / floor}


def of_job(mf: Any) -> dict[str, Any]:
    """Time parts of a finished job of ours beside their floors: K, the fitted integrals, and a pass of the quadrature.

    The floor of the fitted integrals is the time of our kernels for (P|ij) alone, and the division by the metric for
    pairs that have integrals. Each part is called twice, and the second call counts: the first one touches new memory.
    """
    from pyscf import lib

    from trnqc.eri.fitting.fitted_integrals import fitted_integrals
    from trnqc.eri.integrals import int3c2e

    threads = lib.num_threads()
    rate = product_rate(threads)
    found: dict[str, Any] = {"gflops_of_products": rate / 1e9, "threads": threads}
    mol, dm, nocc = mf.mol, mf.make_rdm1(), mf.mol.nelectron // 2

    def second(work: Callable[[], Any]) -> float:
        work()
        return timed(work)

    if hasattr(mf, "with_df") and isinstance(mf.with_df._cderi, np.ndarray):
        auxmol, naux = mf.with_df.auxmol, len(mf.with_df._cderi)
        floor = fitted_exchange(naux, mol.nao, nocc) / rate
        found["K"] = over_floor(second(lambda: mf.get_k(mol, dm)), floor)
        filled = int(np.any(mf.with_df._cderi[:: max(1, naux // 50)], axis=0).sum())
        integrals = second(lambda: int3c2e(mol, auxmol, "s2ij"))
        floor = integrals + division_by_metric(naux, filled) / rate
        found["fitted integrals"] = over_floor(second(lambda: fitted_integrals(mol, auxmol)), floor)
    if hasattr(mf, "_numint"):
        ni = mf._numint
        kind = ni._xc_type(mf.xc)
        floor = quadrature(ni._blocks_of(mol, mf.grids, kind).blocks, kind, nocc) / rate
        found["XC, full pass"] = over_floor(second(lambda: ni.nr_rks(mol, mf.grids, mf.xc, dm)), floor)
    return found


def in_process(molecule: str, basis: str, functional: str, threads: int) -> dict[str, Any]:
    """Return `of_job` of a density-fitted job of ours, which runs in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TRNQC_KERNELS": "wait"}
    command = [sys.executable, "-m", __name__, molecule, basis, functional]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    if result.returncode:
        last = (result.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise TrnqcError(f"{' '.join(command[1:])} ended with status {result.returncode}: {last}")
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def main(molecule: str, basis: str, functional: str) -> None:
    """Run the job, and print its parts beside their floors."""
    from pyscf import dft

    from trnqc.mp2.reference.molecule import build_mole, load_geometry
    from trnqc.pyscf.accelerate import accelerate

    mol = build_mole(load_geometry(molecule), basis)
    mol.verbose = 0
    print(json.dumps(of_job(accelerate(dft.RKS(mol, xc=functional).density_fit()).run())))


if __name__ == "__main__":
    main(*sys.argv[1:])
