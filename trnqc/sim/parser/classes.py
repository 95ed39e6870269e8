"""Classes of kernels: what their heads may say, and how an object is made without running their Python."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from types import FunctionType
from typing import Any

from trnqc.sim.machine.objects import NKIObject
from trnqc.sim.parser.forms import dotted
from trnqc.sim.parser.operators import Unsupported

BASES = ("NKIObject", "Enum", "NamedTuple")
Call = Callable[[FunctionType, tuple[Any, ...], dict[str, Any]], Any]


@lru_cache(maxsize=256)
def check_class(cls: type) -> str:
    """The error of the head of a class, or "" if the language has such a class."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError, SyntaxError):
        return f"class {cls.__name__} has no source for the parser"
    assert isinstance(tree, ast.ClassDef)
    if not tree.bases:
        return f"class {tree.name} has no base; classes in kernels derive from nl.NKIObject"
    for base in tree.bases:
        if dotted(base) not in BASES:
            return f"class {tree.name} derives from {ast.unparse(base)}; only NKIObject, Enum, NamedTuple"
    for decorator in tree.decorator_list:
        if dotted(decorator) != "dataclass":
            return f"decorator {ast.unparse(decorator)} of a class is not in the language"
    return ""


def make(cls: type, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call) -> Any:
    """An object of a kernel's class; ``call`` interprets its ``__init__`` or ``__post_init__``."""
    if message := check_class(cls):
        raise Unsupported(message)
    if issubclass(cls, Enum | tuple):
        return cls(*args, **kwargs)
    if not issubclass(cls, NKIObject):
        raise Unsupported(f"class {cls.__name__}: classes in kernels derive from nl.NKIObject")
    made = object.__new__(cls)
    init = inspect.getattr_static(cls, "__init__")
    if dataclasses.is_dataclass(cls) and init.__code__.co_filename == "<string>":
        _set_fields(made, args, kwargs)
        if after := getattr(cls, "__post_init__", None):
            call(after, (made,), {})
    elif init is NKIObject.__init__:
        NKIObject.__init__(made, *args, **kwargs)
    else:
        call(init, (made, *args), kwargs)
    return made


def _set_fields(made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Set the fields of a dataclass as its ``__init__`` would."""
    try:
        given = inspect.signature(type(made).__init__).bind(made, *args, **kwargs).arguments
    except TypeError as error:
        raise Unsupported(f"{type(made).__name__}: {error}") from None
    for field in dataclasses.fields(made):
        if field.name in given:
            value = given[field.name]
        elif field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            value = field.default
        else:
            continue
        object.__setattr__(made, field.name, value)
