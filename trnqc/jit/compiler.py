"""The system's C compiler: which one, which flags it takes, and how a text becomes a shared library."""

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
# Each is used only if the compiler takes it. Contraction to fused multiply-add is safe and wanted; value-changing
# options (-ffast-math and its parts) are not: sums must not depend on the compiler's mood.
WANTED_FLAGS = ("-std=gnu11", "-O3", "-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast",
                "-fno-math-errno", "-fno-trapping-math")  # fmt: skip
# Predefined macros of a compiler's target, and the bytes of a vector there.
VECTORS = (("__AVX512F__", 64), ("__AVX__", 32), ("__SSE2__", 16), ("__ARM_NEON", 16))
# For compilers without -march=native (Apple's on ARM before clang 15, some cross compilers).
NATIVE_FALLBACKS = {"-march=native": ("-mcpu=native",)}


@dataclass(frozen=True)
class Compiler:
    """A C compiler that works here.

    command: program and leading arguments. version: first line of ``--version``. flags: those it accepted.
    target: its predefined macros under these flags, which name every CPU feature that the code may use.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    target: str

    @functools.cached_property
    def identity(self) -> str:
        """Everything about the compiler that the machine code depends on."""
        return "\n".join((*self.command, self.version, *self.flags, self.target))

    @functools.cached_property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector of the target; 0 without vectors."""
        macros = {line.split()[1] for line in self.target.splitlines() if len(line.split()) > 1}
        return next((size for macro, size in VECTORS if macro in macros), 0)

    def lanes(self, itemsize: int = 8) -> int:
        """Elements of `itemsize` bytes in the widest vector of the target, at least 1."""
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
        """Compile `source` into the shared library `output`, with the object files of `build_object` that it calls.

        Raises CompilerError with the command and its output.
        """
        symbols = tuple(f"-D{define}" for define in defines)
        given = (*REQUIRED_FLAGS, *self.flags, *flags, *symbols, "-o", str(output))
        self._compile(source, given, (*map(str, objects), "-lm"))

    def build_object(self, source: str, output: Path) -> None:
        """Compile `source` into an object file for libraries; raises CompilerError."""
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
    """Commands to try in order; CC, when set, is the user's choice and the only one."""
    if chosen:
        return [tuple(shlex.split(chosen))]
    found: list[tuple[str, ...]] = [(name,) for name in ("cc", "gcc", "clang") if shutil.which(name)]
    if importlib.util.find_spec("ziglang"):
        found.append((sys.executable, "-m", "ziglang", "cc"))
    return found


def _accepts(command: tuple[str, ...], flags: tuple[str, ...], scratch: Path) -> bool:
    """Whether a one-line library compiles with `flags` and without a warning (clang only warns of unknown flags)."""
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
    told = remembered(command, version, lambda: _tried(command, version), *wanted)
    return Compiler(tuple(told["command"]), told["version"], tuple(told["flags"]), told["target"])


def _tried(command: tuple[str, ...], version: str) -> dict[str, Any]:
    """The fields of `Compiler`, after a build that loads; raises CompilerError."""
    with tempfile.TemporaryDirectory(prefix="trnqc-cc-") as scratch:
        # A plain build first: its failure is the one worth showing.
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
    """Remembered by the two environment variables that the answer depends on."""
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
    """The compiler that `compile_c` uses: $CC, else cc, gcc, clang, else the pip-installable zig.

    Raises CompilerError, saying what to install, when none of them can build a shared library.
    """
    return _find(os.environ.get("CC", ""), os.environ.get("PATH", ""))
