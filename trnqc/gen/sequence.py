"""From a scheduled graph to statements: every node becomes a variable, in the scheduled order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnqc.errors import ProgramError
from trnqc.gen.graph import Graph
from trnqc.gen.slots import Slots
from trnqc.gen.statements import Assign, Declare, Let, Statement
from trnqc.gen.values import Value, Var, rebuilt, walk

Finish = Callable[[Value, Value], Statement | Sequence[Statement]]

# Stems of slot names by type: a slot that holds values of several types has a variable for each.
SLOTS = {"f64": "s", "f32": "f", "i64": "n", "i32": "m", "bool": "c"}


def substitute(value: Value, known: Mapping[Value, Value]) -> Value:
    """The value with the subexpressions in `known` replaced; replacements are not searched again."""
    new: dict[Value, Value] = dict(known)
    for part in walk((value,), stop=new.__contains__):
        new[part] = rebuilt(part, tuple(new[a] for a in part.args))
    return new[value]


def straight_line(
    graph: Graph,
    order: Sequence[int],
    *,
    names: Mapping[Value, str] | None = None,
    finish: Finish | None = None,
    slots: Slots | None = None,
) -> tuple[list[Statement], dict[Value, Value]]:
    """Statements that compute the nodes of a graph in order.

    Parameters
    ----------
    graph, order
        The graph, whose values are known, and an order of its computed nodes.
    names : mapping, optional
        Names of variables by node; the others are v0, v1, ...
    finish : callable, optional
        finish(node, variable) returns statements to put right after a target, such as a store.
    slots : Slots, optional
        Variables that nodes share, s0, s1, ..., which are assigned again and again. After the last statement only
        values that no later node overwrites may be read.

    Returns
    -------
    statements : list of Statement
    held : dict
        The variable of each node.

    Raises
    ------
    ProgramError
        If a node comes before one of its operands, or if the graph has no values.
    """
    graph.check(order)
    if not graph.values:
        raise ProgramError("the graph has no values to compute")
    names, targets = names or {}, set(graph.targets)
    held: dict[Value, Value] = {}
    lines: list[Statement] = []
    opened: set[Value] = set()
    for v in order:
        value = graph.values[v]
        expression = rebuilt(value, tuple(substitute(a, held) for a in value.args))
        name = f"{SLOTS[value.dtype]}{slots.place[v]}" if slots else names.get(value, f"v{v}")
        variable = Var(name, value.dtype)
        kind = Let if not slots else Assign if variable in opened else Declare
        opened.add(variable)
        lines.append(kind(variable, expression))
        held[value] = variable
        if finish and v in targets:
            after = finish(value, variable)
            lines += [after] if isinstance(after, Statement) else list(after)
    return lines, held
