"""The instruction sets that both sides of a benchmark use.

`keep_to("native")` lets the OpenBLAS of PySCF's wheel, of 2018, take the fastest kernels that it has: it does not know
newer CPUs and runs those of a Prescott there, two vector lengths below AVX2. Users of such a CPU who set no
OPENBLAS_CORETYPE have the slow ones; `keep_to("native", "installed")` measures what they have, into a file of its own.

`keep_to("avx2")` starts the running script anew in an environment in which neither side uses AVX-512, as on most
laptops: our C is compiled without it, and NumPy, OpenBLAS, MKL, oneDNN and PyTorch take their AVX2 kernels. What the
environment cannot reach stays as it is: libcint of PySCF's wheel is compiled once for all x86-64 CPUs. A CPU without
AVX-512 may have smaller caches and other clocks.

The libraries read these variables when they are loaded, so a script calls `keep_to` before it measures anything.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

from trnqc.host.blas import fastest_core

VARIABLE = "TRNQC_BENCH_VECTORS"
CHOICES = ("native", "avx2")
CORE_VARIABLE = "OPENBLAS_CORETYPE"
BLAS_VARIABLE = "TRNQC_BENCH_BLAS"
BLAS_CHOICES = ("best", "installed")
AVX2 = {
    VARIABLE: "avx2",
    CORE_VARIABLE: "Haswell",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --vectors and --blas."""
    text = "avx2: neither side uses AVX-512, and figures go to a file of their own, NAME_avx2.json"
    parser.add_argument("--vectors", choices=CHOICES, default="native", help=text)
    text = "installed: OpenBLAS chooses its own kernels, and figures go to a file of their own, NAME_installed.json"
    parser.add_argument("--blas", choices=BLAS_CHOICES, default="best", help=text)


def current() -> str:
    """One of CHOICES: what this process was started for."""
    return os.environ.get(VARIABLE, "native")


def environment(vectors: str, blas: str = "best") -> dict[str, str]:
    """The variables with which a process measures `vectors`."""
    if vectors == "avx2":
        from trnqc.jit import find_compiler

        return AVX2 | {"CC": shlex.join((*find_compiler().command, "-mno-avx512f"))}
    core = fastest_core()
    chosen = {CORE_VARIABLE: core} if blas == "best" and core is not None else {BLAS_VARIABLE: blas}
    return {VARIABLE: vectors} | chosen


def keep_to(vectors: str, blas: str = "best") -> None:
    """Restart this script if it does not run in the environment for `vectors` and `blas` yet."""
    if VARIABLE not in os.environ:
        restart(environment(vectors, blas))


def restart(variables: dict[str, str]) -> NoReturn:
    """Replace this process by the same command with these environment variables set."""
    os.environ.update(variables)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def beside(path: Path) -> Path:
    """`path` for native figures with the best BLAS; for others a file of their own next to it."""
    if current() != "native":
        return path.with_stem(f"{path.stem}_{current()}")
    return path.with_stem(f"{path.stem}_installed") if os.environ.get(BLAS_VARIABLE) == "installed" else path
