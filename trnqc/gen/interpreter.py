"""The interpreter: run programs on NumPy arrays, all lanes at once. It defines the meaning of programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.lanes import Lanes, analyse
from trnqc.gen.values import FLOATS, Value, walk

NUMPY = {"f64": np.float64, "f32": np.float32, "i64": np.int64, "i32": np.int32, "bool": np.bool_}


def run(
    function: st.Function, arguments: Mapping[str, Any], *, lanes: int = 1, groups: range | tuple[int, int] = (0, 1)
) -> None:
    """Run a function. The arrays that it writes to are changed in place.

    Parameters
    ----------
    function : Function
        The program.
    arguments : mapping
        Scalars and C-contiguous arrays by the names of the parameters. The last axis of an array of lanes is the lane.
    lanes : int
        The number of lanes.
    groups : range or (int, int)
        The first group and the end of the groups, for a function with a group.

    Raises
    ------
    ProgramError
        If an argument is missing or wrong, an access lies outside an array, or an integer is divided by zero.

    Notes
    -----
    Elements of local arrays are NaN until they are stored.
    """
    analysis = analyse(function)
    first, last = (groups.start, groups.stop) if isinstance(groups, range) else groups
    checked = {st.name_of(p): _argument(p, arguments, lanes, function) for p in function.params}
    with np.errstate(all="ignore"):
        for group in range(first, last) if function.group is not None else (0,):
            frame = _Frame(function, analysis, lanes, dict(checked))
            if function.group is not None:
                frame.names[function.group.attr] = np.int64(group)
            frame.block(function.body)


def evaluate(value: Value, names: Mapping[str, Any]) -> Any:
    """Evaluate one value outside a program, given the variables and arrays that it reads."""
    frame = _Frame(st.Function("expression", (), st.Block(())), Lanes({"expression": set()}), 1, dict(names))
    with np.errstate(all="ignore"):
        return frame.value(value)


def _argument(param: Value | Array, arguments: Mapping[str, Any], lanes: int, function: st.Function) -> Any:
    name = st.name_of(param)
    if name not in arguments:
        raise ProgramError(f"{function.name} needs the argument {name!r}, found {sorted(arguments)}")
    kind = NUMPY[param.dtype]
    if isinstance(param, Value):
        return kind(arguments[name])
    array = arguments[name]
    if not isinstance(array, np.ndarray) or array.dtype != kind or not array.flags.c_contiguous:
        raise ProgramError(f"{function.name}: {name} must be a C-contiguous array of {kind.__name__}")
    if param.lanes and (array.ndim == 0 or array.shape[-1] != lanes):
        raise ProgramError(f"{function.name}: the last axis of {name} must be the {lanes} lanes, found {array.shape}")
    return array.reshape(-1, lanes) if param.lanes else array.reshape(-1)


class _Frame:
    """One call of a function. `names` maps to scalars, vectors of lanes, and arrays of shape [n] or [n, lanes]."""

    def __init__(self, function: st.Function, analysis: Lanes, lanes: int, names: dict[str, Any]) -> None:
        self.function, self.analysis, self.lanes, self.names = function, analysis, lanes, names

    def value(self, root: Value) -> Any:
        known: dict[Value, Any] = {}
        for value in walk((root,)):
            known[value] = self.one(value, [known[a] for a in value.args])
        return known[root]

    def one(self, value: Value, args: list[Any]) -> Any:
        match value.op:
            case "const":
                return NUMPY[value.dtype](value.attr)
            case "lane":
                return np.arange(self.lanes)
            case "var":
                return self.name(value.attr)
            case "load":
                return self.name(value.attr.name)[self.place(value.attr, args[0])]
            case "cast":
                return np.asarray(np.trunc(args[0]) if value.dtype not in FLOATS else args[0]).astype(
                    NUMPY[value.dtype]
                )[()]
        return OPERATIONS[value.op](*args)

    def name(self, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            raise ProgramError(f"{self.function.name}: {name} is read before it is introduced") from None

    def place(self, array: Array, index: Any) -> Any:
        data = self.name(array.name)
        if np.any((index < 0) | (index >= len(data))):
            raise ProgramError(f"{self.function.name}: {array.name}[{index}] lies outside its {len(data)} elements")
        if data.ndim == 2 and np.ndim(index):
            return index, np.arange(self.lanes)
        return index

    def array(self, argument: Array | st.View) -> Any:
        if isinstance(argument, Array):
            return self.name(argument.name)
        data, begin = self.name(argument.array.name), self.value(argument.begin)
        if not 0 <= begin <= len(data):
            name = f"{argument.array.name}[{begin} ..]"
            raise ProgramError(f"{self.function.name}: the view {name} begins outside the {len(data)} elements")
        return data[begin:].reshape(-1) if argument.flat else data[begin:]

    def block(self, block: st.Block) -> None:
        for s in block.body:
            getattr(self, f"do_{type(s).__name__.lower()}")(s)

    do_block = block

    def do_let(self, s: st.Let | st.Declare | st.Assign) -> None:
        self.names[s.var.attr] = self.value(s.value)

    do_declare = do_let

    def do_assign(self, s: st.Assign) -> None:
        self.name(s.var.attr)
        self.do_let(s)

    def do_declarearray(self, s: st.DeclareArray) -> None:
        array = s.array
        if array.data is not None:
            self.names[array.name] = np.array(array.data, NUMPY[array.dtype])
            return
        rest = (self.lanes,) if self.analysis.array_differs(self.function, array) else ()
        undefined = np.nan if array.dtype in FLOATS else np.iinfo(NUMPY[array.dtype]).min
        self.names[array.name] = np.full((array.size or 0, *rest), undefined, NUMPY[array.dtype])

    def do_store(self, s: st.Store) -> None:
        data, index, value = self.name(s.array.name), self.value(s.index), self.value(s.value)
        if s.where is None:
            data[self.place(s.array, index)] = value
        elif data.ndim == 2 and not np.ndim(index):
            row = data[self.place(s.array, index)]
            row[...] = np.where(self.value(s.where), value, row)
        else:
            for n, holds in enumerate(np.atleast_1d(self.value(s.where))):
                if holds:
                    own, number = (np.broadcast_to(x, self.lanes)[n] if np.ndim(index) else x for x in (index, value))
                    place = self.place(s.array, own)
                    data[(place, n) if data.ndim == 2 else place] = number

    def do_accumulate(self, s: st.Accumulate) -> None:
        data, index, value = self.name(s.array.name), self.value(s.index), self.value(s.value)
        if s.where is not None:
            holds = np.broadcast_to(self.value(s.where), self.lanes)
            lanes = np.flatnonzero(holds)
            place, value = self.place(s.array, index[lanes]), np.broadcast_to(value, self.lanes)[lanes]
            np.add.at(data, (place[0], lanes) if data.ndim == 2 else place, value)
            return
        place = self.place(s.array, index)
        if data.ndim == 2:
            data[place] += value
        elif np.ndim(index):
            np.add.at(data, place, value)
        else:
            total = np.add.accumulate(value)[-1] if np.ndim(value) else value
            data[place] += total

    def do_gatherrows(self, s: st.GatherRows) -> None:
        for i in range(int(self.value(s.count))):
            place = self.place(s.source, self.value(s.start) + i)
            self.name(s.target.name)[self.place(s.target, i)] = self.name(s.source.name)[place]

    def do_scatterrows(self, s: st.ScatterRows) -> None:
        source, start = self.name(s.source.name), self.value(s.start)
        for i in range(int(self.value(s.count))):
            np.add.at(self.name(s.target.name), self.place(s.target, start + i), source[self.place(s.source, i)])

    def do_unpack(self, s: st.Unpack) -> None:
        lanes, start, place = np.arange(min(s.rows, self.lanes)), self.value(s.start), self.value(s.place)
        target, source = self.name(s.target.name), self.name(s.source.name)
        for i in range(s.count):
            row = target[self.place(s.target, place + i)]
            row[...] = 0
            row[: len(lanes)] = source[self.place(s.source, start + lanes * s.stride + i)]

    def do_pack(self, s: st.Pack) -> None:
        lanes, start, place = np.arange(min(s.rows, self.lanes)), self.value(s.start), self.value(s.place)
        target, source = self.name(s.target.name), self.name(s.source.name)
        for i in range(s.count):
            row = source[self.place(s.source, place + i)]
            target[self.place(s.target, start + lanes * s.stride + i)] = row[: len(lanes)]

    def do_for(self, s: st.For) -> None:
        for i in range(int(self.value(s.begin)), int(self.value(s.end)), s.step):
            self.names[s.var.attr] = NUMPY[s.var.dtype](i)
            self.block(s.body)

    def do_while(self, s: st.While) -> None:
        while self.value(s.condition):
            self.block(s.body)

    def do_if(self, s: st.If) -> None:
        self.block(s.then if self.value(s.condition) else s.orelse)

    def do_call(self, s: st.Call) -> None:
        names = {
            st.name_of(p): self.value(a) if isinstance(a, Value) else self.array(a)
            for p, a in zip(s.function.params, s.arguments)
        }
        _Frame(s.function, self.analysis, self.lanes, names).block(s.function.body)

    def do_barrier(self, s: st.Statement) -> None:
        """Nothing to do: lanes advance together."""

    do_fence = do_barrier

    def do_prefetch(self, s: st.Prefetch) -> None:
        """Nothing to do: it changes no result. The element may lie outside of the array."""


def _quotient(a: Any, b: Any) -> Any:
    if np.any(b == 0):
        raise ProgramError("an integer is divided by zero")
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


def _lowest_bit(a: Any) -> Any:
    if np.any(a == 0):
        raise ProgramError("the lowest bit of 0 is asked for")
    word = a.view("u8")
    return np.bitwise_count((word & (~word + np.uint64(1))) - np.uint64(1)).astype(np.int64)


def _where(condition: Any, a: Any, b: Any) -> Any:
    result: Any = np.where(condition, a, b)
    return result[()]


# Integer division truncates towards zero and the remainder has the sign of the dividend, as in C.
OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "idiv": _quotient,
    "mod": lambda a, b: a - b * _quotient(a, b),
    "neg": lambda a: -a,
    "fma": lambda a, b, c: a * b + c,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "min": lambda a, b: _where(a < b, a, b),
    "max": lambda a, b: _where(a > b, a, b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "not": np.logical_not,
    "select": lambda c, a, b: _where(c, a, b),
    "bits": lambda a: a.view(f"i{a.itemsize}"),
    "from_bits": lambda a: a.view(f"f{a.itemsize}"),
    "with_bit": lambda a, number: a | np.left_shift(1, number % 64),
    "lowest_bit": _lowest_bit,
    "without_lowest_bit": lambda a: a ^ np.left_shift(1, _lowest_bit(a)),
}
