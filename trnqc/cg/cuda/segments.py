"""Edges sorted by the node at one end and divided into segments, and sums of the rows of a node's segments.

A node without edges has an empty segment, so that the row of every node is written. A node with several segments has a
row for each of them, after the rows of the nodes. `sum_rows` adds these up in a fixed order, so results depend on the
graph only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.cg.cuda.kernel import DTYPES
from trnqc.cg.problem.graph import Order
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.values import lane, minimum

# Largest number of edges of a segment.
LONGEST = 64


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of rows: the sum of rows begin[n] to end[n] - 1 is stored in row[n]. All arrays are int64."""

    begin: np.ndarray
    end: np.ndarray
    row: np.ndarray

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of sorted edges, each with edges of one node only. All arrays are int64.

    Parameters
    ----------
    begin, end : numpy.ndarray
        [S], range of the edges of each segment in `order`.
    node, target : numpy.ndarray
        [S], node of each segment, and row for its sum.
    order, far : numpy.ndarray
        [E], numbers of the sorted edges, and the nodes at their other ends.
    rows : int
        Number of rows for sums. The rows of the nodes come first.
    cut : Ranges
        Rows of the segments of nodes with several segments, which are added up afterwards.
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
    """Return the segments of sorted edges, with at most `longest` edges each."""
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
    """Return the steps in which rows 0 to count - 1 are summed into row 0.

    Each step sums ranges of at most `longest` rows. Its results are stored in new rows, after all others, except the
    result of the last step.
    """
    steps, begin, end = [], 0, count
    while end - begin > longest:
        starts = np.arange(begin, end, longest)
        rows = end + np.arange(len(starts))
        steps.append(Ranges(*map(_i64, (starts, np.minimum(starts + longest, end), rows))))
        begin, end = end, end + len(starts)
    return [*steps, Ranges(*(np.array([row]) for row in (begin, end, 0)))] if count else steps


def levels_rows(count: int, longest: int = LONGEST) -> int:
    """Return the number of rows that `levels` uses in total."""
    return max([count, *(int(level.row.max()) + 1 for level in levels(count, longest))])


def sum_rows(size: int, lanes: int) -> st.Function:
    """Return the kernel that computes rows[row[n]] = sum of rows begin[n] to end[n] - 1, in order.

    Rows have `columns` elements of `size` bytes. There is one group for each range and block of `lanes` columns.
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
        # Several lanes may have the last column. All of them read it before any of them writes.
        st.Barrier(),
        st.store(rows[row[which] * columns + c], total),
    )
    params = (columns, begin, end, row, rows)
    return st.Function(f"cg_sum_rows_{DTYPES[size]}", params, body, group=group, title="sums of rows, in order")


def _i64(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int64)
