"""Molecular dynamics with a MACE model at constant energy (NVE) by ASE.

    python -m examples.md_mace                                     # diamond, random weights
    python -m examples.md_mace --model my.model --geometry my.xyz  # your own
    python -m examples.md_mace --evaluator torch                   # in mace-torch, with our convolutions
    python -m examples.md_mace --evaluator plain                   # MACE as it is, to compare

    trnqc mace my.model --prepare --dtype float64 --output my.npz  # once, where mace-torch is installed
    python -m examples.md_mace --model my.npz --geometry my.xyz    # without PyTorch

Prints energies along the run, the drift of the total energy and the time of a step. Needs ase and vesin, and mace-torch
unless the model is a file that `trnqc mace` has written.
"""

import argparse
import sys
import time
from typing import Any

import numpy as np
from ase import units
from ase.build import bulk
from ase.io import read
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet

import trnqc
from trnqc.errors import TrnqcError


def random_model(args: argparse.Namespace) -> Any:
    """A model of carbon with random weights."""
    import torch

    from examples.data.atomistic_models import mace_model

    return mace_model(args.hidden, getattr(torch, args.dtype))


def calculator(args: argparse.Namespace) -> Any:
    """The calculator of a model, by one of three evaluators."""
    if args.evaluator == "whole":
        return trnqc.mace.Calculator(args.model or random_model(args), dtype=args.dtype)
    from mace.calculators import MACECalculator

    source = {"model_paths": args.model} if args.model else {"models": random_model(args)}
    calc = MACECalculator(**source, device="cpu", default_dtype=args.dtype)
    if args.evaluator == "torch":
        print("swapped:", ", ".join(trnqc.cg.accelerate(calc)))
    return calc


def diamond() -> Any:
    """Eight atoms of carbon, moved a little from their places."""
    atoms = bulk("C", "diamond", a=3.567, cubic=True)
    atoms.rattle(0.05, seed=1)
    return atoms


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a file of mace-torch or of `trnqc mace` (default: random weights for carbon)")
    parser.add_argument("--geometry", help="a structure that ASE reads (default: diamond)")
    parser.add_argument("--hidden", default="16x0e+16x1o+16x2e", help="irreps of random weights (default: %(default)s)")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--timestep", type=float, default=0.5, help="in fs (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=300.0, help="in K (default: %(default)s)")
    parser.add_argument(
        "--evaluator",
        default="whole",
        choices=("whole", "torch", "plain"),
        help="trnqc.mace, mace-torch with our convolutions, or mace-torch as it is (default: %(default)s)",
    )
    args = parser.parse_args()
    atoms = read(args.geometry) if args.geometry else diamond()
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
