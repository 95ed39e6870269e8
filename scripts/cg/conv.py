"""CPU time of fused convolutions over a graph, in turns with gather, tensor product and index_add by e3nn and by us.

One thread but for the last figure, the wall time of one thread over that of several. Edges are sorted by receiver, as
the peer wants them; the allocator is glibc's default on all sides. Our outputs are reused, e3nn's are its own.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from scripts.cg.batch import cpu, e3nn_module
from scripts.measuring import clocked, in_turns
from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import configuration
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.problem import TPProblem

Works = dict[str, Callable[[], Any]]


def random_graph(nodes: int, edges: int) -> EdgeGraph:
    """As many edges for every receiver, from random senders."""
    return EdgeGraph(np.arange(edges) * nodes // edges, np.random.default_rng(0).integers(0, nodes, edges), nodes)


def operands(problem: TPProblem, graph: EdgeGraph, dtype: str) -> list[torch.Tensor]:
    """x, y, w, gz and ggx, ggy, ggw."""
    make = torch.Generator().manual_seed(0)
    d1, d2, d3 = problem.dims
    weights = (problem.weight_numel,) if problem.shared_weights else (graph.n_edges, problem.weight_numel)
    shapes = [(graph.n_nodes, d1), (graph.n_edges, d2), weights]
    shapes = [*shapes, (graph.n_nodes, d3), *shapes]
    return [torch.randn(shape, generator=make, dtype=getattr(torch, dtype)) for shape in shapes]


def of_e3nn(problem: TPProblem, graph: EdgeGraph, dtype: str) -> Works:
    module = e3nn_module(problem).to(getattr(torch, dtype))
    rows, cols = torch.from_numpy(graph.rows), torch.from_numpy(graph.cols)
    x, y, w, gz, *_ = operands(problem, graph, dtype)
    inputs = [t.requires_grad_() for t in (x, y, w)]

    def convolve() -> torch.Tensor:
        messages = module(x[cols], y, w)
        return messages.new_zeros(gz.shape).index_add_(0, rows, messages)

    def forward() -> None:
        with torch.no_grad():
            convolve()

    z = convolve()
    return {"forward": forward, "backward": lambda: torch.autograd.grad(z, inputs, gz, retain_graph=True)}


def of_ours(problem: TPProblem, graph: EdgeGraph, dtype: str, threads: int = 1) -> Works:
    engine = engine_for(problem, dtype, threads)
    inputs = [t.numpy() for t in operands(problem, graph, dtype)]
    x, y, w, gz, ggx, ggy, ggw = inputs
    z, *slopes = (np.zeros_like(a) for a in (gz, x, y, w))
    return {
        "forward": lambda: engine.conv_forward(x, y, w, graph, out=z),
        "backward": lambda: engine.conv_backward(x, y, w, gz, graph, out=slopes),
        "double_backward": lambda: engine.conv_double_backward(x, y, w, gz, ggx, ggy, ggw, graph, out=[*slopes, z]),
    }


def unfused(problem: TPProblem, graph: EdgeGraph, dtype: str) -> Works:
    """Our own product of a batch between a gather and an index_add, all into memory that is reused."""
    engine = engine_for(problem, dtype, 1)
    rows, cols = torch.from_numpy(graph.rows), torch.from_numpy(graph.cols)
    x, y, w, gz, *_ = operands(problem, graph, dtype)
    xs, messages, z = x[cols], gz.new_zeros(graph.n_edges, gz.shape[1]), torch.zeros_like(gz)
    gzs, gx = gz[rows], torch.zeros_like(x)
    gxs, gy, gw = (torch.zeros_like(t) for t in (xs, y, w))

    def forward() -> None:
        torch.index_select(x, 0, cols, out=xs)
        engine.forward(xs.numpy(), y.numpy(), w.numpy(), messages.numpy())
        z.zero_().index_add_(0, rows, messages)

    def backward() -> None:
        torch.index_select(x, 0, cols, out=xs)
        torch.index_select(gz, 0, rows, out=gzs)
        engine.backward(xs.numpy(), y.numpy(), w.numpy(), gzs.numpy(), [t.numpy() for t in (gxs, gy, gw)])
        gx.zero_().index_add_(0, cols, gxs)

    return {"forward": forward, "backward": backward}


def case(label: str, dtype: str, nodes: int, edges: int, rounds: int, threads: int) -> dict[str, Any]:
    """Median milliseconds of CPU, ratios to the others, errors, and what several threads gain in wall time."""
    torch.set_num_threads(1)
    problem, graph = configuration(label), random_graph(nodes, edges)
    sides = {
        "e3nn": of_e3nn(problem, graph, dtype),
        "unfused": unfused(problem, graph, dtype),
        "fused": of_ours(problem, graph, dtype),
    }
    contestants = {f"{side} {name}": cpu(work) for side, works in sides.items() for name, work in works.items()}
    spent = {name: 1e3 * median(times) for name, times in in_turns(rounds, contestants).items()}
    speedup = {
        f"{name} over {side}": spent[f"{side} {name}"] / spent[f"fused {name}"]
        for side in ("e3nn", "unfused")
        for name in sides[side]
    }
    return {
        "case": label,
        "dtype": dtype,
        "graph": str(graph),
        "rounds": rounds,
        "milliseconds": spent,
        "speedup": speedup,
        "errors": errors(label, dtype),
        f"{threads} threads over one, wall": gain(problem, graph, dtype, threads, rounds),
    }


def errors(label: str, dtype: str) -> dict[str, float]:
    """Largest error over the largest value of each result, against the dense reference in fp64, on a small graph."""
    problem, graph = configuration(label), random_graph(5, 20)
    engine = engine_for(problem, dtype, 1)
    x, y, w, gz, *gg = (t.numpy() for t in operands(problem, graph, dtype))
    results = {
        "forward": ((engine.conv_forward(x, y, w, graph),), (oracle.conv_forward(problem, x, y, w, graph),)),
        "backward": (engine.conv_backward(x, y, w, gz, graph), oracle.conv_backward(problem, x, y, w, gz, graph)),
        "double_backward": (
            engine.conv_double_backward(x, y, w, gz, gg[0], gg[1], gg[2], graph),
            oracle.conv_double_backward(problem, x, y, w, gz, *gg, graph=graph),
        ),
    }
    return {name: max(map(oracle.error, *pair)) for name, pair in results.items()}


def gain(problem: TPProblem, graph: EdgeGraph, dtype: str, threads: int, rounds: int) -> dict[str, float]:
    """Smallest wall time of one thread over that of several."""
    contestants = {
        f"{n} {name}": clocked(work) for n in (1, threads) for name, work in of_ours(problem, graph, dtype, n).items()
    }
    wall = {name: min(w for w, _ in times) for name, times in in_turns(rounds, contestants).items()}
    return {name: wall[f"1 {name}"] / wall[f"{threads} {name}"] for name in of_ours(problem, graph, dtype)}
