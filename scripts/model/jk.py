"""Modelled times of density-fitted J and K by NKI kernels, for one density of a closed shell.

    python -m scripts.model.jk [--molecule caffeine] [--basis cc-pvdz cc-pvtz] [--targets trn1 trn2] [--out FILE]

One launch of each kernel, on one NeuronCore, by ``trnqc.sim.timeline``.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from typing import Any

from pyscf import df, gto

from nki_kernels.descriptors import kernels
from nki_kernels.precision.splits import PRECISIONS
from scripts import ROOT
from scripts.registry import Benchmark, Row, Rows, main, several
from trnqc.sim import Spec, timeline


def sizes_of(molecule: str, basis: str) -> dict[str, int]:
    """Return the functions, occupied orbitals and fitting functions of a molecule with the JK set of its basis."""
    mol = gto.M(atom=str(ROOT / "examples" / "molecules" / f"{molecule}.xyz"), basis=basis, verbose=0)
    auxmol = df.addons.make_auxmol(mol, df.make_auxbasis(mol))
    return {"nao": mol.nao, "nocc": mol.nelectron // 2, "naux": auxmol.nao}


def modelled(kernel: str, shape: dict[str, int], precision: str, target: str) -> Any:
    """Return the timeline of one launch."""
    known = kernels()[kernel]
    call = known.example(shape, precision, known.default(shape, precision), 1, Spec)
    return timeline(known.function, target=target)(*call.args, **call.constants)


def lines_of(molecule: str, basis: str, precisions: list[str], target: str) -> Rows:
    """Yield the figures of both kernels for one molecule and one generation."""
    sizes = sizes_of(molecule, basis)
    for precision in precisions:
        pairs = {"nao": sizes["nao"], "naux": sizes["naux"], "densities": 1}
        for kernel, name, shape in (("K", "df_exchange", sizes), ("J", "df_coulomb", pairs)):
            run = modelled(name, shape, precision, target)
            summary = run.summary()
            engines = ("tensor_engine", "vector_engine", "scalar_engine", "dma")
            active = {f"{engine}_active_percent": summary[f"{engine}_active_time_percent"] for engine in engines}
            case = {"molecule": molecule, "basis": basis, **sizes, "kernel": kernel, "precision": precision}
            yield case | {"target": target, "seconds": run.total_ns * 1e-9} | active


def lines(asked: argparse.Namespace) -> Rows:
    """Both kernels in all cases."""
    for basis, target in product(asked.basis, asked.targets):
        yield from lines_of(asked.molecule, basis, asked.precisions, target)


def text(row: Row) -> str:
    """The figures of a kernel."""
    return (
        f"{row['molecule']}/{row['basis']:8} {row['nao']:5} {row['nocc']:4} {row['naux']:5} {row['target']}  "
        f"{row['kernel']} {row['precision']:7} {row['seconds'] * 1e3:8.2f} ms  tensor "
        f"{row['tensor_engine_active_percent']:5.1f} %  vector {row['vector_engine_active_percent']:5.1f} %  "
        f"dma {row['dma_active_percent']:5.1f} %"
    )


BENCHMARK = Benchmark(
    "jk",
    __doc__,
    {"jk": lines},
    {
        "--molecule": {"default": "caffeine"},
        "--basis": several(["cc-pvdz", "cc-pvtz"]),
        "--precisions": several(["fp32", "bf16x3"], choices=list(PRECISIONS)),
        "--targets": several(["trn1", "trn2"]),
    },
    place=("", "lines"),
    line=text,
    folder="modelled",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
