"""Find the C compiler of this machine, probe which flags it accepts, and compile text with it."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from trnqc.errors import CompilerError
from trnqc.host.files import temporary_place
from trnqc.jit.probed import remembered
from trnqc.jit.shipped import Shipment, shipment

# Flags without which a shared library, or an object file for one, cannot be built.
REQUIRED_FLAGS = ("-shared", "-fPIC")
OBJECT_FLAGS = ("-c", "-fPIC")
# Flags that are used if the compiler accepts them. They allow fused multiply-adds, but no reordering of sums
# (-ffast-math and its parts), because results must not depend on the compiler.
WANTED_FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
# Macros that compilers predefine for a target, and the size of its vectors in bytes. The first macro that is defined
# counts.
VECTORS = (("__AVX512F__", 64), ("__AVX__", 32), ("__SSE2__", 16), ("__ARM_NEON", 16))
# Alternatives for compilers that reject a flag: Apple's clang for ARM before version 15, and some cross compilers.
NATIVE_FALLBACKS = {"-march=native": ("-mcpu=native",)}
# The environment variable that names an architecture instead of this CPU's own, such as x86-64-v3.
ARCHITECTURE_VARIABLE = "TRNQC_MARCH"


@dataclass(frozen=True)
class Compiler:
    """A C compiler that works on this machine.

    Attributes
    ----------
    command : tuple of str
        The program and its first arguments.
    version : str
        The first line that ``--version`` prints.
    flags : tuple of str
        The flags in WANTED_FLAGS that it accepts, or their alternatives.
    target : str
        The macros that it predefines with these flags. They name all CPU features that the code may use.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    target: str

    @functools.cached_property
    def identity(self) -> str:
        """Everything about the compiler on which the machine code depends, for cache keys."""
        return "\n".join((*self.command, self.version, *self.flags, self.target))

    @functools.cached_property
    def vector_bytes(self) -> int:
        """The size of the widest vector of the target in bytes, or 0 if it has no vectors."""
        macros = {line.split()[1] for line in self.target.splitlines() if len(line.split()) > 1}
        return next((size for macro, size in VECTORS if macro in macros), 0)

    def lanes(self, itemsize: int = 8) -> int:
        """The number of elements of `itemsize` bytes in the widest vector of the target, at least 1."""
        return max(1, self.vector_bytes // itemsize)

    @property
    def label(self) -> str:
        """The name and version in short, such as ``gcc 12.2.0``."""
        macros = dict(line.split(maxsplit=2)[1:] for line in self.target.splitlines() if len(line.split()) > 2)
        kinds = {
            "clang": ("__clang_major__", "__clang_minor__", "__clang_patchlevel__"),
            "gcc": ("__GNUC__", "__GNUC_MINOR__", "__GNUC_PATCHLEVEL__"),
        }
        for name, parts in kinds.items():
            if parts[0] in macros:
                return f"{name} " + ".".join(macros.get(part, "?") for part in parts)
        return self.version

    def build(
        self,
        source: str,
        output: Path,
        flags: tuple[str, ...] = (),
        objects: tuple[Path, ...] = (),
    ) -> None:
        """Compile C text into a shared library.

        Parameters
        ----------
        source : str
            The text.
        output : Path
            The file to write.
        flags : tuple of str
            Compiler options that follow `Compiler.flags`.
        objects : tuple of Path
            Object files that `build_object` has written, to be linked into the library.

        Raises
        ------
        CompilerError
            If the compiler fails. The message contains the command and its output.
        """
        before = (*REQUIRED_FLAGS, *self.flags, *flags, "-o", str(output))
        self._compile(source, before, (*map(str, objects), "-lm"))

    def build_object(self, source: str, output: Path) -> None:
        """Compile C text into an object file for shared libraries. Raises CompilerError if the compiler fails."""
        self._compile(source, (*OBJECT_FLAGS, *self.flags, "-o", str(output)), ())

    def _compile(self, source: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        with tempfile.TemporaryDirectory(prefix="trnqc-cc-", dir=temporary_place()) as scratch:
            text = Path(scratch) / "source.c"
            text.write_text(source)
            _run((*self.command, *before, str(text), *after))


class AbsentCompiler(Compiler):
    """The compiler of the files that a wheel brought along, on a machine without a compiler.

    What it compiled can be found and loaded; it cannot compile anything else.
    """

    @property
    def label(self) -> str:
        return f"prebuilt by {super().label}"

    def _compile(self, source: str, before: tuple[str, ...], after: tuple[str, ...]) -> NoReturn:
        raise CompilerError(f"this kernel is not among those of the installed wheel, and {NO_COMPILER}")


NO_COMPILER = (
    "there is no usable C compiler: install one (Debian and Ubuntu: apt-get install gcc; Fedora: dnf install gcc; "
    "macOS: xcode-select --install; without root: pip install ziglang), or name one in the environment variable CC"
)


def from_fields(fields: dict[str, Any], kind: type[Compiler] = Compiler) -> Compiler:
    """The compiler with the fields that JSON returned."""
    return kind(tuple(fields["command"]), fields["version"], tuple(fields["flags"]), fields["target"])


def _run(command: tuple[str, ...]) -> str:
    try:
        process = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompilerError(f"cannot start the C compiler\n  command: {shlex.join(command)}\n  {error}") from error
    if process.returncode != 0:
        raise CompilerError(
            f"the C compiler failed with exit status {process.returncode}\n  command: {shlex.join(command)}\n"
            f"{process.stdout}{process.stderr}"
        )
    return process.stdout


def _candidates(cc: str) -> list[tuple[str, ...]]:
    """The commands to try, in order. If the variable CC is set, its command is the only one."""
    if cc:
        return [tuple(shlex.split(cc))]
    commands: list[tuple[str, ...]] = [(name,) for name in ("cc", "gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        commands.append((sys.executable, "-m", "ziglang", "cc"))
    return commands


def _accepts(command: tuple[str, ...], flags: tuple[str, ...], scratch: Path) -> bool:
    """Whether a short text compiles with these flags without a warning. Clang only warns about unknown flags."""
    text, out = scratch / "probe.c", scratch / "probe.so"
    text.write_text("int trnqc_probe(int x) { return x + 1; }\n")
    try:
        _run((*command, "-Werror", *REQUIRED_FLAGS, *flags, "-o", str(out), str(text)))
    except CompilerError:
        return False
    return True


def _probe_flags(command: tuple[str, ...], scratch: Path, all_wanted: tuple[str, ...]) -> tuple[str, ...]:
    if _accepts(command, all_wanted, scratch):
        return all_wanted
    flags: tuple[str, ...] = ()
    for wanted in all_wanted:
        for flag in (wanted, *NATIVE_FALLBACKS.get(wanted, ())):
            if _accepts(command, (*flags, flag), scratch):
                flags = (*flags, flag)
                break
    return flags


def _wanted(architecture: str) -> tuple[str, ...]:
    """WANTED_FLAGS, for a named architecture instead of this CPU's own unless the name is empty."""
    return tuple(f"-march={architecture}" if architecture and f == "-march=native" else f for f in WANTED_FLAGS)


def _probe(command: tuple[str, ...], architecture: str) -> Compiler:
    version = (_run((*command, "--version")).splitlines() or ["unknown version"])[0]
    flags = _wanted(architecture)
    wanted = (*REQUIRED_FLAGS, *flags, *(flag for flags in NATIVE_FALLBACKS.values() for flag in flags))
    compiler = from_fields(remembered(command, version, lambda: _fields(command, version, flags), *wanted))
    if architecture and f"-march={architecture}" not in compiler.flags:
        raise CompilerError(
            f"{ARCHITECTURE_VARIABLE}={architecture}: {shlex.join(command)} does not know -march={architecture}; name "
            "an architecture of its manual, such as x86-64-v3, or unset the variable"
        )
    return compiler


def _fields(command: tuple[str, ...], version: str, wanted: tuple[str, ...]) -> dict[str, Any]:
    """Determine the fields of `Compiler` by building and loading a library. Raises CompilerError if that fails."""
    with tempfile.TemporaryDirectory(prefix="trnqc-cc-", dir=temporary_place()) as scratch:
        # Build without optional flags first: if that fails, its message shows the reason most clearly.
        text, out = Path(scratch) / "probe.c", Path(scratch) / "probe.so"
        text.write_text("int trnqc_probe(int x) { return x + 1; }\n")
        plain = (*command, *REQUIRED_FLAGS, "-o", str(out), str(text))
        _run(plain)
        try:
            ctypes.CDLL(str(out))
        except OSError as error:
            raise CompilerError(
                f"a library built by the C compiler cannot be loaded: {error}\n  {shlex.join(plain)}"
            ) from error
        flags = _probe_flags(command, Path(scratch), wanted)
        target = _run((*command, *flags, "-dM", "-E", str(text)))
    return asdict(Compiler(command, version, flags, target))


@functools.lru_cache(maxsize=8)
def _find(cc: str, path: str, architecture: str) -> Compiler:
    """The compiler for these values of the environment variables CC, PATH and TRNQC_MARCH."""
    failures = []
    for command in _candidates(cc):
        try:
            return _probe(command, architecture)
        except CompilerError as error:
            failures.append(str(error))
    if (absent := shipped_compiler()) is not None:
        return absent
    raise CompilerError(NO_COMPILER + "".join(f"\n{failure}" for failure in failures))


def lacks_compiler() -> str:
    """The reason why nothing can be compiled on this machine, or an empty string if a compiler is there."""
    try:
        return NO_COMPILER if isinstance(find_compiler(), AbsentCompiler) else ""
    except CompilerError as error:
        return str(error)


def used_shipment() -> Shipment | None:
    """The compiled files of the installed wheel that this machine may use, if there are any.

    They are not used where the user names a compiler (CC) or an architecture (TRNQC_MARCH).
    """
    named = os.environ.get("CC") or os.environ.get(ARCHITECTURE_VARIABLE)
    return None if named else shipment()


def shipped_compiler() -> Compiler | None:
    """The compiler that made the files of `used_shipment`."""
    ships = used_shipment()
    return None if ships is None else from_fields(ships.compiler, AbsentCompiler)


def find_compiler() -> Compiler:
    """Find the C compiler that this package uses: $CC, else cc, gcc or clang, else zig from the package ziglang.

    Without any, it is an `AbsentCompiler` where the installed wheel has compiled files for this CPU. Code is compiled
    for this CPU, or for the architecture that TRNQC_MARCH names.

    Raises
    ------
    CompilerError
        If none of them can build a shared library. The message says what to install.
    """
    environment = os.environ
    return _find(environment.get("CC", ""), environment.get("PATH", ""), environment.get(ARCHITECTURE_VARIABLE, ""))
