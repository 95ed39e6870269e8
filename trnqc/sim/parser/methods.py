"""The methods of lists and dictionaries that the language has; strings and tuples have none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trnqc.sim.memory.dtypes import DType
from trnqc.sim.parser.operators import Unsupported, equal

_MISSING = object()


def _index(values: list[Any], value: Any) -> int:
    for n, one in enumerate(values):
        if equal(one, value):
            return n
    raise Unsupported(f"the list has no {value!r}")


def _remove(values: list[Any], value: Any) -> None:
    del values[_index(values, value)]


def _pop_key(values: dict[str, Any], key: str, default: Any = _MISSING) -> Any:
    if key not in values and default is _MISSING:
        raise Unsupported(f"the dictionary has no key {key!r}")
    return values.pop(key, default)


def _set_default(values: dict[str, Any], key: Any, default: Any = None) -> Any:
    return values.setdefault(string_key(key), default)


def string_key(key: Any) -> Any:
    """A key of a dictionary: a string, or a number format, which the vendor's own library has as keys."""
    if not isinstance(key, str | DType):
        raise Unsupported(f"keys of dictionaries are strings, not {key!r}")
    return key


METHODS: Mapping[type, Mapping[str, Callable[..., Any]]] = {
    list: {
        "append": list.append,
        "clear": list.clear,
        "copy": list.copy,
        "count": lambda values, value: sum(equal(one, value) for one in values),
        "extend": list.extend,
        "index": _index,
        "pop": list.pop,
        "remove": _remove,
        "reverse": list.reverse,
    },
    dict: {
        "clear": dict.clear,
        "copy": dict.copy,
        "get": dict.get,
        "items": lambda values: list(values.items()),
        "keys": lambda values: list(values.keys()),
        "values": lambda values: list(values.values()),
        "pop": _pop_key,
        "setdefault": _set_default,
    },
    str: {},
    tuple: {},
}


@dataclass(frozen=True)
class Method:
    """A method of a list or dictionary together with that; it can only be called."""

    receiver: Any
    name: str

    def __call__(self, *args: Any) -> Any:
        return METHODS[type(self.receiver)][self.name](self.receiver, *args)


def method(receiver: Any, name: str, shown: str) -> Method:
    """The method ``name`` of a list or dictionary, which the source shows as ``shown``."""
    if name not in METHODS[type(receiver)]:
        raise Unsupported(f"method {name} of {shown} is not in the language")
    return Method(receiver, name)
