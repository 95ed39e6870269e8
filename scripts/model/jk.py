"""Modelled times of density-fitted J and K by NKI kernels, for one density of a closed shell.

    python -m scripts.model.jk [--json profiles/modelled/jk.json] [--molecule caffeine] [--basis cc-pvdz cc-pvtz]

One launch of each kernel, on one NeuronCore, by ``trnqc.sim.timeline``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyscf import df, gto

from nki_kernels.descriptors import kernels
from nki_kernels.precision.splits import PRECISIONS
from scripts import ROOT
from scripts.measuring import write_json
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


def lines_of(molecule: str, basis: str, precisions: list[str], target: str) -> list[dict[str, Any]]:
    """Return the figures of both kernels for one molecule and one generation."""
    sizes = sizes_of(molecule, basis)
    lines = []
    for precision in precisions:
        pairs = {"nao": sizes["nao"], "naux": sizes["naux"], "densities": 1}
        runs = {
            "K": modelled("df_exchange", sizes, precision, target),
            "J": modelled("df_coulomb", pairs, precision, target),
        }
        for kernel, run in runs.items():
            summary = run.summary()
            names = ("tensor_engine", "vector_engine", "scalar_engine", "dma")
            active = {f"{name}_active_percent": summary[f"{name}_active_time_percent"] for name in names}
            case = {"molecule": molecule, "basis": basis, **sizes, "kernel": kernel, "precision": precision}
            lines.append(case | {"target": target, "seconds": run.total_ns * 1e-9} | active)
    return lines


def main() -> None:
    """Model all cases, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "profiles" / "modelled" / "jk.json")
    parser.add_argument("--molecule", default="caffeine")
    parser.add_argument("--basis", nargs="+", default=["cc-pvdz", "cc-pvtz"])
    parser.add_argument("--precisions", nargs="+", default=["fp32", "bf16x3"], choices=list(PRECISIONS))
    parser.add_argument("--targets", nargs="+", default=["trn1", "trn2"])
    chosen = parser.parse_args()
    lines = [
        line
        for basis in chosen.basis
        for target in chosen.targets
        for line in lines_of(chosen.molecule, basis, chosen.precisions, target)
    ]
    for line in lines:
        print(
            f"{line['molecule']}/{line['basis']:8} {line['nao']:5} {line['nocc']:4} {line['naux']:5} {line['target']}  "
            f"{line['kernel']} {line['precision']:7} {line['seconds'] * 1e3:8.2f} ms  tensor "
            f"{line['tensor_engine_active_percent']:5.1f} %  vector {line['vector_engine_active_percent']:5.1f} %  "
            f"dma {line['dma_active_percent']:5.1f} %"
        )
    bases, targets = " ".join(chosen.basis), " ".join(chosen.targets)
    command = f"python -m scripts.model.jk --molecule {chosen.molecule} --basis {bases} --targets {targets}"
    write_json({"measurement": "modelled", "command": command, "lines": lines}, chosen.json)


if __name__ == "__main__":
    main()
