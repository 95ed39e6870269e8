#!/usr/bin/env python
"""Geometry optimisation with DF-MP2 gradients and geomeTRIC, started from Python with PySCF objects.

    python examples/optimize.py water --basis def2-svp
    python examples/optimize.py radical.xyz --basis cc-pvdz --plot steps.html --out optimised.xyz

Prints each step and the distances between bonded atoms before and after. An odd number of electrons is a doublet, with
UHF orbitals. ``trnqc mp2 FILE --optimize`` is the same on the command line.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
from pyscf import scf

import trnqc
from trnqc.errors import TrnqcError
from trnqc.interfaces.extxyz import write_extxyz
from trnqc.interfaces.optimization import GeometryStep, optimize
from trnqc.interfaces.optimization_page import page
from trnqc.mp2.reference.molecule import Geometry, build_mole, load_geometry

# Atoms that are closer than this in Angstrom are listed as bonded.
BOND = 1.7


def distances(geometry: Geometry) -> dict[str, float]:
    """Distances of bonded atoms in Angstrom, by their symbols and numbers."""
    xyz = np.array(geometry.coordinates)
    names = [f"{symbol}{n}" for n, symbol in enumerate(geometry.symbols, start=1)]
    pairs = [(i, j) for i in range(len(names)) for j in range(i)]
    lengths = {f"{names[j]}-{names[i]}": float(np.linalg.norm(xyz[i] - xyz[j])) for i, j in pairs}
    return {pair: length for pair, length in lengths.items() if length < BOND}


def show(number: int, step: GeometryStep) -> None:
    print(
        f"{number:4d}  {step.energy:18.10f} Hartree  {step.largest_force:.2e} Hartree/Bohr  {step.seconds:6.2f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("geometry", nargs="?", default="water", help="an xyz file, or a name from examples/molecules")
    parser.add_argument("--charge", type=int, default=0)
    parser.add_argument("--basis", default="def2-svp", help="orbital basis (default: %(default)s)")
    parser.add_argument("--plot", type=Path, help="HTML page with energies and forces")
    parser.add_argument("--out", type=Path, help="extended xyz file of the optimised geometry")
    args = parser.parse_args()

    start = load_geometry(args.geometry, args.charge, spin=None)
    mol = build_mole(start, args.basis)
    mf = scf.UHF(mol) if start.spin else scf.RHF(mol)
    mf = trnqc.accelerate(mf.density_fit()).run(conv_tol=1e-10)
    result = optimize(trnqc.DFMP2(mf).set_frozen(), callback=show)
    print("converged" if result.converged else "NOT converged")
    before, after = distances(start), distances(result.geometry)
    for pair in sorted(before.keys() | after.keys()):
        print(f"{pair:>10}  {before.get(pair, np.nan):.4f} -> {after.get(pair, np.nan):.4f} Angstrom")
    last = result.steps[-1]
    if args.out:
        write_extxyz(args.out, [(last.geometry, last.energy, last.gradient)])
    if args.plot:
        args.plot.write_text(page(result, f"{start.name}, DF-MP2/{args.basis}"), encoding="utf-8")
    return 0 if result.converged else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
