"""The named parameters of a compiled function, and the conversion of numbers and NumPy arrays to its arguments."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trnqc.gen.arrays import Array
from trnqc.gen.statements import Function, name_of
from trnqc.gen.values import Value

SCALARS = {"i64": ctypes.c_int64, "i32": ctypes.c_int32, "f64": ctypes.c_double, "f32": ctypes.c_float}
NUMPY = {"i64": "int64", "i32": "int32", "f64": "float64", "f32": "float32"}
"""The NumPy name of each type of `trnqc.gen`."""
TYPES = {name: kind for kind, name in NUMPY.items()}
"""The type of `trnqc.gen` for each NumPy name."""

Convert = Callable[[Any], Any]


@dataclass(frozen=True)
class Parameter:
    """A parameter: a number, or an array that is passed as the address of its first element.

    Parameters
    ----------
    name : str
        The name by which callers pass the argument.
    dtype : str
        "f64", "f32", "i64" or "i32".
    array : bool
        Whether the argument is a C-contiguous NumPy array.
    written : bool
        Whether the function stores to the array. The array must then be writable.
    ndim : int, optional
        The rank that the array must have; by default, any rank.

    Raises
    ------
    ValueError
        If the type is not one of the four.
    """

    name: str
    dtype: str
    array: bool = False
    written: bool = False
    ndim: int | None = None

    def __post_init__(self) -> None:
        if self.dtype not in SCALARS:
            raise ValueError(f"{self.name}: a type is one of {', '.join(SCALARS)}; found {self.dtype!r}")

    @property
    def convert(self) -> Convert:
        """The function that converts an argument for ctypes. It raises TypeError for a wrong argument."""
        return _pointer(self) if self.array else _number(self)

    def __str__(self) -> str:
        if not self.array:
            return f"a number {self.dtype}"
        rank = "" if self.ndim is None else f" of rank {self.ndim}"
        return f"a{' writable,' * self.written} C-contiguous array {self.dtype}{rank}"


GROUPS = (Parameter("groups_begin", "i64"), Parameter("groups_end", "i64"))
"""The range of groups: the last two parameters of a C function with a group."""


@dataclass(frozen=True)
class Signature:
    """The signature of a compiled function.

    Attributes
    ----------
    name : str
        The name of the function.
    parameters : tuple of Parameter
        The parameters in order.
    returns : str, optional
        The type of the result; None if there is no result.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    returns: str | None = None

    @classmethod
    def of(cls, function: Function) -> Signature:
        """The signature of a generated function."""
        return cls.declared(function.name, function.params, function.written, function.group is not None)

    @classmethod
    def declared(
        cls, name: str, params: Iterable[Value | Array], written: Iterable[str], group: bool = True
    ) -> Signature:
        """The signature of a function that is not generated yet.

        Parameters
        ----------
        name : str
            The name of the function.
        params : iterable of Value and Array
            The parameters, as for `trnqc.gen.statements.Function`.
        written : iterable of str
            The names of the arrays to which the function stores.
        group : bool
            Whether the function has a group, and so takes a range of groups.
        """
        written = frozenset(written)
        parameters = (
            Parameter(name_of(p), p.dtype, array=isinstance(p, Array), written=name_of(p) in written) for p in params
        )
        return cls(name, (*parameters, *(GROUPS if group else ())))

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(p.name for p in self.parameters)


def _number(parameter: Parameter) -> Convert:
    ctype = SCALARS[parameter.dtype]

    def convert(number: Any) -> Any:
        try:
            return ctype(number)
        except TypeError:
            raise _wrong(parameter, number) from None

    return convert


def _pointer(parameter: Parameter) -> Convert:
    dtype, written, ndim = np.dtype(NUMPY[parameter.dtype]), parameter.written, parameter.ndim

    def convert(array: Any) -> Any:
        if not isinstance(array, np.ndarray) or array.dtype != dtype or (ndim is not None and array.ndim != ndim):
            raise _wrong(parameter, array)
        flags = array.flags
        if not (flags.carray if written else flags.c_contiguous and flags.aligned):
            raise _wrong(parameter, array)
        return ctypes.c_void_p(array.ctypes.data)

    return convert


def _wrong(parameter: Parameter, argument: Any) -> TypeError:
    kind = type(argument).__name__
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        layout = "" if flags.c_contiguous else ", not contiguous"
        layout += "" if flags.writeable else ", read-only"
        kind = f"an array {argument.dtype} of shape {argument.shape}{layout}"
    return TypeError(f"{parameter.name}: expected {parameter}, found {kind}")
