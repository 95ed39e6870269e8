"""Statements: the tree of control flow over values, and the function that holds it.

A function is run by a number of lanes in lockstep: SIMD lanes in C, the threads of a block in CUDA, array elements in
the interpreter. Nothing in a program says how many. Parameters marked `lanes` hold one element a lane; what is computed
from them differs by lane, all else is the same on every lane, and so must be every condition and loop bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trnqc.errors import ProgramError
from trnqc.gen.values import Array, Number, Value, as_value


class Statement:
    """One of the classes below."""


@dataclass(frozen=True)
class Block(Statement):
    """Statements in order; `title` heads them in the generated text."""

    body: tuple[Statement, ...]
    title: str = ""


@dataclass(frozen=True)
class Let(Statement):
    """Introduce a variable that never changes."""

    var: Value
    value: Value


@dataclass(frozen=True)
class Declare(Statement):
    """Introduce a variable that Assign may change."""

    var: Value
    value: Value


@dataclass(frozen=True)
class Assign(Statement):
    var: Value
    value: Value


@dataclass(frozen=True)
class DeclareArray(Statement):
    """Introduce a local or shared array, or a constant table; elements are undefined until stored."""

    array: Array


@dataclass(frozen=True)
class Store(Statement):
    """array[index] = value. A value that differs by lane needs an array of lanes or an index that differs as well."""

    array: Array
    index: Value
    value: Value


@dataclass(frozen=True)
class Accumulate(Statement):
    """array[index] += value.

    Into an array without lanes a value that differs by lane adds the sum over the lanes, in order of lanes on a CPU.
    """

    array: Array
    index: Value
    value: Value


@dataclass(frozen=True)
class GatherRows(Statement):
    """target[i] = source[start + i] for i < count: every lane takes a row from a start of its own.

    The target is of lanes, the source is not; neither reaches into the other.
    """

    target: Array
    source: Array
    start: Value
    count: Value


@dataclass(frozen=True)
class ScatterRows(Statement):
    """target[start + i] += source[i] for i < count: every lane adds a row at a start of its own, in order of lanes.

    The source is of lanes, the target is not. Rows of two lanes are the same place or do not meet.
    """

    target: Array
    source: Array
    start: Value
    count: Value


@dataclass(frozen=True)
class Unpack(Statement):
    """target[place + i] = source[start + lane * stride + i] for i < count: rows that lie evenly apart, one a lane.

    Lanes from number `rows` on read nothing and get 0. The target is of lanes, the source is not.
    """

    target: Array
    place: Value
    source: Array
    start: Value
    stride: int
    count: int
    rows: int


@dataclass(frozen=True)
class Pack(Statement):
    """target[start + lane * stride + i] = source[place + i] for i < count, the reverse of Unpack.

    Lanes from number `rows` on write nothing. Rows of two lanes do not meet: the stride is not less than the count.
    """

    target: Array
    start: Value
    source: Array
    place: Value
    stride: int
    count: int
    rows: int


@dataclass(frozen=True)
class For(Statement):
    """var = begin, begin + step, ... while less than end; the bounds are evaluated once. step is positive."""

    var: Value
    begin: Value
    end: Value
    body: Block
    step: int = 1


@dataclass(frozen=True)
class While(Statement):
    condition: Value
    body: Block


@dataclass(frozen=True)
class If(Statement):
    condition: Value
    then: Block
    orelse: Block = field(default_factory=lambda: Block(()))


@dataclass(frozen=True)
class View:
    """An array from the element `begin` on, as an argument of a Call; begin is the same on every lane."""

    array: Array
    begin: Value


@dataclass(frozen=True)
class Call(Statement):
    """Run a function that is local to the text; arguments are values, arrays and views in the order of its parameters.

    Through two parameters of which one is written no element may be reached by both.
    """

    function: Function
    arguments: tuple[Value | Array | View, ...]


@dataclass(frozen=True)
class Barrier(Statement):
    """All lanes of a group arrive, and see each other's shared stores, before any goes on."""


@dataclass(frozen=True)
class Fence(Statement):
    """The target's compiler moves no memory access and none of the named variables' arithmetic across this place."""

    variables: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Function:
    """A kernel or a local function.

    params: scalars (`Var`) and arrays in order. written: names of the arrays it stores to.
    group: an i64 variable that runs over the groups of a launch (blocks of a CUDA grid). A function with a group is
    started for a range of them: in C and in the interpreter two i64 arguments, begin and end, stand last.
    """

    name: str
    params: tuple[Value | Array, ...]
    body: Block
    group: Value | None = None
    title: str = ""

    def __post_init__(self) -> None:
        names = [name_of(p) for p in self.params]
        if len(set(names)) != len(names) or not self.name.isidentifier():
            raise ProgramError(f"function {self.name!r}: names must be identifiers and differ, found {names}")
        if self.group is not None and (self.group.op, self.group.dtype) != ("var", "i64"):
            raise ProgramError(f"function {self.name}: the group is an i64 variable")

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Names of the parameter arrays that are stored to, here or in a function called, in order."""
        found = set()
        for s in statements(self.body):
            if isinstance(s, Store | Accumulate):
                found.add(s.array.name)
            elif isinstance(s, GatherRows | ScatterRows | Unpack | Pack):
                found.add(s.target.name)
            elif isinstance(s, Call):
                inside = s.function.written
                found.update(name_of(whole(a)) for p, a in zip(s.function.params, s.arguments) if name_of(p) in inside)
        return tuple(name_of(p) for p in self.params if isinstance(p, Array) and p.name in found)


def name_of(param: Value | Array) -> str:
    """The name of a variable or an array; empty for any other value."""
    if isinstance(param, Array):
        return param.name
    return param.attr if param.op == "var" else ""


def whole(argument: Value | Array | View) -> Value | Array:
    """The array that a view is of; any other argument itself."""
    return argument.array if isinstance(argument, View) else argument


def view(element: Value) -> View:
    """``view(a[i, j])``: the array from that element on."""
    return View(*_element(element))


def block(*parts: Statement | list[Any] | tuple[Any, ...], title: str = "") -> Block:
    """A block of statements and (nested) lists of them."""
    return Block(tuple(_flat(parts)), title)


def loop(var: Value, end: Value | int, *body: Any, begin: Value | int = 0, step: int = 1) -> For:
    """For var in begin, begin + step, ... < end."""
    if step < 1 or var.op != "var":
        raise ProgramError(f"a loop needs a variable and a positive step, found {var!r} and {step}")
    return For(var, as_value(begin, var.dtype), as_value(end, var.dtype), block(*body), step)


def store(target: Value, value: Value | Number) -> Store:
    """``store(a[i, j], v)``: the target is written as the read of the same element."""
    return Store(*_element(target), as_value(value, target.dtype))


def accumulate(target: Value, value: Value | Number) -> Accumulate:
    """``accumulate(a[i, j], v)``: adds v to the element."""
    return Accumulate(*_element(target), as_value(value, target.dtype))


def children(statement: Statement) -> tuple[Block, ...]:
    """The blocks directly inside a statement, in order."""
    match statement:
        case For() | While():
            return (statement.body,)
        case If():
            return (statement.then, statement.orelse)
    return ()


def statements(root: Statement) -> Iterator[Statement]:
    """Every statement of the tree, outer before inner, in order; functions called are not entered."""
    yield root
    for inner in root.body if isinstance(root, Block) else children(root):
        yield from statements(inner)


def values(statement: Statement) -> tuple[Value, ...]:
    """The values that the statement itself evaluates, not those of statements inside it."""
    match statement:
        case Let() | Declare() | Assign():
            return (statement.value,)
        case Store() | Accumulate():
            return (statement.index, statement.value)
        case GatherRows() | ScatterRows():
            return (statement.start, statement.count)
        case Unpack() | Pack():
            return (statement.start, statement.place)
        case For():
            return (statement.begin, statement.end)
        case While() | If():
            return (statement.condition,)
        case Call():
            given = (a.begin if isinstance(a, View) else a for a in statement.arguments)
            return tuple(a for a in given if isinstance(a, Value))
    return ()


def _flat(parts: Any) -> Iterator[Statement]:
    for part in parts:
        if isinstance(part, Statement):
            yield part
        else:
            yield from _flat(part)


def _element(target: Value) -> tuple[Array, Value]:
    if target.op != "load":
        raise ProgramError(f"an element of an array is wanted as a target, found {target!r}")
    return target.attr, target.args[0]
