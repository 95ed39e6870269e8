"""Values: the immutable expression language.

A value is built by Python's operators, by the functions below, from a variable (`Var`), or from an element of an array
(`arrays.Array`). Equal expressions are one object, so common subexpressions are shared.

A value says what is computed, not when. An array element is read when the statement that contains it is executed.
The types are f64, f32, i64 and i32, and bool for conditions. `interpreter.py` defines every operation.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from trnqc.errors import ProgramError
from trnqc.gen.expression_text import expression

FLOATS = ("f64", "f32")
INTEGERS = ("i64", "i32")
DTYPES = (*FLOATS, *INTEGERS, "bool")
# Size of a number of each type in a program, in bytes.
BYTES = {"f64": 8, "f32": 4, "i64": 8, "i32": 4, "bool": 1}

Number = int | float
# All values that exist, by their contents.
_table: weakref.WeakValueDictionary[Any, Value] = weakref.WeakValueDictionary()


class Value:
    """A node of an expression graph.

    Values are interned: two values are equal if and only if they are the same object. Comparison operators are not
    overloaded; use `lt`, `le` and `eq`.

    Attributes
    ----------
    op : str
        The operation, a key of `interpreter.OPERATIONS`, or "const", "var", "load", "lane", "cast".
    dtype : str
        The type of the result.
    args : tuple of Value
        The operands.
    attr : object
        The number of a "const", the name of a "var", or the array of a "load"; None for other operations.
    """

    __slots__ = ("__weakref__", "_key", "_reads", "args", "attr", "dtype", "op")
    op: str
    dtype: str
    args: tuple[Value, ...]
    attr: Any
    _key: str | None
    _reads: tuple[Value, ...] | None

    def __new__(cls, op: str, dtype: str, args: tuple[Value, ...] = (), attr: Any = None) -> Value:
        # Floats are compared by their bits: 0.0 differs from -0.0, and NaN equals itself.
        mark = attr.hex() if isinstance(attr, float) else attr
        identity = (op, dtype, args, mark)
        value = _table.get(identity)
        if value is None:
            value = object.__new__(cls)
            value.op, value.dtype, value.args, value.attr = op, dtype, args, attr
            value._key = value._reads = None
            _table[identity] = value
        return value

    def __reduce__(self) -> Any:
        return (Value, (self.op, self.dtype, self.args, self.attr))

    @property
    def key(self) -> str:
        """A digest of the structure, which is the same in every process.

        If the order of statements or operands depends on an order of values, it has to be the order of their keys.
        """
        for value in () if self._key else walk((self,), stop=lambda v: v._key is not None):
            attr = str(value.attr) if value.op == "load" else repr(value.attr)
            parts = (value.op, value.dtype, attr, *(a.key for a in value.args))
            value._key = hashlib.blake2b("\0".join(parts).encode(), digest_size=12).hexdigest()
        return self._key or ""

    @property
    def reads(self) -> tuple[Value, ...]:
        """The variables, elements of arrays and numbers of lanes in the expression, each once."""
        if self._reads is None:
            for value in walk((self,), stop=lambda v: v._reads is not None):
                own = (value,) if value.op in ("var", "load", "lane") else ()
                value._reads = tuple(dict.fromkeys([r for a in value.args for r in a._reads or ()] + [*own]))
        return self._reads or ()

    def __repr__(self) -> str:
        return expression(self)

    def __add__(self, other: Value | Number) -> Value:
        return _binary("add", self, other)

    def __radd__(self, other: Number) -> Value:
        return _binary("add", other, self)

    def __sub__(self, other: Value | Number) -> Value:
        return _binary("sub", self, other)

    def __rsub__(self, other: Number) -> Value:
        return _binary("sub", other, self)

    def __mul__(self, other: Value | Number) -> Value:
        return _binary("mul", self, other)

    def __rmul__(self, other: Number) -> Value:
        return _binary("mul", other, self)

    def __truediv__(self, other: Value | Number) -> Value:
        return _float(_binary("div", self, other))

    def __rtruediv__(self, other: Number) -> Value:
        return _float(_binary("div", other, self))

    def __floordiv__(self, other: Value | int) -> Value:
        return _integer(_binary("idiv", self, other))

    def __mod__(self, other: Value | int) -> Value:
        return _integer(_binary("mod", self, other))

    def __neg__(self) -> Value:
        return Value("neg", _number(self).dtype, (self,))


def Var(name: str, dtype: str = "f64") -> Value:
    """A named scalar: a parameter, a loop index, or a variable of a Let or Declare statement."""
    if dtype not in DTYPES or not name.isidentifier():
        raise ProgramError(
            f"a variable needs an identifier as its name and one of the types {', '.join(DTYPES)}; "
            f"found {name!r} and {dtype!r}"
        )
    return Value("var", dtype, (), name)


def lane() -> Value:
    """The index of the current lane, 0, 1, ..., as an i64."""
    return Value("lane", "i64")


def const(number: Number, dtype: str = "f64") -> Value:
    """A constant of the given type; for f32 the number is rounded to the nearest f32."""
    if dtype in FLOATS:
        import numpy as np

        return Value("const", dtype, (), float(np.float32(number)) if dtype == "f32" else float(number))
    if dtype not in INTEGERS or int(number) != number:
        raise ProgramError(f"{number!r} cannot be represented as a constant of type {dtype}")
    return Value("const", dtype, (), int(number))


def as_value(value: Value | Number, dtype: str) -> Value:
    """The value itself, or a Python number as a constant of `dtype`."""
    return value if isinstance(value, Value) else const(value, dtype)


def fma(a: Value | Number, b: Value | Number, c: Value) -> Value:
    """The fused multiply-add a b + c, which a target may round once or twice."""
    a, b = as_value(a, c.dtype), as_value(b, c.dtype)
    _same("fma", a, b, c)
    return _float(Value("fma", c.dtype, (a, b, c)))


def sqrt(a: Value) -> Value:
    return _float(Value("sqrt", a.dtype, (a,)))


def exp(a: Value) -> Value:
    return _float(Value("exp", a.dtype, (a,)))


def log(a: Value) -> Value:
    """The natural logarithm."""
    return _float(Value("log", a.dtype, (a,)))


def minimum(a: Value | Number, b: Value | Number) -> Value:
    """a if a < b else b. The result is b if either operand is NaN."""
    return _binary("min", a, b)


def maximum(a: Value | Number, b: Value | Number) -> Value:
    """a if a > b else b. The result is b if either operand is NaN."""
    return _binary("max", a, b)


def lt(a: Value | Number, b: Value | Number) -> Value:
    return _compare("lt", a, b)


def le(a: Value | Number, b: Value | Number) -> Value:
    return _compare("le", a, b)


def eq(a: Value | Number, b: Value | Number) -> Value:
    return _compare("eq", a, b)


def both(a: Value, b: Value) -> Value:
    """Logical and. Both operands may be evaluated, so guard the index of an array by an If statement instead."""
    return _logical("and", a, b)


def either(a: Value, b: Value) -> Value:
    return _logical("or", a, b)


def invert(a: Value) -> Value:
    return _logical("not", a)


def select(condition: Value, a: Value | Number, b: Value | Number) -> Value:
    """a if the condition holds, else b. Both operands may be evaluated."""
    _conditions("select", condition)
    operands = _binary("select", a, b)
    return Value("select", operands.dtype, (condition, *operands.args))


def cast(a: Value, dtype: str) -> Value:
    """Convert between types of numbers. A float is truncated towards zero and must fit into the integer type."""
    if dtype not in DTYPES or "bool" in (dtype, a.dtype):
        raise ProgramError(f"{a.dtype} cannot be converted to {dtype}")
    return a if a.dtype == dtype else Value("cast", dtype, (a,))


def bits(a: Value) -> Value:
    """The bits of a float as an integer of the same size."""
    return Value("bits", {"f64": "i64", "f32": "i32"}[_float(a).dtype], (a,))


def from_bits(a: Value) -> Value:
    """The float with the bits of an integer of the same size."""
    return Value("from_bits", {"i64": "f64", "i32": "f32"}[_integer(a).dtype], (a,))


def with_bit(a: Value, number: Value | int) -> Value:
    """The i64 `a` with its bit ``number % 64`` set, for a number that is not negative. Bit 0 is the lowest."""
    return Value("with_bit", "i64", (_word(a), _word(as_value(number, "i64"))))


def lowest_bit(a: Value) -> Value:
    """The number of the lowest bit of an i64 that is set, as an i64. One has to be set."""
    return Value("lowest_bit", "i64", (_word(a),))


def without_lowest_bit(a: Value) -> Value:
    """The i64 `a` without the lowest of its bits that are set. One has to be set."""
    return Value("without_lowest_bit", "i64", (_word(a),))


def walk(roots: tuple[Value, ...], stop: Callable[[Value], bool] = lambda value: False) -> Iterator[Value]:
    """Yield all values of the roots' expressions, each once and after its operands.

    Values for which `stop` holds are not yielded, and their operands are not visited through them.
    """
    seen: set[Value] = set()
    stack = [(root, False) for root in reversed(roots)]
    while stack:
        value, ready = stack.pop()
        if ready:
            yield value
        elif value not in seen and not stop(value):
            seen.add(value)
            stack.append((value, True))
            stack.extend((a, False) for a in reversed(value.args) if a not in seen)


def rebuilt(value: Value, args: tuple[Value, ...]) -> Value:
    """The same operation with other operands."""
    return value if args == value.args else Value(value.op, value.dtype, args, value.attr)


def _binary(op: str, a: Value | Number, b: Value | Number) -> Value:
    model = a if isinstance(a, Value) else b
    if not isinstance(model, Value):
        raise ProgramError(f"{op} needs at least one value, found {a!r} and {b!r}")
    a, b = as_value(a, model.dtype), as_value(b, model.dtype)
    _same(op, a, b)
    return Value(op, a.dtype, (_number(a), _number(b)))


def _compare(op: str, a: Value | Number, b: Value | Number) -> Value:
    return Value(op, "bool", _binary(op, a, b).args)


def _logical(op: str, *args: Value) -> Value:
    _conditions(op, *args)
    return Value(op, "bool", args)


def _conditions(op: str, *args: Value) -> None:
    if any(a.dtype != "bool" for a in args):
        raise ProgramError(f"{op} takes conditions, found {', '.join(a.dtype for a in args)}")


def _same(op: str, *args: Value) -> None:
    if len({a.dtype for a in args}) != 1:
        raise ProgramError(f"{op} takes values of one type, found {', '.join(a.dtype for a in args)}; use cast")


def _number(a: Value) -> Value:
    if a.dtype == "bool":
        raise ProgramError("expected a number, found a condition; use select")
    return a


def _float(a: Value) -> Value:
    if a.dtype not in FLOATS:
        raise ProgramError(f"{a.op} takes f64 or f32, found {a.dtype}")
    return a


def _integer(a: Value) -> Value:
    if a.dtype not in INTEGERS:
        raise ProgramError(f"{a.op} takes i64 or i32, found {a.dtype}")
    return a


def _word(a: Value) -> Value:
    if a.dtype != "i64":
        raise ProgramError(f"expected an i64, whose bits are numbered, found {a.dtype}")
    return a
