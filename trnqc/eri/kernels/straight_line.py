"""Straight-line code for values that read arrays at indices which loops set."""

from __future__ import annotations

from collections.abc import Sequence

from trnqc.gen import Value
from trnqc.gen import statements as st
from trnqc.gen.graph import FREE, graph_of
from trnqc.gen.schedule import best_of
from trnqc.gen.sequence import Finish, straight_line
from trnqc.gen.values import FLOATS, walk


def straight_line_code(values: Sequence[Value], finish: Finish, method: str = "listed") -> list[st.Statement]:
    """Return statements that compute the values and hand each to `finish` as soon as it is known.

    method: an order of `trnqc.gen.schedule.METHODS`. Floating-point intermediates get names; indices do not.
    """
    nodes = [v for v in walk(tuple(values)) if v.dtype in FLOATS and v.op not in FREE]
    graph = graph_of(values, nodes)
    return straight_line(graph, best_of(graph, method, draws=1), finish=finish)[0]
