"""Facts about this machine: processor, compiler, BLAS libraries, cache of kernels, and what `accelerate` will use.

Every fact is a string or a number that can be written to JSON. The fact for something that is missing is a sentence
with the reason.
"""

from __future__ import annotations

import os
import platform
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyscf import lib

from trnqc.backends import devices
from trnqc.eri.api import builder
from trnqc.eri.compiled import programs
from trnqc.errors import BackendUnavailable, CompilerError
from trnqc.host import blas
from trnqc.host.files import cache_directory
from trnqc.host.threads import cpus
from trnqc.jit import find_compiler
from trnqc.jit.cache import BY_TEXT

# Ending of the checksum file that every entry of the kernel cache has.
SEAL = ".sha256"

Facts = dict[str, dict[str, Any]]
"""Facts by subject and name."""


def facts() -> Facts:
    """All facts, by subject and name."""
    return {
        "processor": processor(),
        "blas": blas.loaded(),
        "kernel cache": kernel_cache(),
        "accelerate": accelerated(),
    }


def processor() -> dict[str, Any]:
    """Model, CPUs of this process, threads of PySCF, compiler, and the vector length of its code."""
    return {
        "model": _model(),
        "cores": cpus(),
        "threads": int(lib.num_threads()),
        "compiler": _or_why_not(lambda: f"{find_compiler().label} ({' '.join(find_compiler().command)})"),
        "vectors": _or_why_not(lambda: f"{programs.WORDS[programs.lanes()]}, {programs.lanes()} numbers of fp64"),
    }


def kernel_cache() -> dict[str, Any]:
    """The directory of compiled kernels, the number of entries, and the bytes of all files, each counted once."""
    directory = cache_directory()
    sizes: dict[tuple[int, int], int] = {}
    names: set[str] = set()
    with suppress(FileNotFoundError):  # There is no directory before the first kernel is compiled.
        for name in os.listdir(directory):
            with suppress(FileNotFoundError):  # Other processes rename and remove files at any time.
                status = os.stat(directory / name)
                if stat.S_ISREG(status.st_mode):
                    sizes[status.st_dev, status.st_ino] = status.st_size
                    names.add(name)
    entries = sum(name.endswith(SEAL) for name in names) - sum(name.endswith(BY_TEXT) for name in names)
    return {"directory": str(directory), "entries": entries, "bytes": sum(sizes.values())}


def accelerated() -> dict[str, Any]:
    """Description of what computes J and K after `trnqc.accelerate`, by backend; "auto" is the default."""

    def on_cpu() -> str:
        threads = int(lib.num_threads())
        return f"{programs.words()}, {threads} thread{'s' * (threads > 1)}"

    def on_cuda() -> str:
        builder("cuda")
        return "generated CUDA on " + ", ".join(device.name for device in devices("cuda"))

    return {"auto": _or_why_not(on_cpu), "cuda": _or_why_not(on_cuda)}


def _model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _or_why_not(describe: Callable[[], str]) -> str:
    """The result of describe(), or the first line of its error."""
    try:
        return describe()
    except (BackendUnavailable, CompilerError) as error:
        return f"not usable: {str(error).splitlines()[0]}"
