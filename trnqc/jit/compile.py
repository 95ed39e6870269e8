"""From a kernel's recipe to the functions that Python calls: all stages, in order.

    recipe   how to generate a kernel, from its room                             recipe.py
    program  its functions: values in the order of a schedule, as statements     trnqc.gen, called by Recipe.functions
    text     C or CUDA                                                           trnqc.gen.emit
    entry    a name with a digest of all that the file depends on                cache.py, sources.py
    file     from the installed wheel, from the cache, or from the compiler      shipped.py, cache.py, compiler.py
    library  the loaded functions                                                load.py

The entry of a recipe with a module is named by the sources of the module, so that nothing is generated if there is such
a file. Otherwise the program and its text are made, and a file of the same text becomes a hard link. TRNQC_SHOW writes
a stage to standard error (show.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trnqc.gen import emit_c
from trnqc.gen.emit.dialect import C
from trnqc.jit.cache import digest_of, key_of, library_cache
from trnqc.jit.compiler import find_compiler, shipped_compiler, used_shipment
from trnqc.jit.load import CompiledFunction, Library
from trnqc.jit.recipe import Functions, Recipe
from trnqc.jit.show import show
from trnqc.jit.signature import Parameter, Signature
from trnqc.jit.sources import sources


@dataclass(frozen=True)
class CompileTarget:
    """A kind of compiled file.

    Parameters
    ----------
    key : tuple of str
        Everything on which the file depends besides the text and the parts: compiler, options and lanes.
    suffix : str
        The suffix of the cached file.
    emit : callable
        emit(functions, external) returns the text of the functions; `external` are the names of the parts.
    compile : callable
        compile(text, out, objects) writes the file `out`; `objects` are the compiled files of the parts.
    parts : CompileTarget, optional
        The kind of file into which the parts are compiled.
    shipped : tuple of str
        The key of files of this kind in an installed wheel, or an empty tuple. They come before those of the cache.
    """

    key: tuple[str, ...]
    suffix: str
    emit: Callable[[Functions, Sequence[str]], str]
    compile: Callable[[str, Path, tuple[Path, ...]], None]
    parts: CompileTarget | None = None
    shipped: tuple[str, ...] = ()


def c_library(lanes: int | None = None, flags: tuple[str, ...] = ()) -> CompileTarget:
    """A shared library for this CPU. By default, there are as many lanes as its widest vector has doubles."""
    compiler = find_compiler()
    lanes = lanes or compiler.lanes()
    after, ours = (*flags, str(lanes), ".so"), shipped_compiler()
    # GCC forms no fused multiply-adds of products and sums at this level.
    names_fma = "-Og" in flags
    return CompileTarget(
        (compiler.identity, *after),
        ".so",
        lambda functions, external: emit_c(*functions, lanes=lanes, external=external, names_fma=names_fma),
        lambda text, out, objects: compiler.build(text, out, flags, objects),
        c_object(lanes),
        (ours.identity, *after) if ours else (),
    )


def c_object(lanes: int) -> CompileTarget:
    """An object file that is linked into shared libraries for this CPU."""
    compiler = find_compiler()
    return CompileTarget(
        (compiler.identity, str(lanes), ".o"),
        ".o",
        lambda functions, external: emit_c(*functions, lanes=lanes),
        lambda text, out, objects: compiler.build_object(text, out),
    )


@dataclass(frozen=True)
class Compilation:
    """A recipe on its way to a file. Each stage is made of those before it when it is asked for.

    Parameters
    ----------
    recipe : Recipe
        The functions.
    target : CompileTarget
        The kind of file.
    take_turns : bool
        See `Cache.get`.

    Raises
    ------
    ProgramError
        If the generated functions differ from their signatures.
    CompilerError
        If the compiler fails.
    """

    recipe: Recipe
    target: CompileTarget
    take_turns: bool = True

    @cached_property
    def program(self) -> Functions:
        """The generated functions: values in the order of a schedule, as statements."""
        return self.recipe.functions()

    @cached_property
    def text(self) -> str:
        """The functions as C or CUDA."""
        return self.recipe.text or self.target.emit(self.program, [part.name for part in self.recipe.parts])

    @property
    def entry(self) -> str:
        """The name of the file in the cache, without the suffix."""
        return self._name(self.target.key)

    @property
    def file(self) -> Path:
        """The file in the installed wheel or in the cache. It is compiled first if neither has it."""
        show(self)
        return self._shipped or library_cache().get(
            self.entry, self._write, self.target.suffix, take_turns=self.take_turns
        )

    @property
    def is_stored(self) -> bool:
        """Whether the wheel or the cache has the file. The cache takes one look at the file system."""
        return self._shipped is not None or library_cache().has(self.entry)

    @property
    def _shipped(self) -> Path | None:
        ships = used_shipment() if self.target.shipped else None
        return ships.file(self._name(self.target.shipped) + self.target.suffix) if ships else None

    def _name(self, key: tuple[str, ...]) -> str:
        program = sources(self.recipe.module) if self.recipe.module else self.text
        return f"{self.recipe.name}-{key_of(program, self.recipe.variant, *key)}"

    def _write(self, out: Path) -> None:
        """Write the file. It is a link to the entry of its text, unless its own entry is named by the text."""
        recipe, target = self.recipe, self.target
        objects = tuple(Compilation(part, target.parts, self.take_turns).file for part in recipe.parts if target.parts)

        def compile_text(place: Path) -> None:
            target.compile(self.text, place, objects)

        if not recipe.module:
            compile_text(out)
            return
        name = f"{recipe.name}-{key_of(self.text, *target.key, *map(digest_of, objects))}"
        library_cache().link(name, compile_text, target.suffix, out, take_turns=self.take_turns)


def library(recipe: Recipe, lanes: int | None = None, flags: tuple[str, ...] = ()) -> Library:
    """Return the loaded library of a recipe for this CPU. Each library is loaded once per process.

    Parameters
    ----------
    recipe : Recipe
        The functions.
    lanes : int, optional
        The number of SIMD lanes; by default, that of the recipe.
    flags : tuple of str
        Compiler options that follow those of the recipe.

    Returns
    -------
    Library
        The library.

    Raises
    ------
    ProgramError
        If the generated functions differ from their signatures.
    CompilerError
        If there is no compiler, or if it fails.
    """
    compilation = Compilation(recipe, c_library(lanes or recipe.lanes, (*recipe.flags, *flags)))
    key = library_cache().directory, compilation.entry
    if key not in _loaded:
        _loaded[key] = Library(compilation.file, recipe.signatures)
    return _loaded[key]


# The loaded libraries by the directory and the entry of the cache.
_loaded: dict[tuple[Path, str], Library] = {}


def compile_c(
    source: str,
    signatures: Sequence[Signature],
    *,
    name: str,
    defines: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> Library:
    """Return the loaded library of C text that was written by hand.

    Parameters
    ----------
    source : str
        The text.
    signatures : sequence of Signature
        The signatures of the functions that are called from Python.
    name : str
        The first part of the name of the cached file.
    defines : tuple of str
        Preprocessor symbols, ``"NAME"`` or ``"NAME=value"``.
    flags : tuple of str
        Compiler options that follow those of `Compiler.flags`, such as ``-ffp-contract=off``.

    Returns
    -------
    Library
        The library.

    Raises
    ------
    CompilerError
        If there is no compiler, if it rejects the text, or if the library lacks one of the functions.
    """
    recipe = Recipe(name, tuple(signatures), text=source, lanes=1)
    return library(recipe, flags=(*flags, *(f"-D{define}" for define in defines)))


def in_sequence(functions: Sequence[CompiledFunction]) -> CompiledFunction:
    """Return a function that calls functions in their order, with all of their arguments from one array.

    Parameters
    ----------
    functions : sequence of CompiledFunction
        The functions. Their numbers are integers, and they return nothing.

    Returns
    -------
    CompiledFunction
        It takes an int64 array that holds for each function its address, followed by its arguments: numbers, and
        addresses of arrays.

    Raises
    ------
    CompilerError
        If there is no compiler, or if it fails.
    """
    calls, place = [], 0
    for function in functions:
        types = [C.types[p.dtype] + " *" * p.array for p in function.signature.parameters]
        passed = [
            f"({kind}){'(uintptr_t)' * p.array}a[{n}]"
            for n, (kind, p) in enumerate(zip(types, function.signature.parameters), place + 1)
        ]
        calls.append(f"    ((void (*)({', '.join(types)}))(uintptr_t)a[{place}])({', '.join(passed)});\n")
        place += 1 + len(types)
    text = f"#include <stdint.h>\nvoid in_sequence(const int64_t *a) {{\n{''.join(calls)}}}\n"
    signature = Signature("in_sequence", (Parameter("a", "i64", array=True, ndim=1),))
    return compile_c(text, [signature], name="in_sequence").in_sequence
