"""Edges of a convolution in the orders in which its kernels walk them.

rows, cols, n_nodes -> checked -> sorted by receiver, sorted by sender -> shares of nodes with about as many edges each

An edge list is taken in any order. What belongs to edges (y, w and their gradients) stays in that order, and the
kernels go through a permutation.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.errors import EdgeIndexError

# Shares of nodes; their number does not depend on the threads, nor do sums over shares.
SHARES = 64
# Graphs that are remembered: a model builds a few in a step and uses each in every layer.
KEPT = 8


@dataclass(frozen=True, eq=False)
class Order:
    """Edges sorted by the node at one of their ends, those of a node in the order of the list.

    edges [E]: number of the edge in the list. starts [V + 1]: the edges of node n stand at starts[n] .. starts[n + 1].
    far [E]: the node at the other end. shares [S + 1]: bounds of runs of nodes.
    """

    edges: np.ndarray
    starts: np.ndarray
    far: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, eq=False)
class Graph:
    """rows [E] receive, cols [E] send, both int64 in 0 .. n_nodes - 1; nodes without edges, edges from a node to itself
    and edges that occur several times or one way only are all allowed.

    Raises EdgeIndexError.
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


_kept: list[Graph] = []
_guard = threading.Lock()


def graph_of(rows: np.ndarray, cols: np.ndarray, n_nodes: int) -> Graph:
    """A graph of these edges; a recent graph of equal edges is returned, with its orders. Raises EdgeIndexError."""
    with _guard:
        for n, known in enumerate(_kept):
            if known.n_nodes == n_nodes and _equal(known.rows, rows) and _equal(known.cols, cols):
                _kept.append(_kept.pop(n))
                return known
    # The caller may write other edges into these arrays.
    graph = Graph(_frozen(rows), _frozen(cols), n_nodes)
    with _guard:
        _kept.append(graph)
        del _kept[:-KEPT]
    return graph


def _equal(known: np.ndarray, given: np.ndarray) -> bool:
    return isinstance(given, np.ndarray) and given.dtype == known.dtype and np.array_equal(known, given)


def _frozen(nodes: np.ndarray) -> np.ndarray:
    if not isinstance(nodes, np.ndarray):
        return nodes
    nodes = nodes.copy()
    nodes.setflags(write=False)
    return nodes


def _check(name: str, nodes: np.ndarray, n_nodes: int) -> None:
    if not isinstance(nodes, np.ndarray) or nodes.dtype != np.int64 or nodes.ndim != 1:
        found = f"{nodes.dtype} {list(nodes.shape)}" if isinstance(nodes, np.ndarray) else type(nodes).__name__
        raise EdgeIndexError(f"{name}: expected an int64 array [edges], found {found}")
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
    """A node weighs as its edges do and a little more, since its own sum is written too."""
    n_nodes = len(starts) - 1
    weight = starts + np.arange(n_nodes + 1)
    wanted = np.linspace(0, weight[-1], min(SHARES, n_nodes) + 1)
    cuts = np.searchsorted(weight, wanted[1:-1])
    return np.unique(np.concatenate([[0], cuts, [n_nodes]])).astype(np.int64)
