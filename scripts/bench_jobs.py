"""How much time and memory does each stage of a DF-MP2 job take under a memory cap?

    python -m scripts.bench_jobs water30 --max-memory 4G [--basis cc-pvdz] [--checkpoint DIR] [--out FILE]
    python -m scripts.bench_jobs large --max-memory 600M

A molecule runs from its geometry. `large` is a shape without an SCF: 768 atomic orbitals and 2304 auxiliary functions
on a lattice of 32 waters, of which 96 orthonormal combinations pass for occupied and 672 for virtual. The peak of
resident memory is the system's (VmHWM), set back at the start of every stage. Rows stand in the record by case and cap.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from scripts.registry import Benchmark, Part, Row, Rows, main, number


class Stages:
    """Seconds and peak bytes by stage; a stage begins with the first progress that names it."""

    def __init__(self) -> None:
        self.by_stage: dict[str, dict[str, float]] = {}
        self.now = "start"
        self.begin("start")

    def begin(self, stage: str) -> None:
        self.end()
        self.now, self.since = stage, time.perf_counter()
        Path("/proc/self/clear_refs").write_text("5")

    def end(self) -> None:
        if not hasattr(self, "since"):
            return
        row = self.by_stage.setdefault(self.now, {"seconds": 0.0, "peak_bytes": 0})
        row["seconds"] += time.perf_counter() - self.since
        row["peak_bytes"] = max(row["peak_bytes"], resident("VmHWM"))

    def __call__(self, stage: str, done: int, total: int) -> None:
        if stage != self.now:
            self.begin(stage)
        if done == total:
            self.begin(f"after {stage}")


def resident(what: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at most since it was set back."""
    return 1024 * int(re.search(rf"{what}:\s+(\d+)", Path("/proc/self/status").read_text())[1])  # type: ignore[index]


def of_molecule(args: argparse.Namespace, cap: float, stages: Stages) -> dict[str, Any]:
    """The whole job, as the command line runs it."""
    from trnqc.mp2.job import Job
    from trnqc.mp2.reference.molecule import load_geometry
    from trnqc.mp2.run import run

    job = Job(
        load_geometry(args.case),
        args.basis,
        memory=cap,
        threads=args.threads,
        fused=True,
        checkpoint=args.checkpoint,
    )
    stages.begin("SCF")
    result = run(job, stages)
    return {"e_tot": result.e_tot, "timings": dict(result.timings)} | facts(result)


def of_shape(args: argparse.Namespace, cap: float, stages: Stages) -> dict[str, Any]:
    """Factors and pairs of 96 and 672 made-up orbitals over the functions of 32 waters."""
    from trnqc.mp2.assembly import assemble
    from trnqc.mp2.execution import Execution, choose
    from trnqc.mp2.factors.build import build_factors
    from trnqc.mp2.factors.factors import by_spin
    from trnqc.mp2.pairs.pairs import pair_step_bytes, run_pairs
    from trnqc.mp2.reference.orbitals import ActiveOrbitals
    from trnqc.mp2.result_parts import Sizes

    mol, auxmol = lattice()
    execution = Execution(choose("cpu", "fp64"), threads=args.threads, memory=cap, progress=stages)
    c = np.linalg.qr(np.random.default_rng(1).standard_normal((768, 768)))[0]
    eps = np.concatenate((np.linspace(-1.4, -0.4, 96), np.linspace(0.1, 4.0, 672)))
    orbitals = ActiveOrbitals(c[:, :96], c[:, 96:], eps[:96], eps[96:], (), ())
    stages.begin("integrals")
    beside = pair_step_bytes([(96, 672)], 2304, execution)
    (factors,) = by_spin(build_factors(mol, auxmol, (orbitals,), execution, beside=beside))
    step = run_pairs(factors, execution)
    result = assemble(step, factors, sizes=Sizes(*factors.shape, 768, 768), timings=factors.timings)
    return {"timings": factors.timings | step.timings} | facts(result)


def facts(result: Any) -> dict[str, Any]:
    sizes = {name: getattr(result.sizes, name) for name in ("nocc", "nvir", "naux", "nao")}
    return {"sizes": sizes, "e_corr": result.e_corr, "factors": result.run.factors, "ran_on": result.run.ran_on}


def lattice() -> tuple[Any, Any]:
    """32 waters of 24 cc-pVDZ and 72 even-tempered auxiliary functions each."""
    from pyscf import df, gto

    at = [(3.1 * (n % 4), 3.1 * (n // 4 % 4), 3.1 * (n // 16)) for n in range(32)]
    atoms = [
        (symbol, (x + dx, y + dy, z))
        for x, y, z in at
        for symbol, dx, dy in (("O", 0.0, 0.0), ("H", 0.76, 0.59), ("H", -0.76, 0.59))
    ]
    mol = gto.M(atom=atoms, basis="cc-pvdz", verbose=0)
    shells = {"O": {0: 8, 1: 5, 2: 4, 3: 1}, "H": {0: 3, 1: 1, 2: 1}}
    first = {"O": (0.25, 2.6), "H": (0.4, 3.0)}
    basis = {
        symbol: [[l, [first[symbol][0] * first[symbol][1] ** k, 1.0]] for l, count in of.items() for k in range(count)]
        for symbol, of in shells.items()
    }
    return mol, df.addons.make_auxmol(mol, basis)


def measured(asked: argparse.Namespace) -> Rows:
    """The one row of a case, with its stages."""
    from trnqc.host.memory import parse_memory

    stages, cap = Stages(), parse_memory(asked.max_memory)
    before = resident("VmRSS")
    figures = (of_shape if asked.case == "large" else of_molecule)(asked, cap, stages)
    stages.end()
    peak = max(int(row["peak_bytes"]) for row in stages.by_stage.values())
    yield {
        "cap_bytes": cap,
        "peak_bytes": peak,
        "above_cap_bytes": peak - cap,
        "bytes_after_imports": before,
        "threads": asked.threads,
        **figures,
        "stages": stages.by_stage,
    }


def cases(asked: argparse.Namespace) -> dict[str, Part]:
    """The case by its name in the record."""
    name = asked.case if asked.case == "large" else f"{Path(asked.case).stem}/{asked.basis}"
    return {f"{name}, {asked.max_memory}": measured}


def text(row: Row) -> str:
    """The peak, and a line for each stage."""
    lines = (f"  {stage}: {x['seconds']:.2f} s, {x['peak_bytes'] / 1e6:.0f} MB" for stage, x in row["stages"].items())
    return "\n".join((f"{row['factors']}, peak {row['peak_bytes'] / 1e6:.0f} MB", *lines))


BENCHMARK = Benchmark(
    "jobs",
    __doc__,
    {},
    {
        "case": {"help": "`large`, an xyz file, or a name from examples/molecules"},
        "--max-memory": {"required": True, "metavar": "SIZE"},
        "--basis": {"default": "cc-pvdz"},
        "--threads": number(2),
        "--checkpoint": {"type": Path, "metavar": "DIR"},
    },
    place=("cases", ""),
    line=text,
    cases=cases,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
