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
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scripts import ROOT, vectors
from scripts.measuring import THREAD_VARIABLES, heading, machine, record_file, write_json

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


def prepare(case: str, cache: Path, console: Console) -> Path:
    """Run the SCF of a case, or take it from the cache; returns the file of its orbitals."""
    file = cache / (case.replace("/", "-") + ".npz")
    if file.exists():
        return file
    from scripts.mp2_properties.contestants import scf_object
    from trnqc.mp2.reference.molecule import build_mole, load_geometry
    from trnqc.mp2.reference.orbitals import chemical_core

    console.print(f"{case}: SCF")
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


def process(what: str, file: Path, threads: int) -> dict[str, Any]:
    """Run a contestant; what it printed."""
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    command = [sys.executable, "-m", "scripts.mp2_properties.contestants", what, str(file), str(threads)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{what} ended with status {done.returncode}\n{done.stderr}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def in_turns(rounds: int, contestants: dict[str, Callable[[], Any]], console: Console) -> dict[str, list[Any]]:
    """Answers of the contestants, one after the other in each round; processes warm up by themselves."""
    answers: dict[str, list[Any]] = {name: [] for name in contestants}
    for n in range(rounds):
        for name, work in contestants.items():
            answers[name].append(work())
            last = answers[name][-1]
            console.print(
                f"  round {n + 1}, {name}: {last['wall_s']:.2f} s wall, {last['cpu_s']:.2f} s CPU, "
                f"load {last['load_average']:.1f}"
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


def show(console: Console, result: dict[str, Any]) -> None:
    """Print the table of a case."""
    table = Table(title=f"{result['case']}, {result['threads']} threads", title_justify="left")
    for column in ("", "wall s", "CPU s", "peak GB"):
        table.add_column(column, justify="right" if column else "left")
    for name, row in result["contestants"].items():
        table.add_row(name, f"{row['wall_s']:.2f}", f"{row['cpu_s']:.2f}", f"{row['peak_bytes'] / 1e9:.2f}")
    console.print(table)
    for ratio in result["ratios"]:
        verdict = "reached" if ratio["reached"] else "missed"
        console.print(
            f"  {ratio['what']}: {ratio['wall']:.2f} wall, {ratio['cpu']:.2f} CPU (target {ratio['target']}: {verdict})"
        )


def kept(out: Path, cases: list[str]) -> list[dict[str, Any]]:
    """Results of other cases in the record that is there."""
    if not out.exists():
        return []
    return [result for result in json.loads(out.read_text())["results"] if result["case"] not in cases]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="CASE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--without", nargs="+", default=[], metavar="CONTESTANT", help="contestants to leave out")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "trnqc-bench-mp2-properties")
    parser.add_argument("--out", type=Path, default=record_file("mp2_properties"))
    vectors.add_argument(parser)
    vectors.add_blas_argument(parser)
    args, console = parser.parse_args(), Console(soft_wrap=True)
    vectors.keep_to(args.vectors, args.blas)
    out = vectors.beside(args.out)
    args.cache.mkdir(parents=True, exist_ok=True)
    before, results = machine(), kept(out, args.cases)
    for case in args.cases:
        file = prepare(case, args.cache, console)
        console.print(case)
        names = [name for name in CONTESTANTS[kind_of(case)] if name not in args.without]
        runs = in_turns(args.rounds, {name: partial(process, name, file, args.threads) for name in names}, console)
        results.append(heading() | {"rounds": args.rounds} | summary(case, args.threads, runs))
        show(console, results[-1])
        after = before | {"load_average_after": os.getloadavg()}
        write_json(heading() | {"machine": after, "results": results}, out)
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
