"""Modelled time of the Clebsch-Gordan convolution and its gradients, beside a dense formulation by our GEMM kernel.

    python -m scripts.model.cg [--json profiles/modelled/cg.json] [--nodes 64] [--neighbours 16 60] [--targets trn1]

A layer of MACE: features 128x0e+128x1o, harmonics up to degree 3, weights for each edge. The dense formulation is two
matrix products: all couplings, [40, 64] times the products of 4 components of x and 16 of y for every edge and channel,
and the sum over edges, the one-hot matrix of receivers times the messages. Only these two are counted for it, not the
gather, the products of x and y and the weights. Everything is modelled on one NeuronCore by ``trnqc.sim.timeline``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from nki_kernels.cg.conv import cg_conv
from nki_kernels.cg.gradients import cg_gradients
from nki_kernels.cg.windows import Sorted, choose, windows_of
from nki_kernels.gemm import gemm
from scripts import ROOT
from scripts.measuring import write_json
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


def kernels(nodes: int, neighbours: int, target: str) -> list[dict[str, Any]]:
    """Return the figures of the convolution, of its gradients and of the dense formulation."""
    problem, (by_receiver, by_sender) = layer(), edges_of(nodes, neighbours)
    (block,), edges, (d1, d2, d3) = blocks_of(problem, target), nodes * neighbours, problem.dims
    operands = [Spec(shape, "float32") for shape in ((nodes, d1), (edges, d2), (edges, problem.weight_numel))]
    lines = []
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
        lines.append(_line(name, run, edges, target, neighbours) | {"window": window, "depth": depth})
    couple = timeline(gemm, target=target)(Spec((1, 64, 40), "float32"), Spec((1, 64, edges * CHANNELS), "float32"))
    scatter = timeline(gemm, target=target)(Spec((1, edges, nodes), "float32"), Spec((1, edges, d3), "float32"))
    lines.append(_line("dense: couplings", couple, edges, target, neighbours))
    lines.append(_line("dense: sum over edges", scatter, edges, target, neighbours))
    return lines


def _line(name: str, run: Any, edges: int, target: str, neighbours: int) -> dict[str, Any]:
    summary = run.summary()
    active = {f"{e}_active_percent": summary[f"{e}_engine_active_time_percent"] for e in ("tensor", "vector", "gpsimd")}
    figures = {"kernel": name, "target": target, "edges": edges, "neighbours": neighbours}
    return figures | {"seconds": run.total_ns * 1e-9, "ns_per_edge": run.total_ns / edges} | active


def main() -> None:
    """Model all cases, print a table, and write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=ROOT / "profiles" / "modelled" / "cg.json")
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[16, 60])
    parser.add_argument("--targets", nargs="+", default=["trn1", "trn2"])
    chosen = parser.parse_args()
    lines = [line for t in chosen.targets for n in chosen.neighbours for line in kernels(chosen.nodes, n, t)]
    for line in lines:
        print(
            f"{line['target']} {line['neighbours']:3} neighbours  {line['kernel']:22} {line['seconds'] * 1e6:9.1f} us  "
            f"{line['ns_per_edge']:7.1f} ns an edge  tensor {line['tensor_active_percent']:5.1f} %  "
            f"vector {line['vector_active_percent']:5.1f} %"
        )
    neighbours = " ".join(map(str, chosen.neighbours))
    command = f"python -m scripts.model.cg --nodes {chosen.nodes} --neighbours {neighbours}"
    write_json({"measurement": "modelled", "command": command, "nodes": chosen.nodes, "lines": lines}, chosen.json)


if __name__ == "__main__":
    main()
