#!/usr/bin/env python
"""Hartree-Fock of a molecule by PySCF as it is and with our integrals: energies, forces, seconds, what ran.

    python examples/scf_accelerated.py water --basis def2-svp
    python examples/scf_accelerated.py benzene --basis cc-pvdz --direct --gradient

Kernels that no earlier run has compiled are compiled first and their time is given apart; ``trnqc eri build`` does that
ahead of need.
"""

import argparse
import sys
import time
from typing import Any

import numpy as np
from pyscf import scf
from rich.console import Console
from rich.table import Table

import trnqc
from trnqc.errors import TrnqcError
from trnqc.mp2.reference.molecule import build_mole, load_geometry


def run(mf: Any, gradient: bool) -> tuple[float, float, np.ndarray | None]:
    """Seconds of the energy and of the forces, and the forces if they are wanted."""
    start = time.perf_counter()
    mf.kernel()
    middle = time.perf_counter()
    forces = mf.nuc_grad_method().kernel() if gradient else None
    return middle - start, time.perf_counter() - middle, forces


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("geometry", nargs="?", default="water", help="an xyz file, or a name from examples/molecules")
    parser.add_argument("--basis", default="def2-svp", help="orbital basis (default: %(default)s)")
    parser.add_argument("--direct", action="store_true", help="keep no integrals in memory")
    parser.add_argument("--gradient", action="store_true", help="forces as well")
    args = parser.parse_args()
    mol = build_mole(load_geometry(args.geometry), args.basis)

    theirs = scf.RHF(mol).set(conv_tol=1e-10, verbose=0)
    if args.direct:
        theirs.max_memory = 1
    ours, first = (trnqc.accelerate(theirs, kernels="wait") for _ in range(2))
    start = time.perf_counter()
    run(first, args.gradient)
    making = time.perf_counter() - start

    console, rows = Console(), Table(title=f"RHF/{args.basis}, {mol.nao} orbitals", title_justify="left")
    for heading in ("", "energy / Hartree", "energy / s", "forces / s"):
        rows.add_column(heading, justify="right" if heading else "left")
    forces: list[Any] = []
    for name, mf in (("PySCF", theirs), ("trnqc", ours)):
        seconds, more, force = run(mf, args.gradient)
        making -= (seconds + more) * (mf is ours)
        forces.append(force)
        rows.add_row(name, f"{mf.e_tot:.10f}", f"{seconds:.2f}", f"{more:.2f}" if args.gradient else "-")
    console.print(rows)
    lines = [
        f"J and K of trnqc by: {ours.ran_on}",
        f"kernels were loaded or compiled before, in {max(making, 0):.1f} s",
        f"energies differ by {ours.e_tot - theirs.e_tot:+.1e} Hartree",
    ]
    if args.gradient:
        lines.append(f"forces differ by {np.abs(forces[1] - forces[0]).max():.1e} Hartree/Bohr")
    console.print("\n".join(lines), highlight=False)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
