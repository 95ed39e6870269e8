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
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import vectors
from scripts.eri.first_use import WAYS
from scripts.measuring import heading, machine, record_file, write_json

MOLECULES, BASES = ("water", "benzene", "caffeine"), ("cc-pvdz", "def2-tzvp")
# All integrals of caffeine/def2-TZVP are 60 GB.
LEFT_OUT = {"caffeine/def2-tzvp/memory"}
CASES = [case for m in MOLECULES for b in BASES for w in WAYS if (case := f"{m}/{b}/{w}") not in LEFT_OUT]
FACTOR, REST = 1.2, 0.5
# Seconds that compiling all kernels of a case may take after the first use.
LINGER = 3600


def process(who: str, case: str, cache: Path, gradient: bool, threads: int) -> dict[str, Any]:
    """One process: what it printed, its wall and its CPU seconds."""
    environment = os.environ | {
        "TRNQC_CACHE_DIR": str(cache),
        "TRNQC_KERNELS": "background",
        "TRNQC_BUILD_LINGER": str(LINGER),
        "OMP_NUM_THREADS": str(threads),
    }
    command = [sys.executable, "-m", "scripts.eri.first_use", who, *case.split("/")]
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command + ["--gradient"] * gradient, env=environment, capture_output=True, text=True, check=False
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise SystemExit(f"{who} {case} ended with status {done.returncode}\n{done.stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout) | {"wall_s": wall, "cpu_s": cpu}


def compiled(cache: Path) -> float:
    """Wait for the processes that compile, which take turns; the seconds that took."""
    from trnqc.eri.compiled.builder import End, turn

    begin = now = time.perf_counter()
    while True:
        # Long enough for the next one to begin.
        time.sleep(3)
        asked = time.perf_counter()
        with turn(cache, End(os.getppid(), 0.0)):
            now = time.perf_counter()
        if now - asked < 0.2:
            return now - begin


def once(case: str, gradient: bool, threads: int) -> dict[str, Any]:
    """PySCF, first use, compiling to its end, PySCF again, second use."""
    with tempfile.TemporaryDirectory(prefix="trnqc-first-use-") as scratch:
        cache = Path(scratch)
        run = {"PySCF before": process("PySCF", case, cache, gradient, threads)}
        run["first"] = process("trnqc", case, cache, gradient, threads)
        compiling = compiled(cache)
        run["PySCF after"] = process("PySCF", case, cache, gradient, threads)
        run["second"] = process("trnqc", case, cache, gradient, threads)
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


def kept_rows(out: Path, cases: list[str]) -> list[dict[str, Any]]:
    """Rows of other cases that an earlier run of the same machine has written."""
    if not out.exists():
        return []
    earlier = json.loads(out.read_text())
    same = earlier["machine"]["model name"] == machine()["model name"]
    return [row for row in earlier["rows"] if same and row["case"] not in cases]


def show(console: Console, rows: list[dict[str, Any]]) -> None:
    table = Table(title="Whole process, wall (CPU) seconds", title_justify="left")
    for column in ("case", "PySCF", "first use", "limit", "second use", "compiling after"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for row in rows:
        words = [f"{row[who]['wall_s']:.1f} ({row[who]['cpu_s']:.1f})" for who in ("PySCF", "first", "second")]
        limit = f"{row['limit_wall_s']:.1f} {'met' if row['within']['first'] else 'missed'}"
        table.add_row(
            row["case"] + " gradient" * row["gradient"],
            *words[:2],
            limit,
            words[2],
            f"{row['compiling_after_s']:.0f}",
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", nargs="+", default=CASES, metavar="MOLECULE/BASIS/WAY")
    parser.add_argument("--no-gradient", action="store_true", help="leave out the runs with a gradient")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=record_file("first_use"))
    asked, console = parser.parse_args(), Console(soft_wrap=True)
    vectors.keep_to("native")
    rows = kept_rows(asked.out, asked.cases)
    for case in asked.cases:
        for gradient in (False,) if asked.no_gradient else (False, True):
            runs = []
            for n in range(asked.rounds):
                runs.append(once(case, gradient, asked.threads))
                walls = ", ".join(f"{who} {run['wall_s']:.1f}" for who, run in runs[-1].items() if who != "compiling_s")
                console.print(f"{case}{' gradient' * gradient}, round {n + 1} of {asked.rounds}: {walls} s")
            rows.append(row_of(case, runs, gradient))
            write_json(heading() | {"machine": machine(), "threads": asked.threads, "rows": rows}, asked.out)
    show(console, rows)
    console.print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
