"""The integral kernels of this package, compiled: several at a time, with a progress bar, and kept on disk.

A kernel is a `trnqc.jit.Recipe`: it is generated and compiled only if the cache of compiled libraries lacks it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from trnqc.errors import CompilerError
from trnqc.host.clock import measured
from trnqc.host.progress import StageBars
from trnqc.jit import Library, Recipe, build_all, find_compiler, library
from trnqc.jit.cache import COMPILING
from trnqc.jit.compile import Compilation, c_library, c_object

_log = logging.getLogger(__name__)
WORDS = {8: "AVX-512", 4: "AVX", 2: "128-bit", 1: "scalar"}


def lanes(itemsize: int = 8) -> int:
    """Return the number of elements of `itemsize` bytes, doubles by default, in a vector of this CPU."""
    return find_compiler().lanes(itemsize)


def build(programs: Sequence[Recipe], what: str = "integral kernels") -> dict[str, Library]:
    """Compile programs that are not in the cache, and load all of them, by name.

    A progress bar shows on a terminal if that takes longer than two seconds. Raises CompilerError, which names the
    program, if one of them cannot be built.
    """
    missing = [program for program in programs if not is_compiled(program)]
    if missing:
        _log.info("%d of %d %s are compiled now; the cache keeps them", len(missing), len(programs), what)
    with measured(COMPILING) if missing else nullcontext(), StageBars() as bars:
        bar = bars.of(f"building {what}")
        _all_built(build_all({p.name: functools.partial(store_part, p) for p in parts_of(missing)}, progress=bar))
        return _all_built(build_all({p.name: functools.partial(library, p) for p in programs}, progress=bar))


def _all_built(results: dict[str, Any]) -> dict[str, Any]:
    for name, result in results.items():
        if isinstance(result, CompilerError):
            raise CompilerError(f"{name} cannot be built: {result}") from result
    return results


def or_quick(programs: Iterable[Recipe]) -> list[Recipe]:
    """Return the programs, those of which only the quick form is compiled in this form."""
    return [p.quick if p.quick and not is_compiled(p) and is_compiled(p.quick) else p for p in programs]


def parts_of(programs: Sequence[Recipe]) -> tuple[Recipe, ...]:
    """Return the functions that several programs share. They are compiled first."""
    return tuple(dict.fromkeys(part for program in programs for part in program.parts))


def is_compiled(program: Recipe) -> bool:
    """Return whether the compiled program is in the cache. Raises CompilerError if there is no compiler."""
    return _compilation(program).is_stored


def store(program: Recipe, *, take_turns: bool = True) -> Path:
    """Return the path of a program's library in the cache, compiled if it is missing. take_turns: see `Cache.get`."""
    return _compilation(program, take_turns).file


def store_part(part: Recipe, *, take_turns: bool = True) -> Path:
    """Return the path of a part's object file in the cache, compiled if it is missing."""
    return Compilation(part, c_object(lanes()), take_turns).file


def entry(program: Recipe) -> str:
    """Return the name of a program's library in the cache."""
    return _compilation(program).entry


def _compilation(program: Recipe, take_turns: bool = True) -> Compilation:
    return Compilation(program, c_library(program.lanes, program.flags), take_turns)


def words() -> str:
    """Describe the compiler and the width of its vectors in words."""
    return f"generated C, {find_compiler().label}, {lanes()} lanes {WORDS[lanes()]}"
