"""Straight-line code for values that read arrays at places which loops move."""

from __future__ import annotations

from collections.abc import Sequence

from trnqc.gen import Value
from trnqc.gen import statements as st
from trnqc.gen.graph import FREE, graph_of
from trnqc.gen.schedule import best_of
from trnqc.gen.sequence import Finish, straight_line
from trnqc.gen.values import FLOATS, walk


def lines(values: Sequence[Value], finish: Finish, method: str = "listed") -> list[st.Statement]:
    """Statements that compute the values, each handed to `finish` (see `straight_line`) as soon as it is there.

    method: of `schedule.METHODS`. Indices get no names.
    """
    nodes = [v for v in walk(tuple(values)) if v.dtype in FLOATS and v.op not in FREE]
    graph = graph_of(values, nodes)
    return straight_line(graph, best_of(graph, method, draws=1), finish=finish)[0]
