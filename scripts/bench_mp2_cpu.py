"""How fast is the CPU backend's MP2 pair step, and how near to what the machine can do?

    python -m scripts.bench_mp2_cpu [--large | --cases water/cc-pvdz ...] [--threads 1 2] [--vectors avx2]
                                    [--out FILE]

One run, in which the contestants take turns so that a busy machine disturbs all of them alike:

    trnqc fp64, fp32        our pair step
    PySCF as installed      its dfmp2 with the BLAS of its own wheel and no environment set
    PySCF, best kernels     the same with the OPENBLAS_CORETYPE that is fastest here, found by trying
    GEMM fp64, fp32         the same products by NumPy's BLAS, no energy expression: the floor of a step that uses it
    products fp64, fp32     our compiled products with no energy expression

on benzene/cc-pVTZ, (H2O)10/cc-pVDZ and caffeine/cc-pVDZ (--large: caffeine/cc-pVTZ too), frozen core, the MP2-fitting
basis, the same factors for all; then the whole MP2 part (integrals, factors, pairs). Medians, and ratios as medians of
the ratios within each round. Orbitals and factors are kept in --cache, so that a second run is short.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from scripts import vectors
from scripts.measuring import in_turns, machine
from scripts.mp2_cpu.contestants import Worker, inherited_core
from scripts.registry import SWITCH, Benchmark, Rows, main, several

CASES = {"benzene/cc-pvtz": 15, "water10/cc-pvdz": 5, "caffeine/cc-pvdz": 5}  # rounds of the pair step
LARGE = {"caffeine/cc-pvtz": 3}
WHOLE_ROUNDS = 3
CORES = ("Haswell", "Zen", "Sandybridge") + ("SkylakeX",) * (vectors.current() == "native")
OURS, INSTALLED, BEST = "trnqc", "PySCF as installed", "PySCF, best kernels"

# (what, numerator, denominator, bound): seconds of the first over seconds of the second.
TARGETS = (
    ("fp64 over PySCF as installed", INSTALLED, f"{OURS} fp64", 3.5),
    ("fp32 over PySCF as installed", INSTALLED, f"{OURS} fp32", 6.5),
    ("fp64 over PySCF's best kernels", BEST, f"{OURS} fp64", 1.7),
    ("fp32 over PySCF's best kernels", BEST, f"{OURS} fp32", 3.5),
)
FLOORS = (
    ("fp64 over its GEMM floor", f"{OURS} fp64", "GEMM fp64", 1.10),
    ("fp32 over its GEMM floor", f"{OURS} fp32", "GEMM fp32", 1.10),
    ("fp64 over its own products", f"{OURS} fp64", "products fp64", 1.10),
    ("fp32 over its own products", f"{OURS} fp32", "products fp32", 1.10),
)
WHOLE = (
    ("whole, fp64 over PySCF as installed", INSTALLED, f"{OURS} fp64", None),
    ("whole, fp32 over PySCF as installed", INSTALLED, f"{OURS} fp32", None),
    ("whole, fp64 over PySCF's best kernels", BEST, f"{OURS} fp64", None),
    ("whole, fp32 over PySCF's best kernels", BEST, f"{OURS} fp32", None),
)


@dataclass(frozen=True)
class Case:
    title: str
    rounds: int
    file: Path
    nocc: int
    nvir: int
    naux: int

    @property
    def gflop(self) -> float:
        """What the products of the pairs i >= j need."""
        return self.nocc * (self.nocc + 1) * self.nvir**2 * self.naux / 1e9


def prepare(title: str, rounds: int, cache: Path) -> Case:
    """Orbitals and factors of a molecule and basis, computed or from the cache."""
    name, _, basis = title.partition("/")
    file = cache / f"{name}-{basis}.npz"
    factors_file = file.with_suffix(".B.npy")
    if not (file.exists() and factors_file.exists()):
        from trnqc.mp2.dfmp2 import DFMP2
        from trnqc.mp2.factors.factors import Factors
        from trnqc.mp2.reference.molecule import build_mole, load_geometry
        from trnqc.mp2.reference.orbitals import chemical_core
        from trnqc.mp2.scf.hartree_fock import run_scf

        print(f"{title}: SCF and factors", flush=True)
        mol = build_mole(load_geometry(name), basis)
        mf = run_scf(mol)
        frozen = chemical_core(mol)
        factors = DFMP2(mf, frozen=frozen, max_memory=1e6).ao2mo()
        assert isinstance(factors, Factors)
        np.save(factors_file, factors.B)
        np.savez(
            file,
            mol=mol.dumps(),
            mo_coeff=mf.mo_coeff,
            mo_energy=mf.mo_energy,
            mo_occ=mf.mo_occ,
            e_tot=mf.e_tot,
            frozen=frozen,
            eps_occ=factors.eps_occ,
            eps_vir=factors.eps_vir,
        )
    return Case(title, rounds, file, *np.load(factors_file, mmap_mode="r").shape)


def best_core() -> str:
    """The OPENBLAS_CORETYPE with which PySCF's pair step is fastest; one that the CPU cannot run ends its worker."""
    rates: dict[str, float] = {}
    for core in CORES:
        worker = Worker("pyscf", core)
        try:
            rates[core] = worker.ask(do="rate")
        except (RuntimeError, BrokenPipeError):
            print(f"OPENBLAS_CORETYPE={core} does not run on this CPU")
        worker.close()
    print("PySCF's pair step by core type, GFLOP/s: " + ", ".join(f"{c} {r:.1f}" for c, r in rates.items()))
    return max(rates, key=lambda core: rates[core])


def answers(rounds: int, contestants: dict[str, tuple[Worker, dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Answers of each contestant's worker to its request, in turns."""
    return in_turns(rounds, {name: partial(worker.ask, **ask) for name, (worker, ask) in contestants.items()})


def pair_contestants(workers: dict[str, Worker], threads: int) -> dict[str, tuple[Worker, dict[str, Any]]]:
    ours = workers[OURS]
    requests: dict[str, tuple[Worker, dict[str, Any]]] = {}
    for precision in ("fp64", "fp32"):
        common: dict[str, Any] = {"threads": threads, "precision": precision}
        requests[f"{OURS} {precision}"] = (ours, {"do": "pairs"} | common)
        requests[f"GEMM {precision}"] = (ours, {"do": "products", "compiled": False} | common)
        requests[f"products {precision}"] = (ours, {"do": "products", "compiled": True} | common)
    for name in (INSTALLED, BEST):
        requests[name] = (workers[name], {"do": "pairs", "threads": threads})
    return requests


def whole_contestants(workers: dict[str, Worker], threads: int) -> dict[str, tuple[Worker, dict[str, Any]]]:
    requests = {
        f"{OURS} {precision}": (workers[OURS], {"do": "whole", "threads": threads, "precision": precision})
        for precision in ("fp64", "fp32")
    }
    return requests | {name: (workers[name], {"do": "whole", "threads": threads}) for name in (INSTALLED, BEST)}


def summary(
    case: Case, threads: int, part: str, runs: dict[str, list[dict[str, Any]]], targets: tuple[Any, ...]
) -> dict[str, Any]:
    """Medians by contestant, differences of their energies, and ratios paired by round."""
    reference = runs[BEST][0]
    rows = {}
    for name, samples in runs.items():
        row: dict[str, Any] = {"wall_s": median(s["wall"] for s in samples), "cpu_s": median(s["cpu"] for s in samples)}
        if part == "pairs":
            row["gflops"] = case.gflop / row["wall_s"]
        for key in ("os", "ss", "e_corr"):
            if key in samples[0]:
                row[f"{key}_minus_pyscf_hartree"] = samples[0][key] - reference[key]
        if "stages" in samples[0]:
            row["stages_s"] = {stage: median(s["stages"][stage] for s in samples) for stage in samples[0]["stages"]}
        if "ran_on" in samples[0]:
            row["ran_on"] = samples[0]["ran_on"]
        rows[name] = row | {
            "wall_samples_s": [s["wall"] for s in samples],
            "cpu_samples_s": [s["cpu"] for s in samples],
        }
    ratios = []
    for what, above, below, bound in targets:
        by_clock = {
            clock: median(a[clock] / b[clock] for a, b in zip(runs[above], runs[below])) for clock in ("wall", "cpu")
        }
        reached = None
        if bound is not None:
            reached = by_clock["wall"] <= bound if (what, above, below, bound) in FLOORS else by_clock["wall"] >= bound
        ratios.append({"what": what, **by_clock, "target": bound, "reached": reached})
    sizes = {"nocc": case.nocc, "nvir": case.nvir, "naux": case.naux, "gflop": case.gflop}
    return {"case": case.title, **sizes, "threads": threads, "part": part, "contestants": rows, "ratios": ratios}


def line(result: dict[str, Any]) -> str:
    """Ratios of a case with their targets."""
    ratios = [
        f"\n  {ratio['what']}: {ratio['wall']:.2f} wall, {ratio['cpu']:.2f} CPU"
        + (f"  (target {ratio['target']}: {'reached' if ratio['reached'] else 'missed'})" if ratio["target"] else "")
        for ratio in result["ratios"]
    ]
    return f"{result['case']}, {result['part']}, {result['threads']} threads{''.join(ratios)}"


def table(part: str, results: list[dict[str, Any]]) -> Table:
    """One line for each contestant."""
    table = Table("case", "threads", "part", "", title="MP2 of CPUs", title_justify="left", width=120)
    for column in ("wall s", "CPU s", "GFLOP/s", "E - E(PySCF)"):
        table.add_column(column, justify="right")
    for result in results:
        for name, row in result["contestants"].items():
            difference = row.get("e_corr_minus_pyscf_hartree")
            if "os_minus_pyscf_hartree" in row:
                difference = row["os_minus_pyscf_hartree"] + row["ss_minus_pyscf_hartree"]
            rate = f"{row['gflops']:.1f}" if "gflops" in row else ""
            cells = [
                f"{row['wall_s']:.4f}",
                f"{row['cpu_s']:.4f}",
                rate,
                "" if difference is None else f"{difference:.1e}",
            ]
            table.add_row(result["case"], str(result["threads"]), result["part"], name, *cells)
    return table


def start(asked: argparse.Namespace) -> None:
    """Start the contestants' processes, which end with this one."""
    asked.core = best_core()
    asked.workers = {OURS: Worker("trnqc"), INSTALLED: Worker("pyscf"), BEST: Worker("pyscf", asked.core)}
    asked.peak = asked.workers[OURS].ask(do="peak")
    print("one core's multiply-add peak, GFLOP/s: " + ", ".join(f"{t} {r:.0f}" for t, r in asked.peak.items()))


def rows(asked: argparse.Namespace) -> Rows:
    """The pair step, and the whole MP2 part, of each case and number of threads."""
    asked.cache.mkdir(parents=True, exist_ok=True)
    chosen = dict.fromkeys(asked.cases, 5) if asked.cases else CASES | (LARGE if asked.large else {})
    for case in [prepare(title, asked.rounds or rounds, asked.cache) for title, rounds in chosen.items()]:
        for worker in asked.workers.values():
            worker.ask(do="load", case=str(case.file))
        for n in asked.threads:
            runs = answers(case.rounds, pair_contestants(asked.workers, n))
            yield summary(case, n, "pairs", runs, TARGETS + FLOORS)
            runs = answers(min(case.rounds, WHOLE_ROUNDS), whole_contestants(asked.workers, n))
            yield summary(case, n, "whole", runs, WHOLE)


def facts(asked: argparse.Namespace) -> dict[str, Any]:
    """The peak of the machine, and what each contestant ran on."""
    blas = {name: worker.ask(do="libraries") for name, worker in asked.workers.items()}
    return {
        "machine": machine() | {"load_average_after": os.getloadavg(), "core_peak_gflops": asked.peak},
        "contestants": {
            OURS: {"status": asked.workers[OURS].ask(do="status"), "blas": blas[OURS]},
            INSTALLED: {vectors.CORE_VARIABLE: inherited_core(), "blas": blas[INSTALLED]},
            BEST: {vectors.CORE_VARIABLE: asked.core, "blas": blas[BEST]},
        },
    }


BENCHMARK = Benchmark(
    "mp2_cpu",
    __doc__,
    {"MP2": rows},
    {
        "--large": SWITCH | {"help": "caffeine/cc-pVTZ too (needs 8 GB and 20 min)"},
        "--cases": {"nargs": "+", "metavar": "MOLECULE/BASIS", "help": "these instead of the usual ones"},
        "--rounds": {"type": int, "help": "rounds of every case, instead of its own number"},
        "--threads": several([1, 2]),
        "--cache": {"type": Path, "default": Path(tempfile.gettempdir()) / "trnqc-bench-mp2-cpu"},
    },
    place=("", "results"),
    line=line,
    table=table,
    facts=facts,
    prepare=start,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
