"""CUDA text to cubin with nvcc, without a GPU, and what ptxas says of every kernel in it."""

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
# ptxas gives up on inputs of very high pressure: few registers and a stack of tens of kilobytes. That is a failure.
ABSURD_SPILL = 16_384


@dataclass(frozen=True)
class Kernel:
    """What ptxas reports of one kernel: registers and stack a thread, bytes spilled, bytes of shared memory a block."""

    name: str
    registers: int
    stack: int
    spill_stores: int
    spill_loads: int
    shared: int

    @property
    def given_up(self) -> bool:
        """Whether the register allocation failed in all but name, so that another variant is to be tried."""
        return self.spill_stores > ABSURD_SPILL

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.registers} registers, {self.spill_stores}/{self.spill_loads} B spilled, "
            f"{self.shared} B shared"
        )


@dataclass(frozen=True)
class Build:
    """A compiled text. seconds: what compiling took when it was done, whether now or for the cache."""

    cubin: bytes = field(repr=False)
    arch: str
    compiler: str
    seconds: float
    kernels: tuple[Kernel, ...]

    def kernel(self, name: str) -> Kernel:
        """Raises CompilerError when the text has no such kernel."""
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise CompilerError(f"no kernel {name!r} in the build; there are {', '.join(k.name for k in self.kernels)}")

    def __str__(self) -> str:
        return "\n".join((f"{self.arch}, {self.compiler}, {self.seconds:.1f} s", *map(str, self.kernels)))


@functools.lru_cache(maxsize=4)
def nvcc_version(command: str) -> str:
    """The last line of what ``nvcc --version`` says; raises CompilerError if it does not run."""
    try:
        done = subprocess.run((command, "--version"), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise CompilerError(f"nvcc at {command} does not run: {error}") from error
    return done.stdout.strip().splitlines()[-1]


def find_nvcc() -> str:
    """$NVCC, else nvcc on the path, else in $CUDA_HOME/bin; raises CompilerError saying what to install."""
    if os.environ.get("NVCC"):
        return os.environ["NVCC"]
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if not found:
        raise CompilerError(
            "no CUDA compiler: nvcc is neither on PATH nor in $CUDA_HOME/bin. Install the CUDA toolkit, or name nvcc "
            "in the environment variable NVCC; kernels for the CPU need none"
        )
    return found


def compile_cuda(source: str, *, name: str, arch: str = "sm_80", flags: tuple[str, ...] = DEFAULT_FLAGS) -> Build:
    """Compile CUDA text into a cubin, or take it from the cache, with ptxas's report.

    Raises CompilerError when there is no nvcc or it rejects the text; a kernel that spills absurdly does not raise, but
    says so (`Kernel.given_up`).
    """
    nvcc = find_nvcc()
    version = nvcc_version(nvcc)
    key = key_of(nvcc, version, arch, *flags, source)
    entry = library_cache().get(f"{name}-{arch}-{key}", lambda out: _store(nvcc, source, arch, flags, out), ".json")
    told = json.loads(entry.read_text())
    kernels = tuple(Kernel(**k) for k in told["kernels"])
    return Build(base64.b64decode(told["cubin"]), arch, version, told["seconds"], kernels)


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
    """Kernels in the output of ``ptxas -v``; raises CompilerError when a kernel's figures are not all there."""
    kernels = []
    for part in re.split(r"(?=Compiling entry function)", text)[1:]:
        entry, spill, used = _ENTRY.search(part), _SPILL.search(part), _USED.search(part)
        if not (entry and spill and used):
            raise CompilerError(f"ptxas -v reports a kernel in words that are not known here:\n{part}")
        shared = _SHARED.search(part)
        stack, stores, loads = map(int, spill.groups())
        kernels.append(Kernel(entry[1], int(used[1]), stack, stores, loads, int(shared[1]) if shared else 0))
    return tuple(kernels)
