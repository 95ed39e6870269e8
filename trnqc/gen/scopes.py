"""Check the scopes of names: each is introduced once, before its use, in an enclosing block."""

from __future__ import annotations

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.values import Array, Value, walk


def check(function: st.Function) -> None:
    """Raise ProgramError for a name that is used outside its scope, introduced twice in one, or used with another type.

    Bodies of loops and branches are scopes, titled blocks are not. Called functions are not entered.
    """
    names = {st.name_of(p): p for p in (*function.params, *((function.group,) if function.group is not None else ()))}
    _block(function, function.body, names, set(names))


def _block(function: st.Function, block: st.Block, names: dict[str, Value | Array], here: set[str]) -> None:
    for s in block.body:
        for value in st.values(s):
            _read(function, value, names)
        match s:
            case st.Block():
                _block(function, s, names, here)
            case st.Let() | st.Declare():
                _introduce(function, s.var, names, here)
            case st.DeclareArray():
                _introduce(function, s.array, names, here)
            case st.Assign():
                _read(function, s.var, names)
            case st.Store() | st.Accumulate():
                _known(function, s.array, names)
            case st.GatherRows() | st.ScatterRows() | st.Unpack() | st.Pack():
                _known(function, s.target, names)
                _known(function, s.source, names)
            case st.Call():
                for array in map(st.whole, s.arguments):
                    if isinstance(array, Array):
                        _known(function, array, names)
            case st.For():
                inner = {**names, s.var.attr: s.var}
                _block(function, s.body, inner, {s.var.attr})
            case st.While() | st.If():
                for body in st.children(s):
                    _block(function, body, dict(names), set())


def _introduce(function: st.Function, new: Value | Array, names: dict[str, Value | Array], here: set[str]) -> None:
    name = st.name_of(new)
    if name in here:
        raise ProgramError(f"function {function.name}: {name} is introduced twice in one scope")
    here.add(name)
    names[name] = new


def _read(function: st.Function, root: Value, names: dict[str, Value | Array]) -> None:
    for value in walk((root,)):
        if value.op == "var":
            _known(function, value, names)
        elif value.op == "load":
            _known(function, value.attr, names)


def _known(function: st.Function, wanted: Value | Array, names: dict[str, Value | Array]) -> None:
    name = st.name_of(wanted)
    introduced = names.get(name)
    if introduced is None:
        raise ProgramError(f"function {function.name}: {name} is used where it is not introduced")
    if introduced != wanted:
        raise ProgramError(f"function {function.name}: {name} is introduced as {introduced!r} and used as {wanted!r}")
