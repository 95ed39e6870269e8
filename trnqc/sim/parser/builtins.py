"""The functions of Python and of ``math`` that the language has, with the arguments that it takes."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Mapping
from typing import Any

from trnqc.sim.parser.operators import Unsupported, named, truth


def _plain_sequence(what: str, value: Any) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise Unsupported(f"{what} takes a list or a tuple, not {named(value)}")
    return value


def _extreme(name: str, choose: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """``min`` or ``max`` of one sequence or of two numbers."""

    def extreme(*args: Any) -> Any:
        if len(args) not in (1, 2):
            raise Unsupported(f"{name} takes one sequence or two numbers")
        values = _plain_sequence(name, args[0]) if len(args) == 1 else args
        if not values or any(type(v) not in (int, float) for v in values):
            raise Unsupported(f"{name} takes one sequence or two numbers, and has {', '.join(map(named, values))}")
        result = values[0]
        for value in values[1:]:
            result = choose(result, value)
        mixed = any(type(v) is float for v in values)
        return float(result) if mixed else result

    return extreme


def _length(value: Any) -> int:
    if not isinstance(value, list | tuple | dict):
        raise Unsupported(f"len takes a list, a tuple or a dictionary, not {named(value)}")
    return len(value)


def _absolute(value: Any) -> Any:
    if type(value) not in (bool, int, float):
        raise Unsupported(f"abs takes a number, not {named(value)}")
    return abs(value)


def _converted(kind: type) -> Callable[..., Any]:
    """``int`` or ``float`` of a number or a string."""

    def converted(value: Any) -> Any:
        if type(value) not in (bool, int, float, str):
            raise Unsupported(f"{kind.__name__} takes a number or a string, not {named(value)}")
        return kind(value)

    return converted


def _quotient(left: Any, right: Any) -> tuple[int, int]:
    if type(left) is not int or type(right) is not int:
        raise Unsupported(f"divmod takes two integers, not {named(left)} and {named(right)}")
    return divmod(left, right)


def _is_instance(value: Any, kind: Any) -> bool:
    """Whether a value has exactly this type of the language: a boolean is no integer."""
    if not isinstance(kind, type):
        raise Unsupported("isinstance takes one class; ask for one after another")
    exact = (bool, int, float, str, tuple, list, dict, slice)
    return type(value) is kind if kind in exact else isinstance(value, kind)


def _type(value: Any) -> Any:
    return None if value is None else type(value)


def _dictionary(pairs: Any = ()) -> dict[str, Any]:
    made = {}
    for pair in _plain_sequence("dict", pairs):
        key, value = _plain_sequence("dict", pair)
        if not isinstance(key, str):
            raise Unsupported(f"keys of dictionaries are strings, not {key!r}")
        made[key] = value
    return made


def _range(*_: Any) -> Any:
    raise Unsupported("a range stands only in the head of a for loop; append its numbers to a list")


BUILTINS: Mapping[str, Callable[..., Any]] = {
    "range": _range,
    "len": _length,
    "min": _extreme("min", lambda a, b: b if b < a else a),
    "max": _extreme("max", lambda a, b: b if b > a else a),
    "abs": _absolute,
    "str": str,
    "bool": truth,
    "int": _converted(int),
    "float": _converted(float),
    "divmod": _quotient,
    "print": print,
    "isinstance": _is_instance,
    "type": _type,
    "tuple": lambda value=(): tuple(_plain_sequence("tuple", value)),
    "list": lambda value=(): list(_plain_sequence("list", value)),
    "dict": _dictionary,
    "slice": slice,
}
"""What is called by these names."""

OBJECTS = {name: getattr(builtins, name) for name in BUILTINS}
"""The objects of Python that these names stand for; types are also arguments of ``isinstance``."""

BY_OBJECT = {id(OBJECTS[name]): call for name, call in BUILTINS.items()}

KEYWORDS = {"print": ("sep", "end")}


def _of_numbers(name: str) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        if any(type(v) not in (bool, int, float) for v in args):
            raise Unsupported(f"math.{name} takes numbers, not {', '.join(map(named, args))}")
        return getattr(math, name)(*args)

    return function


MATHS = {name: _of_numbers(name) for name in ("ceil", "floor", "gcd", "log2", "log10", "pow", "sqrt")}
MATHS_BY_OBJECT = {id(getattr(math, name)): call for name, call in MATHS.items()}
MATH_CONSTANTS = ("pi", "e", "inf", "nan")
