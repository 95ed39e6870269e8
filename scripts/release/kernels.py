"""Compile the kernels of common basis sets for one level of the instruction set, for `scripts.release.wheel`.

    python -m scripts.release.kernels x86-64-v3 FOLDER [--sets cc-pvdz def2-svp]

The folder is a cache of compiled files: a second run compiles only what it lacks. CPU minutes are printed for each set.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

from trnqc.host.files import DIRECTORY_VARIABLE
from trnqc.jit.compiler import ARCHITECTURE_VARIABLE
from trnqc.jit.shipped import LEVELS

# The orbital sets and their fitting sets for J and K and for MP2.
SETS = {
    "cc-pvdz": ("cc-pvdz-jkfit", "cc-pvdz-ri"),
    "def2-svp": ("def2-universal-jkfit", "def2-svp-ri"),
    "sto-3g": ("def2-universal-jkfit",),
    "6-31g*": ("cc-pvdz-jkfit", "cc-pvdz-ri"),
    "cc-pvtz": ("cc-pvtz-jkfit", "cc-pvtz-ri"),
    "def2-tzvp": ("def2-universal-jkfit", "def2-tzvp-ri"),
}
# Small jobs, for the kernels of MP2, which do not depend on the basis set.
JOBS = (
    ("trnqc", "mp2", "water", "--basis", "cc-pvdz", "-q"),
    ("trnqc", "mp2", "water", "--basis", "cc-pvdz", "--precision", "fp32", "-q"),
    ("trnqc", "mp2", "water", "--basis", "cc-pvdz", "--gradient", "-q"),
)


def commands(sets: list[str]) -> dict[str, tuple[str, ...]]:
    """The modules with their arguments that compile what is wanted, by a name for the report."""
    builds: dict[str, tuple[str, ...]] = {
        f"{name} {aux}": ("trnqc", "eri", "build", "--basis", name, "--aux", aux) for name in sets for aux in SETS[name]
    }
    quadratures: dict[str, tuple[str, ...]] = {
        f"quadrature {name}": ("scripts.release.jobs", "quadrature", name, SETS[name][0]) for name in sets
    }
    driver: dict[str, tuple[str, ...]] = {"driver of MACE": ("scripts.release.jobs", "driver")}
    return builds | {" ".join(job[1:]): job for job in JOBS} | quadratures | driver


def compile_level(level: str, folder: Path, sets: list[str], workers: int) -> None:
    """Compile for a level into a folder. Raises CalledProcessError if a command fails."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        DIRECTORY_VARIABLE: str(folder.resolve()),
        ARCHITECTURE_VARIABLE: level,
        "TRNQC_KERNELS": "wait",
    }
    for name, arguments in commands(sets).items():
        more = ("--workers", str(workers)) if "build" in arguments else ()
        before = _children()
        subprocess.run(
            [sys.executable, "-m", *arguments, *more], env=environment, check=True, stdout=subprocess.DEVNULL
        )
        print(f"{level} {name}: {(_children() - before) / 60:.1f} CPU min, {_files(folder)}", flush=True)


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _files(folder: Path) -> str:
    sizes = [path.stat().st_size for path in folder.glob("*.so")]
    return f"{len(sizes)} libraries, {sum(sizes) / 2**20:.1f} MiB"


def main() -> None:
    """Read the arguments, and compile."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("level", choices=LEVELS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    compile_level(args.level, args.folder, args.sets, args.workers)


if __name__ == "__main__":
    main()
