"""Compile kernels beside a running job, which uses PySCF's integrals until they are ready.

If some program that a purpose needs is not in the cache of compiled libraries, a process of low priority (builder.py)
is started once to compile what is missing. The job only checks whether the compiled files exist. Where that is expected
to save time, it first compiles the quick forms of the programs itself, which serve until the programs are there.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO

from trnqc import jit
from trnqc.eri.compiled import programs as library
from trnqc.errors import CompilerError, InputError
from trnqc.host.files import DIRECTORY_VARIABLE, cache_directory
from trnqc.host.output import announce
from trnqc.host.threads import cpus
from trnqc.jit import Recipe, find_compiler
from trnqc.jit.cache import library_cache

_log = logging.getLogger(__name__)
KERNELS = ("background", "wait", "cached")
VARIABLE = "TRNQC_KERNELS"
LINGER_VARIABLE = "TRNQC_BUILD_LINGER"
# Seconds for which compiling may continue after the end of the job, by default.
LINGER = 600.0
# Seconds of a Sapphire Rapids core for the quick form of a program without and with a part of its own.
QUICK_SECONDS = 0.06, 0.35
NO_COMPILER = "there is no C compiler"

_START = """
import pickle, sys
sys.path[:] = pickle.load(sys.stdin.buffer)
from trnqc.eri.compiled.builder import main
sys.exit(main(sys.stdin.buffer))
"""


def chosen(kernels: str | None) -> str:
    """Return the argument, or $TRNQC_KERNELS, or "background". Raises InputError for a word that is not in KERNELS."""
    name, where = (kernels, "kernels") if kernels is not None else (os.environ.get(VARIABLE) or KERNELS[0], VARIABLE)
    if name not in KERNELS:
        raise InputError(f"{where} is one of {', '.join(KERNELS)}, found {name!r}")
    return name


def linger() -> float:
    """Return the seconds for which compiling may continue after this process: $TRNQC_BUILD_LINGER, or ten minutes."""
    word = os.environ.get(LINGER_VARIABLE, "")
    try:
        seconds = float(word) if word else LINGER
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:
        raise InputError(f"{LINGER_VARIABLE} is a number of seconds, 0 or more, found {word!r}")
    # The temporary directory, used if the cache cannot be written, is removed with this process.
    return seconds if library_cache().directory == cache_directory() else 0.0


def lacks_compiler(kernels: str) -> bool:
    """Return whether PySCF serves because there is no C compiler, which one warning says.

    Raises CompilerError if kernels is "wait".
    """
    try:
        find_compiler()
    except CompilerError as error:
        if kernels == "wait":
            raise
        _warn(f"PySCF's own code is used instead of compiled kernels: {error}")
        return True
    return False


class Needed:
    """The programs for one purpose, and one of KERNELS: the action while programs are not compiled.

    `programs` returns the programs. It is called once there is a C compiler, because programs are written for its
    target. Unless kernels is "wait", their quick forms, where they have one, are used until they are compiled.
    """

    def __init__(self, programs: Callable[[], Sequence[Recipe]], kernels: str) -> None:
        self.kernels, self._programs = kernels, programs
        self._missing: list[Recipe] = []
        self._total = 0
        self._asked = kernels == "wait"

    def ready(self, patience: Callable[[], float] = lambda: 0.0) -> bool:
        """Return whether our kernels can be used now. Without a C compiler they cannot, and one warning says so.

        patience: returns the seconds for which it is worth waiting for kernels. The quick forms are compiled now if
        they can be expected within this time.
        """
        if lacks_compiler(self.kernels):
            return False
        if not self._asked:
            programs = self._programs()
            self._missing, self._total = [p for p in programs if not library.is_compiled(p)], len(programs)
        lacking = self._missing.copy()
        self._drop_usable()
        if lacking and not self._missing and self._asked:
            _log.info("the integral kernels are compiled, and used from now on")
        if lacking and self.kernels == "background" and (reason := jit.lacks_compiler()):
            # A wheel has brought other kernels, and nothing can be compiled here.
            _warn(f"PySCF's own code is used instead of compiled kernels: {reason}")
            return not self._missing
        if lacking and self.kernels == "background":
            _look_after()
            self._compile_quick_forms(patience)
            if not self._asked:
                _ask_for(lacking, self._total, "their quick form serves" if not self._missing else "PySCF computes")
        self._asked = True
        return not self._missing

    def _drop_usable(self) -> None:
        """Forget programs that can be used, from the last one on up to one that cannot."""
        while self._missing and self._is_usable(self._missing[-1]):
            self._missing.pop()

    def _is_usable(self, program: Recipe) -> bool:
        quick = program.quick if self.kernels != "wait" else None
        return library.is_compiled(program) or (quick is not None and library.is_compiled(quick))

    def _compile_quick_forms(self, patience: Callable[[], float]) -> None:
        """Compile the quick forms of all missing programs if they can be expected in time."""
        lacking = [program for program in self._missing if not self._is_usable(program)]
        forms = dict.fromkeys(program.quick for program in lacking if program.quick)
        if not lacking or not all(p.quick for p in lacking) or _warned is not None:
            return
        if sum(QUICK_SECONDS[bool(program.parts)] for program in lacking) / cpus() > patience():
            return
        try:
            library.build(list(forms), "quick forms of integral kernels")
        except CompilerError as error:
            _warn(f"integral kernels cannot be compiled, PySCF's integrals are used instead: {error}")
        self._drop_usable()

    @property
    def reason(self) -> str:
        """Why PySCF's integrals are used, if `ready` is false."""
        if lacks_compiler(self.kernels):
            return NO_COMPILER
        if self.kernels == "cached":
            return "kernels='cached', and not all that are needed are compiled"
        return "kernels are being compiled" if _warned is None else "kernels could not be compiled"


@dataclass(frozen=True, eq=False)
class _Builder:
    process: subprocess.Popen[bytes]
    errors: IO[bytes]


_asked: set[Recipe] = set()
_builders: list[_Builder] = []
_warned: str | None = None


def _ask_for(programs: Sequence[Recipe], total: int, meanwhile: str) -> None:
    new = [program for program in programs if program not in _asked]
    if new:
        first = not _asked
        _asked.update(new)
        _builders.append(_start(new))
        words = (
            f"kernels are being compiled in the background, {total - len(programs)} of {total} are there; until then "
            f"{meanwhile} in their place (`trnqc eri build` compiles those of a basis beforehand)"
        )
        # A line once a process; what a gradient needs later is only logged.
        announce(words) if first else _log.info(words)


def _start(programs: Sequence[Recipe]) -> _Builder:
    """Start a process that compiles the programs in order."""
    directory = str(library_cache().directory)
    environment = os.environ | {DIRECTORY_VARIABLE: directory, "OMP_NUM_THREADS": "1"}
    # It has its own process group, so that Ctrl-C at a terminal interrupts only the job. It stays in the job's session,
    # because Linux ignores differences of priority between sessions. Files are used instead of pipes, so that neither
    # process waits for the other.
    errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the process has ended
    with tempfile.TemporaryFile() as request:
        _write_request(request, programs)
        process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=request,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=environment,
            process_group=0,
        )
    return _Builder(process, errors)


def _write_request(request: IO[bytes], programs: Sequence[Recipe]) -> None:
    """Write the files that `_START` and `builder.main` read."""
    pickle.dump([os.path.abspath(path) for path in sys.path], request)
    pickle.dump((os.getpid(), linger()), request)
    pickle.dump(list(programs), request)
    request.seek(0)


def _look_after() -> None:
    """Warn once if a builder has failed; the job continues with PySCF's integrals."""
    for builder in _builders[:]:
        if builder.process.poll() is None:
            continue
        _builders.remove(builder)
        if builder.process.returncode and _warned is None:
            builder.errors.seek(0)
            text = builder.errors.read().decode(errors="replace").strip()
            text = text or f"the compiling process ended with status {builder.process.returncode}"
            _warn(f"integral kernels cannot be compiled in the background, PySCF's integrals are used instead: {text}")
        builder.errors.close()


def _warn(text: str) -> None:
    """Warn in the first call of this process."""
    global _warned
    if _warned is None:
        _warned = text
        warnings.warn(text, RuntimeWarning, stacklevel=4)


@atexit.register
def _leave() -> None:
    """Say what the next run will find, and let running builders outlive this process without a warning of Popen."""
    if _builders and _warned is None:
        with contextlib.suppress(CompilerError):
            compiled = sum(map(library.is_compiled, _asked))
            rest = "" if linger() == 0 or compiled == len(_asked) else ", and the others follow"
            announce(
                f"{compiled} of the {len(_asked)} kernels that this run lacked are compiled{rest}; the next run "
                "computes with them instead of PySCF"
            )
    for builder in _builders:
        builder.process.returncode = 0


def _forget() -> None:
    """In a forked process, drop the builders of its parent."""
    for builder in _builders:
        builder.process.returncode = 0
    _builders.clear()
    _asked.clear()


os.register_at_fork(after_in_child=_forget)
