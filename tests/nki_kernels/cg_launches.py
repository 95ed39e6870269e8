"""Problems, graphs and launches of Clebsch-Gordan kernels for tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.cg.windows import Sorted, choose, windows_of
from trnqc.cg import TPProblem
from trnqc.cg.nki.paths import blocks_of
from trnqc.cg.problem.graph import EdgeGraph


def mace_layer(mul: int, l_x: int = 1, l_y: int = 3, weighted: bool = True) -> TPProblem:
    """All products of mul channels of degrees up to l_x with harmonics of degrees up to l_y, a slot of z for each."""
    x = [(mul, (l, (-1) ** l)) for l in range(l_x + 1)]
    y = [(1, (l, (-1) ** l)) for l in range(l_y + 1)]
    z: list[Any] = []
    paths = []
    for i in range(l_x + 1):
        for j in range(l_y + 1):
            for k in range(abs(i - j), min(i + j, l_y) + 1):
                if (i + j + k) % 2 == 0:
                    paths.append((i, j, len(z), "uvu", weighted))
                    z.append((mul, (k, (-1) ** k)))
    return TPProblem(x, y, z, paths, shared_weights=False, layout="ir_mul")


@dataclass(frozen=True)
class Case:
    """Random operands of a problem on a graph, in fp32."""

    problem: TPProblem
    graph: EdgeGraph
    x: np.ndarray
    y: np.ndarray
    w: np.ndarray
    gz: np.ndarray

    @property
    def edges(self) -> Sorted:
        order = self.graph.by_receiver
        return Sorted(order.edges, order.starts, order.far)

    def launch(self, block, window: int, depth: int, cores: int = 1):
        """Arguments and constants of the forward kernel for a block, and the windows."""
        windows = windows_of(self.edges, window, depth, cores)
        args = (self.x, self.y, self.w, windows.table, windows.bounds, block.couplings(window))
        constants = {"terms": block.terms, "results": block.results, "window": window, "nodes": windows.nodes}
        return args, constants | {"length": self.problem.dims[2]}, windows

    def launch_gradients(self, block, window: int, depth: int, cores: int = 1):
        """Arguments and constants of the gradients' kernel for a block."""
        windows, order = windows_of(self.edges, window, depth, cores), self.graph.by_sender
        senders = windows_of(Sorted(order.edges, order.starts, order.far), 128, 2, cores)
        gz = np.zeros((windows.nodes, self.gz.shape[1]), np.float32)
        gz[: len(self.gz)] = self.gz
        matrices = np.ascontiguousarray(block.couplings(window).transpose(0, 2, 1))
        tables = (windows.table, windows.bounds, senders.table, senders.bounds)
        args = (self.x, self.y, self.w, gz, *tables, matrices)
        return args, {"terms": block.terms, "results": block.results, "window": window}

    def chosen(self, block, backward: bool = False) -> tuple[int, int]:
        return choose(self.edges, block.terms, block.results, backward)

    @property
    def blocks(self):
        return blocks_of(self.problem)


def case(problem: TPProblem, nodes: int, edges: int, seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    graph = EdgeGraph(rng.integers(0, nodes, edges), rng.integers(0, nodes, edges), nodes)
    d1, d2, d3 = problem.dims
    weights = max(1, problem.weight_numel)
    rows = [(nodes, d1), (edges, d2), (edges if problem.weight_numel else 1, weights), (nodes, d3)]
    return Case(problem, graph, *(rng.standard_normal(shape).astype(np.float32) for shape in rows))


def columns_of(block) -> np.ndarray:
    """The columns of z that a block computes."""
    return np.concatenate(
        [(z0 + step * np.arange(d)[:, None] + np.arange(width)).ravel() for z0, step, d, width in block.results]
    )
