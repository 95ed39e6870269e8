"""The BLAS that NumPy calls, and the number of threads that all loaded BLAS libraries use."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Packages that contain BLAS libraries. Importing one of them may load another library.
_WITH_BLAS = ("numpy", "scipy.linalg", "pyscf.lib", "torch")
# Names of libraries as their projects write them.
# Kernels of OpenBLAS with vectors of 256 bits and more.
_MODERN = {"haswell", "zen", "skylakex", "cooperlake", "sapphirerapids"}
# The kernels of OpenBLAS that need a feature of the CPU, the fastest first.
_CORES = (("avx512bw", "SkylakeX"), ("avx2", "Haswell"))
NAMES = {"openblas": "OpenBLAS", "mkl": "MKL", "blis": "BLIS", "flexiblas": "FlexiBLAS", "accelerate": "Accelerate"}


@dataclass(frozen=True)
class HostBlas:
    """The BLAS that NumPy calls.

    Attributes
    ----------
    name, version
        Its name and version.
    core
        The instruction set of its kernels, such as "SkylakeX". Empty if unknown.
    threads
        The number of threads that a call would use. None if unknown.
    """

    name: str
    version: str
    core: str
    threads: int | None

    def __str__(self) -> str:
        return " ".join(part for part in (self.name, self.version, self.core) if part)


def _built_with() -> tuple[str, str]:
    """Name and version of the BLAS that NumPy was built with."""
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return str(built.get("name", "unknown BLAS")), str(built.get("version", ""))


def _of_numpy(libraries: list[dict[str, Any]], built: str) -> dict[str, Any] | None:
    """The library of NumPy among all loaded libraries. PySCF and SciPy may have loaded others."""
    ours = [lib for lib in libraries if "numpy" in str(Path(lib["filepath"]).parent)]
    system = [lib for lib in libraries if "site-packages" not in lib["filepath"] and lib["internal_api"] in built]
    return (ours + system + [None])[0]


def numpy_blas() -> HostBlas:
    """The BLAS behind ``np.matmul``. If it cannot be queried (Accelerate, static builds), its name at build time."""
    name, version = _built_with()
    libraries = [lib for lib in ThreadpoolController().info() if lib["user_api"] == "blas"]
    lib = _of_numpy(libraries, name)
    if lib is None:
        return HostBlas(NAMES.get(name, name), version, "", None)
    label = NAMES.get(lib["internal_api"], lib["internal_api"])
    return HostBlas(label, lib["version"] or version, lib.get("architecture") or "", lib["num_threads"])


def fastest_core() -> str | None:
    """The OPENBLAS_CORETYPE with the fastest kernels for this CPU; None unless Linux says that it has AVX2."""
    info = Path("/proc/cpuinfo")
    flags = set(info.read_text().split()) if info.is_file() else set()
    return next((core for flag, core in _CORES if flag in flags), None)


def loaded() -> dict[str, str]:
    """Every loaded BLAS by the package that brought it, with its kernels.

    An OpenBLAS that is older than the CPU falls back to generic kernels, which are slower; PySCF's wheels ship such a
    build (2018). The text then names the environment variable that selects faster ones.
    """
    return {
        _package(lib["filepath"]): _described(lib) for lib in ThreadpoolController().info() if lib["user_api"] == "blas"
    }


def _package(path: str) -> str:
    """The package of a library of a wheel, which lies in PACKAGE/ or PACKAGE.libs/; of others the path."""
    _, wheel, inside = path.rpartition("site-packages/")
    return inside.split("/")[0].removesuffix(".libs") if wheel else path


def _described(lib: dict[str, Any]) -> str:
    name, core = NAMES.get(lib["internal_api"], lib["internal_api"]), lib.get("architecture") or ""
    text = " ".join(part for part in (name, lib["version"] or "", core) if part)
    best = fastest_core()
    if name == "OpenBLAS" and best is not None and core and core.lower() not in _MODERN:
        text += f", kernels of an old CPU -> set OPENBLAS_CORETYPE={best} before Python starts"
    return text


@cache
def _libraries(packages: tuple[bool, ...]) -> ThreadpoolController:
    """The loaded libraries, cached by the imported packages because the search takes milliseconds."""
    return ThreadpoolController()


def blas_threads(threads: int) -> AbstractContextManager[Any]:
    """A context in which every loaded BLAS library uses this number of threads. Its end restores the old numbers."""
    packages = tuple(name in sys.modules for name in _WITH_BLAS)
    return _libraries(packages).limit(limits=threads, user_api="blas")


def limited(threads: int | None) -> AbstractContextManager[Any]:
    """A context in which every loaded BLAS library uses the threads that the user has asked for, if any number."""
    return nullcontext() if threads is None else blas_threads(threads)


def single_threaded() -> AbstractContextManager[Any]:
    """A context in which every loaded BLAS library uses one thread, because our own threads share the work."""
    return blas_threads(1)
