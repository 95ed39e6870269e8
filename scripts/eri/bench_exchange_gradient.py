"""What does the gradient of exchange on a grid cost, beside one K and the gradient of exact exchange?

    python -m scripts.eri.bench_exchange_gradient [--cases water5/cc-pvdz caffeine/def2-tzvp ...] [--rounds 3]
                                                  [--threads 1] [--leave-out direct] [--out FILE]

Cases and density are those of `scripts.eri.bench_exchange`, and caffeine. A record has the wall and CPU seconds of
each, and the largest difference of the gradients in Hartree/Bohr.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from pyscf import gto, lib
from rich.table import Table

from scripts.eri.bench_exchange import density, medians, molecule
from scripts.measuring import clocked, in_turns
from scripts.registry import Benchmark, Rows, main, number, several
from trnqc.eri.gradient.jk_gradient import exact_jk_gradient
from trnqc.eri.seminumerical.exchange import SeminumericalExchange
from trnqc.eri.seminumerical.gradient import exchange_gradient

CASES = ("water5/cc-pvdz", "water10/cc-pvdz", "caffeine/def2-tzvp")
CONTESTANTS = ("K", "gradient", "direct")


def measured(case: str, names: list[str], rounds: int) -> dict[str, Any]:
    """The record of a case."""
    name, basis = case.split("/")
    caffeine = name == "caffeine"
    mol = gto.M(atom="examples/molecules/caffeine.xyz", basis=basis, verbose=0) if caffeine else molecule(case)
    dm = np.asarray(density(mol))
    exchange = SeminumericalExchange(mol)
    exchange.prepare()
    calls: dict[str, Callable[[], np.ndarray]] = {
        "K": lambda: exchange.get_k(dm),
        "gradient": lambda: exchange_gradient(exchange, dm),
        "direct": lambda: exact_jk_gradient(mol, dm / 2, dm, coulomb=0.0),
    }
    results = {name: calls[name]() for name in names}  # Kernels that are missing are compiled here.
    clocks = in_turns(rounds, {name: clocked(partial(calls[name])) for name in names})
    row: dict[str, Any] = {"case": case, "atoms": mol.natm, "functions": mol.nao, "points": len(exchange.grid.points)}
    for name in names:
        row[name] = medians(clocks[name])
    if "direct" in names:
        row["difference"] = float(abs(results["gradient"] - results["direct"]).max())
    return row


def rows(asked: argparse.Namespace) -> Rows:
    """Measure the cases."""
    lib.num_threads(asked.threads)
    names = [name for name in CONTESTANTS if name not in asked.leave_out]
    for case in asked.cases:
        yield measured(case, names, asked.rounds)


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """CPU seconds as a table."""
    names = [name for name in CONTESTANTS if name in rows[0]]
    shown = Table("case", "functions", "points", *names, title="CPU seconds")
    for row in rows:
        cells = [f"{row[name]['cpu_s']:.2f}" for name in names]
        shown.add_row(row["case"], str(row["functions"]), str(row["points"]), *cells)
    return shown


BENCHMARK = Benchmark(
    "exchange_gradient",
    __doc__,
    {"exchange gradient": rows},
    {
        "--cases": several(CASES),
        "--leave-out": {"nargs": "+", "choices": CONTESTANTS[2:], "default": []},
        "--rounds": number(3),
        "--threads": number(1),
    },
    place=("", "rows"),
    table=table,
    facts=lambda asked: {"threads": asked.threads},
    single_thread=True,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
