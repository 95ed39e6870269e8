"""Benchmarks with shorter vectors than the CPU has, as on most laptops, measured on a server.

`keep_to("avx2")` starts the running script anew in an environment in which neither side uses AVX-512: our C is compiled
without it, and NumPy, OpenBLAS, MKL, oneDNN and PyTorch take their AVX2 kernels. They read these variables when they
are loaded, so a script calls it before it measures anything. What the environment cannot reach stays as it is: libcint
of PySCF's wheel is compiled once for all x86-64 CPUs. A CPU without AVX-512 may have smaller caches and other clocks.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import NoReturn

VARIABLE = "TRNQC_BENCH_VECTORS"
CHOICES = ("native", "avx2")
AVX2 = {
    VARIABLE: "avx2",
    "OPENBLAS_CORETYPE": "Haswell",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
}


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--vectors",
        choices=CHOICES,
        default="native",
        help="avx2: neither side uses AVX-512, and figures go to a file of their own, NAME_avx2.json",
    )


def current() -> str:
    """One of CHOICES: what this process was started for."""
    return os.environ.get(VARIABLE, "native")


def environment() -> dict[str, str]:
    """The variables that keep a process to AVX2."""
    from trnqc.jit import find_compiler

    return AVX2 | {"CC": shlex.join((*find_compiler().command, "-mno-avx512f"))}


def keep_to(vectors: str) -> None:
    """Restart this script if it does not run in the environment for `vectors` yet."""
    if vectors != current():
        restart(environment())


def restart(variables: dict[str, str]) -> NoReturn:
    """Replace this process by the same command with these environment variables set."""
    os.environ.update(variables)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def beside(path: Path) -> Path:
    """`path` for native figures; for others a file of their own next to it."""
    return path if current() == "native" else path.with_stem(f"{path.stem}_{current()}")
