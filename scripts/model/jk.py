"""Modelled times of density-fitted J and K by NKI kernels, for one density of a closed shell.

    python -m scripts.model.jk [--json profiles/modelled/jk.json] [--molecule caffeine] [--basis cc-pvdz cc-pvtz]

One launch of each kernel, on one NeuronCore, by ``trnqc.sim.timeline``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pyscf import df, gto

from nki_kernels.jk import plan
from nki_kernels.jk.df_coulomb import df_coulomb
from nki_kernels.jk.df_exchange import df_exchange
from nki_kernels.precision.splits import PRECISIONS
from scripts import ROOT
from scripts.measuring import write_json
from trnqc.sim import Spec, timeline


def sizes_of(molecule: str, basis: str) -> dict[str, int]:
    """Return the functions, occupied orbitals and fitting functions of a molecule with the JK set of its basis."""
    mol = gto.M(atom=str(ROOT / "examples" / "molecules" / f"{molecule}.xyz"), basis=basis, verbose=0)
    auxmol = df.addons.make_auxmol(mol, df.make_auxbasis(mol))
    return {"nao": mol.nao, "nocc": mol.nelectron // 2, "naux": auxmol.nao}


def exchange(nao: int, nocc: int, naux: int, precision: str, target: str) -> Any:
    """Return the timeline of K."""
    form = PRECISIONS[precision]
    sizes = plan.exchange_sizes(nao, nocc, form.itemsize)
    if sizes is None:
        raise SystemExit(f"K of {nao} functions and {nocc} orbitals in {precision} does not fit the chip")
    height, (part, *_) = plan.ceil(nao, sizes.blocks), plan.launches(naux, plan.GROUP, plan.MOST_ELEMENTS)
    rows = Spec((form.parts, part.stop, height, sizes.blocks * nao), form.dtype)
    orbitals = Spec((form.parts, height, sizes.blocks * nocc), form.dtype)
    return timeline(df_exchange, target=target)(rows, orbitals, sizes.blocks, sizes.group, sizes.ring)


def coulomb(nao: int, naux: int, precision: str, target: str) -> Any:
    """Return the timeline of J."""
    form, sizes = PRECISIONS[precision], plan.coulomb_sizes(nao * (nao + 1) // 2)
    (part, *_) = plan.launches(naux, plan.P, plan.MOST_ROWS)
    shapes = (sizes.pairs, part.stop), (part.stop, sizes.pairs), (plan.P, sizes.pairs // plan.P, 1)
    operands = [Spec((form.parts, *shape), form.dtype) for shape in shapes]
    return timeline(df_coulomb, target=target)(*operands, sizes.chunk, sizes.turns)


def lines_of(molecule: str, basis: str, precisions: list[str], target: str) -> list[dict[str, Any]]:
    """Return the figures of both kernels for one molecule and one generation."""
    sizes = sizes_of(molecule, basis)
    lines = []
    for precision in precisions:
        runs = {"K": exchange(**sizes, precision=precision, target=target)}
        runs["J"] = coulomb(sizes["nao"], sizes["naux"], precision, target)
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
            f"{line['molecule']}/{line['basis']:8} {line['nao']:5} {line['nocc']:4} {line['naux']:5}  {line['target']}  "
            f"{line['kernel']} {line['precision']:7} {line['seconds'] * 1e3:8.2f} ms  tensor "
            f"{line['tensor_engine_active_percent']:5.1f} %  vector {line['vector_engine_active_percent']:5.1f} %  "
            f"dma {line['dma_active_percent']:5.1f} %"
        )
    bases, targets = " ".join(chosen.basis), " ".join(chosen.targets)
    command = f"python -m scripts.model.jk --molecule {chosen.molecule} --basis {bases} --targets {targets}"
    write_json({"measurement": "modelled", "command": command, "lines": lines}, chosen.json)


if __name__ == "__main__":
    main()
