"""Programs that are generated and compiled only if the cache does not hold them.

recipe, target -> key -> cached file
                      -> else functions (gen) -> text -> compiler -> cached file
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trnqc.errors import ProgramError
from trnqc.gen import emit_c
from trnqc.gen.statements import Function
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import find_compiler
from trnqc.jit.load import Library
from trnqc.jit.signature import Signature
from trnqc.jit.sources import sources

Functions = Sequence[Function]


@dataclass(frozen=True)
class Recipe:
    """Functions of one text, and how to make them.

    Parameters
    ----------
    name : str
        Heads the name of the cached file. A part, see below, is named like its function.
    signatures : tuple of Signature
        Of the functions that Python calls.
    make : callable
        Returns the functions; called only if there is no compiled file.
    maker : str
        The module whose sources, with all that they import, determine the functions of this name: ``__name__`` of the
        module of `make`. Empty if the text is to be the key; then `make` is called every time.
    variant : str
        What the functions depend on besides the name and the sources.
    parts : tuple of Recipe
        Functions that these call and that other recipes call as well. Each is compiled once, into an object file.

    Notes
    -----
    Recipes are equal if name, maker, and variant are.
    """

    name: str
    signatures: tuple[Signature, ...] = field(compare=False)
    make: Callable[[], tuple[Function, ...]] = field(compare=False, repr=False)
    maker: str = ""
    variant: str = ""
    parts: tuple[Recipe, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, *functions: Function, name: str = "") -> Recipe:
        """The recipe of functions that are at hand, named like the first unless `name` is given."""
        return cls(name or functions[0].name, tuple(map(Signature.of, functions)), lambda: functions)

    def functions(self) -> tuple[Function, ...]:
        """The functions. Raises ProgramError if their parameters are not those of the signatures."""
        functions = self.make()
        by_name = {f.name: Signature.of(f) for f in functions}
        for declared in self.signatures:
            _check(declared, by_name.get(declared.name))
        return functions


def _check(declared: Signature, actual: Signature | None) -> None:
    """Arrays may be declared as written that are not; all else has to agree."""
    kinds = [[(p.name, p.dtype, p.array) for p in s.parameters] if s else [] for s in (declared, actual)]
    if actual is None or kinds[0] != kinds[1] or _written(actual) > _written(declared):
        raise ProgramError(f"the function {declared.name} is declared as {declared}, but made as {actual}")


def _written(signature: Signature) -> set[str]:
    return {p.name for p in signature.parameters if p.written}


@dataclass(frozen=True)
class Target:
    """A kind of compiled file.

    Parameters
    ----------
    key : tuple of str
        All that the file depends on besides the functions: compiler, options, lanes.
    suffix : str
        Of the cached file.
    emit : callable
        From functions, and the names of those that parts hold, to a text.
    compile : callable
        compile(text, out, objects) writes the file `out`; objects are the files of the parts.
    parts : Target, optional
        The kind of file that parts become.
    """

    key: tuple[str, ...]
    suffix: str
    emit: Callable[[Functions, Sequence[str]], str]
    compile: Callable[[str, Path, tuple[Path, ...]], None]
    parts: Target | None = None


def c_library(lanes: int | None = None, flags: tuple[str, ...] = ()) -> Target:
    """A shared library for this CPU. lanes: by default the doubles of its widest vector."""
    compiler = find_compiler()
    lanes = lanes or compiler.lanes()
    return Target(
        (compiler.identity, *flags, str(lanes), ".so"),
        ".so",
        lambda functions, external: emit_c(*functions, lanes=lanes, external=external),
        lambda text, out, objects: compiler.build(text, out, flags=flags, objects=objects),
        c_object(lanes),
    )


def c_object(lanes: int) -> Target:
    """An object file for libraries."""
    compiler = find_compiler()
    return Target(
        (compiler.identity, str(lanes), ".o"),
        ".o",
        lambda functions, external: emit_c(*functions, lanes=lanes),
        lambda text, out, objects: compiler.build_object(text, out),
    )


def entry_of(recipe: Recipe, target: Target, text: str = "") -> str:
    """The name of the compiled file's entry in the cache. text: of the functions, if that is at hand."""
    program = sources(recipe.maker) if recipe.maker else text or _text(recipe, target)
    return f"{recipe.name}-{key_of(program, recipe.variant, *target.key)}"


def is_stored(recipe: Recipe, target: Target) -> bool:
    """Whether the cache has the compiled file: one look at the file system."""
    return library_cache().has(entry_of(recipe, target))


def stored(recipe: Recipe, target: Target, *, text: str = "", take_turns: bool = True) -> Path:
    """The compiled file in the cache, compiled now if it is not there.

    text: of the functions, if that is at hand. take_turns: see `Cache.get`. Raises CompilerError.
    """
    text = text or ("" if recipe.maker else _text(recipe, target))

    def write(out: Path) -> None:
        objects = tuple(stored(part, target.parts, take_turns=take_turns) for part in recipe.parts if target.parts)
        target.compile(text or _text(recipe, target), out, objects)

    return library_cache().get(entry_of(recipe, target, text), write, target.suffix, take_turns=take_turns)


def _text(recipe: Recipe, target: Target) -> str:
    return target.emit(recipe.functions(), [part.name for part in recipe.parts])


def library(recipe: Recipe, lanes: int | None = None, flags: tuple[str, ...] = ()) -> Library:
    """The functions for this CPU, loaded; for the arguments see `c_library`. A file is loaded once a process."""
    target = c_library(lanes, flags)
    text = "" if recipe.maker else _text(recipe, target)
    key = library_cache().directory, entry_of(recipe, target, text)
    if key not in _loaded:
        _loaded[key] = Library(stored(recipe, target, text=text), recipe.signatures)
    return _loaded[key]


# By directory and entry of the cache.
_loaded: dict[tuple[Path, str], Library] = {}
