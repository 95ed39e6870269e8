"""Which BLAS NumPy multiplies with, and how many threads the loaded BLAS libraries use."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Packages that bring a BLAS library of their own.
_WITH_BLAS = ("numpy", "scipy.linalg", "pyscf.lib", "torch")
NAMES = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS", "flexiblas": "FlexiBLAS", "accelerate": "Accelerate"}


@dataclass(frozen=True)
class Blas:
    """NumPy's BLAS. core: the instruction-set variant of its kernels; threads: how many one call would use."""

    name: str
    version: str
    core: str
    threads: int | None

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.version, self.core) if part)


def _built_with() -> tuple[str, str]:
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return str(built.get("name", "unknown BLAS")), str(built.get("version", ""))


def _of_numpy(libraries: list[dict[str, Any]], built: str) -> dict[str, Any] | None:
    """NumPy's library among all that are loaded: other packages (PySCF, SciPy) bring BLAS libraries of their own."""
    ours = [lib for lib in libraries if "numpy" in str(Path(lib["filepath"]).parent)]
    shared = [lib for lib in libraries if "site-packages" not in lib["filepath"] and lib["internal_api"] in built]
    return (ours + shared + [None])[0]


def numpy_blas() -> Blas:
    """The BLAS behind ``np.matmul``; only its build-time name when it cannot be asked (Accelerate, static builds)."""
    name, version = _built_with()
    libraries = [lib for lib in ThreadpoolController().info() if lib["user_api"] == "blas"]
    lib = _of_numpy(libraries, name)
    if lib is None:
        return Blas(NAMES.get(name, name), version, "", None)
    label = NAMES.get(lib["internal_api"], lib["internal_api"])
    return Blas(label, lib["version"] or version, lib.get("architecture") or "", lib["num_threads"])


@cache
def _libraries(packages: tuple[bool, ...]) -> ThreadpoolController:
    """Those that are loaded now, looked for once for each set of packages, since that takes milliseconds."""
    return ThreadpoolController()


def blas_threads(threads: int) -> AbstractContextManager[Any]:
    """A context in which every loaded BLAS uses so many threads a call; the former numbers come back at its end."""
    packages = tuple(name in sys.modules for name in _WITH_BLAS)
    return _libraries(packages).limit(limits=threads, user_api="blas")


def single_threaded() -> AbstractContextManager[Any]:
    """A context in which every loaded BLAS uses one thread a call, while threads of our own share the work."""
    return blas_threads(1)
