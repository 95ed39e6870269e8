"""The C++ compiler of this machine, and shared libraries that it makes of the sources of this package.

sources, compiler, options -> key -> shared library in the installed wheel or in the cache of kernels
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from trnqc.errors import CompilerError
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import used_shipment

# Libraries check whether the CPU can run the kernels, so they may not need the CPU's own instructions themselves.
FLAGS = ("-shared", "-fPIC", "-std=c++20", "-O2")


def shared_library(
    name: str,
    main: Path,
    headers: Sequence[Path],
    flags: Sequence[str],
    after: Sequence[str],
    folders: Sequence[str] = (),
) -> Path:
    """Return the path of a library in the installed wheel or in the cache. It is compiled first if neither has it.

    Parameters
    ----------
    name : str
        The first part of the name of the file.
    main : Path
        The source file.
    headers : sequence of Path
        The other sources of this package that it includes, from any folder of it.
    flags, after : sequence of str
        Options of the compiler before and after the source file.
    folders : sequence of str
        Options that name folders of other packages. They are not part of the key, so that a library can be moved to
        another machine; `flags` or `after` has to contain the versions of these packages.

    Raises
    ------
    CompilerError
        If there is no C++ compiler, or if it fails.
    """
    texts = [path.read_text() for path in (main, *headers)]

    def entry(version: str) -> str:
        return f"{name}-{key_of(version, *FLAGS, *flags, *after, *texts)}"

    ships = None if os.environ.get("CXX") else used_shipment()
    if ships is not None and (ready := ships.file(f"{entry(ships.cpp)}.so")) is not None:
        return ready
    compiler, own = cpp_compiler(), sorted({f"-I{path.parent}" for path in headers})

    def build(out: Path) -> None:
        run([*compiler, *FLAGS, *own, *flags, *folders, str(main), "-o", str(out), *after])

    return library_cache().get(entry(cpp_version()), build)


def cpp_version() -> str:
    """Return what the C++ compiler says of itself. Raises CompilerError if there is none."""
    return _version(tuple(cpp_compiler()), os.environ.get("PATH", ""))


@functools.lru_cache(maxsize=8)
def _version(command: tuple[str, ...], path: str) -> str:
    """What a command says of itself with this value of the environment variable PATH."""
    return run([*command, "--version"])


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


def run(command: list[str]) -> str:
    """Run a command of the C++ compiler and return what it prints. Raises CompilerError if it fails."""
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
