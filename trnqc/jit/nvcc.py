"""Compile CUDA text to a cubin with nvcc, which needs no GPU, and read the report of ptxas on its kernels."""

from __future__ import annotations

import base64
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trnqc.errors import CompilerError
from trnqc.host.files import temporary_place
from trnqc.jit.cache import key_of, library_cache

DEFAULT_FLAGS = ("-O3", "-std=c++17", "-lineinfo")
# Bytes of spill stores per thread above which a build counts as failed. If register pressure is very high, ptxas stops
# allocating registers and spills tens of kilobytes; kernels that are allocated properly spill far less.
ABSURD_SPILL = 16_384


@dataclass(frozen=True)
class PtxasReport:
    """The report of ptxas on a kernel.

    Attributes
    ----------
    name : str
        The name of the kernel.
    registers : int
        Registers per thread.
    stack, spill_stores, spill_loads : int
        Bytes of the stack, and bytes stored and loaded by spills, per thread.
    shared : int
        Bytes of shared memory per block.
    """

    name: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    @property
    def spills_excessively(self) -> bool:
        """Whether ptxas has practically failed to allocate registers, so that another variant should be tried."""
        return self.spill_stores > ABSURD_SPILL

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.registers} registers, {self.spill_stores}/{self.spill_loads} B spilled, "
            f"{self.shared} B shared"
        )


@dataclass(frozen=True)
class Build:
    """A compiled CUDA text.

    Attributes
    ----------
    cubin : bytes
        The machine code.
    arch : str
        The architecture that it is compiled for.
    compiler : str
        The version of nvcc.
    seconds : float
        The time of compilation in seconds. For a cached build, it is the time when it was compiled.
    kernels : tuple of PtxasReport
        The report on each kernel.
    """

    cubin: bytes = field(repr=False)
    arch: str
    compiler: str
    seconds: float
    kernels: tuple[PtxasReport, ...]

    def kernel(self, name: str) -> PtxasReport:
        """The report on a kernel. Raises CompilerError if the text has no such kernel."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise CompilerError(f"the build has the kernels {', '.join(k.name for k in self.kernels)}, but no {name!r}")

    def __str__(self) -> str:
        return "\n".join((f"{self.arch}, {self.compiler}, {self.seconds:.1f} s", *map(str, self.kernels)))


@functools.lru_cache(maxsize=4)
def nvcc_version(command: str) -> str:
    """The last line that ``nvcc --version`` prints. Raises CompilerError if nvcc does not run."""
    try:
        process = subprocess.run((command, "--version"), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompilerError(f"nvcc at {command} does not run: {error}") from error
    return process.stdout.strip().splitlines()[-1]


def find_nvcc() -> str:
    """The path of nvcc: $NVCC, else the one on PATH, else the one in $CUDA_HOME/bin.

    Raises
    ------
    CompilerError
        If there is none. The message says what to install.
    """
    if os.environ.get("NVCC"):
        return os.environ["NVCC"]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    path = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if not path:
        raise CompilerError(
            "there is no CUDA compiler: nvcc is neither on PATH nor in $CUDA_HOME/bin. Install the CUDA toolkit, or "
            "set the environment variable NVCC to the path of nvcc. Kernels for the CPU do not need it"
        )
    return path


def compile_cuda(source: str, *, name: str, arch: str = "sm_80", flags: tuple[str, ...] = DEFAULT_FLAGS) -> Build:
    """Compile CUDA text into a cubin with nvcc, or take the build from the cache.

    Parameters
    ----------
    source : str
        The text.
    name : str
        The first part of the name of the cached file.
    arch : str
        The architecture to compile for.
    flags : tuple of str
        Options of nvcc.

    Returns
    -------
    Build
        The cubin and the report of ptxas. Excessive spilling is not an error; see `PtxasReport.spills_excessively`.

    Raises
    ------
    CompilerError
        If there is no nvcc, or if it rejects the text.
    """
    nvcc = find_nvcc()
    version = nvcc_version(nvcc)
    key = key_of(nvcc, version, arch, *flags, source)
    entry = library_cache().get(f"{name}-{arch}-{key}", lambda out: _store(nvcc, source, arch, flags, out), ".json")
    report = json.loads(entry.read_text())
    kernels = tuple(PtxasReport(**k) for k in report["kernels"])
    return Build(base64.b64decode(report["cubin"]), arch, version, report["seconds"], kernels)


def _store(nvcc: str, source: str, arch: str, flags: tuple[str, ...], out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="trnqc-nvcc-", dir=temporary_place()) as scratch:
        cubin = Path(scratch) / "kernel.cubin"
        start = time.perf_counter()
        kernels = [asdict(k) for k in read_ptxas(_nvcc(nvcc, source, arch, flags, cubin))]
        seconds = time.perf_counter() - start
        data = base64.b64encode(cubin.read_bytes()).decode()
    out.write_text(json.dumps({"seconds": seconds, "kernels": kernels, "cubin": data}))


def _nvcc(nvcc: str, source: str, arch: str, flags: tuple[str, ...], out: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="trnqc-nvcc-", dir=temporary_place()) as scratch:
        text = Path(scratch) / "kernel.cu"
        text.write_text(source)
        command = (nvcc, f"-arch={arch}", *flags, "-Xptxas=-v", "-cubin", "-o", str(out), str(text))
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if process.returncode != 0:
        raise CompilerError(
            f"nvcc failed with exit status {process.returncode}\n  command: {shlex.join(command)}\n"
            f"{process.stdout}{process.stderr}"
        )
    return process.stdout + process.stderr


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_ptxas(text: str) -> tuple[PtxasReport, ...]:
    """Parse the output of ``ptxas -v``. Raises CompilerError if a number is missing."""
    kernels = []
    for part in re.split(r"(?=Compiling entry function)", text)[1:]:
        entry, spill, used = _ENTRY.search(part), _SPILL.search(part), _USED.search(part)
        if not (entry and spill and used):
            raise CompilerError(f"cannot parse the report of ptxas -v on a kernel:\n{part}")
        shared = _SHARED.search(part)
        stack, stores, loads = map(int, spill.groups())
        kernels.append(PtxasReport(entry[1], int(used[1]), stack, stores, loads, int(shared[1]) if shared else 0))
    return tuple(kernels)
