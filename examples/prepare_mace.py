"""A MACE model prepared for programs without Python and PyTorch, and a structure for examples/cpp/mace.cpp.

    python -m examples.prepare_mace OUT                                      # diamond, random weights
    python -m examples.prepare_mace OUT --model my.model --geometry my.xyz
    c++ -IOUT examples/cpp/mace.cpp -o OUT/mace -LOUT -ltrnqc_mace -Wl,-rpath,'$ORIGIN'
    OUT/mace OUT OUT/structure.txt

Writes the prepared model and the file structure.txt to the folder OUT. Prints energies, forces and the virial as the
program in C++ does. Needs ase and vesin, and mace-torch unless the model is a file that `trnqc mace` has written.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import read

from examples.md_mace import diamond, random_model
from trnqc.errors import TrnqcError
from trnqc.mace import Evaluator, description, prepare


def write_structure(atoms: Atoms, path: Path) -> None:
    """Write the number of atoms, three cell vectors with their flags, and atomic numbers with positions."""
    lines = [str(len(atoms))]
    lines += [f"{a:.17g} {b:.17g} {c:.17g} {int(p)}" for (a, b, c), p in zip(atoms.cell, atoms.pbc)]
    lines += [f"{z} {x:.17g} {y:.17g} {w:.17g}" for z, (x, y, w) in zip(atoms.numbers, atoms.positions)]
    path.write_text("\n".join(lines) + "\n")


def show(name: str, values: Any) -> None:
    """Print a name and numbers."""
    print(name, *(f"{value:.12g}" for value in np.ravel(values)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the folder")
    parser.add_argument("--model", help="a file of mace-torch or of `trnqc mace` (default: random weights for carbon)")
    parser.add_argument("--geometry", help="a structure that ASE reads (default: diamond)")
    parser.add_argument("--hidden", default="16x0e+16x1o", help="irreps of random weights (default: %(default)s)")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--radial", default="exact", choices=("exact", "spline"))
    args = parser.parse_args()
    atoms = read(args.geometry) if args.geometry else diamond()
    model = description(args.model if args.model else random_model(args))
    evaluator = Evaluator(model, args.dtype, radial=args.radial)
    prepare(evaluator, args.out, sorted({int(z) for z in atoms.numbers}))
    write_structure(atoms, args.out / "structure.txt")
    result = evaluator(atoms.numbers, atoms.positions, np.asarray(atoms.cell), tuple(map(bool, atoms.pbc)))
    show("energy", result.energy)
    show("energies", result.energies)
    show("forces", result.forces)
    show("virial", result.virial)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
