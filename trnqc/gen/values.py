"""Values: the immutable expression language. Equal expressions are one object, so common subexpressions are shared.

Values are built by Python's operators on values, by the functions below, and by reading a `Var` or an `Array`. A value
says what is computed, not when: an array is read at the time when the statement runs that contains the read.
`interpreter.py` defines every operation. Types are f64, f32, i32, i64, and bool for conditions.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trnqc.errors import ProgramError

FLOATS = ("f64", "f32")
INTEGERS = ("i64", "i32")
DTYPES = (*FLOATS, *INTEGERS, "bool")
BYTES = {"f64": 8, "f32": 4, "i64": 8, "i32": 4, "bool": 1}

Number = int | float
_table: weakref.WeakValueDictionary[Any, Value] = weakref.WeakValueDictionary()


class Value:
    """A node of an expression graph.

    Values are interned: two values are equal if they are the same object. Comparison operators are therefore not
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
        The number of a "const", the name of a "var", the array of a "load"; else None.
    """

    __slots__ = ("__weakref__", "_key", "args", "attr", "dtype", "op")
    op: str
    dtype: str
    args: tuple[Value, ...]
    attr: Any
    _key: str | None

    def __new__(cls, op: str, dtype: str, args: tuple[Value, ...] = (), attr: Any = None) -> Value:
        # Floats are compared by their bits: 0.0 differs from -0.0, and NaN equals itself.
        mark = attr.hex() if isinstance(attr, float) else attr
        identity = (op, dtype, args, mark)
        value = _table.get(identity)
        if value is None:
            value = object.__new__(cls)
            value.op, value.dtype, value.args, value.attr, value._key = op, dtype, args, attr, None
            _table[identity] = value
        return value

    def __reduce__(self) -> Any:
        return (Value, (self.op, self.dtype, self.args, self.attr))

    @property
    def key(self) -> str:
        """A digest of the structure, the same in every process. Only this may decide an order that the text shows."""
        for value in () if self._key else walk((self,), stop=lambda v: v._key is not None):
            words = (value.op, value.dtype, _word(value.attr), *(a.key for a in value.args))
            value._key = hashlib.blake2b("\0".join(words).encode(), digest_size=12).hexdigest()
        return self._key or ""

    def __repr__(self) -> str:
        from trnqc.gen.listing import expression

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


@dataclass(frozen=True)
class Array:
    """An array in row-major order. ``a[i, j]`` is the value of an element.

    Parameters
    ----------
    name : str
        Its name in the program.
    dtype : str
        The type of its elements: f64, f32, i64 or i32.
    shape : tuple
        Extents, as numbers or i64 values; the first may be None if the program does not need it.
    space : str
        "global" for a parameter, "local" for an array of one lane, "shared" for one of all lanes of a group (shared
        memory on a GPU), or "constant" for a table.
    lanes : bool
        Whether every element holds one number for each lane, the lane being the fastest index.
    data : tuple of numbers, optional
        The elements of a constant table.
    """

    name: str
    dtype: str
    shape: tuple[int | Value | None, ...] = (None,)
    space: str = "global"
    lanes: bool = False
    data: tuple[Number, ...] | None = None

    def __post_init__(self) -> None:
        if self.space not in ("global", "local", "shared", "constant"):
            raise ProgramError(f"array {self.name}: space is global, local, shared or constant, not {self.space!r}")
        if self.dtype not in DTYPES or self.dtype == "bool":
            raise ProgramError(f"array {self.name}: elements are f64, f32, i64 or i32, not {self.dtype!r}")
        if self.space != "global" and not all(isinstance(n, int) and n > 0 for n in self.shape):
            raise ProgramError(f"array {self.name}: a {self.space} array needs extents known here, found {self.shape}")
        if (self.data is not None) != (self.space == "constant") or (self.data and len(self.data) != self.size):
            raise ProgramError(f"array {self.name}: a constant array, and no other, holds one number an element")

    @cached_property
    def size(self) -> int | None:
        """The number of elements (for one lane), or None if it is known only at run time."""
        size = 1
        for extent in self.shape:
            if not isinstance(extent, int):
                return None
            size *= extent
        return size

    def offset(self, *index: Value | int) -> Value:
        """The row-major position of an element, as an i64 value."""
        if len(index) != len(self.shape):
            raise ProgramError(f"array {self.name} has {len(self.shape)} indices, found {len(index)}")
        if None in self.shape[1:]:
            raise ProgramError(f"array {self.name}: only the first extent may be unknown")
        return row_major(index, [extent for extent in self.shape[1:] if extent is not None])

    def __getitem__(self, index: Value | int | tuple[Value | int, ...]) -> Value:
        return Value("load", self.dtype, (self.offset(*(index if isinstance(index, tuple) else (index,))),), self)


def Var(name: str, dtype: str = "f64") -> Value:
    """A named scalar: a parameter, a loop index, or a variable of a Let or Declare statement."""
    if dtype not in DTYPES or not name.isidentifier():
        raise ProgramError(f"a variable has an identifier and a type of {DTYPES}, found {name!r} and {dtype!r}")
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
        raise ProgramError(f"{number!r} is no constant of type {dtype}")
    return Value("const", dtype, (), int(number))


def as_value(value: Value | Number, dtype: str) -> Value:
    """The value itself, or a Python number as a constant of `dtype`."""
    return value if isinstance(value, Value) else const(value, dtype)


def fma(a: Value | Number, b: Value | Number, c: Value) -> Value:
    """The fused multiply-add a b + c. Targets may round it once or twice."""
    a, b = as_value(a, c.dtype), as_value(b, c.dtype)
    _same("fma", a, b, c)
    return _float(Value("fma", c.dtype, (a, b, c)))


def sqrt(a: Value) -> Value:
    return _float(Value("sqrt", a.dtype, (a,)))


def exp(a: Value) -> Value:
    return _float(Value("exp", a.dtype, (a,)))


def minimum(a: Value | Number, b: Value | Number) -> Value:
    """a if a < b else b, so b if either is NaN."""
    return _binary("min", a, b)


def maximum(a: Value | Number, b: Value | Number) -> Value:
    """a if a > b else b, so b if either is NaN."""
    return _binary("max", a, b)


def lt(a: Value | Number, b: Value | Number) -> Value:
    return _compare("lt", a, b)


def le(a: Value | Number, b: Value | Number) -> Value:
    return _compare("le", a, b)


def eq(a: Value | Number, b: Value | Number) -> Value:
    return _compare("eq", a, b)


def both(a: Value, b: Value) -> Value:
    """Logical and. Both sides may be evaluated: guard an array index by an If statement, not by this."""
    return _logical("and", a, b)


def either(a: Value, b: Value) -> Value:
    return _logical("or", a, b)


def invert(a: Value) -> Value:
    return _logical("not", a)


def select(condition: Value, a: Value | Number, b: Value | Number) -> Value:
    """a if the condition holds, else b. Both may be evaluated."""
    chosen = _binary("select", a, b)
    _logical("not", condition)
    return Value("select", chosen.dtype, (condition, *chosen.args))


def cast(a: Value, dtype: str) -> Value:
    """Conversion between number types. Floats are truncated towards zero and must fit into the integer type."""
    if dtype not in DTYPES or "bool" in (dtype, a.dtype):
        raise ProgramError(f"no conversion from {a.dtype} to {dtype}")
    return a if a.dtype == dtype else Value("cast", dtype, (a,))


def walk(roots: tuple[Value, ...], stop: Callable[[Value], bool] = lambda value: False) -> Iterator[Value]:
    """All values of the roots' expressions, each once and after its operands.

    Values for which `stop` holds are neither yielded nor entered.
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


def row_major(index: Sequence[Value | int], extents: Sequence[Value | int]) -> Value:
    """Return the position of an element of a row-major array as an i64 value. extents: of all axes but the first."""
    position = _position(index[0])
    for extent, i in zip(extents, index[1:], strict=True):
        position = position * extent + _position(i)
    return as_value(position, "i64")


def _position(index: Value | int) -> Value | int:
    """An index as an i64; numbers remain Python integers, so that constant positions are folded."""
    if not isinstance(index, Value):
        return index
    return index.attr if index.op == "const" else cast(_integer(index), "i64")


def _word(attr: Any) -> str:
    if isinstance(attr, Array):
        extents = ",".join(n.key if isinstance(n, Value) else str(n) for n in attr.shape)
        return f"{attr.name}:{attr.dtype}:{extents}:{attr.space}:{attr.lanes}"
    return repr(attr)


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
    if any(a.dtype != "bool" for a in args):
        raise ProgramError(f"{op} takes conditions, found {', '.join(a.dtype for a in args)}")
    return Value(op, "bool", args)


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
