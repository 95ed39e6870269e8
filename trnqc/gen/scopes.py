"""Check the scopes of names: each name is introduced once, before its use, in the same block or an enclosing one."""

from __future__ import annotations

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.values import Value


def check(function: st.Function) -> None:
    """Check the names of a function.

    Bodies of loops and branches are scopes, blocks with a title are not. Raises ProgramError if a name is used outside
    its scope, introduced twice in one scope, or used with another type.
    """
    names = {st.name_of(p): p for p in (*function.params, *((function.group,) if function.group is not None else ()))}
    _block(function, function.body, names, set(names))


def _block(function: st.Function, block: st.Block, names: dict[str, Value | Array], scope: set[str]) -> None:
    """Check a block. `names` are all names that can be used, `scope` the names that the innermost scope introduces."""
    for s in block.body:
        for value in st.values(s):
            _read(function, value, names)
        match s:
            case st.Block():
                _block(function, s, names, scope)
            case st.Let() | st.Declare():
                _introduce(function, s.var, names, scope)
            case st.DeclareArray():
                _introduce(function, s.array, names, scope)
            case st.Assign():
                _read(function, s.var, names)
            case st.Store() | st.Accumulate() | st.Prefetch():
                _check_use(function, s.array, names)
            case st.GatherRows() | st.ScatterRows() | st.Unpack() | st.Pack():
                _check_use(function, s.target, names)
                _check_use(function, s.source, names)
            case st.Call():
                for array in map(st.whole, s.arguments):
                    if isinstance(array, Array):
                        _check_use(function, array, names)
            case st.For():
                inner = {**names, s.var.attr: s.var}
                _block(function, s.body, inner, {s.var.attr})
            case st.While() | st.If():
                for body in st.children(s):
                    _block(function, body, dict(names), set())


def _introduce(function: st.Function, new: Value | Array, names: dict[str, Value | Array], scope: set[str]) -> None:
    name = st.name_of(new)
    if name in scope:
        raise ProgramError(f"function {function.name}: {name} is introduced twice in one scope")
    scope.add(name)
    names[name] = new


def _read(function: st.Function, root: Value, names: dict[str, Value | Array]) -> None:
    for value in root.reads:
        if value.op == "var":
            _check_use(function, value, names)
        elif value.op == "load":
            _check_use(function, value.attr, names)


def _check_use(function: st.Function, used: Value | Array, names: dict[str, Value | Array]) -> None:
    name = st.name_of(used)
    introduced = names.get(name)
    if introduced is None:
        raise ProgramError(f"function {function.name}: {name} is used outside its scope, or before it is introduced")
    if introduced != used:
        raise ProgramError(f"function {function.name}: {name} is introduced as {introduced!r} and used as {used!r}")
