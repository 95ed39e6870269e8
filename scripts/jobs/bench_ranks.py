"""What two ranks are worth on this machine, and the seconds of the tasks that they share.

    python -m scripts.jobs.bench_ranks [--case water10/cc-pvdz] [--ranks 1 2] [--rounds 3] [--out FILE]

One thread a rank, ranks 1 and 2 in turns: DF-MP2 jobs by torchrun (stages as rank 0 sees them), then J/K builds. The
efficiency on N ranks is the time on one over N times that on N; the SCF, of which ranks share J and K only, stands
apart. The energies of all runs of a case have to be the same to the last bit. scripts.model.project_ranks goes on
from here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from scripts import ROOT
from scripts.measuring import in_turns
from scripts.registry import Benchmark, Part, Row, Rows, main, number, several

# Parts of the wall time that ranks do not share; the last one is what no part has named.
SERIAL = ("basis sets", "SCF", "compiling kernels", "other")


def measure(case: str, args: argparse.Namespace, directory: Path) -> Row:
    jobs = in_turns(args.rounds, {str(n): partial(mp2, case, n, args.schedule, directory) for n in args.ranks})
    builds = in_turns(1, {str(n): partial(jk, case, n, args, directory) for n in args.ranks})
    answers = {run["pairs"] for runs in jobs.values() for run in runs}
    sums = {run["checksum"] for runs in builds.values() for run in runs}
    if len(answers) != 1 or len(sums) != 1:
        raise SystemExit(f"{case}: the digits depend on the ranks: {len(answers)} sets of pairs, J and K {sums}")
    stages = {n: {s: median(r["timings"][s] for r in runs) for s in runs[0]["timings"]} for n, runs in jobs.items()}
    whole = {n: median(shared(run["timings"]) for run in runs) for n, runs in jobs.items()}
    jk_s = {n: median(runs[0]["seconds"]) for n, runs in builds.items()}
    return {
        "case": case,
        "threads_a_rank": 1,
        "schedule": args.schedule,
        "rounds": args.rounds,
        "e_tot": jobs[str(args.ranks[0])][0]["e_tot"],
        "stages_s": stages,
        "mp2_s": whole,
        "jk_s": jk_s,
        "efficiency": {
            "mp2": efficiency(whole),
            "jk": efficiency(jk_s),
            "pairs": efficiency({n: seconds["pairs"] for n, seconds in stages.items()}),
        },
        "tasks": tasks(case),
    }


def shared(timings: dict[str, float]) -> float:
    """Seconds of the stages that ranks share or repeat as a whole."""
    return sum(seconds for stage, seconds in timings.items() if stage not in SERIAL)


def efficiency(seconds: dict[str, float]) -> dict[str, float]:
    one = seconds.get("1")
    return {} if one is None else {n: one / (int(n) * s) for n, s in seconds.items()}


def mp2(case: str, ranks: int, schedule: str, directory: Path) -> dict[str, Any]:
    name, _, basis = case.partition("/")
    out = directory / "result.json"
    options = f"--basis {basis} --backend cpu --threads 1 --quiet --schedule {schedule}".split()
    torchrun(ranks, "trnqc", "mp2", name, *options, "--json", str(out))
    result = json.loads(out.read_text())
    return {"timings": result["timings"], "e_tot": result["energies"]["e_tot"], "pairs": json.dumps(result["pairs"])}


def jk(case: str, ranks: int, args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    out = directory / "jk.json"
    torchrun(ranks, "scripts.jobs.rank_jk", case, str(max(3, args.rounds)), args.schedule, str(out))
    return json.loads(out.read_text())


def tasks(case: str) -> dict[str, Any]:
    """Of scripts/jobs/blocks.py, in a process of its own with one thread."""
    program = f"import json; from scripts.jobs.blocks import measured; print(json.dumps(measured({case!r})))"
    done = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def torchrun(ranks: int, module: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    done = subprocess.run([*command, "-m", module, *arguments], env=environment(), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def table(case: str, rows: list[Row]) -> Table:
    """One line for each stage, and the efficiencies."""
    (figures,) = rows
    table = Table("stage", *(f"{n} ranks, s" for n in figures["stages_s"]), title=f"{case}, one thread a rank")
    names = list(dict.fromkeys(stage for stages in figures["stages_s"].values() for stage in stages))
    for stage in names:
        row = [f"{stages[stage]:.2f}" if stage in stages else "" for stages in figures["stages_s"].values()]
        table.add_row(stage + " (J and K shared)" * (stage in SERIAL), *row)
    for what in ("mp2", "pairs", "jk"):
        table.add_row(f"efficiency, {what}", *(f"{100 * e:.0f} %" for e in figures["efficiency"][what].values()))
    return table


def rows(case: str, asked: argparse.Namespace) -> Rows:
    """The one row of a case."""
    with tempfile.TemporaryDirectory() as directory:
        yield measure(case, asked, Path(directory))


def cases(asked: argparse.Namespace) -> dict[str, Part]:
    """The cases that are asked for."""
    return {case: partial(rows, case) for case in asked.case}


BENCHMARK = Benchmark(
    "jobs_ranks",
    __doc__,
    {},
    {
        "--case": several(["water10/cc-pvdz"], "MOLECULE/BASIS"),
        "--ranks": several([1, 2]),
        "--rounds": number(3),
        "--schedule": {"default": "dynamic"},
    },
    place=("cases", ""),
    table=table,
    cases=cases,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
