"""Whole SCF and DF-MP2 jobs and gradients, with the time of every part, beside PySCF (and Psi4 where installed).

    python -m scripts.bench_scf [--parts jobs mp2 open scaling disk solvent excited]
                                [--cases caffeine/def2-svp/b3lyp/fitted ...] [--quick] [--threads 1 2]
                                [--rounds 1] [--no-gradient] [--missing] [--vectors avx2] [--blas installed]
                                [--out FILE]

    jobs      caffeine with HF, PBE, B3LYP and r2SCAN, density-fitted and direct, with its gradient
    mp2       Hartree-Fock and DF-MP2 of caffeine from the geometry on, density-fitted
    open      UHF and ROHF of the cation of caffeine, density-fitted
    scaling   B3LYP energies of (H2O)5 to (H2O)30, density-fitted
    disk      Hartree-Fock of caffeine with the fitted integrals in a file that each contestant writes
    solvent   B3LYP of caffeine in water by PCM and SMD, density-fitted, with its gradient
    excited   ten excited states of caffeine by TDA and TDDFT, B3LYP, density-fitted

Every job runs in a process of its own, PySCF and trnqc in turns, with all kernels compiled before. Seconds are medians
over the rounds, wall and CPU, by part: grid, XC (density, functional and potential), J and K, fitted integrals,
diagonalisation, DIIS, MP2, and the rest. Ratios are medians of the ratios within each round. Rows of other cases in the
record are kept, and each row is entered as soon as it is measured: `--missing` goes on where an earlier run was ended.
K, fitted integrals and a pass of the quadrature of ours are timed once more beside the least time of their matrix
products (trnqc/bench/floors.py). Figures of the parts, of all rows (.svg) and of some for the first page (_short.svg),
and of time over size (_size.svg), are written beside the record.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from scripts.measuring import process
from scripts.registry import SWITCH, Benchmark, Rows, main, number, several, wanted
from scripts.scf import psi4_job
from scripts.scf.job import EXCITATIONS, SOLVENTS
from scripts.scf.plot import plot, short_plot
from scripts.scf.size_plot import size_plot
from trnqc.bench import Figure

WHO = ("PySCF", "trnqc")
PSI4 = "Psi4"
JOBS = [
    f"caffeine/{basis}/{functional}/{way}"
    for basis in ("def2-svp", "def2-tzvp")
    for functional in ("b3lyp", "pbe", "r2scan", "hf")
    for way in ("fitted", "direct")
]
# Sizes of water clusters: 5 to 30 molecules, of 120 to 720 basis functions.
SCALING = [f"water{n}/def2-svp/b3lyp/fitted" for n in (5, 10, 20, 30)]
CASES = {
    "jobs": JOBS,
    "mp2": [f"caffeine/{basis}/mp2/fitted" for basis in ("cc-pvdz", "cc-pvtz")],
    "open": [f"caffeine/def2-svp/{reference}/fitted" for reference in ("uhf", "rohf")],
    "scaling": SCALING,
    "disk": ["caffeine/cc-pvtz/hf/disk"],
    "solvent": [f"caffeine/def2-svp/b3lyp/{way}" for way in SOLVENTS],
    "excited": [f"caffeine/def2-svp/b3lyp/{way}" for way in EXCITATIONS],
}
QUICK = {
    "jobs": ["water5/def2-svp/b3lyp/fitted"],
    "mp2": ["water5/cc-pvdz/mp2/fitted"],
    "open": ["water5/def2-svp/uhf/fitted"],
    "scaling": SCALING[:2],
    "disk": ["water5/cc-pvdz/hf/disk"],
    "solvent": ["water5/def2-svp/b3lyp/c-pcm"],
    "excited": ["water5/def2-svp/b3lyp/tda-singlet"],
}


# Methods and ways of cases in words.
METHODS = {"hf": "HF", "mp2": "HF and DF-MP2", "uhf": "UHF, cation", "rohf": "ROHF, cation"}
WAYS = {"fitted": "density fitting", "direct": "direct", "disk": "fitted integrals on disk"}
WAYS |= {way: f"density fitting, water by {method}" for way, method in SOLVENTS.items()}
WAYS |= {way: f"density fitting, ten {way.split('-')[1]}s by {way.split('-')[0].upper()}" for way in EXCITATIONS}


def job(who: str, case: str, threads: int, *options: str) -> dict[str, Any]:
    """Run one job in a process of its own, say how long it took, and return what it printed."""
    environment = {"OMP_NUM_THREADS": str(threads), "TRNQC_KERNELS": "wait"}
    record: dict[str, Any] = process("scripts.scf.job", who, case, *options, environment=environment)
    print(who, case, *options, f"{threads} threads: {record['seconds']:.0f} s", file=sys.stderr, flush=True)
    return record


def compare(case: str, threads: int, rounds: int, gradient: bool) -> dict[str, Any]:
    """Run both contestants in turns; the order is reversed every round."""
    options = ["--no-gradient"] * (not gradient)
    # A run of ours of one cycle compiles kernels that the cache lacks, and is not counted.
    job("trnqc", case, threads, *options, "--cycles", "1")
    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in WHO}
    of_psi4: list[dict[str, Any]] = []
    for n in range(rounds):
        for who in WHO if n % 2 == 0 else reversed(WHO):
            runs[who].append(job(who, case, threads, *options))
        if psi4_job.runs(case):
            of_psi4.append(psi4_job.run(case, threads, gradient))
    stages = {"scf": "scf"} | ({"gradient": "gradient_parts"} if gradient else {})
    if case.split("/")[-1] in EXCITATIONS:
        stages["excitations"] = "excitations_parts"
    last = {who: many[-1] for who, many in runs.items()}
    return {
        "case": case,
        "threads": threads,
        "rounds": rounds,
        **{name: last["trnqc"][name] for name in ("nao", "points")},
        "cycles": {who: run["cycles"] for who, run in last.items()},
        "ran_on": last["trnqc"]["ran_on"],
        "once": {who: run["once"] for who, run in last.items()},
        "floors": last["trnqc"].get("floors", {}),
        "seconds": {
            stage: {who: medians([run[key] for run in many]) for who, many in runs.items()}
            for stage, key in stages.items()
        },
        "ratio": {stage: ratios(runs, key) for stage, key in stages.items()},
        "max_error": {
            **{
                name: abs(last["trnqc"][name] - last["PySCF"][name])
                for name in ("e_scf", "e_corr")
                if name in last["PySCF"]
            },
            **{name: largest_difference(last, name) for name in ("gradient", "excitations") if name in stages},
        },
        **({PSI4: beside_psi4(of_psi4, runs["trnqc"], stages)} if of_psi4 else {}),
    }


def beside_psi4(theirs: list[dict[str, Any]], ours: list[dict[str, Any]], stages: Mapping[str, str]) -> dict[str, Any]:
    """Psi4's version, its seconds, the ratios of whole stages, and the difference of the energies in Hartree."""
    seconds = {
        stage: {clock: median(run["seconds"][stage][clock] for run in theirs) for clock in ("wall_s", "cpu_s")}
        for stage in stages
    }
    ratio = {
        stage: {
            name: median(a["seconds"][stage][clock] / b[key]["all"][clock] for a, b in zip(theirs, ours))
            for name, clock in (("wall", "wall_s"), ("cpu", "cpu_s"))
        }
        for stage, key in stages.items()
    }
    energy = ours[-1]["e_scf"] + ours[-1].get("e_corr", 0.0)
    return {
        "version": theirs[-1]["version"],
        "seconds": seconds,
        "ratio": ratio,
        "energy_difference": abs(theirs[-1]["energy"] - energy),
    }


def medians(runs: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Median wall and CPU seconds of each part, with the calls of the last run."""
    rows = {}
    for part, row in runs[-1].items():
        seconds = {clock: median(run.get(part, row)[clock] for run in runs) for clock in ("wall_s", "cpu_s")}
        rows[part] = seconds | ({"calls": row["calls"]} if "calls" in row else {})
    return rows


def ratios(runs: dict[str, list[dict[str, Any]]], stage: str) -> dict[str, dict[str, float]]:
    """PySCF's seconds over ours, of each part that both have."""
    parts = [part for part in runs["PySCF"][-1][stage] if part in runs["trnqc"][-1][stage]]
    pairs = list(zip(runs["PySCF"], runs["trnqc"]))
    return {
        part: {
            name: median(theirs[stage][part][clock] / max(ours[stage][part][clock], 1e-9) for theirs, ours in pairs)
            for name, clock in (("wall", "wall_s"), ("cpu", "cpu_s"))
        }
        for part in parts
    }


def largest_difference(last: dict[str, dict[str, Any]], name: str) -> float:
    """Largest difference of the gradients, Hartree/Bohr, or of the excitation energies, Hartree."""
    return float(np.abs(np.subtract(last["trnqc"][name], last["PySCF"][name])).max())


def part_of(case: str) -> str:
    """Return the part of the record in which a case is entered."""
    molecule, _, method, way = case.split("/")
    if way in SOLVENTS:
        return "solvent"
    if way in EXCITATIONS:
        return "excited"
    if way == "disk":
        return way
    return {"mp2": "mp2", "uhf": "open", "rohf": "open"}.get(
        method, "scaling" if molecule.startswith("water") else "jobs"
    )


def rows_of(part: str, asked: argparse.Namespace) -> Rows:
    """The rows of the cases of a part."""
    chosen = asked.cases or (QUICK if asked.quick else CASES)[part]
    for case in (case for case in chosen if part_of(case) == part):
        for threads in asked.threads:
            if wanted(asked, case, threads):
                yield compare(case, threads, asked.rounds, part in ("jobs", "solvent") and not asked.no_gradient)


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """One line for each part of each stage."""
    table = Table(title=f"{part}, wall (CPU) seconds", title_justify="left", width=130)
    for column in ("case", "threads", "stage", "part", *WHO, "ratio wall", "cpu"):
        table.add_column(column, justify="right" if column in (*WHO, "ratio wall", "cpu") else "left")
    for row in rows:
        for stage, contestants in row["seconds"].items():
            for part, ratio in row["ratio"][stage].items():
                cells = [f"{contestants[w][part]['wall_s']:.2f} ({contestants[w][part]['cpu_s']:.2f})" for w in WHO]
                times = (f"{ratio['wall']:.2f}", f"{ratio['cpu']:.2f}")
                table.add_row(row["case"], str(row["threads"]), stage, part, *cells, *times)
            if PSI4 in row:
                theirs, ours = row[PSI4]["seconds"][stage], contestants["trnqc"]["all"]
                cells = [f"{s['wall_s']:.2f} ({s['cpu_s']:.2f})" for s in (theirs, ours)]
                beside = (f"{row[PSI4]['ratio'][stage][clock]:.2f}" for clock in ("wall", "cpu"))
                table.add_row(row["case"], str(row["threads"]), stage, "all, Psi4 for PySCF", *cells, *beside)
        for part, one in row.get("floors", {}).items():
            if isinstance(one, dict):
                seconds = (f"{one['floor_s']:.2f}, its floor", f"{one['wall_s']:.2f}", f"{one['over_floor']:.2f}")
                table.add_row(row["case"], str(row["threads"]), "once", part, *seconds, "")
    return table


def figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Whole jobs and gradients, wall seconds."""
    molecule, basis, method, way = row["case"].split("/")
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
    case = f"{molecule}, {METHODS.get(method, method.upper())}/{basis}, {WAYS[way]}, {threads}"
    for stage, words in (("scf", "energy"), ("gradient", "gradient"), ("excitations", "excitations")):
        if stage in row["seconds"]:
            theirs, ours = (row["seconds"][stage][who]["all"]["wall_s"] for who in ("PySCF", "trnqc"))
            yield Figure(f"{words}: {case}", "PySCF", theirs, ours, row["ratio"][stage]["all"]["wall"])
            if PSI4 in row:
                beside, version = row[PSI4], f"{PSI4} {row[PSI4]['version']}"
                theirs = beside["seconds"][stage]["wall_s"]
                yield Figure(f"{words}: {case}", version, theirs, ours, beside["ratio"][stage]["wall"])


BENCHMARK = Benchmark(
    "scf",
    __doc__,
    {part: partial(rows_of, part) for part in CASES},
    {
        "--cases": {"nargs": "+", "metavar": "MOLECULE/BASIS/FUNCTIONAL/WAY"},
        "--threads": several([1, 2]),
        "--rounds": number(1),
        "--no-gradient": SWITCH,
        "--quick": SWITCH,
    },
    keys=("case", "threads"),
    table=table,
    figures={"": plot, "_short": short_plot, "_size": size_plot},
    shown={
        "jobs": ("SCF energies and gradients", figures),
        "mp2": ("Hartree-Fock and DF-MP2", figures),
        "open": ("Open shells", figures),
        "scaling": ("Water clusters", figures),
        "disk": ("Fitted integrals on disk", figures),
        "solvent": ("Solvents", figures),
        "excited": ("Excited states", figures),
    },
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
