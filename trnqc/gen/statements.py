"""Statements: control flow over values, and functions.

Several lanes run a function in lockstep: SIMD lanes in C, threads of a block in CUDA, array elements in the
interpreter. Their number is not part of the program. Arrays marked `lanes` hold one number for each lane. Values
computed from them differ by lane; all other values, and all conditions and loop bounds, are the same on every lane.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from trnqc.errors import ProgramError
from trnqc.gen.arrays import Array
from trnqc.gen.values import Number, Value, as_value


class Statement:
    """The base class of all statements."""


@dataclass(frozen=True)
class Block(Statement):
    """Statements in order. The title becomes a comment in the generated text."""

    body: tuple[Statement, ...]
    title: str = ""


@dataclass(frozen=True)
class Let(Statement):
    """Introduce a variable that never changes."""

    var: Value
    value: Value


@dataclass(frozen=True)
class Declare(Statement):
    """Introduce a variable that Assign statements may change."""

    var: Value
    value: Value


@dataclass(frozen=True)
class Assign(Statement):
    var: Value
    value: Value


@dataclass(frozen=True)
class DeclareArray(Statement):
    """Introduce a local or shared array, whose elements are undefined until stored, or a constant table."""

    array: Array


@dataclass(frozen=True)
class Store(Statement):
    """array[index] = value, where a condition holds if there is one.

    If the value or the condition differs by lane and the array is not marked `lanes`, the index has to differ by lane
    as well. Where the condition does not hold, the index may lie outside of the array.
    """

    array: Array
    index: Value
    value: Value
    where: Value | None = None


@dataclass(frozen=True)
class Accumulate(Statement):
    """array[index] += value, where a condition holds if there is one.

    If the value differs by lane and the array is not marked `lanes`, the sum of the value over the lanes is added. On a
    CPU it is formed in the order of the lanes. With a condition, the index has to differ by lane, and where it does not
    hold, the index may lie outside of the array.
    """

    array: Array
    index: Value
    value: Value
    where: Value | None = None


@dataclass(frozen=True)
class GatherRows(Statement):
    """target[i] = source[start + i] for i < count: every lane copies a row that begins at its own start.

    The target is marked `lanes`, the source is not. The two arrays do not overlap.
    """

    target: Array
    source: Array
    start: Value
    count: Value


@dataclass(frozen=True)
class ScatterRows(Statement):
    """target[start + i] += source[i] for i < count: the lanes add a row each, one after the other, at their own starts.

    The source is marked `lanes`, the target is not. The rows of two lanes are the same or do not overlap.
    """

    target: Array
    source: Array
    start: Value
    count: Value


@dataclass(frozen=True)
class Unpack(Statement):
    """target[place + i] = source[start + lane * stride + i] for i < count: evenly spaced rows, one for each lane.

    Only the first `rows` lanes read; the others get 0. The target is marked `lanes`, the source is not.
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
    """target[start + lane * stride + i] = source[place + i] for i < count: the inverse of Unpack.

    Only the first `rows` lanes write. The stride is at least `count`, so that rows do not overlap.
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
    """A loop over var = begin, begin + step, ... < end. The bounds are evaluated once. The step is positive."""

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
    """The part of an array from element `begin` on, as an argument of a Call. `begin` is the same on every lane.

    If `flat` holds, the array is a global array of lanes, and the parameter is one without lanes, in which the lane is
    the fastest index.
    """

    array: Array
    begin: Value
    flat: bool = False


@dataclass(frozen=True)
class Call(Statement):
    """Call another generated function with values, arrays and views in the order of its parameters.

    An array that the function writes to must not overlap with another argument.
    """

    function: Function
    arguments: tuple[Value | Array | View, ...]


@dataclass(frozen=True)
class Barrier(Statement):
    """Wait until all lanes of the group arrive here. Their earlier stores to shared arrays are visible afterwards."""


@dataclass(frozen=True)
class Fence(Statement):
    """Forbid the compiler to move memory accesses, or the computation of the variables, across this statement."""

    variables: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Prefetch(Statement):
    """Say that an element of a global array will soon be read, which changes no result. On GPUs it does nothing."""

    array: Array
    index: Value


@dataclass(frozen=True)
class Function:
    """A kernel, or a function that kernels call.

    Parameters
    ----------
    name : str
        The name of the function in the generated text.
    params : tuple of Value and Array
        The parameters in order: scalars (`Var`) and arrays.
    body : Block
        The statements.
    group : Value, optional
        The i64 variable that holds the index of the group. A group is a block of a CUDA grid. In C and in the
        interpreter, a function with a group runs a range of groups, which two more arguments, groups_begin and
        groups_end, state.
    title : str
        A comment above the function.

    Raises
    ------
    ProgramError
        If two parameters have the same name, the name is not an identifier, or the group is not an i64 variable.
    """

    name: str
    params: tuple[Value | Array, ...]
    body: Block
    group: Value | None = None
    title: str = ""

    def __post_init__(self) -> None:
        names = [name_of(p) for p in self.params]
        if len(set(names)) != len(names) or not self.name.isidentifier():
            raise ProgramError(
                f"function {self.name!r}: its name must be an identifier, and its parameters must have different "
                f"names; found {names}"
            )
        if self.group is not None and (self.group.op, self.group.dtype) != ("var", "i64"):
            raise ProgramError(f"function {self.name}: the group must be an i64 variable, found {self.group!r}")

    @cached_property
    def written(self) -> tuple[str, ...]:
        """The names of the array parameters to which the function, or a function that it calls, stores."""
        names = set()
        for s in statements(self.body):
            if isinstance(s, Store | Accumulate):
                names.add(s.array.name)
            elif isinstance(s, GatherRows | ScatterRows | Unpack | Pack):
                names.add(s.target.name)
            elif isinstance(s, Call):
                by_callee = s.function.written
                pairs = zip(s.function.params, s.arguments)
                names.update(name_of(whole(a)) for p, a in pairs if name_of(p) in by_callee)
        return tuple(name_of(p) for p in self.params if isinstance(p, Array) and p.name in names)


def name_of(param: Value | Array) -> str:
    """The name of a variable or an array, or an empty string for any other value."""
    if isinstance(param, Array):
        return param.name
    return param.attr if param.op == "var" else ""


def whole(argument: Value | Array | View) -> Value | Array:
    """The array of a view. Any other argument is returned as it is."""
    return argument.array if isinstance(argument, View) else argument


def view(element: Value) -> View:
    """``view(a[i, j])`` is the part of the array a from element [i, j] on."""
    return View(*_element(element))


def flat_view(element: Value) -> View:
    """``flat_view(a[i, j])`` is the part of a global array of lanes, seen as an array without lanes."""
    return View(*_element(element), flat=True)


def block(*parts: Statement | list[Any] | tuple[Any, ...], title: str = "") -> Block:
    """A block of statements; arguments may be statements and nested lists of statements."""
    return Block(tuple(_flat(parts)), title)


def loop(var: Value, end: Value | int, *body: Any, begin: Value | int = 0, step: int = 1) -> For:
    """A loop over var = begin, begin + step, ... < end."""
    if step < 1 or var.op != "var":
        raise ProgramError(f"a loop needs a variable and a positive step, found {var!r} and {step}")
    return For(var, as_value(begin, var.dtype), as_value(end, var.dtype), block(*body), step)


def store(target: Value, value: Value | Number, where: Value | None = None) -> Store:
    """The statement a[i, j] = v, written ``store(a[i, j], v)``; `where` is the condition under which it is stored."""
    return Store(*_element(target), as_value(value, target.dtype), where)


def accumulate(target: Value, value: Value | Number, where: Value | None = None) -> Accumulate:
    """The statement a[i, j] += v, written ``accumulate(a[i, j], v)``; `where` is the condition under which it adds."""
    return Accumulate(*_element(target), as_value(value, target.dtype), where)


def prefetch(target: Value) -> Prefetch:
    """The statement that says that the element a[i, j] will soon be read, written ``prefetch(a[i, j])``."""
    return Prefetch(*_element(target))


def call(function: Function, **arguments: Value | Number | Array | View) -> Call:
    """Call a function with its arguments by the names of its parameters; numbers become constants."""
    names = [name_of(p) for p in function.params]
    if set(names) != set(arguments):
        raise ProgramError(f"function {function.name} takes {names}, found arguments {list(arguments)}")
    ordered = ((p, arguments[name_of(p)]) for p in function.params)
    return Call(function, tuple(a if isinstance(a, Array | View) else as_value(a, p.dtype) for p, a in ordered))


def children(statement: Statement) -> tuple[Block, ...]:
    """The blocks directly inside a statement, in order."""
    match statement:
        case For() | While():
            return (statement.body,)
        case If():
            return (statement.then, statement.orelse)
    return ()


def statements(root: Statement) -> Iterator[Statement]:
    """Yield all statements of the tree in order, outer before inner. Called functions are not entered."""
    yield root
    for inner in root.body if isinstance(root, Block) else children(root):
        yield from statements(inner)


def values(statement: Statement) -> tuple[Value, ...]:
    """The values that the statement itself evaluates, without the values of statements inside it."""
    match statement:
        case Let() | Declare() | Assign():
            return (statement.value,)
        case Store() | Accumulate():
            return (statement.index, statement.value, *([] if statement.where is None else [statement.where]))
        case Prefetch():
            return (statement.index,)
        case GatherRows() | ScatterRows():
            return (statement.start, statement.count)
        case Unpack() | Pack():
            return (statement.start, statement.place)
        case For():
            return (statement.begin, statement.end)
        case While() | If():
            return (statement.condition,)
        case Call():
            arguments = (a.begin if isinstance(a, View) else a for a in statement.arguments)
            return tuple(a for a in arguments if isinstance(a, Value))
    return ()


def _flat(parts: Any) -> Iterator[Statement]:
    for part in parts:
        if isinstance(part, Statement):
            yield part
        else:
            yield from _flat(part)


def _element(target: Value) -> tuple[Array, Value]:
    if target.op != "load":
        raise ProgramError(f"expected an element of an array as the target, found {target!r}")
    return target.attr, target.args[0]
