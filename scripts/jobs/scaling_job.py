"""One point of the scaling series in a process of its own: seconds and peak memory by stage, as JSON on stdout."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

import numpy as np
from pyscf import scf

from scripts.workloads.waters import waters
from trnqc.eri.jk.builder import JKBuilder
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import build_mole
from trnqc.mp2.run import run

INTERVAL = 0.01


class Memory:
    """Resident memory, sampled: the most of it by stage. Call it as a job's progress."""

    def __init__(self) -> None:
        self.stage, self.peaks = "SCF", {"start": _resident()}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def __call__(self, stage: str, done: int, total: int) -> None:
        self.stage = stage

    def end(self) -> dict[str, float]:
        """MB (10^6 bytes) by stage; a stage begins with its first finished task."""
        self._stop.set()
        self._thread.join()
        return {stage: 1e-6 * peak for stage, peak in self.peaks.items()}

    def _sample(self) -> None:
        while not self._stop.wait(INTERVAL):
            self.peaks[self.stage] = max(self.peaks.get(self.stage, 0), _resident())


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def point(n: int, basis: str, threads: int) -> dict[str, Any]:
    geometry, memory = waters(n), Memory()
    result = run(Job(geometry, basis, backend="cpu", threads=threads), memory)
    megabytes = memory.end()
    mol = build_mole(geometry, basis)
    builder, dm = JKBuilder(mol, threads=threads), np.asarray(scf.RHF(mol).get_init_guess(key="minao"))
    builder.build()
    seconds = []
    for _ in range(2):  # tables are made with the first
        start = time.perf_counter()
        builder.get_jk(dm)
        seconds.append(time.perf_counter() - start)
    sizes = result.sizes
    return {
        "n": n,
        "nao": sizes.nao,
        "nocc": sizes.nocc,
        "nvir": sizes.nvir,
        "naux": sizes.naux,
        "seconds": dict(result.timings) | {"J/K build": seconds[-1]},
        "peak_mb": megabytes,
        "e_tot": result.e_tot,
    }


if __name__ == "__main__":
    print(json.dumps(point(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
