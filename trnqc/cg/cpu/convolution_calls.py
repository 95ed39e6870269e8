"""Convolutions over a graph as calls of an engine: z of a node sums the products of the edges that it receives.

x, y, w, graph -> order of the edges -> program (conv.py), its shares of nodes spread over threads -> z or gradients
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.cg.cpu.operands import checked, shares_of, summed
from trnqc.cg.problem.graph import Graph, Order
from trnqc.cg.problem.problem import TPProblem
from trnqc.host.arrays import empty
from trnqc.host.threads import in_parallel, parts_of

# Edges of a part at least.
LEAST = 32


class Convolutions:
    """The calls of an engine that take a graph; x and z have a row a node, y and w a row an edge, in the graph's order.

    Every call walks the edges of a node in one order, so results are the same bits for any number of threads. kahan:
    the sums over a node's edges are compensated.
    """

    problem: TPProblem
    dtype: str
    threads: int

    def build(self, name: str) -> Any:
        raise AttributeError(f"an engine builds {name}")

    def conv_forward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        graph: Graph,
        *,
        kahan: bool = False,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """z [V, d3] of x [V, d1], y [E, d2] and w [E, nw], shared: [nw]; written to `out` where that is given."""
        self._check_rows({"x": x, "y": y, "w": w}, graph)
        z = empty((graph.n_nodes, self.problem.dims[2]), self.dtype) if out is None else out
        self._check_rows({"z": z}, graph, written=True)
        self._walk("conv_forward", graph.by_receiver, (x, y, w, z), kahan)
        return z

    def conv_backward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        gz: np.ndarray,
        graph: Graph,
        *,
        kahan: bool = False,
        out: Sequence[np.ndarray] | None = None,
    ) -> tuple[np.ndarray, ...]:
        """(gx, gy, gw), the gradients of <gz, z>, in the shapes of x, y and w; written to `out` where that is given."""
        self._check_rows({"x": x, "y": y, "w": w, "gz": gz}, graph)
        gx, gy, gw = out or [empty(a.shape, self.dtype) for a in (x, y, w)]
        self._check_rows({"gx": gx, "gy": gy, "gw": gw}, graph, written=True)
        to = shares_of(gw, self.problem, len(graph.by_sender.shares) - 1)
        self._walk("conv_backward", graph.by_sender, (x, y, w, gz, gx, gy, to), kahan)
        return gx, gy, summed(to, gw)

    def conv_double_backward(
        self,
        x: np.ndarray,
        y: np.ndarray,
        w: np.ndarray,
        gz: np.ndarray,
        ggx: np.ndarray,
        ggy: np.ndarray,
        ggw: np.ndarray,
        graph: Graph,
        *,
        kahan: bool = False,
        out: Sequence[np.ndarray] | None = None,
    ) -> tuple[np.ndarray, ...]:
        """(gx, gy, gw, ggz): the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz."""
        self._check_rows({"x": x, "y": y, "w": w, "gz": gz, "ggx": ggx, "ggy": ggy, "ggw": ggw}, graph)
        gx, gy, gw, ggz = out or [empty(a.shape, self.dtype) for a in (x, y, w, gz)]
        self._check_rows({"gx": gx, "gy": gy, "gw": gw, "ggz": ggz}, graph, written=True)
        self._walk("conv_double_outputs", graph.by_receiver, (x, y, w, ggx, ggy, ggw, ggz), kahan)
        shares = len(graph.by_sender.shares) - 1
        to, spare = shares_of(gw, self.problem, shares), np.zeros((shares, self.problem.dims[2]), self.dtype)
        self._walk("conv_double_inputs", graph.by_sender, (x, y, w, gz, ggx, ggy, ggw, gx, gy, to, spare), kahan)
        return gx, gy, summed(to, gw), ggz

    def _walk(self, name: str, order: Order, arrays: Sequence[np.ndarray], kahan: bool) -> None:
        shares = len(order.shares) - 1
        if not shares:
            return
        function = self.build(name + "_kahan" * kahan).function
        call = function.bind(order.shares, order.starts, order.edges, order.far, *arrays)
        parts = min(shares, parts_of(len(order.edges), LEAST, self.threads))
        in_parallel(lambda i: call(shares * i // parts, shares * (i + 1) // parts), parts, self.threads)

    def _check_rows(self, arrays: dict[str, np.ndarray], graph: Graph, written: bool = False) -> None:
        for name, a in arrays.items():
            rows = graph.n_nodes if name[-1] in "xz" else graph.n_edges
            checked(name, a, self.problem, rows, self.dtype, written, graph)
