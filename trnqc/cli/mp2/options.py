"""The options of ``trnqc mp2``, in the groups that its help prints; `mp2_jobs` makes jobs of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from trnqc import backends
from trnqc.cli.molecule_options import (
    add_frozen,
    add_geometry,
    add_geometry_tasks,
    add_limits,
    add_molecule,
    add_output,
)
from trnqc.cli.rank_options import add_ranks
from trnqc.interfaces.extrapolation import HF_ERRORS
from trnqc.mp2.reference.orbitals import REFERENCES
from trnqc.mp2.result import SCS, SOS
from trnqc.mp2.scf.hartree_fock import SOURCES
from trnqc.ranks import SCHEDULES
from trnqc.types import PRECISIONS


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options, in the groups that the help prints."""
    add_geometry(parser)
    add_molecule(parser, basis="cc-pvdz")
    _reference(parser.add_argument_group("reference"))
    _correlation(parser.add_argument_group("correlation"))
    _task(parser.add_argument_group("task", "what is computed (default: the energy)"))
    _machine(parser.add_argument_group("machine"))
    _schedule(add_ranks(parser, "mp2"))
    output = parser.add_argument_group("output")
    add_output(output)
    output.add_argument("--pairs", action="store_true", help="print the energy of every pair")


def _reference(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--scf",
        choices=SOURCES,
        default="trnqc",
        help="integrals of J and K in the SCF by trnqc, or by PySCF to compare (default: %(default)s)",
    )
    add(
        "--scf-backend",
        default="cpu",
        metavar="BACKEND[:PRECISION]",
        help="J and K of early SCF cycles on simulator or neuron, in fp32, bf16x6, bf16x3 or bf16 (default: cpu)",
    )
    add(
        "--reference",
        choices=tuple(kind.lower() for kind in REFERENCES),
        help="Hartree-Fock of the reference (default: rhf for closed shells, uhf for open shells)",
    )
    add("--conventional", action="store_true", help="no density fitting in the SCF (default: fitted, JK set)")
    add("--conv-tol", type=float, default=1e-10, metavar="HARTREE", help="SCF threshold (default: %(default)s)")
    add("--max-cycle", type=int, default=100, metavar="N", help="largest number of SCF cycles (default: %(default)s)")
    add("--allow-unconverged", action="store_true", help="continue with an SCF that has not converged")
    add("--stability", action="store_true", help="check that the SCF has found a minimum, of RHF also among UHF's")


def _correlation(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--auxbasis",
        metavar="SET",
        help="auxiliary basis (default: the RI set of the orbital basis; autoaux generates one)",
    )
    add_frozen(group)
    add("--scs-os", type=float, default=SCS[0], metavar="C", help="SCS opposite-spin factor (default: 6/5)")
    add("--scs-ss", type=float, default=SCS[1], metavar="C", help="SCS same-spin factor (default: 1/3)")
    add("--sos", type=float, default=SOS, metavar="C", help="SOS opposite-spin factor (default: %(default)s)")


def _task(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--counterpoise",
        metavar="FRAGMENTS",
        help="interaction energy with the counterpoise correction of the fragments ATOMS[:CHARGE[:SPIN]]/..., "
        "such as 1-3/4-6, with atoms counted from 1",
    )
    add(
        "--extrapolate",
        metavar="BASIS,BASIS",
        help="limit of a complete basis set from two sets, such as cc-pvdz,cc-pvtz, which replace --basis",
    )
    add(
        "--hf-limit",
        choices=tuple(HF_ERRORS),
        default="karton-martin",
        help="extrapolation of the Hartree-Fock energy (default: %(default)s)",
    )
    add_geometry_tasks(group)
    add("--plot", type=Path, metavar="FILE", help="HTML page with energies and forces by step")


def _machine(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--backend",
        choices=("auto", *backends.names()),
        default="auto",
        help="auto: a usable Trainium device, else cpu (default: %(default)s)",
    )
    add(
        "--precision",
        choices=PRECISIONS,
        help="precision of the pair step (default: fp64 if the backend has it, else fp32); bf16 is for screening",
    )
    add(
        "--fused-energy",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="evaluate the energy expression together with the products, which is faster (the default), or after them, "
        "to compare",
    )
    add(
        "--compare-with",
        action="append",
        default=[],
        metavar="BACKEND[:PRECISION]",
        help="compute the same pairs on this backend too and print the differences; may be repeated",
    )
    add_limits(group)
    add(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="keep orbitals, factors and finished pairs there, so that the same command continues an interrupted job",
    )


def _schedule(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--schedule",
        choices=SCHEDULES,
        default="dynamic",
        help="static: tasks are divided in advance by modelled costs; dynamic: a free rank gets the next task "
        "(default: %(default)s)",
    )
