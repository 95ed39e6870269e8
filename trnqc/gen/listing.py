"""Listings of programs for people to read, independent of the target language."""

from __future__ import annotations

from collections.abc import Collection

from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.expression_text import expression
from trnqc.gen.values import Value


def listing(program: st.Function | st.Statement) -> str:
    """The text of a program, with called functions before their callers."""
    if isinstance(program, st.Function):
        lines = [line for f in functions(program) for line in (*_function(f), "")]
        return "\n".join(lines)
    return "\n".join(_lines(program, "")) + "\n"


def functions(root: st.Function, external: Collection[str] = ()) -> list[st.Function]:
    """The function and all functions that it calls, callees first.

    Functions whose names are in `external` are included, but not the functions that they call.
    """
    callees: list[st.Function] = []
    if root.name in external:
        return [root]
    for s in st.statements(root.body):
        if isinstance(s, st.Call) and s.function not in callees:
            callees += [f for f in functions(s.function, external) if f not in callees]
    return [*callees, root]


def _function(function: st.Function) -> list[str]:
    written = function.written
    params = ", ".join(_param(p, written) for p in function.params)
    group = f" for each {function.group.attr}" if function.group is not None else ""
    title = [f"# {function.title}"] if function.title else []
    return [*title, f"function {function.name}({params}){group}:", *_lines(function.body, "  ")]


def _param(param: Value | Array, written: tuple[str, ...]) -> str:
    if isinstance(param, Value):
        return f"{param.attr}: {param.dtype}"
    role = "out " if param.name in written else ""
    return f"{role}{array(param)}"


def _argument(a: Value | Array | st.View) -> str:
    if isinstance(a, st.View):
        return f"{a.array.name}[{expression(a.begin)} ..]{' flat' if a.flat else ''}"
    return a.name if isinstance(a, Array) else expression(a)


def array(a: Array) -> str:
    """The space, name, extents, type and lanes of an array, such as ``shared h[9]: f64 lanes``."""
    extents = ", ".join("?" if n is None else str(n) for n in a.shape)
    space = "" if a.space == "global" else f"{a.space} "
    return f"{space}{a.name}[{extents}]: {a.dtype}{' lanes' if a.lanes else ''}"


def _lines(s: st.Statement, pad: str) -> list[str]:
    match s:
        case st.Block():
            head = [f"{pad}# {s.title}"] if s.title else []
            return head + [line for inner in s.body for line in _lines(inner, pad)]
        case st.Let():
            return [f"{pad}{s.var.attr} = {expression(s.value)}"]
        case st.Declare():
            return [f"{pad}var {s.var.attr}: {s.var.dtype} = {expression(s.value)}"]
        case st.Assign():
            return [f"{pad}{s.var.attr} := {expression(s.value)}"]
        case st.DeclareArray():
            return [f"{pad}{array(s.array)}"]
        case st.Store() | st.Accumulate():
            sign = "=" if isinstance(s, st.Store) else "+="
            where = f" where {expression(s.where)}" if s.where is not None else ""
            return [f"{pad}{s.array.name}[{expression(s.index)}] {sign} {expression(s.value)}{where}"]
        case st.GatherRows() | st.ScatterRows():
            row = f"[{expression(s.start)} .. + {expression(s.count)}]"
            if isinstance(s, st.GatherRows):
                return [f"{pad}{s.target.name} = {s.source.name}{row}"]
            return [f"{pad}{s.target.name}{row} += {s.source.name}"]
        case st.Unpack() | st.Pack():
            into, out_of = (s.place, s.start) if isinstance(s, st.Unpack) else (s.start, s.place)
            steps = f"{s.count} of {s.rows} rows, {s.stride} apart"
            return [f"{pad}{s.target.name}[{expression(into)} ..] = {s.source.name}[{expression(out_of)} ..]: {steps}"]
        case st.For():
            step = f" step {s.step}" if s.step != 1 else ""
            head_line = f"{pad}for {s.var.attr} in {expression(s.begin)} .. {expression(s.end)}{step}:"
            return [head_line, *_lines(s.body, pad + "  ")]
        case st.While():
            return [f"{pad}while {expression(s.condition)}:", *_lines(s.body, pad + "  ")]
        case st.If():
            lines = [f"{pad}if {expression(s.condition)}:", *_lines(s.then, pad + "  ")]
            return lines + ([f"{pad}else:", *_lines(s.orelse, pad + "  ")] if s.orelse.body else [])
        case st.Call():
            return [f"{pad}{s.function.name}({', '.join(map(_argument, s.arguments))})"]
        case st.Prefetch():
            return [f"{pad}prefetch {s.array.name}[{expression(s.index)}]"]
        case st.Fence():
            return [f"{pad}fence{''.join(f' {v.attr}' for v in s.variables)}"]
    return [f"{pad}{type(s).__name__.lower()}"]
