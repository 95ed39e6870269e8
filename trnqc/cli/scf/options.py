"""The options of ``trnqc scf``, in the groups that its help prints, and the job and tasks that they describe."""

from __future__ import annotations

import argparse
from pathlib import Path

from trnqc.cli.molecule_options import (
    add_frozen,
    add_geometry,
    add_geometry_tasks,
    add_limits,
    add_molecule,
    add_output,
    check_target,
    positive,
    settings_from,
)
from trnqc.cli.rank_options import add_ranks
from trnqc.errors import InputError
from trnqc.interfaces.mean_field.job import SOLVENT_MODELS, MeanFieldJob, double_hybrid_of
from trnqc.interfaces.mean_field.run import Tasks
from trnqc.mp2.hybrids.recipes import RECIPES
from trnqc.mp2.reference.molecule import load_geometries
from trnqc.mp2.reference.orbitals import REFERENCES
from trnqc.mp2.scf.hartree_fock import SOURCES

# What `--cube` can write.
CUBES = ("homo", "lumo", "density")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_geometry(parser)
    add_molecule(parser, basis="def2-svp")
    _method(parser.add_argument_group("method"))
    add_frozen(parser.add_argument_group("orbitals that double hybrids and RPA do not correlate"))
    tasks = parser.add_argument_group("task", "what is computed (default: energy, orbitals, dipole and charges)")
    add_geometry_tasks(tasks)
    _tasks(tasks)
    machine = parser.add_argument_group("machine")
    add_limits(machine)
    machine.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="PySCF's file of orbitals: the SCF begins with them if it exists, and writes its own there",
    )
    add_ranks(parser, "scf")
    output = parser.add_argument_group("output")
    add_output(output)
    _files(output)


def jobs_from(args: argparse.Namespace) -> tuple[MeanFieldJob, ...]:
    """The jobs that the options describe, one for each frame of the file. Raises InputError, MoleculeError."""
    for option in ("json", "xyz", "trajectory", "html", "molden"):
        check_target(f"--{option}", getattr(args, option))
    if args.cube_prefix:
        check_target("--cube-prefix", Path(f"{args.cube_prefix}-density.cube"))
    geometries = load_geometries(args.geometry, args.charge, args.spin, args.unit)
    if len(geometries) > 1:
        for option in ("optimize", "html", "molden", "cube", "checkpoint"):
            if getattr(args, option):
                raise InputError(f"--{option} takes one geometry; {args.geometry} has {len(geometries)} frames")
    if args.trajectory and not args.optimize:
        raise InputError("--trajectory shows the steps of --optimize, which is missing")
    if (args.tda or args.triplets) and not args.tddft:
        raise InputError("--tda and --triplets describe the excited states of --tddft N, which is missing")
    if args.grid_response and not (args.gradient or args.optimize or args.frequencies):
        raise InputError("--grid-response is about derivatives: add --gradient, --optimize or --frequencies")
    jobs = tuple(
        MeanFieldJob(
            geometry=geometry,
            basis=args.basis,
            xc=args.xc,
            rpa=args.rpa,
            direct=args.direct,
            dispersion=args.dispersion,
            solvent=args.solvent,
            solvent_model=args.solvent_model,
            grid=args.grid,
            grid_response=args.grid_response,
            exchange=args.exchange,
            **settings_from(args),
        )
        for geometry in geometries
    )
    if (args.frozen_core or args.all_electron or args.frozen) and not (args.rpa or double_hybrid_of(jobs[0])):
        raise InputError(f"frozen orbitals are those of double hybrids and RPA; {args.xc} correlates no orbitals")
    return jobs


def tasks_from(args: argparse.Namespace) -> Tasks:
    """The tasks that the options describe. Raises InputError."""
    return Tasks(
        gradient=args.gradient,
        optimize=args.optimize,
        frequencies=args.frequencies,
        max_steps=positive("--max-steps", args.max_steps),
        temperature=positive("--temperature", args.temperature),
        pressure=positive("--pressure", args.pressure),
        states=args.tddft,
        tda=args.tda,
        triplets=args.triplets,
        estimate=args.html is not None,
    )


def _method(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--xc",
        default="hf",
        help="hf, a functional by PySCF's names (b3lyp, pbe0, r2scan, wb97x_v), or a double hybrid "
        f"({', '.join(one.name for one in RECIPES)}) (default: hf)",
    )
    add("--rpa", action="store_true", help="direct RPA correlation energy with the orbitals of --xc, such as pbe")
    add(
        "--reference",
        choices=tuple(kind.lower() for kind in REFERENCES),
        help="restricted, unrestricted or restricted open shell, also for functionals (default: rhf for closed "
        "shells, uhf for open shells)",
    )
    add("--direct", action="store_true", help="exact integrals in every cycle (default: density fitting)")
    add("--auxbasis", metavar="SET", help="fitting functions of J and K (default: the JK set of the orbital basis)")
    add(
        "--dispersion",
        metavar="VERSION",
        help="d3bj, d3zero, d4, or none to leave out that of the functional (pip install trnqc[dispersion])",
    )
    add("--solvent", metavar="NAME", help="a solvent by name, such as water or toluene")
    add(
        "--solvent-model",
        choices=tuple(SOLVENT_MODELS),
        default="smd",
        help="model of the solvent (default: %(default)s)",
    )
    add("--grid", type=int, default=3, metavar="LEVEL", help="quadrature grid, 0 to 9 (default: %(default)s)")
    add(
        "--grid-response",
        action="store_true",
        help="gradients, optima and vibrations with the response of the grid to displaced nuclei",
    )
    add(
        "--exchange",
        choices=("fitted", "direct", "seminumerical", "auto"),
        help="how K is computed (default: as J); seminumerical for large molecules, without Hessians",
    )
    add("--conv-tol", type=float, default=1e-9, metavar="HARTREE", help="SCF threshold (default: %(default)s)")
    add("--max-cycle", type=int, default=100, metavar="N", help="largest number of SCF cycles (default: %(default)s)")
    add(
        "--scf",
        choices=SOURCES,
        default="trnqc",
        help="integrals and quadrature by trnqc, or by PySCF to compare (default: %(default)s)",
    )


def _tasks(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--frequencies", action="store_true", help="vibrations, infrared intensities, thermochemistry")
    add("--temperature", type=float, default=298.15, metavar="K", help="of the thermochemistry (default: %(default)s)")
    add("--pressure", type=float, default=101325.0, metavar="PA", help="of the thermochemistry (default: %(default)s)")
    add("--tddft", type=int, default=0, metavar="N", help="the N lowest excited states by TDDFT or TDHF")
    add("--tda", action="store_true", help="excited states in the Tamm-Dancoff approximation")
    add("--triplets", action="store_true", help="triplet instead of singlet states of a closed shell")


def _files(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--html", type=Path, metavar="FILE", help="a page with structure, convergence, orbitals and spectra")
    add("--molden", type=Path, metavar="FILE", help="orbitals in Molden's format")
    add("--cube", nargs="+", choices=CUBES, default=(), metavar="WHAT", help=f"cube files: {', '.join(CUBES)}")
    add("--cube-prefix", metavar="PATH", help="cube files are PATH-homo.cube and so on (default: the molecule's name)")
