"""What does the first use of `trnqc.accelerate` cost, with no kernel compiled, and the second, beside PySCF?

    python -m scripts.bench_first_use [--cases water/cc-pvdz/direct ...] [--no-gradient] [--rounds 3]
                                      [--threads 2] [--out FILE]

Whole processes from start to end, PySCF, first use and second use in turns: wall seconds, and user + system seconds of
the process alone. Each round has an empty cache of its own; between its two uses the compiling process is waited for,
and its wall seconds recorded. The aim is at most 1.2 times PySCF's wall seconds plus half a second. The machine should
have nothing else to do.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from scripts.eri.first_use import WAYS
from scripts.measuring import process
from scripts.registry import SWITCH, Benchmark, Rows, main, number, several, wanted

MOLECULES, BASES = ("water", "benzene", "caffeine"), ("cc-pvdz", "def2-tzvp")
# All integrals of caffeine/def2-TZVP are 60 GB.
LEFT_OUT = {"caffeine/def2-tzvp/memory"}
CASES = [case for m in MOLECULES for b in BASES for w in WAYS if (case := f"{m}/{b}/{w}") not in LEFT_OUT]
FACTOR, REST = 1.2, 0.5
# Seconds that compiling all kernels of a case may take after the first use.
LINGER = 3600


def use(who: str, case: str, cache: Path, gradient: bool, threads: int) -> dict[str, Any]:
    """One process: what it printed, its wall and its CPU seconds."""
    environment = {
        "TRNQC_CACHE_DIR": str(cache),
        "TRNQC_KERNELS": "background",
        "TRNQC_BUILD_LINGER": str(LINGER),
        "OMP_NUM_THREADS": str(threads),
    }
    arguments = [who, *case.split("/"), *["--gradient"] * gradient]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    printed = process("scripts.eri.first_use", *arguments, environment=environment)
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return printed | {"wall_s": wall, "cpu_s": cpu}


def compiled(cache: Path) -> float:
    """Wait for the processes that compile, which take turns; the seconds that took."""
    from trnqc.eri.compiled.builder import BuilderEnd, turn

    begin = now = time.perf_counter()
    while True:
        # Long enough for the next one to begin.
        time.sleep(3)
        asked = time.perf_counter()
        with turn(cache, BuilderEnd(os.getppid(), 0.0)):
            now = time.perf_counter()
        if now - asked < 0.2:
            return now - begin


def once(case: str, gradient: bool, threads: int) -> dict[str, Any]:
    """PySCF, first use, compiling to its end, PySCF again, second use."""
    with tempfile.TemporaryDirectory(prefix="trnqc-first-use-") as scratch:
        cache = Path(scratch)
        run = {"PySCF before": use("PySCF", case, cache, gradient, threads)}
        run["first"] = use("trnqc", case, cache, gradient, threads)
        compiling = compiled(cache)
        run["PySCF after"] = use("PySCF", case, cache, gradient, threads)
        run["second"] = use("trnqc", case, cache, gradient, threads)
    return {"compiling_s": compiling, **run}


def row_of(case: str, runs: list[dict[str, Any]], gradient: bool) -> dict[str, Any]:
    """Medians over the rounds; `bound` is met when the first use is within the aim."""
    seconds = {
        who: {clock: median(r[name][clock] for r in runs for name in names) for clock in ("wall_s", "cpu_s")}
        for who, names in {"PySCF": ("PySCF before", "PySCF after"), "first": ("first",), "second": ("second",)}.items()
    }
    last = runs[-1]
    limit = FACTOR * seconds["PySCF"]["wall_s"] + REST
    return {
        "case": case,
        "gradient": gradient,
        "nao": last["first"]["nao"],
        "rounds": len(runs),
        **seconds,
        "compiling_after_s": median(r["compiling_s"] for r in runs),
        "limit_wall_s": limit,
        "within": {use: seconds[use]["wall_s"] <= limit for use in ("first", "second")},
        "ran_on": {use: [last[use]["ran_on"], last[use].get("gradient_ran_on")] for use in ("first", "second")},
        "max_error": {use: _error(last[use], last["PySCF after"]) for use in ("first", "second")},
    }


def _error(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Hartree, and Hartree/Bohr of gradients."""
    differences = [abs(ours["e_scf"] - theirs["e_scf"])]
    for a, b in zip(ours.get("gradient", []), theirs.get("gradient", [])):
        differences += [abs(x - y) for x, y in zip(a, b)]
    return max(differences)


def rows(asked: argparse.Namespace) -> Rows:
    """Each case without and with a gradient."""
    for case in asked.cases:
        for gradient in (False,) if asked.no_gradient else (False, True):
            if not wanted(asked, case, gradient):
                continue
            runs = []
            for n in range(asked.rounds):
                runs.append(once(case, gradient, asked.threads))
                walls = ", ".join(f"{who} {run['wall_s']:.1f}" for who, run in runs[-1].items() if who != "compiling_s")
                print(f"{case}{' gradient' * gradient}, round {n + 1} of {asked.rounds}: {walls} s", flush=True)
            yield row_of(case, runs, gradient)


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """One line for each case."""
    table = Table(title="Whole process, wall (CPU) seconds", title_justify="left")
    for column in ("case", "PySCF", "first use", "limit", "second use", "compiling after"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        words = [f"{row[who]['wall_s']:.1f} ({row[who]['cpu_s']:.1f})" for who in ("PySCF", "first", "second")]
        limit = f"{row['limit_wall_s']:.1f} {'met' if row['within']['first'] else 'missed'}"
        words = [*words[:2], limit, words[2], f"{row['compiling_after_s']:.0f}"]
        table.add_row(row["case"] + " gradient" * row["gradient"], *words)
    return table


BENCHMARK = Benchmark(
    "first_use",
    __doc__,
    {"first use": rows},
    {
        "--cases": several(CASES, "MOLECULE/BASIS/WAY"),
        "--no-gradient": SWITCH | {"help": "leave out the runs with a gradient"},
        "--rounds": number(3),
        "--threads": number(2),
    },
    keys=("case", "gradient"),
    place=("", "rows"),
    table=table,
    facts=lambda asked: {"threads": asked.threads},
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
