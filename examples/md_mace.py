"""Molecular dynamics with a MACE model at constant energy (NVE) by ASE, its convolutions ours.

    python -m examples.md_mace                                     # diamond, random weights
    python -m examples.md_mace --model my.model --geometry my.xyz  # your own
    python -m examples.md_mace --plain                             # MACE as it is, to compare

Prints energies along the run, the drift of the total energy and the time of a step. Needs mace-torch and ase.
"""

import argparse
import sys
import time

import numpy as np
import torch
from ase import units
from ase.io import read
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet
from mace.calculators import MACECalculator

import trnqc.cg
from examples.data.atomistic_models import diamond, mace_model
from trnqc.errors import TrnqcError


def calculator(args: argparse.Namespace) -> MACECalculator:
    if args.model:
        calc = MACECalculator(model_paths=args.model, device="cpu", default_dtype=args.dtype)
    else:
        model = mace_model(args.hidden, getattr(torch, args.dtype))
        calc = MACECalculator(models=model, device="cpu", default_dtype=args.dtype)
    if not args.plain:
        print("swapped:", ", ".join(trnqc.cg.accelerate(calc)))
    return calc


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a MACE model file (default: random weights for carbon)")
    parser.add_argument("--geometry", help="a structure that ASE reads (default: diamond)")
    parser.add_argument("--hidden", default="16x0e+16x1o+16x2e", help="irreps of random weights (default: %(default)s)")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--timestep", type=float, default=0.5, help="in fs (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=300.0, help="in K (default: %(default)s)")
    parser.add_argument("--plain", action="store_true", help="leave MACE as it is")
    args = parser.parse_args()
    atoms = read(args.geometry) if args.geometry else diamond(1)
    atoms.calc = calculator(args)
    MaxwellBoltzmannDistribution(atoms, temperature_K=args.temperature, rng=np.random.default_rng(1))
    Stationary(atoms)
    atoms.get_potential_energy()  # kernels are loaded or compiled here

    totals, kinetic = [], []

    def record() -> None:
        totals.append(atoms.get_total_energy())
        kinetic.append(atoms.get_kinetic_energy())

    run = VelocityVerlet(atoms, timestep=args.timestep * units.fs)
    run.attach(record)
    start = time.perf_counter()
    run.run(args.steps)
    seconds = time.perf_counter() - start
    for step in range(0, args.steps + 1, max(args.steps // 5, 1)):
        print(f"{step * args.timestep:8.1f} fs  kinetic {kinetic[step]:10.6f} eV  total {totals[step]:16.9f} eV")
    print(f"kinetic energy moved by {np.ptp(kinetic):.1e} eV, total energy by {np.ptp(totals):.1e} eV")
    print(f"{1e3 * seconds / args.steps:.1f} ms a step, {len(atoms)} atoms")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
