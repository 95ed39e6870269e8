"""Programs of this room as compiled functions: made, built several at a time and kept on disk.

name, heads -> in the cache?  -> functions
            -> else programs (gen) -> C for this CPU's lanes -> compiler (jit) -> cache -> functions

Making the program of a large class takes longer than loading it, so an entry is named by what the program is made by,
the sources of the module and of all that it imports, and not by its text.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trnqc.errors import CompilerError
from trnqc.gen import Array, Value, emit_c
from trnqc.gen import statements as st
from trnqc.host.progress import StageBars
from trnqc.jit import Compiler, Library, Signature, build_all, find_compiler
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.load import NAMES as TYPES
from trnqc.jit.load import Array as Argument
from trnqc.jit.load import load

WORDS = {8: "AVX-512", 4: "AVX", 2: "128-bit", 1: "scalar"}


@dataclass(frozen=True)
class Head:
    """A function before it is made: its name, its parameters and the arrays that it writes; it has a group."""

    name: str
    parameters: tuple[Value | Array, ...]
    written: tuple[str, ...]

    @property
    def signature(self) -> Signature:
        types = tuple(
            Argument(TYPES[p.dtype], written=p.name in self.written) if isinstance(p, Array) else TYPES[p.dtype]
            for p in self.parameters
        )
        return Signature((*types, "int64", "int64"))


@dataclass(frozen=True)
class Program:
    """Functions of one text that can be made when they are needed; equal when their name and their maker are.

    module: of `make`, such as ``__name__``. parts: of functions that these call and that other programs call as well;
    each is compiled once, and has the name of its function.
    """

    name: str
    module: str
    heads: tuple[Head, ...] = field(compare=False)
    make: Callable[[], tuple[st.Function, ...]] = field(compare=False)
    parts: tuple[Program, ...] = field(default=(), compare=False)


def lanes() -> int:
    """Doubles that a vector of this CPU holds, as the compiler's target macros tell."""
    return _lanes(find_compiler())


@functools.cache
def _lanes(compiler: Compiler) -> int:
    return max(1, compiler.vector_bytes // 8)


def build(programs: Sequence[Program], what: str = "integral kernels") -> dict[str, Library]:
    """Every program compiled, by name; a bar on the terminal where that takes longer than two seconds.

    Raises CompilerError, naming the program, when one of them cannot be built.
    """
    missing = [program for program in programs if not is_compiled(program)]
    with StageBars() as bars:
        bar = bars.of(f"building {what}")
        _all_built(build_all({p.name: functools.partial(store_part, p) for p in parts_of(missing)}, progress=bar))
        return _all_built(build_all({p.name: functools.partial(_library, p) for p in programs}, progress=bar))


def _all_built(made: dict[str, Any]) -> dict[str, Any]:
    for name, found in made.items():
        if isinstance(found, CompilerError):
            raise CompilerError(f"{name} cannot be built: {found}") from found
    return made


def parts_of(programs: Sequence[Program]) -> tuple[Program, ...]:
    """What several programs have in common, to be compiled before them."""
    return tuple(dict.fromkeys(part for program in programs for part in program.parts))


def compiled(program: Program) -> Library:
    """One program compiled, or taken from the cache, without a word; raises CompilerError."""
    return _library(program)


def entry_of(program: Program) -> str:
    """The name of the program's entry in the cache of compiled libraries. Raises CompilerError without a compiler."""
    key = key_of(find_compiler().identity, sources(program.module), str(lanes()), program.name)
    return f"{program.name}-{key}"


def is_compiled(program: Program) -> bool:
    """Whether the program is in the cache: one look at the file system."""
    return library_cache().has(entry_of(program))


def store(program: Program, *, take_turns: bool = True) -> Path:
    """The program's library in the cache, compiled if it is not there; take_turns: see `Cache.get`."""

    def write(out: Path) -> None:
        objects = tuple(store_part(part, take_turns=take_turns) for part in program.parts)
        text = emit_c(*program.make(), lanes=lanes(), external=[part.name for part in program.parts])
        find_compiler().build(text, out, objects=objects)

    return library_cache().get(entry_of(program), write, take_turns=take_turns)


def store_part(part: Program, *, take_turns: bool = True) -> Path:
    """The object file of a part in the cache, compiled if it is not there."""

    def write(out: Path) -> None:
        find_compiler().build_object(emit_c(*part.make(), lanes=lanes()), out)

    return library_cache().get(entry_of(part), write, ".o", take_turns=take_turns)


@functools.cache
def _library(program: Program) -> Library:
    return load(store(program), {head.name: head.signature for head in program.heads})


@functools.cache
def sources(module: str) -> str:
    """A digest of a module of this package and of all that it imports of this package, directly or not."""
    # This module says how programs are kept, not what they are.
    digest, seen, waiting = hashlib.sha256(), {__name__}, [module]
    while waiting:
        name = waiting.pop()
        text = "" if name in seen else _text(name)
        seen.add(name)
        if text:
            digest.update(f"{name}\n{text}".encode())
            waiting += sorted(_imported(text))
    return digest.hexdigest()


def _text(module: str) -> str:
    """The source of a module; empty when it has none."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


# A parser of Python takes a hundred times as long, in every process. What looks like an import and stands in a text
# does no harm.
_IMPORT = re.compile(r"^[ \t]*from (trnqc\.[\w.]+) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)


@functools.cache
def _imported(text: str) -> tuple[str, ...]:
    """Modules of this package that a source imports; rooms are packages, whose names may be modules."""
    found = []
    for module, names in _IMPORT.findall(text):
        found.append(module)
        found += [f"{module}.{name}" for name in re.findall(r"\w+", names) if _is_module(module, name)]
    return tuple(found)


def _is_module(package: str, name: str) -> bool:
    spec = importlib.util.find_spec(package)
    inside = spec.submodule_search_locations if spec else None
    return any((Path(place) / f"{name}.py").is_file() or (Path(place) / name).is_dir() for place in inside or ())


def words() -> str:
    """Compiler and vectors in words."""
    width = lanes()
    return f"generated C, {find_compiler().label}, {width} lanes {WORDS[width]}"
