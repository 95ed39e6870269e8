"""Compile CUDA text to a cubin with nvcc, which needs no GPU, and read ptxas's report on its kernels."""

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
from trnqc.jit.cache import key_of, library_cache

DEFAULT_FLAGS = ("-O3", "-std=c++17", "-lineinfo")
# Bytes of spill stores above which a build counts as failed. For code with very high register pressure ptxas stops
# allocating registers and spills tens of kilobytes.
ABSURD_SPILL = 16_384


@dataclass(frozen=True)
class Kernel:
    """ptxas's report on a kernel: registers, stack and spills (bytes) per thread, shared memory (bytes) per block."""

    name: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    @property
    def given_up(self) -> bool:
        """Whether register allocation failed in effect, so that another variant should be tried."""
        return self.spill_stores > ABSURD_SPILL

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.registers} registers, {self.spill_stores}/{self.spill_loads} B spilled, "
            f"{self.shared} B shared"
        )


@dataclass(frozen=True)
class Build:
    """A compiled text. seconds: the time of compilation, now or when the cached file was made."""

    cubin: bytes = field(repr=False)
    arch: str
    compiler: str
    seconds: float
    kernels: tuple[Kernel, ...]

    def kernel(self, name: str) -> Kernel:
        """The report on a kernel. Raises CompilerError if the text has no such kernel."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise CompilerError(f"no kernel {name!r} in the build; there are {', '.join(k.name for k in self.kernels)}")

    def __str__(self) -> str:
        return "\n".join((f"{self.arch}, {self.compiler}, {self.seconds:.1f} s", *map(str, self.kernels)))


@functools.lru_cache(maxsize=4)
def nvcc_version(command: str) -> str:
    """The last line of ``nvcc --version``. Raises CompilerError if nvcc does not run."""
    try:
        done = subprocess.run((command, "--version"), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompilerError(f"nvcc at {command} does not run: {error}") from error
    return done.stdout.strip().splitlines()[-1]


def find_nvcc() -> str:
    """The path of nvcc: $NVCC, else on PATH, else in $CUDA_HOME/bin. Raises CompilerError, saying what to install."""
    if os.environ.get("NVCC"):
        return os.environ["NVCC"]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    path = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if not path:
        raise CompilerError(
            "no CUDA compiler: nvcc is neither on PATH nor in $CUDA_HOME/bin. Install the CUDA toolkit, or name nvcc "
            "in the environment variable NVCC; kernels for the CPU need none"
        )
    return path


def compile_cuda(source: str, *, name: str, arch: str = "sm_80", flags: tuple[str, ...] = DEFAULT_FLAGS) -> Build:
    """Compile CUDA text into a cubin, with ptxas's report, or take both from the cache.

    Raises CompilerError if there is no nvcc or it rejects the text. Excessive spilling is no error; see
    `Kernel.given_up`.
    """
    nvcc = find_nvcc()
    version = nvcc_version(nvcc)
    key = key_of(nvcc, version, arch, *flags, source)
    entry = library_cache().get(f"{name}-{arch}-{key}", lambda out: _store(nvcc, source, arch, flags, out), ".json")
    report = json.loads(entry.read_text())
    kernels = tuple(Kernel(**k) for k in report["kernels"])
    return Build(base64.b64decode(report["cubin"]), arch, version, report["seconds"], kernels)


def _store(nvcc: str, source: str, arch: str, flags: tuple[str, ...], out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="trnqc-nvcc-") as scratch:
        cubin = Path(scratch) / "kernel.cubin"
        start = time.perf_counter()
        kernels = [asdict(k) for k in read_ptxas(_nvcc(nvcc, source, arch, flags, cubin))]
        seconds = time.perf_counter() - start
        data = base64.b64encode(cubin.read_bytes()).decode()
    out.write_text(json.dumps({"seconds": seconds, "kernels": kernels, "cubin": data}))


def _nvcc(nvcc: str, source: str, arch: str, flags: tuple[str, ...], out: Path) -> str:
    with tempfile.TemporaryDirectory(prefix="trnqc-nvcc-") as scratch:
        text = Path(scratch) / "kernel.cu"
        text.write_text(source)
        command = (nvcc, f"-arch={arch}", *flags, "-Xptxas=-v", "-cubin", "-o", str(out), str(text))
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode != 0:
        raise CompilerError(
            f"nvcc failed with exit status {done.returncode}\n  command: {shlex.join(command)}\n"
            f"{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def read_ptxas(text: str) -> tuple[Kernel, ...]:
    """The kernels in the output of ``ptxas -v``. Raises CompilerError if a figure is missing."""
    kernels = []
    for part in re.split(r"(?=Compiling entry function)", text)[1:]:
        entry, spill, used = _ENTRY.search(part), _SPILL.search(part), _USED.search(part)
        if not (entry and spill and used):
            raise CompilerError(f"cannot parse the report of ptxas -v on a kernel:\n{part}")
        shared = _SHARED.search(part)
        stack, stores, loads = map(int, spill.groups())
        kernels.append(Kernel(entry[1], int(used[1]), stack, stores, loads, int(shared[1]) if shared else 0))
    return tuple(kernels)
