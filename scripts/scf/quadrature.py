"""How long does one pass of the exchange-correlation quadrature take, beside PySCF's?

    python -m scripts.scf.quadrature [--molecule caffeine] [--bases def2-svp def2-tzvp] [--functionals pbe b3lyp r2scan]
                                     [--rounds 3] [--threads 1] [--vectors avx2] [--blas installed] [--out FILE]

One call of `nr_rks` with a tagged density on the same grid (level 3), PySCF and trnqc in turns in one process: wall
seconds and user + system seconds, and the largest differences of electrons, energy (Ha) and potential (Ha). The density
is that of the occupied orbitals of a model Hamiltonian, -S D S with PySCF's guess D. The record names the kernels of
all BLAS libraries: the OpenBLAS of PySCF's wheel does not know newer CPUs, and takes OPENBLAS_CORETYPE=SkylakeX or
Haswell.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from scripts import vectors
from scripts.measuring import clocked, in_turns, ratio, record_file, write_part


def density(mol: Any) -> Any:
    """A density with its orbitals as tags."""
    import scipy.linalg
    from pyscf import dft, lib

    guess, overlap = dft.RKS(mol).get_init_guess(), mol.intor("int1e_ovlp")
    _, c = scipy.linalg.eigh(-overlap @ guess @ overlap, overlap)
    occupations = np.where(np.arange(mol.nao) < mol.nelectron // 2, 2.0, 0.0)
    return lib.tag_array((c * occupations) @ c.T, mo_coeff=c, mo_occ=occupations)


def cases(mol: Any, functionals: list[str], rounds: int) -> list[dict[str, Any]]:
    """Seconds, ratios and differences for each functional."""
    from pyscf import dft
    from pyscf.dft import numint

    from trnqc.xc.numint import NumInt

    grids, dm = dft.Grids(mol).build(with_non0tab=True), density(mol)
    both: dict[str, Any] = {"PySCF": numint.NumInt(), "trnqc": NumInt("wait")}
    rows = []
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
        rows.append(row | {"PySCF / trnqc": ratio(times["PySCF"], times["trnqc"])})
    return rows


def _run(ni: Any, arguments: tuple[Any, ...], results: dict[Any, Any]) -> None:
    """Integrate, and keep the result by the class of the object."""
    results[type(ni)] = ni.nr_rks(*arguments)


def table(title: str, rows: list[dict[str, Any]]) -> Table:
    """The rows, for a terminal."""
    shown = Table("functional", "PySCF CPU s", "trnqc CPU s", "CPU ratio", "wall ratio", "dE / Ha", title=title)
    for row in rows:
        seconds = [f"{row[name]['cpu_s']:.2f}" for name in ("PySCF", "trnqc")]
        factors = [f"{row['PySCF / trnqc'][name]:.1f}" for name in ("cpu", "wall")]
        shown.add_row(row["functional"], *seconds, *factors, f"{row['differences'][1]:.0e}")
    return shown


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--molecule", default="caffeine")
    parser.add_argument("--bases", nargs="+", default=["def2-svp", "def2-tzvp"])
    parser.add_argument("--functionals", nargs="+", default=["pbe", "b3lyp", "r2scan"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=record_file("xc"))
    vectors.add_argument(parser)
    vectors.add_blas_argument(parser)
    asked = parser.parse_args()
    vectors.keep_to(asked.vectors, asked.blas)

    from pyscf import lib
    from threadpoolctl import threadpool_info

    from scripts.scf.job import molecule

    lib.num_threads(asked.threads)
    for basis in asked.bases:
        rows = cases(molecule(asked.molecule, basis), asked.functionals, asked.rounds)
        title = f"{asked.molecule}/{basis}, {asked.threads} thread{'s' * (asked.threads > 1)}"
        Console().print(table(title, rows))
        blas = [
            f"{Path(info['filepath']).name}: {info['architecture']}"
            for info in threadpool_info()
            if info["user_api"] == "blas"
        ]
        write_part(vectors.beside(asked.out), title, rows, blas=blas)


if __name__ == "__main__":
    main()
