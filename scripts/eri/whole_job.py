"""A whole job, density-fitted RHF and MP2 from the geometry on: ours against PySCF as pip installs it, in turns.

Both start from the same geometry, fit with the same sets, freeze the same core and converge to the same threshold.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from pyscf import df, lib, scf
from pyscf.mp import dfmp2
from threadpoolctl import threadpool_limits

from scripts.measuring import in_turns
from trnqc.eri.fitting.density_fitting import DF
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.reference.molecule import build_mole, load_geometry
from trnqc.mp2.reference.orbitals import chemical_core

CONV_TOL = 1e-9
MEMORY = 12_000


class _Stages:
    """Wall and CPU seconds between two calls."""

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}
        self._start = time.perf_counter(), time.process_time()

    def __call__(self, name: str) -> None:
        now = time.perf_counter(), time.process_time()
        self.wall[name], self.cpu[name] = (b - a for a, b in zip(self._start, now))
        self._start = now


def _run(molecule: str, basis: str, ours: bool) -> dict[str, Any]:
    stages = _Stages()
    mol = build_mole(load_geometry(molecule), basis)
    mol.max_memory = MEMORY
    mf = scf.RHF(mol).density_fit(auxbasis=df.make_auxbasis(mol))
    if ours:
        mf.with_df = DF.of(mf.with_df)
    mf.conv_tol = CONV_TOL
    mf.with_df.build()
    stages("fitted integrals of the SCF")
    cycles = []
    mf.callback = lambda env: cycles.append(env["cycle"])
    mf.kernel()
    stages("SCF")
    mf.with_df._cderi = None
    core, auxbasis = chemical_core(mol), auxiliary_basis(mol, None).auxmol.basis
    if ours:
        mp: Any = DFMP2(mf, auxbasis, core, backend="cpu", max_memory=MEMORY)
        mp.kernel()
        correlation, parts = mp.e_corr, dict(mp.result.timings)
    else:
        mp = dfmp2.DFMP2(mf, frozen=core)
        mp.with_df = df.DF(mol, auxbasis)
        mp.kernel(with_t2=False)
        correlation, parts = float(mp.e_corr), {}
    stages("MP2")
    return {
        "wall_s": stages.wall | {"all": sum(stages.wall.values())},
        "cpu_s": stages.cpu | {"all": sum(stages.cpu.values())},
        "parts_of_mp2_wall_s": parts,
        "cycles": len(cycles),
        "converged": bool(mf.converged),
        "e_hf": float(mf.e_tot),
        "e_corr": float(correlation),
    }


def whole_job(molecule: str, basis: str, threads: int, rounds: int) -> dict[str, Any]:
    """Return medians of the stages' seconds by contestant, ratios of totals, and differences of energies."""
    before = lib.num_threads()
    lib.num_threads(threads)
    try:
        with threadpool_limits(threads):
            contestants = {who: lambda who=who: _run(molecule, basis, who == "trnqc") for who in ("trnqc", "PySCF")}
            runs = in_turns(rounds, contestants)
    finally:
        lib.num_threads(before)
    ours, theirs = runs["trnqc"], runs["PySCF"]
    return {
        "case": f"{molecule}/{basis}",
        "threads": threads,
        "conv_tol": CONV_TOL,
        **{
            clock: {
                who: {stage: median(run[clock][stage] for run in many) for stage in many[0][clock]}
                for who, many in runs.items()
            }
            for clock in ("wall_s", "cpu_s")
        },
        "parts_of_mp2_wall_s": ours[-1]["parts_of_mp2_wall_s"],
        "cycles": {who: many[-1]["cycles"] for who, many in runs.items()},
        "energies": {who: {name: many[-1][name] for name in ("e_hf", "e_corr")} for who, many in runs.items()},
        "ratio": {
            name: median(b[clock]["all"] / a[clock]["all"] for a, b in zip(ours, theirs))
            for name, clock in (("wall", "wall_s"), ("cpu", "cpu_s"))
        },
        "max_error": {name: abs(ours[-1][name] - theirs[-1][name]) for name in ("e_hf", "e_corr")},
    }
