"""Edges sorted by one end and cut into segments of one node each; and sums of rows, in order, of what was cut.

A node without edges has a segment without edges, so that every node's row is written. A node with more than one segment
gets a row for each behind the rows of the nodes; `sum_rows` adds them up, so the result depends on the graph alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.cg.cuda.kernel import DTYPES
from trnqc.cg.problem.graph import Order
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.values import lane, minimum

# Edges of a segment at most.
LONGEST = 64


@dataclass(frozen=True, eq=False)
class Ranges:
    """Rows begin[n] .. end[n] - 1, to be summed into row[n]; i64 arrays."""

    begin: np.ndarray
    end: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Segments:
    """begin, end (in `order`), node, target (row of the sums): one a segment. order, far: one an edge. All i64.

    far: the node at an edge's other end. rows: of the sums, n_nodes of them first. cut: what is left to sum.
    """

    begin: np.ndarray
    end: np.ndarray
    node: np.ndarray
    target: np.ndarray
    order: np.ndarray
    far: np.ndarray
    rows: int
    cut: Ranges

    def __len__(self) -> int:
        return len(self.node)


def segments(order: Order, longest: int = LONGEST) -> Segments:
    """Segments of a graph's edges in one of its orders."""
    first, n_nodes = order.starts, len(order.starts) - 1
    pieces = np.maximum(1, -(-np.diff(first) // longest))
    node = np.repeat(np.arange(n_nodes, dtype=np.int64), pieces)
    start = np.concatenate(([0], np.cumsum(pieces)))
    begin = first[node] + (np.arange(len(node)) - start[node]) * longest
    end = np.minimum(begin + longest, first[node + 1])
    is_cut = pieces[node] > 1
    target = np.where(is_cut, n_nodes - 1 + np.cumsum(is_cut), node)
    cut_nodes = np.flatnonzero(pieces > 1)
    stop = n_nodes + np.cumsum(pieces[cut_nodes])
    cut = Ranges(*map(_i64, (stop - pieces[cut_nodes], stop, cut_nodes)))
    begin, end, node, target, edges, far = map(_i64, (begin, end, node, target, order.edges, order.far))
    return Segments(begin, end, node, target, edges, far, n_nodes + int(is_cut.sum()), cut)


def levels(count: int, longest: int = LONGEST) -> list[Ranges]:
    """Sums of rows 0 .. count - 1 into row 0, some rows at a time; those of a level stand behind what they sum."""
    found, begin, end = [], 0, count
    while True:
        starts = np.arange(begin, end, longest)
        last = len(starts) <= 1
        rows = np.zeros(1, np.int64) if last else end + np.arange(len(starts))
        if len(starts):
            found.append(Ranges(*map(_i64, (starts, np.minimum(starts + longest, end), rows))))
        if last:
            return found
        begin, end = end, end + len(starts)


def levels_rows(count: int, longest: int = LONGEST) -> int:
    """Rows that `levels` needs in all."""
    return max([count, *(int(level.row.max()) + 1 for level in levels(count, longest))])


def sum_rows(size: int, lanes: int) -> st.Function:
    """rows[row[n]] = sum of rows begin[n] .. end[n] - 1, all of `columns` numbers.

    Groups are ranges times blocks of `lanes` columns.
    """
    group, columns, r = Var("group", "i64"), Var("columns", "i64"), Var("r", "i64")
    which, c, total = Var("which", "i64"), Var("c", "i64"), Var("total", DTYPES[size])
    rows = Array("rows", DTYPES[size])
    begin, end, row = (Array(name, "i64") for name in ("begin", "end", "row"))
    blocks = (columns + (lanes - 1)) // lanes
    body = st.block(
        st.Let(which, group // blocks),
        st.Let(c, minimum(group % blocks * lanes + lane(), columns - 1)),
        st.Declare(total, rows[begin[which] * columns + c]),
        st.loop(r, end[which], st.Assign(total, total + rows[r * columns + c]), begin=begin[which] + 1),
        # All lanes have read before one writes, since the last ones may share a column.
        st.Barrier(),
        st.store(rows[row[which] * columns + c], total),
    )
    params = (columns, begin, end, row, rows)
    return st.Function(f"cg_sum_rows_{DTYPES[size]}", params, body, group=group, title="sums of rows, in order")


def _i64(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int64)
