"""Three-centre integrals (ij|P), i >= j: ours against PySCF's incore.aux_e2, same threads, in turns."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from pyscf import df, lib

from scripts.measuring import clocked, in_turns, ratio
from trnqc.eri.compiled.programs import words
from trnqc.eri.integrals import SCREEN, int3c2e
from trnqc.mp2.reference.molecule import build_mole, load_geometry

ROUNDS = 5


def three_centre(molecule: str, basis: str, aux: str, threads: int) -> dict[str, Any]:
    """Return medians of wall and CPU seconds by contestant, their ratio, and the largest difference of an integral."""
    mol = build_mole(load_geometry(molecule), basis)
    auxmol = df.make_auxmol(mol, aux)
    before = lib.num_threads()
    lib.num_threads(threads)
    try:
        work: dict[str, Callable[[], Any]] = {
            "trnqc": lambda: int3c2e(mol, auxmol, "s2ij", threads=threads),
            "PySCF": lambda: df.incore.aux_e2(mol, auxmol, aosym="s2ij"),
        }
        runs = in_turns(ROUNDS, {who: clocked(what) for who, what in work.items()})
        ours, theirs = (work[who]() for who in ("trnqc", "PySCF"))
    finally:
        lib.num_threads(before)
    return {
        "case": f"{molecule}/{basis}/{aux}",
        "nao": mol.nao_nr(),
        "naux": auxmol.nao_nr(),
        "threads": threads,
        "screen": SCREEN,
        "ran_on": words(),
        "wall_s": {who: median(wall for wall, _ in samples) for who, samples in runs.items()},
        "cpu_s": {who: median(cpu for _, cpu in samples) for who, samples in runs.items()},
        "ratio": ratio(runs["PySCF"], runs["trnqc"]),
        "max_error": max(float(np.abs(a - b).max()) for a, b in zip(ours.T, theirs.T)),
    }
