"""Single calls of einsum: NumPy, NumPy with an optimised path, PySCF's `lib.einsum` and ours.

The first list has products of coupled cluster that the thread of pull request 2712 of pyscf/pyscf times, for the
orbitals of benzene with cc-pVDZ. The second has small operands, where the time of a call is that of Python.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.contraction import einsum
from trnqc.interfaces import pyscf_einsum

LARGE = (
    *("mf,mfae->ae", "nf,menf->me", "nf,niaf->ia", "nf,nfai->ia", "ie,ae->ia", "ma,mi->ia", "imea,me->ia"),
    *("imae,me->ia", "miea,me->ia", "ijae,be->ijab", "imae,mbej->ijab", "mnij,mnab->ijab", "ijef,mnef->ijmn"),
    *("ijab,ijab->", "ijab,jm->imab", "abij,eb->aeij", "iabj,ae->iebj"),
)
OCCUPIED, VIRTUAL = 21, 93
SMALL = {
    "ij,jk->ik": 8,
    "i,ij,j->": 30,
    "ijk,kl,lj->il": 7,
    "pi,pq,qj->ij": 40,
    "xij,ij->x": 12,
    "ijab,jb->ia": 9,
    "ij,ij->": 50,
    "ijab,a->ijab": 8,
    "pqrs,pi,qj,rk,sl->ijkl": 6,
}
Call = Callable[[str, list[np.ndarray]], Any]
CONTESTANTS: dict[str, Call] = {
    "numpy": lambda text, arrays: np.einsum(text, *arrays),
    "numpy, optimize": lambda text, arrays: np.einsum(text, *arrays, optimize=True),
    "pyscf.lib": lambda text, arrays: lib.einsum(text, *arrays),
    "trnqc": lambda text, arrays: einsum(text, *arrays),
    "trnqc in pyscf.lib": lambda text, arrays: pyscf_einsum.einsum(text, *arrays),
}
BUDGET = 0.05
"""Seconds of one contestant in one round, for as many calls as fit."""
SLOW = 3e9
"""Multiply-adds of all indices together beyond which NumPy's loop is left out."""


def single_calls(rounds: int = 7) -> dict[str, Any]:
    """Return microseconds of CPU time of one call by expression and contestant, medians over rounds in turns."""
    rng = np.random.default_rng(0)
    rows: dict[str, Any] = {}
    for text in (*LARGE, *SMALL):
        labels = text.split("->")[0].split(",")
        extent = {x: SMALL.get(text, OCCUPIED if x in "ijmn" else VIRTUAL) for x in text if x.isalpha()}
        arrays = [rng.standard_normal([extent[x] for x in group]) for group in labels]
        work = np.prod([float(n) for n in extent.values()])
        taking_part = {name: call for name, call in CONTESTANTS.items() if name != "numpy" or work < SLOW}
        rows[text] = {
            "extents": sorted(set(extent.values())),
            "microseconds": _times(taking_part, text, arrays, rounds),
        }
        print(f"{text:24}", "  ".join(f"{name} {t:.1f}" for name, t in rows[text]["microseconds"].items()))
    return rows


def _times(calls: dict[str, Call], text: str, arrays: list[np.ndarray], rounds: int) -> dict[str, float]:
    repeats = {}
    for name, call in calls.items():
        call(text, arrays)
        start = time.process_time()
        call(text, arrays)
        repeats[name] = max(1, min(2000, int(BUDGET / max(time.process_time() - start, 1e-6))))
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            for _ in range(repeats[name]):
                call(text, arrays)
            seconds[name].append((time.process_time() - start) / repeats[name])
    return {name: 1e6 * median(values) for name, values in seconds.items()}
