"""What does one K cost: exact, from fitted integrals, with one integration on a grid, and with PySCF's sgx module?

    python -m scripts.eri.bench_exchange [--cases water5/cc-pvdz chain8/cc-pvdz ...] [--leave-out direct ...]
                                     [--rounds 3] [--threads 1] [--out FILE]

A case is waterN, a cluster of N molecules, or chainN, an alkane of N carbon atoms, and a basis set. The density is
PySCF's initial guess, made idempotent. Contestants take turns in one process; a record has the wall and CPU seconds of
one K and the errors of the exchange energy an atom, in Hartree, against the exact one. Setting up (fitted integrals,
grid and overlap fit) is timed once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from pyscf import gto, lib, scf, sgx
from rich.table import Table

from scripts.measuring import clocked, in_turns
from scripts.registry import Benchmark, Rows, main, number, several
from scripts.workloads.waters import waters
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.seminumerical.exchange import SeminumericalExchange
from trnqc.pyscf.density_fitting import DF

Atom = tuple[str, tuple[float, float, float]]

CASES = ("water5/cc-pvdz", "water10/cc-pvdz", "water20/cc-pvdz", "chain10/cc-pvdz", "chain20/cc-pvdz")
CONTESTANTS = ("direct", "fitted", "seminumerical", "sgx")
# Lengths of CC and CH bonds in Angstrom; all angles are tetrahedral.
CC, CH = 1.53, 1.09


def molecule(case: str) -> gto.Mole:
    """The molecule of a case."""
    name, basis = case.split("/")
    kind, count = name[:5], int(name[5:])
    return gto.M(atom=cluster(count) if kind == "water" else chain(count), basis=basis, verbose=0, max_memory=16000)


def cluster(count: int) -> list[Atom]:
    """A cluster of water molecules, in Angstrom."""
    geometry = waters(count)
    return list(zip(geometry.symbols, geometry.coordinates))


def chain(count: int) -> list[Atom]:
    """A straight alkane of `count` carbon atoms, in Angstrom."""
    half = np.arccos(-1 / 3) / 2
    step, height = CC * np.sin(half), CC * np.cos(half) / 2
    carbons = [np.array([0.0, height * (-1) ** n, step * n]) for n in range(count)]
    atoms = [("C", tuple(c)) for c in carbons]
    for n, c in enumerate(carbons):
        up = np.array([0.0, (-1) ** n * np.cos(half), 0.0])
        atoms += [("H", tuple(c + CH * (up + side * np.array([np.sin(half), 0, 0])))) for side in (1, -1)]
    down = np.cos(half) * CH
    for n, along in ((0, -1), (count - 1, 1)):
        out = np.array([0.0, -((-1) ** n) * down, along * np.sin(half) * CH])
        atoms.append(("H", tuple(carbons[n] + out)))
    return [(symbol, (float(x), float(y), float(z))) for symbol, (x, y, z) in atoms]


def density(mol: gto.Mole) -> np.ndarray:
    """A density of orthonormal orbitals with their tags: those of the initial guess with the largest occupations."""
    s = mol.intor_symmetric("int1e_ovlp")
    w, c = np.linalg.eigh(s)
    root = (c * np.sqrt(w)) @ c.T
    natural = np.linalg.eigh(root @ scf.hf.init_guess_by_minao(mol) @ root)[1]
    orbitals = np.linalg.solve(root, natural[:, ::-1])
    occupied = np.where(np.arange(len(s)) < mol.nelectron // 2, 2.0, 0.0)
    return lib.tag_array((orbitals * occupied) @ orbitals.T, mo_coeff=orbitals, mo_occ=occupied)


def contestants(
    mol: gto.Mole, dm: np.ndarray, names: list[str]
) -> tuple[dict[str, Callable[[], Any]], dict[str, float]]:
    """A call that computes K for each contestant, and the CPU seconds of setting it up."""
    makers = {"direct": _direct, "fitted": _fitted, "seminumerical": _seminumerical, "sgx": _sgx}
    calls, seconds = {}, {}
    for name in names:
        begin = time.process_time()
        calls[name] = makers[name](mol, dm)
        seconds[name] = time.process_time() - begin
    return calls, seconds


def _direct(mol: gto.Mole, dm: np.ndarray) -> Callable[[], Any]:
    builder = JKBuilder(mol)
    builder.build(False, True)
    return lambda: builder.get_jk(np.asarray(dm), 1, False, True)[1]


def _fitted(mol: gto.Mole, dm: np.ndarray) -> Callable[[], np.ndarray]:
    fitting = DF(mol).build()
    return lambda: fitting.get_jk(dm, 1, False, True)[1]


def _seminumerical(mol: gto.Mole, dm: np.ndarray) -> Callable[[], np.ndarray]:
    exchange = SeminumericalExchange(mol)
    exchange.prepare()
    return lambda: exchange.get_k(np.asarray(dm))


def _sgx(mol: gto.Mole, dm: np.ndarray) -> Callable[[], np.ndarray]:
    own = sgx.SGX(mol).build()
    return lambda: own.get_jk(np.asarray(dm), 1, None, False, True)[1]


def medians(clock: list[Any]) -> dict[str, float]:
    """Median wall and CPU seconds."""
    return {name: median(one[n] for one in clock) for n, name in enumerate(("wall_s", "cpu_s"))}


def measured(case: str, names: list[str], rounds: int) -> dict[str, Any]:
    """The record of a case."""
    mol = molecule(case)
    dm = density(mol)
    calls, setting_up = contestants(mol, dm, names)
    energies: dict[str, float] = {}

    def once(name: str) -> None:
        energies[name] = -0.25 * float(np.sum(calls[name]() * np.asarray(dm)))

    clocks = in_turns(rounds, {name: clocked(partial(once, name)) for name in names})
    row: dict[str, Any] = {"case": case, "atoms": mol.natm, "functions": mol.nao, "contestants": {}}
    for name in names:
        row["contestants"][name] = medians(clocks[name]) | {"setting_up_cpu_s": setting_up[name]}
        if "direct" in energies:
            row["contestants"][name]["error_an_atom"] = (energies[name] - energies["direct"]) / mol.natm
    return row


def rows(asked: argparse.Namespace) -> Rows:
    """Measure the cases."""
    lib.num_threads(asked.threads)
    names = [name for name in CONTESTANTS if name not in asked.leave_out]
    for case in asked.cases:
        yield measured(case, names, asked.rounds)


def table(part: str, rows: list[dict[str, Any]]) -> Table:
    """CPU seconds of one K, and errors, as a table."""
    names = list(rows[0]["contestants"])
    shown = Table("case", "functions", *names, title="CPU seconds of one K (error of the energy, Hartree an atom)")
    for row in rows:
        ones = [row["contestants"][name] for name in names]
        errors = [f" ({one['error_an_atom']:.0e})" if "error_an_atom" in one else "" for one in ones]
        cells = [f"{one['cpu_s']:.2f}{error}" for one, error in zip(ones, errors)]
        shown.add_row(row["case"], str(row["functions"]), *cells)
    return shown


BENCHMARK = Benchmark(
    "exchange",
    __doc__,
    {"exchange": rows},
    {
        "--cases": several(CASES),
        "--leave-out": {"nargs": "+", "choices": CONTESTANTS, "default": []},
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
