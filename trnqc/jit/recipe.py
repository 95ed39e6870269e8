"""Programs that are generated and compiled only if the cache does not contain them.

recipe, target -> key of the sources -> cached file, if there is one
               -> else functions (gen) -> text -> key of the text -> link to a cached file, if there is one
                                               -> else compiler -> cached file
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from trnqc.errors import ProgramError
from trnqc.gen import emit_c
from trnqc.gen.statements import Function
from trnqc.jit.cache import digest_of, key_of, library_cache
from trnqc.jit.compiler import find_compiler, shipped_compiler, used_shipment
from trnqc.jit.load import Library
from trnqc.jit.show import show
from trnqc.jit.signature import Signature
from trnqc.jit.sources import sources

Functions = Sequence[Function]


@dataclass(frozen=True)
class Recipe:
    """A description of functions that are emitted as one text, from which they can be generated.

    Parameters
    ----------
    name : str
        The first part of the name of the cached file. A recipe that is part of another one has the name of its
        function.
    signatures : tuple of Signature
        The signatures of the functions that Python calls.
    make : callable
        Generates the functions. It is called only if there is no compiled file.
    module : str
        The name of the module that generates the functions, ``__name__`` there. The functions must depend only on the
        sources of this module and of all modules that it imports, and on `name` and `variant`. If it is empty, the text
        of the functions takes the place of the sources in the key, and `make` is called every time.
    variant : str
        Everything on which the functions depend besides the sources and `name`.
    parts : tuple of Recipe
        Functions that these functions and those of other recipes call. Each is compiled once, into an object file.
        Their modules must be `module` or among those that it imports.
    lanes : int, optional
        The number of SIMD lanes; by default, the number of doubles in the widest vector.

    Notes
    -----
    Recipes are equal if `name`, `module` and `variant` are equal.
    """

    name: str
    signatures: tuple[Signature, ...] = field(compare=False)
    make: Callable[[], tuple[Function, ...]] = field(compare=False, repr=False)
    module: str = ""
    variant: str = ""
    parts: tuple[Recipe, ...] = field(default=(), compare=False)
    lanes: int | None = field(default=None, compare=False)

    @classmethod
    def of(cls, *functions: Function, name: str = "") -> Recipe:
        """The recipe of functions that exist already. By default, it has the name of the first function."""
        return cls(name or functions[0].name, tuple(map(Signature.of, functions)), lambda: functions)

    def functions(self) -> tuple[Function, ...]:
        """Generate the functions. Raises ProgramError if their parameters differ from those of the signatures."""
        functions = self.make()
        by_name = {f.name: Signature.of(f) for f in functions}
        for declared in self.signatures:
            _check(declared, by_name.get(declared.name))
        return functions


def _check(declared: Signature, actual: Signature | None) -> None:
    """Compare a declared signature with the one of the function. An array may be declared as written that is not."""
    kinds = [[(p.name, p.dtype, p.array) for p in s.parameters] if s else [] for s in (declared, actual)]
    if actual is None or kinds[0] != kinds[1] or _written(actual) > _written(declared):
        raise ProgramError(f"{declared.name} is declared as {declared}, but the generated function is {actual}")


def _written(signature: Signature) -> set[str]:
    return {p.name for p in signature.parameters if p.written}


@dataclass(frozen=True)
class Target:
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
    parts : Target, optional
        The kind of file into which the parts are compiled.
    shipped : tuple of str
        The key of files of this kind in an installed wheel, or an empty tuple. They come before those of the cache.
    """

    key: tuple[str, ...]
    suffix: str
    emit: Callable[[Functions, Sequence[str]], str]
    compile: Callable[[str, Path, tuple[Path, ...]], None]
    parts: Target | None = None
    shipped: tuple[str, ...] = ()


def c_library(lanes: int | None = None, flags: tuple[str, ...] = ()) -> Target:
    """A shared library for this CPU. By default, there are as many lanes as its widest vector has doubles."""
    compiler = find_compiler()
    lanes = lanes or compiler.lanes()
    after, ours = (*flags, str(lanes), ".so"), shipped_compiler()
    return Target(
        (compiler.identity, *after),
        ".so",
        lambda functions, external: emit_c(*functions, lanes=lanes, external=external),
        lambda text, out, objects: compiler.build(text, out, flags=flags, objects=objects),
        c_object(lanes),
        (ours.identity, *after) if ours else (),
    )


def c_object(lanes: int) -> Target:
    """An object file that is linked into shared libraries for this CPU."""
    compiler = find_compiler()
    return Target(
        (compiler.identity, str(lanes), ".o"),
        ".o",
        lambda functions, external: emit_c(*functions, lanes=lanes),
        lambda text, out, objects: compiler.build_object(text, out),
    )


def entry_of(recipe: Recipe, target: Target, text: str = "") -> str:
    """The name of the entry of a compiled file in the cache. `text` is the text of the functions if it is known."""
    return _entry(recipe, target, target.key, text)


def _entry(recipe: Recipe, target: Target, key: tuple[str, ...], text: str) -> str:
    program = sources(recipe.module) if recipe.module else text or _text(recipe, target)
    return f"{recipe.name}-{key_of(program, recipe.variant, *key)}"


def _shipped(recipe: Recipe, target: Target, text: str = "") -> Path | None:
    """The compiled file in the installed wheel, if it has one."""
    ships = used_shipment() if target.shipped else None
    return ships.file(_entry(recipe, target, target.shipped, text) + target.suffix) if ships else None


def is_stored(recipe: Recipe, target: Target) -> bool:
    """Whether the installed wheel or the cache has the compiled file. The cache takes one look at the file system."""
    return _shipped(recipe, target) is not None or library_cache().has(entry_of(recipe, target))


def stored(recipe: Recipe, target: Target, *, text: str = "", take_turns: bool = True) -> Path:
    """Return the compiled file in the installed wheel or in the cache. It is compiled first if neither has it.

    Parameters
    ----------
    recipe : Recipe
        The functions.
    target : Target
        The kind of file.
    text : str
        The text of the functions, if it is known.
    take_turns : bool
        See `Cache.get`.

    Returns
    -------
    Path
        The path of the file.

    Raises
    ------
    ProgramError
        If the generated functions differ from their signatures.
    CompilerError
        If the compiler fails.
    """
    text = text or ("" if recipe.module else _text(recipe, target))
    file = partial(_file, recipe, target, text, take_turns)
    show(recipe.name, target.suffix, recipe.functions, lambda: text or _text(recipe, target), file)
    return file()


def _file(recipe: Recipe, target: Target, text: str, take_turns: bool) -> Path:
    if (ready := _shipped(recipe, target, text)) is not None:
        return ready

    def write(out: Path) -> None:
        _write(recipe, target, text or _text(recipe, target), out, take_turns)

    return library_cache().get(entry_of(recipe, target, text), write, target.suffix, take_turns=take_turns)


def _write(recipe: Recipe, target: Target, text: str, out: Path, take_turns: bool) -> None:
    """Write a compiled file. It is a link to the entry of its text, unless its own entry is named by the text."""
    objects = tuple(stored(part, target.parts, take_turns=take_turns) for part in recipe.parts if target.parts)
    if not recipe.module:
        target.compile(text, out, objects)
        return

    def compile_text(place: Path) -> None:
        target.compile(text, place, objects)

    name = f"{recipe.name}-{key_of(text, *target.key, *map(digest_of, objects))}"
    library_cache().link(name, compile_text, target.suffix, out, take_turns=take_turns)


def _text(recipe: Recipe, target: Target) -> str:
    return target.emit(recipe.functions(), [part.name for part in recipe.parts])


def library(recipe: Recipe, lanes: int | None = None, flags: tuple[str, ...] = ()) -> Library:
    """Return the loaded library of a recipe for this CPU. Each library is loaded once per process.

    Parameters
    ----------
    recipe : Recipe
        The functions.
    lanes : int, optional
        The number of SIMD lanes; by default, that of the recipe.
    flags : tuple of str
        Compiler options that follow `Compiler.flags`.

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
    target = c_library(lanes or recipe.lanes, flags)
    text = "" if recipe.module else _text(recipe, target)
    key = library_cache().directory, entry_of(recipe, target, text)
    if key not in _loaded:
        _loaded[key] = Library(stored(recipe, target, text=text), recipe.signatures)
    return _loaded[key]


# The loaded libraries by the directory and the entry of the cache.
_loaded: dict[tuple[Path, str], Library] = {}
