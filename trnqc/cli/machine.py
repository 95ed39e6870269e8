"""What this machine offers to generated kernels: processor, compiler, GPUs, the cache, and what `accelerate` will use.

Every figure is a string or a number that JSON takes; what is missing is said in words and raises nothing.
"""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyscf import lib

from trnqc.eri.jk.builder import builder
from trnqc.eri.library import programs
from trnqc.errors import BackendUnavailable, CompilerError
from trnqc.host.files import cache_directory
from trnqc.host.threads import cpus
from trnqc.jit import find_compiler
from trnqc.jit.device import cuda_devices
from trnqc.jit.nvcc import find_nvcc, nvcc_version

DRIVER = Path("/proc/driver/nvidia/version")
SEAL = ".sha256"

Facts = dict[str, dict[str, Any]]


def facts() -> Facts:
    """By subject, what there is: names of facts with numbers, words, or lists of words."""
    return {"processor": processor(), "gpu": gpus(), "kernel cache": kernel_cache(), "accelerate": accelerated()}


def processor() -> dict[str, Any]:
    """Model, threads of this process and of PySCF, compiler, and the vectors that its code will use."""
    return {
        "model": _model(),
        "cores": cpus(),
        "threads": int(lib.num_threads()),
        "compiler": _said(lambda: f"{find_compiler().label} ({' '.join(find_compiler().command)})"),
        "vectors": _said(lambda: f"{programs.WORDS[programs.lanes()]}, {programs.lanes()} numbers of fp64"),
    }


def gpus() -> dict[str, Any]:
    """Driver, Python bindings, nvcc, and the devices that can be used through them."""
    return {
        "driver": DRIVER.read_text().splitlines()[0] if DRIVER.is_file() else f"none (no {DRIVER})",
        "cuda-core": _version("cuda-core"),
        "nvcc": _said(lambda: f"{find_nvcc()}, {nvcc_version(find_nvcc())}"),
        "devices": _devices(),
    }


def kernel_cache() -> dict[str, Any]:
    """Where compiled kernels are kept, how many, and their bytes."""
    directory = cache_directory()
    files = [path for path in directory.iterdir() if path.is_file()] if directory.is_dir() else []
    return {
        "directory": str(directory),
        "entries": sum(path.suffix == SEAL for path in files),
        "bytes": sum(path.stat().st_size for path in files),
    }


def accelerated() -> dict[str, Any]:
    """What `trnqc.accelerate` makes J and K with, by backend; auto is the first."""

    def on_cpu() -> str:
        threads = int(lib.num_threads())
        return f"{programs.words()}, {threads} thread{'s' * (threads > 1)}"

    def on_cuda() -> str:
        builder("cuda")
        return "generated CUDA on " + ", ".join(device.name for device in cuda_devices())

    return {"auto": _said(on_cpu), "cuda": _said(on_cuda)}


def _model() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _devices() -> list[str]:
    try:
        return [f"{device.name} ({device.arch})" for device in cuda_devices()]
    except BackendUnavailable:
        return []


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed (pip install 'trnqc[cuda]')"


def _said(make: Callable[[], str]) -> str:
    """What make() says, or in one line why it cannot."""
    try:
        return make()
    except (BackendUnavailable, CompilerError) as error:
        return f"not usable: {str(error).splitlines()[0]}"
