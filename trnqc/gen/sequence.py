"""Turn values, or a scheduled graph, into statements. Every node becomes a variable, in the order of the schedule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnqc.errors import ProgramError
from trnqc.gen.graph import FREE, Graph, graph_of
from trnqc.gen.liveness import Slots
from trnqc.gen.schedule import best_of
from trnqc.gen.statements import Assign, Declare, Let, Statement
from trnqc.gen.values import FLOATS, Value, Var, rebuilt, walk

Finish = Callable[[Value, Value], Statement | Sequence[Statement]]

# Stems of the names of slots by type. A slot that is used for several types has one variable for each of them.
SLOTS = {"f64": "s", "f32": "f", "i64": "n", "i32": "m", "bool": "c"}


def substitute(value: Value, known: Mapping[Value, Value]) -> Value:
    """Replace the subexpressions of a value that are keys of `known`. Replacements are not searched again."""
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
    """Write the statements that compute the nodes of a graph in order.

    Parameters
    ----------
    graph : Graph
        A graph with values.
    order : sequence of int
        An order of its computed nodes.
    names : mapping, optional
        Names of variables by the value of their node. Other variables are called v0, v1, ...
    finish : callable, optional
        finish(value, variable) returns statements, such as a store, that follow the computation of a target.
    slots : Slots, optional
        The variables s0, s1, ... that nodes share. After the last statement, a variable holds the value that was
        assigned to it last.

    Returns
    -------
    statements : list of Statement
        The statements.
    variables : dict
        The variable of each computed value.

    Raises
    ------
    ProgramError
        If a node comes before one of its operands, or if the graph has no values.
    """
    graph.check(order)
    if not graph.values:
        raise ProgramError("the graph must have values; found only an order of dependences")
    names, targets = names or {}, set(graph.targets)
    variables: dict[Value, Value] = {}
    statements: list[Statement] = []
    declared: set[Value] = set()
    for v in order:
        value = graph.values[v]
        expression = rebuilt(value, tuple(substitute(a, variables) for a in value.args))
        name = f"{SLOTS[value.dtype]}{slots.place[v]}" if slots else names.get(value, f"v{v}")
        variable = Var(name, value.dtype)
        kind = Let if not slots else Assign if variable in declared else Declare
        declared.add(variable)
        statements.append(kind(variable, expression))
        variables[value] = variable
        if finish and v in targets:
            after = finish(value, variable)
            statements += [after] if isinstance(after, Statement) else list(after)
    return statements, variables


def straight_line_code(values: Sequence[Value], finish: Finish, method: str = "listed") -> list[Statement]:
    """Return statements that compute the values and hand each to `finish` as soon as it is known.

    method: an order of `schedule.METHODS`. Floating-point intermediates get names; indices do not.
    """
    nodes = [v for v in walk(tuple(values)) if v.dtype in FLOATS and v.op not in FREE]
    graph = graph_of(values, nodes)
    return straight_line(graph, best_of(graph, method, draws=1), finish=finish)[0]
