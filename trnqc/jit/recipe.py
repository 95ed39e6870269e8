"""What rooms of kernels hand over to be compiled: a name, signatures, and how to generate the functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trnqc.errors import ProgramError
from trnqc.gen.statements import Function
from trnqc.jit.signature import Signature

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
    text : str
        A text that was written by hand and takes the place of functions. `module` is then empty.
    flags : tuple of str
        Compiler options that follow `Compiler.flags`, but not for the parts.
    quick : Recipe, optional
        Slower functions of the same names and signatures that compile much faster. A job can use them until the
        functions of this recipe are compiled.

    Notes
    -----
    Recipes are equal if `name`, `module` and `variant` are equal.
    """

    name: str
    signatures: tuple[Signature, ...] = field(compare=False)
    make: Callable[[], tuple[Function, ...]] = field(default=tuple, compare=False, repr=False)
    module: str = ""
    variant: str = ""
    parts: tuple[Recipe, ...] = field(default=(), compare=False)
    lanes: int | None = field(default=None, compare=False)
    text: str = field(default="", compare=False, repr=False)
    flags: tuple[str, ...] = field(default=(), compare=False)
    quick: Recipe | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, *functions: Function, name: str = "", lanes: int | None = None) -> Recipe:
        """The recipe of functions that exist already. By default, it has the name of the first function."""
        return cls(name or functions[0].name, tuple(map(Signature.of, functions)), lambda: functions, lanes=lanes)

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
