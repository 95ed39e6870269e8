"""Operators and comparisons by the types of their operands; pairs of types without an entry have none."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from trnqc.sim.machine.objects import NKIObject
from trnqc.sim.machine.targets import nc_version
from trnqc.sim.memory.registers import VirtualRegister
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.parser.forms import INTEGER_LIMITS

_FLOATS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.FloorDiv: operator.floordiv,
}
_INTEGERS = _FLOATS | {
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.BitAnd: operator.and_,
}
_ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
TENSORS = "no Python operators on tensors; use nisa instructions"
REGISTERS = "registers have no operators; they are offsets, bounds of device loops, and tests of if and while"


class Unsupported(Exception):
    """An operator that operands of these types do not have; the text says so."""


def apply(op: ast.operator, left: Any, right: Any) -> Any:
    """The value of ``left op right``."""
    _no_device_values(left, right)
    left, right = _plain(left), _plain(right)
    kinds = type(left), type(right)
    kind = type(op)
    if set(kinds) <= {int, bool} and kinds != (bool, bool):
        if kind is ast.Pow and right < 0:
            raise Unsupported("an integer has no negative power; write a float")
        return _number(_INTEGERS[kind](left, right))
    if set(kinds) <= {int, bool, float} and float in kinds and kind in _FLOATS:
        return _number(_FLOATS[kind](left, right))
    if kind is ast.Add and kinds[0] is kinds[1] and kinds[0] in (str, list, tuple):
        return left + right
    if kind is ast.Mult and _repeats(kinds):
        return left * right
    raise Unsupported(f"{named(left)} and {named(right)} have no operator {kind.__name__}")


def _plain(value: Any) -> Any:
    """Turn a member of ``nisa.nc_version`` into its integer in the language; return every other value unchanged."""
    return value.value if isinstance(value, nc_version) else value


def _repeats(kinds: tuple[type, type]) -> bool:
    return (kinds[0] in (list, tuple) and kinds[1] is int) or (kinds[1] in (list, tuple) and kinds[0] is int)


def _number(value: Any) -> Any:
    if isinstance(value, complex):
        raise Unsupported("the result is a complex number")
    if type(value) is int and not INTEGER_LIMITS[0] <= value <= INTEGER_LIMITS[1]:
        raise Unsupported(f"{value} is no 64-bit integer")
    return value


def negate(value: Any) -> Any:
    """The value of ``-value``."""
    _no_device_values(value)
    if type(value) not in (int, float):
        raise Unsupported(f"{named(value)} cannot be negated")
    return _number(-value)


def invert(value: Any) -> Any:
    """The value of ``~value``."""
    _no_device_values(value)
    if type(value) is not int:
        raise Unsupported(f"{named(value)} cannot be inverted")
    return ~value


def compare(op: ast.cmpop, left: Any, right: Any) -> bool:
    """The value of one comparison; ``is`` and ``is not`` have become ``==`` and ``!=``."""
    if isinstance(op, ast.Eq | ast.Is):
        return equal(left, right)
    if isinstance(op, ast.NotEq | ast.IsNot):
        return not equal(left, right)
    if isinstance(op, ast.In | ast.NotIn):
        return member(left, right) is isinstance(op, ast.In)
    _no_device_values(left, right)
    left, right = _plain(left), _plain(right)
    numbers = {type(left), type(right)} <= {bool, int, float}
    if not numbers and not (type(left) is type(right) and type(left) in (str, list, tuple)):
        raise Unsupported(f"{named(left)} and {named(right)} have no order")
    return _ORDERS[type(op)](left, right)


def equal(left: Any, right: Any) -> bool:
    """Whether two values are equal; objects of kernels are where their fields are."""
    if left is None or right is None:
        return left is right
    _no_device_values(left, right)
    if type(left) is type(right) and type(left) in (list, tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    if type(left) is type(right) and isinstance(left, NKIObject):
        mine, other = vars(left), vars(right)
        return mine.keys() == other.keys() and all(equal(mine[k], other[k]) for k in mine)
    return bool(left == right)


def member(value: Any, container: Any) -> bool:
    """Whether a list or tuple has a value, a dictionary a key, or a string a part."""
    if isinstance(container, str) and isinstance(value, str):
        return value in container
    if not isinstance(container, list | tuple | dict):
        raise Unsupported(f"`in` looks into lists, tuples and keys of dictionaries, not into {named(container)}")
    tensors = (NkiTensor, VirtualRegister)
    return any(one is value if isinstance(value, tensors) else equal(one, value) for one in container)


def _no_device_values(*values: Any) -> None:
    if any(isinstance(value, NkiTensor) for value in values):
        raise Unsupported(TENSORS)
    if any(isinstance(value, VirtualRegister) for value in values):
        raise Unsupported(REGISTERS)


def truth(value: Any) -> bool:
    """The truth value of anything but registers and slices; tensors are true, whatever they hold."""
    if isinstance(value, VirtualRegister):
        raise Unsupported("a register has no truth value; it is the test of if or while by itself")
    if isinstance(value, slice) or value is ...:
        raise Unsupported(f"{named(value)} has no truth value")
    if isinstance(value, bool | int | float | str | list | tuple) and not hasattr(value, "_fields"):
        return bool(value)
    return value is not None


def named(value: Any) -> str:
    """Description of the kind of a value for error messages."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
