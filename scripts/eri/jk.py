"""J and K of one density: ours against PySCF's direct build, same threads and screening, in turns."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from pyscf import lib, scf

from scripts.measuring import clocked, in_turns, ratio
from trnqc.eri.jk.builder import JKBuilder
from trnqc.mp2.reference.molecule import build_mole, load_geometry

CUTOFF = 1e-13


def case(title: str, threads: int, rounds: int) -> dict[str, Any]:
    """Time J and K for `title`, molecule/basis. The density is PySCF's initial guess `minao`."""
    name, _, basis = title.partition("/")
    mol = build_mole(load_geometry(name), basis)
    mf = scf.RHF(mol)
    mf.direct_scf_tol = CUTOFF
    dm = np.asarray(mf.get_init_guess(key="minao"))
    before = lib.num_threads(threads)
    try:
        builder = JKBuilder(mol, cutoff=CUTOFF, threads=threads)
        options = mf.init_direct_scf(mol)
        work: dict[str, Callable[[], Any]] = {
            "trnqc": lambda: builder.get_jk(dm, hermi=1),
            "PySCF": lambda: scf.hf.get_jk(mol, dm, 1, options),
        }
        runs = in_turns(rounds, {who: clocked(what) for who, what in work.items()})
        (j, k), (vj, vk) = work["trnqc"](), work["PySCF"]()
    finally:
        lib.num_threads(before)
    return {
        "case": title,
        "nao": mol.nao_nr(),
        "shells": mol.nbas,
        "threads": threads,
        "cutoff": CUTOFF,
        "ran_on": builder.ran_on,
        "wall_s": {who: median(wall for wall, _ in samples) for who, samples in runs.items()},
        "cpu_s": {who: median(cpu for _, cpu in samples) for who, samples in runs.items()},
        "ratio": ratio(runs["PySCF"], runs["trnqc"]),
        "max_error": {"J": float(abs(j - vj).max()), "K": float(abs(k - vk).max())},
    }
