"""Edges sorted by the node at one end and divided into segments.

A node without edges has an empty segment, so that the row of every node is written. A node with several segments has a
row for each of them, after the rows of the nodes. `row_sums.sum_segments` adds these up in a fixed order, so results
depend on the graph only.

`segments` does this for a graph on the host. `device_graph` does it on a GPU, where numbers that depend on the edges
are replaced by bounds that follow from their count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.cg.problem.graph import Order

# Largest number of edges of a segment.
LONGEST = 64


@dataclass(frozen=True, eq=False)
class Ranges:
    """Ranges of rows: the sum of rows begin[n] to end[n] - 1 is stored in row[n]. All arrays are int64."""

    begin: Any
    end: Any
    row: Any

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments of sorted edges, each with edges of one node only.

    All arrays are int64, of NumPy or PyTorch: [S] for the range in `order`, node and row of the sum of each segment,
    [E] for the sorted edges and the nodes at their other ends. The rows of the nodes come first; `cut` has the rows of
    nodes with several segments, which are added up afterwards.
    """

    begin: Any
    end: Any
    node: Any
    target: Any
    order: Any
    far: Any
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


def _i64(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array, np.int64)
