"""Functions of a shared library, called with arguments whose types are checked."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import CompilerError
from trnqc.gen import values
from trnqc.gen.statements import Function

SCALARS = {"int64": ctypes.c_int64, "int32": ctypes.c_int32, "float64": ctypes.c_double, "float32": ctypes.c_float}
NAMES = {"i64": "int64", "i32": "int32", "f64": "float64", "f32": "float32"}


@dataclass(frozen=True)
class Array:
    """An argument that is a C-contiguous NumPy array, handed over as a pointer to its first element.

    ndim None takes any rank. `written` asks for a writable array.
    """

    dtype: str
    ndim: int | None = None
    written: bool = False

    def ctype(self) -> Any:
        return _parameter(self)

    def hold(self, array: np.ndarray) -> Held:
        """The array as an argument of many calls, checked once. Raises TypeError."""
        parameter = self.ctype()
        parameter.from_param(array)
        return Held(parameter, array, ctypes.c_void_p(array.ctypes.data))


@cache
def _parameter(kind: Array) -> Any:
    flags: Any = ["C_CONTIGUOUS", "ALIGNED"] + ["WRITEABLE"] * kind.written
    checked = np.ctypeslib.ndpointer(np.dtype(kind.dtype), ndim=kind.ndim, flags=flags)

    class Parameter:
        @staticmethod
        def from_param(given: Any) -> Any:
            if type(given) is Held and given.parameter is Parameter:
                return given.pointer
            return checked.from_param(given)

    return Parameter


@dataclass(frozen=True, eq=False)
class Held:
    """An array that was found to be of a kind; checking it anew takes longer than a short call."""

    parameter: type
    array: np.ndarray
    pointer: ctypes.c_void_p


@dataclass(frozen=True)
class Signature:
    """Argument types in order, each an Array or a name in SCALARS; `returns` is such a name, or None for void."""

    arguments: tuple[Array | str, ...]
    returns: str | None = None


def signature_of(function: Function) -> Signature:
    """Types of the arguments of a generated function in C; one with a group takes a range of groups last."""
    written = function.written
    types = tuple(
        Array(NAMES[p.dtype], written=p.name in written) if isinstance(p, values.Array) else NAMES[p.dtype]
        for p in function.params
    )
    return Signature(types + ("int64", "int64") * (function.group is not None))


class Library:
    """A loaded shared library; its bound functions are attributes. Calls release the interpreter's lock."""

    def __init__(self, path: Path, functions: Mapping[str, Callable]) -> None:
        self.path = path
        self._functions = dict(functions)

    def __getattr__(self, name: str) -> Callable:
        try:
            return self.__dict__["_functions"][name]
        except KeyError:
            raise AttributeError(f"{self.__dict__.get('path')} has no bound function {name!r}") from None

    def __repr__(self) -> str:
        return f"Library({self.path.name}: {', '.join(self._functions)})"


def _scalar(name: str) -> Any:
    if name not in SCALARS:
        raise ValueError(f"unknown C scalar {name!r}; known: {', '.join(SCALARS)}")
    return SCALARS[name]


def load(path: Path, signatures: Mapping[str, Signature]) -> Library:
    """Load a library and bind its functions; raises CompilerError when it does not load or lacks one of them.

    A call with a wrong dtype, rank, layout or number of arguments raises ctypes.ArgumentError or TypeError.
    """
    try:
        handle = ctypes.CDLL(str(path))
        functions = {name: handle[name] for name in signatures}
    except (OSError, AttributeError) as error:
        raise CompilerError(f"the compiled library {path} cannot be used: {error}") from error
    for name, signature in signatures.items():
        functions[name].argtypes = [a.ctype() if isinstance(a, Array) else _scalar(a) for a in signature.arguments]
        functions[name].restype = None if signature.returns is None else _scalar(signature.returns)
    return Library(path, functions)
