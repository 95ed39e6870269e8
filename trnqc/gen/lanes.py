"""Infer which variables and local arrays differ by lane, and check that control flow does not.

The author of a program marks the array parameters that hold a number for each lane. Whatever is computed from a value
that differs by lane also differs by lane.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from trnqc.errors import ProgramError
from trnqc.gen import scopes
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.expression_text import expression
from trnqc.gen.listing import functions
from trnqc.gen.values import Value


@dataclass
class Lanes:
    """The names of the variables and arrays that differ by lane, by the name of their function."""

    names: dict[str, set[str]] = field(default_factory=dict)

    def differs(self, function: st.Function, value: Value) -> bool:
        """Whether the value may be different on different lanes."""
        names = self.names[function.name]
        for part in value.reads:
            if part.op == "lane" or (part.op == "var" and part.attr in names):
                return True
            if part.op == "load" and (part.attr.lanes or part.attr.name in names):
                return True
        return False

    def array_differs(self, function: st.Function, array: Array) -> bool:
        return array.lanes or array.name in self.names[function.name]


def analyse(root: st.Function, external: Collection[str] = ()) -> Lanes:
    """Analyse a function and all functions that it calls, but of those whose names are in `external` only the calls.

    Raises ProgramError if a name is used outside its scope, control flow differs by lane, a value that differs by lane
    is stored to an element that all lanes share, or the arguments of a call do not fit the parameters.
    """
    program = functions(root, external)
    if len({f.name for f in program}) != len(program):
        raise ProgramError(f"two functions have the same name: {', '.join(f.name for f in program)}")
    lanes = Lanes({f.name: set() for f in program})
    inside = {f.name: tuple(st.statements(f.body)) for f in program if f.name not in external}
    size = -1
    while size != (size := sum(map(len, lanes.names.values()))):
        for f in reversed(program):
            for s in inside.get(f.name, ()):
                _infer(lanes, f, s)
    for f in program:
        if f.name in inside:
            scopes.check(f)
        for s in inside.get(f.name, ()):
            _check(lanes, f, s)
    return lanes


def _infer(lanes: Lanes, f: st.Function, s: st.Statement) -> None:
    """Add the names that differ by lane because of one statement."""
    names = lanes.names[f.name]
    match s:
        case st.Let() | st.Declare() | st.Assign() if lanes.differs(f, s.value):
            names.add(s.var.attr)
        case st.Store() | st.Accumulate() if s.array.space == "local":
            if lanes.differs(f, s.value) or lanes.differs(f, s.index):
                names.add(s.array.name)
        case st.GatherRows() | st.Unpack() if s.target.space == "local":
            names.add(s.target.name)
        case st.Call():
            for param, argument in zip(s.function.params, map(st.whole, s.arguments)):
                if isinstance(argument, Array) and isinstance(param, Array):
                    if argument.space == param.space == "local":
                        # A called function is written for one lane, so the local arrays it receives differ by lane.
                        names.add(argument.name)
                        lanes.names[s.function.name].add(param.name)
                elif isinstance(argument, Value) and isinstance(param, Value) and lanes.differs(f, argument):
                    lanes.names[s.function.name].add(param.attr)


def _check(lanes: Lanes, f: st.Function, s: st.Statement) -> None:
    match s:
        case st.For() | st.While() | st.If():
            for value in st.values(s):
                if lanes.differs(f, value):
                    raise ProgramError(
                        f"function {f.name}: control flow must be the same on every lane, but {expression(value)} "
                        "differs; use select"
                    )
        case st.Store() if not lanes.array_differs(f, s.array):
            differs = lanes.differs(f, s.value) or (s.where is not None and lanes.differs(f, s.where))
            if differs and not lanes.differs(f, s.index):
                raise ProgramError(
                    f"function {f.name}: an element of {s.array.name} is shared by all lanes, but "
                    f"{expression(s.value)} differs by lane; mark the array `lanes`, or accumulate"
                )
        case st.Accumulate() if s.where is not None and not lanes.differs(f, s.index):
            raise ProgramError(
                f"function {f.name}: where a condition holds, lanes add to elements of their own, but the index "
                f"{expression(s.index)} of {s.array.name} is the same on every lane; select a value that is 0 elsewhere"
            )
        case st.GatherRows() | st.ScatterRows():
            _check_rows(lanes, f, s)
        case st.Unpack() | st.Pack():
            _check_packed(lanes, f, s)
        case st.Call():
            _check_call(lanes, f, s)


def _check_rows(lanes: Lanes, f: st.Function, s: st.GatherRows | st.ScatterRows) -> None:
    by_lane, common = (s.target, s.source) if isinstance(s, st.GatherRows) else (s.source, s.target)
    if not lanes.array_differs(f, by_lane) or lanes.array_differs(f, common) or by_lane.dtype != common.dtype:
        raise ProgramError(
            f"function {f.name}: rows are gathered from an array without lanes into an array of lanes, or scattered "
            f"back, and both have the same type; found {s.source.name} and {s.target.name}"
        )
    if lanes.differs(f, s.count) or s.count.dtype != "i64" or s.start.dtype != "i64":
        raise ProgramError(
            f"function {f.name}: the length of a row must be an i64 that is the same on every lane, and its start "
            "an i64"
        )


def _check_packed(lanes: Lanes, f: st.Function, s: st.Unpack | st.Pack) -> None:
    by_lane, common = (s.target, s.source) if isinstance(s, st.Unpack) else (s.source, s.target)
    if not lanes.array_differs(f, by_lane) or lanes.array_differs(f, common) or by_lane.dtype != common.dtype:
        raise ProgramError(
            f"function {f.name}: rows are unpacked from an array without lanes into an array of lanes, or packed "
            f"back, and both have the same type; found {s.source.name} and {s.target.name}"
        )
    if any(v.dtype != "i64" or lanes.differs(f, v) for v in (s.start, s.place)):
        raise ProgramError(f"function {f.name}: packed rows must start at an i64 that is the same on every lane")
    if s.count < 1 or s.rows < 1 or s.stride < (s.count if isinstance(s, st.Pack) else 0):
        raise ProgramError(
            f"function {f.name}: packed rows need at least one row and one element, and a stride of at least the row "
            f"length to be written; found {s.rows} rows of {s.count} elements, {s.stride} apart"
        )


def _check_call(lanes: Lanes, f: st.Function, call: st.Call) -> None:
    params = call.function.params
    wrong = len(params) != len(call.arguments)
    for argument in call.arguments:
        if isinstance(argument, st.View) and lanes.differs(f, argument.begin):
            raise ProgramError(
                f"function {f.name}: the view of {argument.array.name} must begin at the same element on every lane, "
                f"but {expression(argument.begin)} differs"
            )
    arguments = [st.whole(a) for a in call.arguments]
    flat = [isinstance(a, st.View) and a.flat for a in call.arguments]
    for param, argument, elements in zip(params, arguments, flat):
        wrong |= isinstance(param, Array) != isinstance(argument, Array) or param.dtype != argument.dtype
        if isinstance(param, Array) and isinstance(argument, Array):
            wrong |= param.space != argument.space or param.lanes != (argument.lanes and not elements)
            wrong |= elements and (argument.space != "global" or not argument.lanes)
    if wrong:
        raise ProgramError(
            f"function {f.name}: {call.function.name} takes {[st.name_of(p) for p in params]} of the same types, "
            f"spaces and lanes; found {[st.name_of(a) or expression(a) for a in arguments]}"  # type: ignore[arg-type]
        )
