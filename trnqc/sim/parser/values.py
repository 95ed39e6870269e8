"""What a name may stand for that a kernel takes from its module: constants, functions, classes and modules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, EnumType
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from trnqc.sim.machine.objects import NKIObject
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.parser.builtins import BY_OBJECT, MATH_CONSTANTS, MATHS, MATHS_BY_OBJECT
from trnqc.sim.parser.forms import INTEGER_LIMITS
from trnqc.sim.parser.methods import string_key
from trnqc.sim.parser.operators import Unsupported, named


@dataclass(frozen=True)
class Bound:
    """A method of an object of a kernel, with its object."""

    receiver: Any
    function: FunctionType


def of_simulator(value: Any) -> bool:
    """Whether a value is a name of ``nl`` or ``nisa``, or has a type of the simulator."""
    owner: Any = value if isinstance(value, type | FunctionType | BuiltinFunctionType) else type(value)
    if isinstance(value, MethodType):
        owner = value.__func__
    module = getattr(owner, "__module__", "") or ""
    return module == "nki" or module.startswith(("nki.", "trnqc.sim."))


def constant(value: Any, shown: str) -> Any:
    """Return a value that a kernel takes from outside, if the language has it; lists and dictionaries are copied."""
    if value is None or isinstance(value, str | bool | float) or of_simulator(value):
        return value
    if isinstance(value, ModuleType):
        return value
    if of_numpy(value):
        raise Unsupported(f"{shown} is of numpy, which the language lacks; {_instead(value)}")
    if isinstance(value, Enum | NKIObject | FunctionType | type):
        return value
    if type(value) is int:
        if not INTEGER_LIMITS[0] <= value <= INTEGER_LIMITS[1]:
            raise Unsupported(f"{shown} = {value} is no 64-bit integer")
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(constant(v, f"{shown}.{n}") for n, v in zip(value._fields, value, strict=True)))
    if isinstance(value, list | tuple):
        return type(value)(constant(v, f"{shown}[{n}]") for n, v in enumerate(value))
    if type(value) is dict:
        return {string_key(k): constant(v, f"{shown}[{k!r}]") for k, v in value.items()}
    if id(value) in BY_OBJECT or id(value) in MATHS_BY_OBJECT or hasattr(value, "__wrapped__"):
        return value
    raise Unsupported(f"{shown} is {named(value)}, which is not in the language")


def of_numpy(value: Any) -> bool:
    """Whether a value is numpy or one of its types, functions and numbers."""
    owner = getattr(value, "__name__", "") if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    return (str(owner) or type(value).__module__).split(".")[0] == "numpy" or type(value).__module__ == "numpy"


def _instead(value: Any) -> str:
    if isinstance(value, type):
        return f"use nl.{value.__name__}"
    return "use nl and nisa" if callable(value) else "convert it before the launch"


def attribute(value: Any, name: str, shown: str) -> Any:
    """The attribute ``name`` of a module, class or object; ``shown`` is its text in the source."""
    if isinstance(value, ModuleType):
        return _of_module(value, name, shown)
    if name.startswith("__"):
        raise Unsupported(f"{shown} is not in the language")
    if of_simulator(value) and not (isinstance(value, NKIObject) and not isinstance(value, NkiTensor)):
        return _existing(value, name, shown)
    if isinstance(value, EnumType | type):
        return _of_class(value, name, shown)
    if isinstance(value, Enum) and name in ("name", "value"):
        return getattr(value, name)
    if isinstance(value, NKIObject | Enum) or hasattr(value, "_fields"):
        return _of_object(value, name, shown)
    raise Unsupported(f"{shown}: {named(value)} has no attributes in the language")


def _existing(value: Any, name: str, shown: str) -> Any:
    if name.startswith("_") or not hasattr(value, name):
        raise Unsupported(f"{shown} does not exist")
    return getattr(value, name)


def _of_module(module: ModuleType, name: str, shown: str) -> Any:
    if module is math:
        if name not in MATHS and name not in MATH_CONSTANTS:
            raise Unsupported(f"{shown}: of math, the language has {', '.join(sorted(MATHS))}")
        return getattr(math, name)
    if not hasattr(module, name):
        raise Unsupported(f"{shown} does not exist")
    return constant(getattr(module, name), shown)


def _of_class(cls: type, name: str, shown: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            found = vars(base)[name]
            if isinstance(found, staticmethod):
                return found.__func__
            return constant(found, shown) if not isinstance(found, classmethod | property) else _method_kind(shown)
    if isinstance(cls, EnumType) and name in cls.__members__:
        return cls[name]
    raise Unsupported(f"{shown} does not exist")


def _of_object(value: Any, name: str, shown: str) -> Any:
    own = getattr(value, "__dict__", {})
    if name in own:
        return own[name]
    if name in getattr(value, "_fields", ()):
        return getattr(value, name)
    found = _of_class(type(value), name, shown)
    static = any(isinstance(vars(base).get(name), staticmethod) for base in type(value).__mro__)
    return Bound(value, found) if isinstance(found, FunctionType) and not static else found


def _method_kind(shown: str) -> Any:
    raise Unsupported(f"{shown}: properties and class methods are not in the language; write a method or staticmethod")
