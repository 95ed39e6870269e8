"""A first look: SCF, its gradient and DF-MP2 by trnqc's kernels beside PySCF, then the NKI kernel on the simulator.

python -m examples.demo [MOLECULE] [--basis 6-31g] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

# The first call waits for the kernels, so that the others show what every later job finds.
os.environ.setdefault("TRNQC_KERNELS", "wait")

from pyscf import df, gto, lib, scf
from pyscf.mp import dfmp2
from rich.console import Console
from rich.table import Table

import trnqc
from trnqc.bench.figure import duration, faster
from trnqc.host.progress import StageBars
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.reference.molecule import build_mole, load_geometry

STEPS = ("Hartree-Fock energy", "its gradient", "DF-MP2 correlation energy")


def job(mol: gto.Mole, ours: bool) -> tuple[list[float], list[float], Any]:
    """Seconds and results of the steps, and the SCF object."""
    mf = scf.RHF(mol)
    mf = trnqc.accelerate(mf) if ours else mf
    energy, first = clocked(mf.kernel)
    gradient, second = clocked(mf.nuc_grad_method().kernel)
    correlation, third = clocked(lambda: mp2_of(mf, ours).kernel()[0])
    return [first, second, third], [energy, abs(gradient).max(), correlation], mf


def mp2_of(mf: Any, ours: bool) -> Any:
    """Density-fitted MP2 with the same fitting set on both sides."""
    auxbasis = auxiliary_basis(mf.mol, None).auxmol.basis
    if ours:
        return trnqc.DFMP2(mf, auxbasis, backend="cpu")
    mp2 = dfmp2.DFMP2(mf)
    mp2.with_df = df.DF(mf.mol, auxbasis)
    return mp2


def clocked(work: Callable[[], Any]) -> tuple[Any, float]:
    """A result and its wall seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def simulated(mf: Any, console: Console) -> float:
    """The correlation energy by the NKI kernel on the simulator."""
    with StageBars(console) as bars:
        return float(trnqc.DFMP2(mf, backend="simulator", precision="fp32", progress=bars).kernel()[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("molecule", nargs="?", default="benzene", help="a name or an xyz file (default: %(default)s)")
    parser.add_argument("--basis", default="6-31g", help="the basis set (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="counted runs of both (default: %(default)s)")
    args = parser.parse_args()
    console, mol = Console(), build_mole(load_geometry(args.molecule), args.basis)
    mol.verbose = 0
    console.print(f"{args.molecule}, {args.basis}: {mol.nao} functions, {lib.num_threads()} threads")
    with console.status("the first run compiles the kernels that are missing; they are kept"):
        _, first = clocked(lambda: job(mol, ours=True))
    console.print(f"first run of trnqc, kernels compiled where they were missing: {duration(first)}")
    runs: dict[bool, list[tuple[list[float], list[float], Any]]] = {True: [], False: []}
    with console.status("PySCF and trnqc in turns"):
        for _ in range(args.rounds):
            for ours in (False, True):
                runs[ours].append(job(mol, ours))
    table = Table("", "PySCF", "trnqc", "trnqc is", "difference")
    for n, step in enumerate(STEPS):
        theirs, mine = (median(run[0][n] for run in runs[who]) for who in (False, True))
        values = [runs[who][-1][1][n] for who in (False, True)]
        table.add_row(
            step, duration(theirs), duration(mine), faster(theirs / mine), f"{abs(values[0] - values[1]):.0e}"
        )
    mf, correlation = runs[True][-1][2], runs[True][-1][1][-1]
    energy, seconds = clocked(lambda: simulated(mf, console))
    console.print(
        f"The NKI kernel of DF-MP2, run on the simulator of Trainium in {duration(seconds)}: {energy:.8f} Hartree, "
        f"{abs(energy - correlation):.0e} beside the CPU"
    )
    console.print(table)
    console.print(
        f"Medians of {args.rounds} runs in turns; PySCF as it is installed. Differences in Hartree and Hartree/Bohr. "
        f"J and K: {mf.ran_on}. `trnqc bench` measures more; `trnqc scf` and `trnqc mp2` run your own molecules."
    )


if __name__ == "__main__":
    main()
