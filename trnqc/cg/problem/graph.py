"""Edges of a convolution, sorted by receiver and by sender.

The edge list may have any order. The operands of edges (y, w and their gradients) keep that order, and the kernels
access them through a permutation. Nodes are divided into shares with about equal numbers of edges for the threads.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.errors import EdgeIndexError

# Number of shares of nodes. It does not depend on the number of threads, so neither do the sums over shares.
SHARES = 64
# Number of recent graphs that are cached. A model builds a few in each step and uses them in every layer.
KEPT = 8


@dataclass(frozen=True, eq=False)
class Order:
    """Edges sorted by the node at one of their ends; the edges of one node keep the order of the list.

    Edges of node n have the positions starts[n] to starts[n + 1] (excluded) in `edges` and `far`, the nodes at the
    other ends. `shares` [S + 1] has the first node of each share, and the number of nodes at the end.
    """

    edges: np.ndarray
    starts: np.ndarray
    far: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class EdgeGraph:
    """A directed graph of int64 arrays [E]; nodes without edges, loops, and repeated edges are allowed.

    Raises EdgeIndexError for arrays of another type or unequal lengths, or node numbers outside 0 .. n_nodes - 1.
    """

    rows: np.ndarray
    cols: np.ndarray
    n_nodes: int

    def __post_init__(self) -> None:
        if isinstance(self.n_nodes, bool) or not isinstance(self.n_nodes, int | np.integer) or self.n_nodes < 0:
            raise EdgeIndexError(f"expected a number of nodes >= 0, found {self.n_nodes!r}")
        for name in ("rows", "cols"):
            _check(name, getattr(self, name), self.n_nodes)
        if len(self.rows) != len(self.cols):
            raise EdgeIndexError(
                f"expected as many receivers as senders, found {len(self.rows)} rows and {len(self.cols)} cols"
            )

    @property
    def n_edges(self) -> int:
        return len(self.rows)

    @cached_property
    def by_receiver(self) -> Order:
        return _sorted(self.rows, self.cols, self.n_nodes)

    @cached_property
    def by_sender(self) -> Order:
        return _sorted(self.cols, self.rows, self.n_nodes)

    def __str__(self) -> str:
        return f"{self.n_nodes} nodes, {self.n_edges} edges"


_kept: list[EdgeGraph] = []
_guard = threading.Lock()


def graph_of(rows: np.ndarray, cols: np.ndarray, n_nodes: int) -> EdgeGraph:
    """Return the graph of these edges, from the cache if it is recent. Raises EdgeIndexError as `EdgeGraph` does."""
    with _guard:
        for n, known in enumerate(_kept):
            if known.n_nodes == n_nodes and _equal(known.rows, rows) and _equal(known.cols, cols):
                _kept.append(_kept.pop(n))
                return known
    # Copy the arrays, since the caller may overwrite them.
    graph = EdgeGraph(_frozen(rows), _frozen(cols), n_nodes)
    with _guard:
        _kept.append(graph)
        del _kept[:-KEPT]
    return graph


def _equal(known: np.ndarray, nodes: np.ndarray) -> bool:
    return isinstance(nodes, np.ndarray) and nodes.dtype == known.dtype and np.array_equal(known, nodes)


def _frozen(nodes: np.ndarray) -> np.ndarray:
    if not isinstance(nodes, np.ndarray):
        return nodes
    nodes = nodes.copy()
    nodes.setflags(write=False)
    return nodes


def _check(name: str, nodes: np.ndarray, n_nodes: int) -> None:
    if not isinstance(nodes, np.ndarray) or nodes.dtype != np.int64 or nodes.ndim != 1:
        kind = f"{nodes.dtype} {list(nodes.shape)}" if isinstance(nodes, np.ndarray) else type(nodes).__name__
        raise EdgeIndexError(f"{name}: expected an int64 array [edges], found {kind}")
    if nodes.size and (nodes.min() < 0 or nodes.max() >= n_nodes):
        at = int(np.flatnonzero((nodes < 0) | (nodes >= n_nodes))[0])
        expected = f"nodes 0 .. {n_nodes - 1}" if n_nodes else "nodes of a graph that has none"
        raise EdgeIndexError(f"{name}: expected {expected}, found {nodes[at]} at edge {at}")


def _sorted(near: np.ndarray, far: np.ndarray, n_nodes: int) -> Order:
    starts = np.zeros(n_nodes + 1, np.int64)
    np.cumsum(np.bincount(near, minlength=n_nodes), out=starts[1:])
    ordered = bool(np.all(near[1:] >= near[:-1]))
    edges = np.arange(len(near)) if ordered else np.argsort(near, kind="stable")
    return Order(edges, starts, np.ascontiguousarray(far[edges]), _shares(starts))


def _shares(starts: np.ndarray) -> np.ndarray:
    """Divide the nodes into shares of about equal cost, where each node and each edge costs one unit."""
    n_nodes = len(starts) - 1
    weight = starts + np.arange(n_nodes + 1)
    wanted = np.linspace(0, weight[-1], min(SHARES, n_nodes) + 1)
    cuts = np.searchsorted(weight, wanted[1:-1])
    return np.unique(np.concatenate([[0], cuts, [n_nodes]])).astype(np.int64)
