"""Compile the integral kernels of a basis set in advance, or list compiled kernels."""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from trnqc.cli import eri_cubins
from trnqc.eri.classes import OPERATORS, QuartetClass
from trnqc.eri.compiled import programs
from trnqc.eri.fitting import half_transform
from trnqc.eri.prepare import prebuild
from trnqc.errors import CompilerError, InputError, UnsupportedClass
from trnqc.host.output import add_output, console_of, write_json
from trnqc.host.progress import StageBars
from trnqc.jit import Recipe, build_all, find_compiler, library
from trnqc.jit.cache import library_cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``build`` and ``list``."""
    parser.add_argument("action", choices=("build", "list"), help="what to do")
    parser.add_argument("--basis", help="build: the orbital basis, such as cc-pvtz")
    parser.add_argument(
        "--elements",
        nargs="+",
        default=["H", "C", "N", "O"],
        metavar="X",
        help="build: the elements that have the basis (default: H C N O)",
    )
    parser.add_argument("--aux", metavar="SET", help="build: also for density fitting with this set")
    parser.add_argument("--cartesian", action="store_true", help="build: for Cartesian functions (mol.cart)")
    parser.add_argument("--gradients", action="store_true", help="build: also for gradients of J and K")
    parser.add_argument("--hessians", action="store_true", help="build: also for Hessians and their gradients")
    parser.add_argument("--seminumerical", action="store_true", help="build: also for K with exchange='seminumerical'")
    parser.add_argument(
        "--operator",
        choices=OPERATORS,
        default="coulomb",
        help="build: erf or erfc for range-separated functionals (default: coulomb)",
    )
    parser.add_argument(
        "--cuda",
        nargs="+",
        metavar="ARCH",
        help="build: J and K for GPUs of these architectures, such as sm_80 sm_90, instead of this CPU; needs no GPU",
    )
    parser.add_argument("--workers", type=int, metavar="N", help="build: compilers at once (default: one per core)")
    add_output(parser, "the kernels")


def run(args: argparse.Namespace) -> int:
    """Build or list kernels. The exit status is 0 if all requested kernels are compiled."""
    return {"build": _build, "list": _list}[args.action](args)


@dataclass(frozen=True)
class BuiltProgram:
    """A compiled program.

    Attributes
    ----------
    kind, cls
        Its purpose, "products" or one of those of `trnqc.eri.prepare.prebuild.programs`, and the class of its
        integrals. Products of fitted integrals, which serve all classes, have none.
    program
        The program.
    seconds
        Time to compile it or to load it from the cache.
    size
        Size of the library in bytes.
    compiled
        Whether it was compiled now. What was compiled before has an older file.
    """

    kind: str
    cls: QuartetClass | None
    program: Recipe
    seconds: float
    size: int
    compiled: bool

    def plain(self) -> dict[str, str | float]:
        """Name, purpose, seconds and bytes, for JSON."""
        return {"kernel": self.program.name, "for": self.kind, "seconds": self.seconds, "bytes": self.size}


def _build(args: argparse.Namespace) -> int:
    if not args.basis:
        raise InputError("trnqc eri build needs --basis, such as --basis cc-pvtz")
    if args.workers is not None and args.workers < 1:
        raise InputError(f"--workers must be positive, got {args.workers}")
    if args.cuda:
        return eri_cubins.build(args)
    wanted = _wanted(args)
    compiler = find_compiler()
    jobs = {program.name: functools.partial(_compiled, program, *purpose) for program, purpose in wanted.items()}
    if args.aux:
        jobs |= {one.name: functools.partial(_compiled, one, "products") for one in half_transform.recipes()}
    start = time.monotonic()
    with StageBars(Console(stderr=True, quiet=args.quiet)) as bars:
        parts = {part.name: functools.partial(programs.store_part, part) for part in programs.parts_of(list(wanted))}
        build_all(parts, workers=args.workers, progress=lambda done, total, name: bars("integrals", done, total))
        built = build_all(jobs, workers=args.workers, progress=lambda done, total, name: bars("kernels", done, total))
    failed = {name: error for name, error in built.items() if isinstance(error, CompilerError)}
    done = [one for one in built.values() if isinstance(one, BuiltProgram)]
    console = console_of(args)
    write_json(args, [one.plain() for one in done])
    console.print(table(done))
    compiled = sum(one.compiled for one in done)
    console.print(
        f"{compiled} kernels compiled by {compiler.label} in {time.monotonic() - start:.0f} s, "
        f"{len(done) - compiled} were in the cache; {_mib(sum(one.size for one in done))} in "
        f"{library_cache().directory}",
        highlight=False,
        soft_wrap=True,
    )
    if failed:
        name, error = next(iter(failed.items()))
        raise CompilerError(f"{len(failed)} of {len(built)} kernels cannot be built; the first is {name}: {error}")
    return 0


def _wanted(args: argparse.Namespace) -> prebuild.Wanted:
    mol = prebuild.atoms(args.basis, args.elements, args.cartesian)
    auxmol = prebuild.atoms(args.aux, args.elements, args.cartesian) if args.aux else None
    gradients, hessians = args.gradients or args.hessians, args.hessians
    kinds = ["jk", *["memory"] * (args.operator == "coulomb"), *["gradient"] * gradients, *["hessian"] * hessians]
    if args.seminumerical:
        kinds += ["seminumerical", *["seminumerical gradient"] * gradients]
    if args.aux:
        kinds += ["fitting", *["fitted gradient"] * gradients, *["fitted hessian"] * hessians]
    kinds += ["core gradient"] * gradients
    try:
        return prebuild.programs(mol, kinds, args.operator, auxmol)
    except UnsupportedClass as error:
        raise UnsupportedClass(f"{args.basis}: {error}") from error


def _compiled(program: Recipe, kind: str, cls: QuartetClass | None = None) -> BuiltProgram:
    now, start = time.time(), time.perf_counter()
    about = library(program).path.stat()
    return BuiltProgram(kind, cls, program, time.perf_counter() - start, about.st_size, about.st_mtime >= now)


# Headings of the purposes of programs, by kind.
WORDS = {
    "memory": "in memory",
    "gradient": "gradients",
    "core gradient": "attraction by nuclei",
    "hessian": "Hessians",
    "seminumerical": "seminumerical K",
    "seminumerical gradient": "gradients of seminumerical K",
    "fitting": "density fitting",
    "fitted gradient": "fitted gradients",
    "fitted hessian": "fitted Hessians",
    "products": "J and K by fitting",
}
# Headings of programs for J and K, by the first part of the program's name.
MATRICES = {"jk": "J and K", "j": "J", "k": "K"}


def table(done: Sequence[BuiltProgram]) -> Table:
    """A table with a row for each class and purpose, the slowest first."""
    rows = Table(title="Generated kernels", title_justify="left", title_style="bold")
    for heading in ("class", "functions", "for", "form", "seconds", "KiB"):
        rows.add_column(heading, justify="right" if heading in ("seconds", "KiB") else "left")
    for one in sorted(done, key=lambda one: (-one.seconds, one.program.name)):
        size = f"{one.size / 1024:.0f}"
        seconds = f"{one.seconds:.1f}" if one.compiled else "cached"
        purpose = WORDS.get(one.kind) or MATRICES[one.program.name.split("_")[0]]
        rows.add_row(*_class_words(one.cls), purpose, _form(one), seconds, size)
    return rows


def _form(one: BuiltProgram) -> str:
    return prebuild.form(one.kind, one.cls) if one.cls else ""


def _class_words(cls: QuartetClass | None) -> tuple[str, str]:
    """Return the class and the kind of its functions in words."""
    if cls is None:
        return "all", ""
    digits, what = cls.digits, "Cartesian" if cls.cartesian else "spherical"
    words = ", ".join([what, *["general"] * cls.general, *[cls.operator] * (cls.operator != "coulomb")])
    return f"({digits[:2]}|{digits[2:]})", words


def _list(args: argparse.Namespace) -> int:
    """List the compiled integral kernels of all versions of the generator. Versions that share a file are one row."""
    directory = library_cache().directory
    rows = Table(title=f"Compiled kernels in {directory}", title_justify="left", title_style="bold")
    for heading in ("kernel", "KiB", "age"):
        rows.add_column(heading, justify="left" if heading == "kernel" else "right")
    facts, total = [], 0
    files = {path.stat().st_ino: path for path in sorted(directory.glob("*eri_*.so"), reverse=True)}
    for path in sorted(files.values()):
        about, kernel = path.stat(), path.stem.rsplit("-", 1)[0]
        total += about.st_size
        facts.append({"kernel": kernel, "file": str(path), "bytes": about.st_size, "modified": about.st_mtime})
        rows.add_row(kernel, f"{about.st_size / 1024:.0f}", _age(time.time() - about.st_mtime))
    write_json(args, facts)
    console = console_of(args)
    console.print(rows)
    console.print(f"{len(facts)} libraries, {_mib(total)}", highlight=False)
    return 0


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def _age(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} d"
