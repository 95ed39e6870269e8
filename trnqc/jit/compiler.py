"""The system's C compiler: find it, probe the flags that it accepts, and compile texts."""

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
from typing import Any

from trnqc.errors import CompilerError
from trnqc.jit.probed import remembered

REQUIRED_FLAGS = ("-shared", "-fPIC")
OBJECT_FLAGS = ("-c", "-fPIC")
# Each is used only if the compiler accepts it. Contraction to fused multiply-adds is wanted. Options that reorder sums
# (-ffast-math and its parts) are not: results must not depend on the compiler.
WANTED_FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-mprefer-vector-width=512",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fno-trapping-math",
)
# Macros that compilers predefine for a target, and the bytes of its vectors; the first that is defined counts.
VECTORS = (("__AVX512F__", 64), ("__AVX__", 32), ("__SSE2__", 16), ("__ARM_NEON", 16))
# Alternatives for compilers without -march=native (Apple's for ARM before clang 15, some cross compilers).
NATIVE_FALLBACKS = {"-march=native": ("-mcpu=native",)}


@dataclass(frozen=True)
class Compiler:
    """A C compiler that works on this machine.

    Attributes
    ----------
    command : tuple of str
        The program and its leading arguments.
    version : str
        The first line of ``--version``.
    flags : tuple of str
        The flags that it accepts, of WANTED_FLAGS.
    target : str
        The macros that it predefines with these flags; they name all CPU features that the code may use.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    target: str

    @functools.cached_property
    def identity(self) -> str:
        """Everything about the compiler that the machine code depends on, as part of cache keys."""
        return "\n".join((*self.command, self.version, *self.flags, self.target))

    @functools.cached_property
    def vector_bytes(self) -> int:
        """Bytes of the target's widest vector; 0 if it has none."""
        macros = {line.split()[1] for line in self.target.splitlines() if len(line.split()) > 1}
        return next((size for macro, size in VECTORS if macro in macros), 0)

    def lanes(self, itemsize: int = 8) -> int:
        """The number of elements of `itemsize` bytes in the target's widest vector, at least 1."""
        return max(1, self.vector_bytes // itemsize)

    @property
    def label(self) -> str:
        """A short name, such as ``gcc 12.2.0``."""
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
        defines: tuple[str, ...] = (),
        flags: tuple[str, ...] = (),
        objects: tuple[Path, ...] = (),
    ) -> None:
        """Compile `source` into the shared library `output`, linked with object files made by `build_object`.

        Raises CompilerError, with the command and its output, if that fails.
        """
        symbols = tuple(f"-D{define}" for define in defines)
        before = (*REQUIRED_FLAGS, *self.flags, *flags, *symbols, "-o", str(output))
        self._compile(source, before, (*map(str, objects), "-lm"))

    def build_object(self, source: str, output: Path) -> None:
        """Compile `source` into an object file for shared libraries. Raises CompilerError."""
        self._compile(source, (*OBJECT_FLAGS, *self.flags, "-o", str(output)), ())

    def _compile(self, source: str, before: tuple[str, ...], after: tuple[str, ...]) -> None:
        with tempfile.TemporaryDirectory(prefix="trnqc-cc-") as scratch:
            text = Path(scratch) / "source.c"
            text.write_text(source)
            _run((*self.command, *before, str(text), *after))


def _run(command: tuple[str, ...]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompilerError(f"cannot start the C compiler\n  command: {shlex.join(command)}\n  {error}") from error
    if done.returncode != 0:
        raise CompilerError(
            f"the C compiler failed with exit status {done.returncode}\n  command: {shlex.join(command)}\n"
            f"{done.stdout}{done.stderr}"
        )
    return done.stdout


def _candidates(chosen: str) -> list[tuple[str, ...]]:
    """Commands to try in order. If CC is set, it is the only one."""
    if chosen:
        return [tuple(shlex.split(chosen))]
    commands: list[tuple[str, ...]] = [(name,) for name in ("cc", "gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        commands.append((sys.executable, "-m", "ziglang", "cc"))
    return commands


def _accepts(command: tuple[str, ...], flags: tuple[str, ...], scratch: Path) -> bool:
    """Whether a short text compiles with `flags` without a warning: clang only warns of unknown flags."""
    text, out = scratch / "probe.c", scratch / "probe.so"
    text.write_text("int trnqc_probe(int x) { return x + 1; }\n")
    try:
        _run((*command, "-Werror", *REQUIRED_FLAGS, *flags, "-o", str(out), str(text)))
    except CompilerError:
        return False
    return True


def _probe_flags(command: tuple[str, ...], scratch: Path) -> tuple[str, ...]:
    if _accepts(command, WANTED_FLAGS, scratch):
        return WANTED_FLAGS
    flags: tuple[str, ...] = ()
    for wanted in WANTED_FLAGS:
        for flag in (wanted, *NATIVE_FALLBACKS.get(wanted, ())):
            if _accepts(command, (*flags, flag), scratch):
                flags = (*flags, flag)
                break
    return flags


def _probe(command: tuple[str, ...]) -> Compiler:
    version = (_run((*command, "--version")).splitlines() or ["unknown version"])[0]
    wanted = (*REQUIRED_FLAGS, *WANTED_FLAGS, *(flag for flags in NATIVE_FALLBACKS.values() for flag in flags))
    fields = remembered(command, version, lambda: _tried(command, version), *wanted)
    return Compiler(tuple(fields["command"]), fields["version"], tuple(fields["flags"]), fields["target"])


def _tried(command: tuple[str, ...], version: str) -> dict[str, Any]:
    """The fields of `Compiler`, found by building and loading a library. Raises CompilerError."""
    with tempfile.TemporaryDirectory(prefix="trnqc-cc-") as scratch:
        # A build without flags comes first: if it fails, its message is the one that helps.
        text, out = Path(scratch) / "probe.c", Path(scratch) / "probe.so"
        text.write_text("int trnqc_probe(int x) { return x + 1; }\n")
        plain = (*command, *REQUIRED_FLAGS, "-o", str(out), str(text))
        _run(plain)
        try:
            ctypes.CDLL(str(out))
        except OSError as error:
            raise CompilerError(
                f"the C compiler's library does not load here: {error}\n  {shlex.join(plain)}"
            ) from error
        flags = _probe_flags(command, Path(scratch))
        target = _run((*command, *flags, "-dM", "-E", str(text)))
    return asdict(Compiler(command, version, flags, target))


@functools.lru_cache(maxsize=8)
def _find(chosen: str, path: str) -> Compiler:
    """The compiler for values of the environment variables CC and PATH."""
    failures = []
    for command in _candidates(chosen):
        try:
            return _probe(command)
        except CompilerError as error:
            failures.append(str(error))
    raise CompilerError(
        "no usable C compiler: install one (Debian and Ubuntu: apt-get install gcc; Fedora: dnf install gcc; macOS: "
        "xcode-select --install; without root: pip install ziglang), or name one in the environment variable CC"
        + "".join(f"\n{failure}" for failure in failures)
    )


def find_compiler() -> Compiler:
    """The compiler that this package uses: $CC, else cc, gcc or clang, else zig from the package ziglang.

    Raises CompilerError, which says what to install, if none of them can build a shared library.
    """
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))
