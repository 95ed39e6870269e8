"""How long does one pass of the exchange-correlation quadrature take, beside PySCF's?

    python -m scripts.scf.quadrature [--molecule caffeine] [--bases def2-svp def2-tzvp] [--functionals pbe b3lyp r2scan]
                                     [--rounds 3] [--threads 1] [--vectors avx2] [--blas installed] [--out FILE]

One call of `nr_rks` with a tagged density on the same grid (level 3), PySCF and trnqc in turns in one process: wall
seconds and user + system seconds, and the largest differences of electrons, energy (Ha) and potential (Ha). The density
is that of the occupied orbitals of a model Hamiltonian, -S D S with PySCF's guess D. Our time is given over its floor
as well: the matrix products for density and potential of the screened blocks at the rate that NumPy's BLAS reaches for
a product of 1024 x 1024 in the same process, without atomic orbitals and libxc. The record names the kernels of
all BLAS libraries: the OpenBLAS of PySCF's wheel does not know newer CPUs, and takes OPENBLAS_CORETYPE=SkylakeX or
Haswell.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.table import Table

from scripts.measuring import clocked, in_turns, ratio
from scripts.registry import Benchmark, Rows, main, number, several
from trnqc.bench import floors


def density(mol: Any) -> Any:
    """A density with its orbitals as tags."""
    import scipy.linalg
    from pyscf import dft, lib

    guess, overlap = dft.RKS(mol).get_init_guess(), mol.intor("int1e_ovlp")
    _, c = scipy.linalg.eigh(-overlap @ guess @ overlap, overlap)
    occupations = np.where(np.arange(mol.nao) < mol.nelectron // 2, 2.0, 0.0)
    return lib.tag_array((c * occupations) @ c.T, mo_coeff=c, mo_occ=occupations)


def cases(mol: Any, functionals: list[str], rounds: int) -> Rows:
    """Seconds, ratios and differences for each functional."""
    from pyscf import dft
    from pyscf.dft import numint

    from trnqc.xc.numint import NumInt

    grids, dm = dft.Grids(mol).build(with_non0tab=True), density(mol)
    both: dict[str, Any] = {"PySCF": numint.NumInt(), "trnqc": NumInt("wait")}
    for functional in functionals:
        results: dict[Any, Any] = {}
        contestants = {
            name: clocked(partial(_run, ni, (mol, grids, functional, dm), results)) for name, ni in both.items()
        }
        times = in_turns(rounds, contestants)
        differences = [float(np.abs(a - b).max()) for a, b in zip(*(results[type(ni)] for ni in both.values()))]
        row = {"functional": functional, "nao": mol.nao, "points": grids.size, "differences": differences}
        row |= {
            name: {"wall_s": median(t[0] for t in ts), "cpu_s": median(t[1] for t in ts)} for name, ts in times.items()
        }
        kind, rate = both["trnqc"]._xc_type(functional), floors.product_rate()
        flops = floors.quadrature(both["trnqc"]._blocks_of(mol, grids, kind).blocks, kind, mol.nelectron // 2)
        floor = {"flops": flops, "gflops_of_products": rate / 1e9, "floor_cpu_s": flops / rate}
        row |= floor | {"over_floor": row["trnqc"]["cpu_s"] * rate / flops}
        yield row | {"PySCF / trnqc": ratio(times["PySCF"], times["trnqc"])}


def _run(ni: Any, arguments: tuple[Any, ...], results: dict[Any, Any]) -> None:
    """Integrate, and keep the result by the class of the object."""
    results[type(ni)] = ni.nr_rks(*arguments)


def table(title: str, rows: list[dict[str, Any]]) -> Table:
    """The rows, for a terminal."""
    shown = Table(
        *("case", "functional", "PySCF CPU s", "trnqc CPU s", "CPU ratio", "wall ratio", "over floor", "dE / Ha"),
        title=title,
    )
    for row in rows:
        seconds = [f"{row[name]['cpu_s']:.2f}" for name in ("PySCF", "trnqc")]
        factors = [f"{row['PySCF / trnqc'][name]:.1f}" for name in ("cpu", "wall")]
        factors.append(f"{row['over_floor']:.1f}")
        shown.add_row(row["case"], row["functional"], *seconds, *factors, f"{row['differences'][1]:.0e}")
    return shown


def passes(asked: argparse.Namespace) -> Rows:
    """One pass for each basis and functional."""
    from pyscf import lib

    from scripts.scf.job import molecule

    lib.num_threads(asked.threads)
    for basis in asked.bases:
        for row in cases(molecule(asked.molecule, basis), asked.functionals, asked.rounds):
            yield {"case": f"{asked.molecule}/{basis}", "threads": asked.threads} | row


def blas(asked: argparse.Namespace) -> dict[str, Any]:
    """The kernels of all BLAS libraries."""
    from threadpoolctl import threadpool_info

    used = [info for info in threadpool_info() if info["user_api"] == "blas"]
    return {"blas": [f"{Path(info['filepath']).name}: {info['architecture']}" for info in used]}


BENCHMARK = Benchmark(
    "xc",
    __doc__,
    {"passes": passes},
    {
        "--molecule": {"default": "caffeine"},
        "--bases": several(["def2-svp", "def2-tzvp"]),
        "--functionals": several(["pbe", "b3lyp", "r2scan"]),
        "--rounds": number(3),
        "--threads": number(1),
    },
    keys=("case", "functional", "threads"),
    line=lambda row: f"{row['case']} {row['functional']}",
    table=table,
    facts=blas,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
