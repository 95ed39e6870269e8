"""Edge lists: which are accepted and refused, and the order in which edges are processed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trnqc.cg.problem.graph import SHARES, EdgeGraph, graph_of
from trnqc.errors import EdgeIndexError


def nodes(*numbers):
    return np.array(numbers, np.int64)


@some.composite
def graphs(draw):
    n_nodes = draw(some.integers(1, 200))
    rng = np.random.default_rng(draw(some.integers(0, 2**32 - 1)))
    rows, cols = rng.integers(0, n_nodes, (2, draw(some.integers(0, 400))))
    # Some lists are sorted already.
    return EdgeGraph(np.sort(rows) if draw(some.booleans()) else rows, cols, n_nodes)


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_orders_hold_every_edge_once(graph):
    for order, near, far in (
        (graph.by_receiver, graph.rows, graph.cols),
        (graph.by_sender, graph.cols, graph.rows),
    ):
        np.testing.assert_array_equal(np.sort(order.edges), np.arange(graph.n_edges))
        np.testing.assert_array_equal(order.far, far[order.edges])
        for n in range(graph.n_nodes):
            own = order.edges[order.starts[n] : order.starts[n + 1]]
            np.testing.assert_array_equal(own, np.flatnonzero(near == n))


@settings(deadline=None, max_examples=60)
@given(graphs())
def test_shares_cover_all_nodes_and_are_even(graph):
    order = graph.by_sender
    assert (order.shares[0], order.shares[-1]) == (0, graph.n_nodes)
    assert np.all(np.diff(order.shares) > 0) and len(order.shares) <= SHARES + 1
    edges = np.diff(order.starts[order.shares]) + np.diff(order.shares)
    heaviest = np.diff(order.starts).max() + 1
    assert edges.max() <= (graph.n_edges + graph.n_nodes) / min(SHARES, graph.n_nodes) + heaviest


@pytest.mark.parametrize("n_nodes", [0, 1, 5])
def test_no_edges(n_nodes):
    graph = EdgeGraph(nodes(), nodes(), n_nodes)
    assert graph.by_receiver.starts.tolist() == [0] * (n_nodes + 1)
    assert graph.by_sender.shares[-1] == n_nodes
    assert str(graph) == f"{n_nodes} nodes, 0 edges"


def test_equal_edge_lists_share_their_orders():
    rows, cols = nodes(2, 0, 1), nodes(0, 0, 2)
    first = graph_of(rows, cols, 3)
    assert graph_of(rows.copy(), cols.copy(), 3) is first
    assert graph_of(rows, cols, 4) is not first
    rows[0] = 1
    changed = graph_of(rows, cols, 3)
    assert changed is not first
    assert changed.rows.tolist() == [1, 0, 1]
    assert first.rows.tolist() == [2, 0, 1]


def test_forgotten_after_a_while():
    graph = graph_of(nodes(0), nodes(0), 1)
    for n in range(2, 20):
        graph_of(nodes(0), nodes(0), n)
    assert graph_of(nodes(0), nodes(0), 1) is not graph


@pytest.mark.parametrize(
    "rows, cols, n_nodes, message",
    [
        (nodes(0, 3), nodes(0, 1), 3, r"rows: expected nodes 0 .. 2, found 3 at edge 1"),
        (nodes(0), nodes(-1), 3, r"cols: expected nodes 0 .. 2, found -1 at edge 0"),
        (nodes(0), nodes(0, 1), 3, "found 1 rows and 2 cols"),
        (np.array([0], np.int32), nodes(0), 3, r"rows: expected an int64 array \[edges\], found int32"),
        (nodes(0), np.array([0.0]), 3, "cols: expected an int64 array"),
        (nodes(0)[None], nodes(0), 3, r"found int64 \[1, 1\]"),
        ([0], nodes(0), 3, "found list"),
        (nodes(0), nodes(0), 0, "expected nodes of a graph that has none, found 0"),
        (nodes(), nodes(), -1, "expected a number of nodes >= 0, found -1"),
        (nodes(), nodes(), 2.0, "expected a number of nodes >= 0, found 2.0"),
    ],
)
def test_refused(rows, cols, n_nodes, message):
    with pytest.raises(EdgeIndexError, match=message):
        EdgeGraph(rows, cols, n_nodes)
    with pytest.raises(EdgeIndexError, match=message):
        graph_of(rows, cols, n_nodes)
