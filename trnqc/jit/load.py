"""The functions of a shared library, which are called with arguments by name."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trnqc.errors import CompilerError
from trnqc.jit.signature import SCALARS, Convert, Signature


class CompiledFunction:
    """A function of a loaded library. It runs without the interpreter's lock.

    Arguments are passed by name or by position, as to a Python function. A wrong type, rank or layout, an unknown name
    and a missing argument raise TypeError. `bind` fixes arguments of repeated calls, which are then checked only once:

        step = library.axpy.bind(n=len(x), a=2.0)
        for x, y in pairs:
            step(x=x, y=y)
    """

    __slots__ = ("_arguments", "_bound", "_open", "_pointer", "path", "signature")

    def __init__(self, pointer: Any, signature: Signature, path: Path | None = None) -> None:
        self.signature, self._pointer = signature, pointer
        # The file of the library.
        self.path = path
        # The arguments for ctypes, with None for those that a call has to pass.
        self._arguments: list[Any] = [None] * len(signature.parameters)
        # For each argument that a call has to pass, its position and its conversion.
        self._open: dict[str, tuple[int, Convert]]
        self._open = {p.name: (n, p.convert) for n, p in enumerate(signature.parameters)}
        # References to the bound arrays, because ctypes does not keep them alive.
        self._bound: tuple[Any, ...] = ()

    def __call__(self, *args: Any, **named: Any) -> Any:
        if len(args) + len(named) != len(self._open):
            raise self._mismatch(len(args), named)
        return self._pointer(*self._with(args, named))

    def bind(self, *args: Any, **named: Any) -> CompiledFunction:
        """Return a function of the remaining parameters. It keeps the arrays alive that are bound to it."""
        bound = CompiledFunction.__new__(CompiledFunction)
        bound.signature, bound._pointer, bound.path = self.signature, self._pointer, self.path
        bound._arguments = self._with(args, named)
        passed = {*list(self._open)[: len(args)], *named}
        bound._open = {name: entry for name, entry in self._open.items() if name not in passed}
        bound._bound = (self._bound, args, named)
        return bound

    @property
    def address(self) -> int:
        """The address of the function, for programs that call it without Python."""
        return ctypes.cast(self._pointer, ctypes.c_void_p).value or 0

    def _with(self, args: Sequence[Any], named: dict[str, Any]) -> list[Any]:
        arguments = self._arguments.copy()
        if args:
            if len(args) > len(self._open):
                raise self._mismatch(len(args), named)
            names = list(self._open)[: len(args)]
            for (place, convert), value in zip(self._open.values(), args):
                arguments[place] = convert(value)
            if named and not named.keys().isdisjoint(names):
                raise self._mismatch(len(args), named)
        try:
            for name, value in named.items():
                place, convert = self._open[name]
                arguments[place] = convert(value)
        except KeyError:
            raise self._mismatch(len(args), named) from None
        return arguments

    def _mismatch(self, count: int, named: dict[str, Any]) -> TypeError:
        passed = ", ".join([*[f"{count} by position"] * bool(count), *named]) or "none"
        return TypeError(f"{self.signature.name} takes the arguments {', '.join(self._open) or 'none'}; found {passed}")

    def __repr__(self) -> str:
        return f"{self.signature.name}({', '.join(self._open)})"


class Library:
    """A loaded shared library. Its functions are attributes.

    Parameters
    ----------
    path : Path
        The file.
    signatures : sequence of Signature
        The signatures of the functions.

    Raises
    ------
    CompilerError
        If the file cannot be loaded or lacks one of the functions.
    """

    def __init__(self, path: Path, signatures: Sequence[Signature]) -> None:
        self.path = path
        self._functions: dict[str, CompiledFunction] = {}
        try:
            handle = ctypes.CDLL(str(path))
            for signature in signatures:
                pointer = handle[signature.name]
                pointer.restype = None if signature.returns is None else SCALARS[signature.returns]
                self._functions[signature.name] = CompiledFunction(pointer, signature, path)
        except (OSError, AttributeError) as error:
            raise CompilerError(f"the compiled library {path} cannot be used: {error}") from error

    def __getattr__(self, name: str) -> CompiledFunction:
        try:
            return self.__dict__["_functions"][name]
        except KeyError:
            raise AttributeError(f"{self.__dict__.get('path')} has no function {name!r}") from None

    def __repr__(self) -> str:
        return f"Library({self.path.name}: {', '.join(self._functions)})"
