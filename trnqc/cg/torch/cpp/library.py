"""The library of operators, compiled by the machine's C++ compiler against the headers of the installed PyTorch.

sources, compiler, release of PyTorch -> key -> shared library in the cache of kernels
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
from pathlib import Path

import torch
from torch.utils import cpp_extension

from trnqc.errors import CompilerError
from trnqc.jit.cache import key_of, library_cache

SOURCES = ("operators.cpp", "products.h", "kernels.h", "graph.h")
# The library checks whether the CPU can run the kernels, so it may not need the CPU's own instructions itself.
FLAGS = ("-shared", "-fPIC", "-std=c++20", "-O2", "-fopenmp", "-DAT_PARALLEL_OPENMP=1")


def operators_library() -> Path:
    """Return the path of the library of operators in the cache. It is compiled at the first call.

    Raises
    ------
    CompilerError
        If there is no C++ compiler, or if it fails.
    """
    folder, compiler = Path(__file__).parent, cpp_compiler()
    text = [(folder / name).read_text() for name in SOURCES]
    version = _run([*compiler, "--version"])

    def build(out: Path) -> None:
        _run([*compiler, *FLAGS, *torch_flags(), str(folder / SOURCES[0]), "-o", str(out), *torch_libraries()])

    key = key_of(version, *FLAGS, *torch_flags(), *torch_libraries(), torch.__version__, *text)
    return library_cache().get(f"cg-operators-{key}", build)


def cpp_compiler() -> list[str]:
    """Return the command of the C++ compiler: $CXX, else c++, g++ or clang++. Raises CompilerError if there is none."""
    if command := shlex.split(os.environ.get("CXX", "")):
        return command
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    raise CompilerError(
        "there is no C++ compiler: install one (Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++; "
        "macOS: xcode-select --install), or name one in the environment variable CXX"
    )


def torch_flags() -> tuple[str, ...]:
    """Return the compiler's options for the headers of PyTorch."""
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    machine = f'-DTRNQC_MACHINE="{platform.machine()}"'
    return (f"-D_GLIBCXX_USE_CXX11_ABI={abi}", machine, *(f"-isystem{path}" for path in cpp_extension.include_paths()))


def torch_libraries() -> tuple[str, ...]:
    """Return the linker's options for the libraries of PyTorch."""
    folders = cpp_extension.library_paths()
    paths = [option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    return (*paths, "-ltorch", "-ltorch_cpu", "-lc10")


def _run(command: list[str]) -> str:
    try:
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompilerError(f"cannot start the C++ compiler\n  command: {shlex.join(command)}\n  {error}") from error
    if process.returncode:
        raise CompilerError(
            f"the C++ compiler failed with exit status {process.returncode}\n  command: {shlex.join(command)}\n"
            f"{process.stdout}{process.stderr}"
        )
    return process.stdout
