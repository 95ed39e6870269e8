"""Whole SCF and DF-MP2 jobs and gradients, with the time of every part, beside PySCF.

    python -m scripts.bench_scf [--parts jobs mp2 open scaling disk] [--cases caffeine/def2-svp/b3lyp/fitted ...]
                                [--quick] [--threads 1 2] [--rounds 1] [--no-gradient] [--missing]
                                [--vectors avx2] [--blas installed] [--out FILE]

    jobs      caffeine with HF, PBE, B3LYP and r2SCAN, density-fitted and direct, with its gradient
    mp2       Hartree-Fock and DF-MP2 of caffeine from the geometry on, density-fitted
    open      UHF and ROHF of the cation of caffeine, density-fitted
    scaling   B3LYP energies of (H2O)5 to (H2O)30, density-fitted
    disk      Hartree-Fock of caffeine with the fitted integrals in a file that each contestant writes

Every job runs in a process of its own, PySCF and trnqc in turns, with all kernels compiled before. Seconds are medians
over the rounds, wall and CPU, by part: grid, XC (density, functional and potential), J and K, fitted integrals,
diagonalisation, DIIS, MP2, and the rest. Ratios are medians of the ratios within each round. Rows of other cases in the
record are kept, and each row is entered as soon as it is measured: `--missing` goes on where an earlier run was ended.
A figure of the parts (.svg) is written beside the record.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scripts import ROOT, vectors
from scripts.measuring import heading, machine, record_file, write_json
from scripts.scf.plot import plot

WHO = ("PySCF", "trnqc")
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
}
QUICK = {
    "jobs": ["water5/def2-svp/b3lyp/fitted"],
    "mp2": ["water5/cc-pvdz/mp2/fitted"],
    "open": ["water5/def2-svp/uhf/fitted"],
    "scaling": SCALING[:2],
    "disk": ["water5/cc-pvdz/hf/disk"],
}


def process(who: str, case: str, threads: int, *options: str) -> dict[str, Any]:
    """Run one job in a process of its own, say how long it took, and return what it printed."""
    variables = {"OMP_NUM_THREADS": str(threads), "TRNQC_KERNELS": "wait", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "scripts.scf.job", who, case, *options]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{who} {case} ended with status {done.returncode}\n{done.stderr}")
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(who, case, *options, f"{threads} threads: {record['seconds']:.0f} s", file=sys.stderr, flush=True)
    return record


def compare(case: str, threads: int, rounds: int, gradient: bool) -> dict[str, Any]:
    """Run both contestants in turns; the order is reversed every round."""
    options = ["--no-gradient"] * (not gradient)
    # A run of ours of one cycle compiles kernels that the cache lacks, and is not counted.
    process("trnqc", case, threads, *options, "--cycles", "1")
    runs: dict[str, list[dict[str, Any]]] = {who: [] for who in WHO}
    for n in range(rounds):
        for who in WHO if n % 2 == 0 else reversed(WHO):
            runs[who].append(process(who, case, threads, *options))
    stages = {"scf": "scf", "gradient": "gradient_parts"} if gradient else {"scf": "scf"}
    last = {who: many[-1] for who, many in runs.items()}
    return {
        "case": case,
        "threads": threads,
        "rounds": rounds,
        **{name: last["trnqc"][name] for name in ("nao", "points")},
        "cycles": {who: run["cycles"] for who, run in last.items()},
        "ran_on": last["trnqc"]["ran_on"],
        "once": {who: run["once"] for who, run in last.items()},
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
            **({"gradient": gradient_error(last)} if gradient else {}),
        },
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


def gradient_error(last: dict[str, dict[str, Any]]) -> float:
    """Largest difference of the gradients, Hartree/Bohr."""
    return float(np.abs(np.subtract(last["trnqc"]["gradient"], last["PySCF"]["gradient"])).max())


def part_of(case: str) -> str:
    """Return the part of the record in which a case is entered."""
    molecule, _, method, way = case.split("/")
    if way == "disk":
        return way
    return {"mp2": "mp2", "uhf": "open", "rohf": "open"}.get(
        method, "scaling" if molecule.startswith("water") else "jobs"
    )


def rows_of(part: str, asked: argparse.Namespace, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if asked.cases:
        cases = [case for case in asked.cases if part_of(case) == part]
    else:
        cases = (QUICK if asked.quick else CASES)[part]
    measured = {(row["case"], row["threads"]) for row in record["parts"].get(part, {}).get("rows", [])}
    for case in cases:
        for threads in asked.threads:
            if not (asked.missing and (case, threads) in measured):
                yield compare(case, threads, asked.rounds, part == "jobs" and not asked.no_gradient)


def enter(record: dict[str, Any], part: str, row: dict[str, Any]) -> None:
    """Put a row in place of the one with the same case and threads, with the facts of its run.

    The part names the command and the machine of its newest row, as the parts of all other records do.
    """
    record["parts"][part] = heading() | {"machine": machine(), "rows": record["parts"].get(part, {}).get("rows", [])}
    rows = record["parts"][part]["rows"]
    same = [n for n, old in enumerate(rows) if (old["case"], old["threads"]) == (row["case"], row["threads"])]
    row = row | heading() | {"machine": machine()}
    if same:
        rows[same[0]] = row
    else:
        rows.append(row)


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(title="wall (CPU) seconds", title_justify="left", width=130)
    for column in ("case", "threads", "stage", "part", *WHO, "ratio wall", "cpu"):
        table.add_column(column, justify="right" if column in (*WHO, "ratio wall", "cpu") else "left")
    for row in rows:
        for stage, contestants in row["seconds"].items():
            for part, ratio in row["ratio"][stage].items():
                cells = [f"{contestants[w][part]['wall_s']:.2f} ({contestants[w][part]['cpu_s']:.2f})" for w in WHO]
                table.add_row(
                    row["case"], str(row["threads"]), stage, part, *cells, f"{ratio['wall']:.2f}", f"{ratio['cpu']:.2f}"
                )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--cases", nargs="+", metavar="MOLECULE/BASIS/FUNCTIONAL/WAY")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-gradient", action="store_true")
    parser.add_argument("--missing", action="store_true", help="leave out what the record has already")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=record_file("scf"))
    vectors.add_argument(parser)
    vectors.add_blas_argument(parser)
    asked, console = parser.parse_args(), Console(soft_wrap=True)
    vectors.keep_to(asked.vectors, asked.blas)
    out = vectors.beside(asked.out)
    record = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {"parts": {}}
    for part in asked.parts:
        rows = []
        for row in rows_of(part, asked, record):
            rows.append(row)
            enter(record, part, row)
            write_json(record, out)
            out.with_suffix(".svg").write_text(plot(record), encoding="utf-8")
        if rows:
            show(console, rows)
    console.print(f"written to {out}")


if __name__ == "__main__":
    main()
