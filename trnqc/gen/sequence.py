"""From an ordered graph to statements: every node gets a name, and is computed where the order puts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnqc.errors import ProgramError
from trnqc.gen.graph import Graph
from trnqc.gen.slots import Slots
from trnqc.gen.statements import Assign, Declare, Let, Statement
from trnqc.gen.values import Value, Var, rebuilt, walk

Finish = Callable[[Value, Value], Statement | Sequence[Statement]]

# A slot that holds values of several types has a variable for each.
SLOTS = {"f64": "s", "f32": "f", "i64": "n", "i32": "m", "bool": "c"}


def substitute(value: Value, known: Mapping[Value, Value]) -> Value:
    """The value with every part in `known` replaced; nothing is looked for inside a replaced part."""
    made: dict[Value, Value] = dict(known)
    for part in walk((value,), stop=made.__contains__):
        made[part] = rebuilt(part, tuple(made[a] for a in part.args))
    return made[value]


def straight_line(
    graph: Graph,
    order: Sequence[int],
    *,
    names: Mapping[Value, str] | None = None,
    finish: Finish | None = None,
    slots: Slots | None = None,
) -> tuple[list[Statement], dict[Value, Value]]:
    """Statements that compute the nodes in order, and the variable that holds each node.

    names: what to call a node; the rest are v0, v1, ... finish(node, variable): statements to put right after a target
    is computed, such as a store. With `slots` nodes share variables such as s0 and s1, which Assign changes: then only
    values that nothing needs later may be read after the last statement. Raises ProgramError for a wrong order.
    """
    graph.check(order)
    if not graph.values:
        raise ProgramError("the graph has no values to compute")
    names, targets = names or {}, set(graph.targets)
    held: dict[Value, Value] = {}
    made: list[Statement] = []
    opened: set[Value] = set()
    for v in order:
        value = graph.values[v]
        expression = rebuilt(value, tuple(substitute(a, held) for a in value.args))
        name = f"{SLOTS[value.dtype]}{slots.place[v]}" if slots else names.get(value, f"v{v}")
        variable = Var(name, value.dtype)
        kind = Let if not slots else Assign if variable in opened else Declare
        opened.add(variable)
        made.append(kind(variable, expression))
        held[value] = variable
        if finish and v in targets:
            after = finish(value, variable)
            made += [after] if isinstance(after, Statement) else list(after)
    return made, held
