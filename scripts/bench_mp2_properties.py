"""How long do relaxed densities and gradients of DF-MP2 take beside its energy, and beside PySCF?

    python -m scripts.bench_mp2_properties [--cases benzene/cc-pvdz ...] [--rounds 3] [--threads 2]
                                           [--vectors avx2] [--blas installed] [--out FILE]

Each contestant runs in a process of its own, in turns, from converged orbitals and, where the SCF is density-fitted,
from its fitted integrals; what is loaded or compiled once is not timed. Frozen core, the MP2-fitting basis.

    MOLECULE/BASIS               density-fitted SCF: our energy, relaxed density and gradient, PySCF's dfmp2_native
    MOLECULE/BASIS/conventional  exact SCF: our gradient, and pyscf.grad.mp2 with exact integrals
    MOLECULE/BASIS/cation        the radical cation, density-fitted UHF: our energy, and PySCF's dfump2

Medians of wall and CPU seconds, and of their ratios within each round; peak memory of the processes. Orbitals are kept
in --cache. A gradient contains the relaxed density and the energy.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from scripts.measuring import THREAD_VARIABLES, process
from scripts.registry import Benchmark, Rows, main, number, several, wanted

CASES = (
    "benzene/cc-pvtz",
    "caffeine/cc-pvdz",
    "benzene/cc-pvdz/conventional",
    "benzene/cc-pvtz/cation",
)
ENERGY, DENSITY, GRADIENT = "trnqc, energy", "trnqc, relaxed density", "trnqc, gradient"
NATIVE, EXACT, OPEN_SHELL = (
    "PySCF dfmp2_native, relaxed density",
    "PySCF grad.mp2, gradient",
    "PySCF dfump2, energy",
)
CONTESTANTS = {
    "fitted": (ENERGY, DENSITY, GRADIENT, NATIVE),
    "conventional": (ENERGY, GRADIENT, EXACT),
    "cation": (ENERGY, OPEN_SHELL),
}
# (what, numerator, denominator, bound, whether the ratio should be below it)
TARGETS = (
    ("relaxed density over our energy", DENSITY, ENERGY, 3.5, True),
    ("gradient with relaxed density over our energy", GRADIENT, ENERGY, 3.5, True),
    ("dfmp2_native over our relaxed density", NATIVE, DENSITY, 4.0, False),
    ("grad.mp2 over our gradient", EXACT, GRADIENT, 10.0, False),
    ("dfump2 over our energy", OPEN_SHELL, ENERGY, 2.5, False),
)


def kind_of(case: str) -> str:
    """The key of CONTESTANTS that a case has."""
    return case.split("/")[2] if case.count("/") == 2 else "fitted"


def prepare(case: str, cache: Path) -> Path:
    """Run the SCF of a case, or take it from the cache; returns the file of its orbitals."""
    file = cache / (case.replace("/", "-") + ".npz")
    if file.exists():
        return file
    from scripts.mp2_properties.contestants import scf_object
    from trnqc.mp2.reference.molecule import build_mole, load_geometry
    from trnqc.mp2.reference.orbitals import chemical_core

    print(f"{case}: SCF", flush=True)
    name, basis = case.split("/")[:2]
    mol = build_mole(load_geometry(name), basis)
    fitted = kind_of(case) != "conventional"
    if kind_of(case) == "cation":
        mol.build(charge=1, spin=1)
    mf = scf_object(mol, ENERGY, fitted).run(conv_tol=1e-10, conv_tol_grad=1e-6, max_cycle=100)
    if not mf.converged:
        raise SystemExit(f"the SCF of {case} has not converged")
    orbitals = {key: getattr(mf, key) for key in ("mo_coeff", "mo_energy", "mo_occ", "e_tot")}
    np.savez(file, mol=mol.dumps(), basis=basis, frozen=chemical_core(mol), fitted=fitted, **orbitals)
    return file


def contest(what: str, file: Path, threads: int) -> dict[str, Any]:
    """Run a contestant; what it printed."""
    environment = dict.fromkeys(THREAD_VARIABLES, str(threads))
    return dict(process("scripts.mp2_properties.contestants", what, str(file), str(threads), environment=environment))


def in_turns(rounds: int, contestants: dict[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Answers of the contestants, one after the other in each round; processes warm up by themselves."""
    answers: dict[str, list[Any]] = {name: [] for name in contestants}
    for n in range(rounds):
        for name, work in contestants.items():
            answers[name].append(work())
            last = answers[name][-1]
            print(
                f"  round {n + 1}, {name}: {last['wall_s']:.2f} s wall, {last['cpu_s']:.2f} s CPU, "
                f"load {last['load_average']:.1f}",
                flush=True,
            )
    return answers


def summary(case: str, threads: int, runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Medians, ratios with their targets, and the differences of the results."""
    rows = {}
    for name, samples in runs.items():
        rows[name] = {key: median(s[key] for s in samples) for key in ("wall_s", "cpu_s")} | {
            "peak_bytes": max(s["peak_bytes"] for s in samples),
            "held_before_bytes": min(s["held_before_bytes"] for s in samples),
            "load_averages": [s["load_average"] for s in samples],
            "wall_samples_s": [s["wall_s"] for s in samples],
            "cpu_samples_s": [s["cpu_s"] for s in samples],
        }
        if "stages_s" in samples[0]:
            rows[name]["stages_s"] = samples[0]["stages_s"]
    ratios = [_ratio(target, runs) for target in TARGETS if target[1] in runs and target[2] in runs]
    return {"case": case, "threads": threads, "contestants": rows, "ratios": ratios, "differences": differences(runs)}


def _ratio(target: tuple[str, str, str, float, bool], runs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    what, above, below, bound, at_most = target
    by_clock = {
        clock: median(a[f"{clock}_s"] / b[f"{clock}_s"] for a, b in zip(runs[above], runs[below]))
        for clock in ("wall", "cpu")
    }
    # Other programs of a shared machine disturb wall seconds more.
    reached = by_clock["cpu"] <= bound if at_most else by_clock["cpu"] >= bound
    return {"what": what, **by_clock, "target": bound, "reached": reached}


def differences(runs: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """Largest differences between our results and PySCF's, in atomic units."""
    pairs = {"dipole": (DENSITY, NATIVE), "gradient": (GRADIENT, EXACT), "e_os": (ENERGY, OPEN_SHELL)}
    pairs["e_ss"] = pairs["e_os"]
    return {
        key: float(np.abs(np.subtract(runs[ours][0][key], runs[theirs][0][key])).max())
        for key, (ours, theirs) in pairs.items()
        if ours in runs and theirs in runs
    }


def rows(asked: argparse.Namespace) -> Rows:
    """The contestants of each case in turns."""
    asked.cache.mkdir(parents=True, exist_ok=True)
    for case in (case for case in asked.cases if wanted(asked, case)):
        file = prepare(case, asked.cache)
        names = [name for name in CONTESTANTS[kind_of(case)] if name not in asked.without]
        runs = in_turns(asked.rounds, {name: partial(contest, name, file, asked.threads) for name in names})
        yield {"rounds": asked.rounds} | summary(case, asked.threads, runs)


def line(row: dict[str, Any]) -> str:
    """The ratios of a case."""
    verdicts = [
        f"\n  {ratio['what']}: {ratio['wall']:.2f} wall, {ratio['cpu']:.2f} CPU "
        f"(target {ratio['target']}: {'reached' if ratio['reached'] else 'missed'})"
        for ratio in row["ratios"]
    ]
    return f"{row['case']}, {row['threads']} threads{''.join(verdicts)}"


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """One line for each contestant of each case."""
    table = Table("case", "", title=part, title_justify="left")
    for column in ("wall s", "CPU s", "peak GB"):
        table.add_column(column, justify="right")
    for row in rows:
        for name, one in row["contestants"].items():
            figures = (one["wall_s"], one["cpu_s"], one["peak_bytes"] / 1e9)
            table.add_row(row["case"], name, *(f"{figure:.2f}" for figure in figures))
    return table


BENCHMARK = Benchmark(
    "mp2_properties",
    __doc__,
    {"properties": rows},
    {
        "--cases": several(CASES, "CASE"),
        "--rounds": number(3),
        "--threads": number(2),
        "--without": {"nargs": "+", "default": [], "metavar": "CONTESTANT", "help": "contestants to leave out"},
        "--cache": {"type": Path, "default": Path(tempfile.gettempdir()) / "trnqc-bench-mp2-properties"},
    },
    keys=("case",),
    place=("", "results"),
    line=line,
    table=table,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
