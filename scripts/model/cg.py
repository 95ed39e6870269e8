"""Modelled time of the Clebsch-Gordan convolution and its gradients, beside a dense formulation by our GEMM kernel.

    python -m scripts.model.cg [--nodes 64] [--neighbours 16 60] [--targets trn1] [--out FILE]

A layer of MACE: features 128x0e+128x1o, harmonics up to degree 3, weights for each edge. The dense formulation is two
matrix products: all couplings, [40, 64] times the products of 4 components of x and 16 of y for every edge and channel,
and the sum over edges, the one-hot matrix of receivers times the messages. Only these two are counted for it, not the
gather, the products of x and y and the weights. Everything is modelled on one NeuronCore by ``trnqc.sim.timeline``.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from nki_kernels.cg.conv import cg_conv
from nki_kernels.cg.gradients import cg_gradients
from nki_kernels.cg.windows import Sorted, choose, windows_of
from nki_kernels.gemm import gemm
from scripts.registry import Benchmark, Row, Rows, main, number, several
from trnqc.cg import TPProblem
from trnqc.cg.nki.paths import blocks_of
from trnqc.sim import Spec, timeline

CHANNELS = 128
X, Y = "128x0e+128x1o", "0e+1o+2e+3o"
# (degree of x, of y, of z) of the paths.
PATHS = ((0, 0, 0), (0, 1, 1), (0, 2, 2), (0, 3, 3), (1, 0, 1), (1, 1, 0), (1, 1, 2), (1, 2, 1), (1, 2, 3), (1, 3, 2))


def layer() -> TPProblem:
    """Return the tensor product of the layer, with a slot of z for each path."""
    z = "+".join(f"{CHANNELS}x{k}{'eo'[k % 2]}" for _, _, k in PATHS)
    paths = [(i, j, n, "uvu", True) for n, (i, j, _) in enumerate(PATHS)]
    return TPProblem(X, Y, z, paths, shared_weights=False, layout="ir_mul")


def edges_of(nodes: int, neighbours: int) -> tuple[Sorted, Sorted]:
    """Return the edges of a graph with random neighbours, by receiver and by sender."""
    rows = np.repeat(np.arange(nodes), neighbours)
    cols = np.random.default_rng(0).integers(0, nodes, len(rows))
    return _by(rows, cols, nodes), _by(cols, rows, nodes)


def _by(near: np.ndarray, far: np.ndarray, nodes: int) -> Sorted:
    order = np.argsort(near, kind="stable")
    return Sorted(order, np.searchsorted(near[order], np.arange(nodes + 1)), far[order])


def kernels(nodes: int, neighbours: int, target: str) -> Rows:
    """Yield the figures of the convolution, of its gradients and of the dense formulation."""
    problem, (by_receiver, by_sender) = layer(), edges_of(nodes, neighbours)
    (block,), edges, (d1, d2, d3) = blocks_of(problem, target), nodes * neighbours, problem.dims
    operands = [Spec(shape, "float32") for shape in ((nodes, d1), (edges, d2), (edges, problem.weight_numel))]
    for backward in (False, True):
        window, depth = choose(by_receiver, block.terms, block.results, backward, target)
        windows, matrices = windows_of(by_receiver, window, depth), Spec((block.matrices, 128, 128), "float32")
        constants: dict[str, Any] = {"terms": block.terms, "results": block.results, "window": window}
        if backward:
            senders = windows_of(by_sender, 128, 2)
            tables = (windows.table, windows.bounds, senders.table, senders.bounds)
            args = (*operands, Spec((windows.nodes, d3), "float32"), *tables, matrices)
            run = timeline(cg_gradients, target=target)(*args, **constants)
        else:
            args = (*operands, windows.table, windows.bounds, matrices)
            run = timeline(cg_conv, target=target)(*args, **constants, nodes=windows.nodes, length=d3)
        name = "gradients" if backward else "convolution"
        yield _line(name, run, edges, target, neighbours) | {"window": window, "depth": depth}
    couple = timeline(gemm, target=target)(Spec((1, 64, 40), "float32"), Spec((1, 64, edges * CHANNELS), "float32"))
    scatter = timeline(gemm, target=target)(Spec((1, edges, nodes), "float32"), Spec((1, edges, d3), "float32"))
    yield _line("dense: couplings", couple, edges, target, neighbours)
    yield _line("dense: sum over edges", scatter, edges, target, neighbours)


def _line(name: str, run: Any, edges: int, target: str, neighbours: int) -> Row:
    summary = run.summary()
    active = {f"{e}_active_percent": summary[f"{e}_engine_active_time_percent"] for e in ("tensor", "vector", "gpsimd")}
    figures = {"kernel": name, "target": target, "edges": edges, "neighbours": neighbours}
    return figures | {"seconds": run.total_ns * 1e-9, "ns_per_edge": run.total_ns / edges} | active


def lines(asked: argparse.Namespace) -> Rows:
    """All kernels, by target and number of neighbours."""
    for target in asked.targets:
        for neighbours in asked.neighbours:
            yield from kernels(asked.nodes, neighbours, target)


def text(row: Row) -> str:
    """The figures of a kernel."""
    return (
        f"{row['target']} {row['neighbours']:3} neighbours  {row['kernel']:22} {row['seconds'] * 1e6:9.1f} us  "
        f"{row['ns_per_edge']:7.1f} ns an edge  tensor {row['tensor_active_percent']:5.1f} %  "
        f"vector {row['vector_active_percent']:5.1f} %"
    )


BENCHMARK = Benchmark(
    "cg",
    __doc__,
    {"cg": lines},
    {"--nodes": number(64), "--neighbours": several([16, 60]), "--targets": several(["trn1", "trn2"])},
    place=("", "lines"),
    line=text,
    facts=lambda asked: {"nodes": asked.nodes},
    folder="modelled",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
