"""The compiled programs of edges as functions of NumPy arrays.

Nodes are divided into one share for each thread, and g_x is a sum over shares.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.host.arrays import empty, zeros
from trnqc.host.threads import in_parallel
from trnqc.jit import CompiledFunction
from trnqc.mace.edges.density import EdgeDensity
from trnqc.mace.edges.first.kernels import FirstConvolution
from trnqc.mace.edges.geometry.kernels import EdgeValues
from trnqc.mace.edges.graph import BLOCK, SortedEdges
from trnqc.mace.edges.kernels import LayerConvolution

Convolution = FirstConvolution | LayerConvolution


def convolve(
    kernel: Convolution, edges: SortedEdges, values: EdgeValues, x: np.ndarray, z: np.ndarray, threads: int = 1
) -> None:
    """Write z[receiver] = sum over its edges, [R, d3, channels], from features x [N, d1, channels]."""
    _run(kernel, 0, edges, values, threads, x=x, z=z)


def gradients(
    kernel: Convolution,
    edges: SortedEdges,
    values: EdgeValues,
    x: np.ndarray,
    g_z: np.ndarray,
    g_harmonics: np.ndarray,
    g_lengths: np.ndarray,
    threads: int = 1,
) -> np.ndarray:
    """Return the gradient of x, and add to those of the harmonics and lengths, [rows, ...]."""
    g_x = zeros((threads, *x.shape), kernel.dtype)
    arrays = {"g_z": g_z, "g_x": g_x, "g_harmonics": g_harmonics, "g_lengths": g_lengths, "slopes": values.slopes}
    _run(kernel, 1, edges, values, threads, nodes=edges.nodes, x=x, **arrays)
    return g_x.sum(axis=0)


def _run(
    kernel: Convolution,
    which: int,
    edges: SortedEdges,
    values: EdgeValues,
    threads: int,
    **arrays: np.ndarray | int,
) -> None:
    """Call the forward program (0) or the other one (1), which have some of the arrays as parameters."""
    operands = _graph(edges, threads) | _of_edges(values) | kernel.operands(which + 1) | arrays
    for name, size in kernel.scratch_bytes(which + 1).items():
        operands[name] = _scratch(threads * size, 0 if name == "scratch_numbers" else kernel.layout.lanes, kernel.dtype)
    shares = operands["shares"]
    tables = [rows_of(edges, *shares[n : n + 2]) for n in range(threads)]
    _in_shares(kernel.functions[which], operands, threads, tables)


def rows_of(edges: SortedEdges, first: int, last: int) -> dict[str, np.ndarray]:
    """The rows of weights of a range of nodes, one for each edge, by the names of the parameters (rows.h)."""
    begin, end = edges.starts[first], edges.starts[last]
    listed, runs, block_runs = np.arange(begin, end), [0], [0]
    for start in range(begin, end, BLOCK):
        receivers = edges.receivers[start : min(start + BLOCK, end)]
        bounds = np.flatnonzero(np.diff(receivers, append=-1)) + 1
        runs += list(start - begin + bounds)
        block_runs.append(len(runs) - 1)
    tables = {"row_edges": np.append(listed, np.full(BLOCK, listed[-1:].sum())), "row_count": [len(listed)]}
    tables |= {"edge_list": listed, "edge_rows": (listed - begin) % BLOCK, "runs": runs, "block_runs": block_runs}
    return {name: np.asarray(table, np.int64) for name, table in tables.items()}


def density(
    kernel: EdgeDensity, edges: SortedEdges, values: EdgeValues, threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the density of each receiver [R], and the derivative of each edge's part by its length [E]."""
    part, slope = np.zeros(edges.count, kernel.dtype), np.zeros(edges.count, kernel.dtype)
    operands = _graph(edges, threads) | _of_edges(values)
    operands |= {"shares": threads, "slopes": values.slopes, "pairs": kernel.pairs, "parameters": kernel.parameters}
    for name, size in kernel.scratch_bytes.items():
        operands[name] = _scratch(threads * size, 0 if name == "hidden" else kernel.lanes, kernel.dtype)
    _in_shares(kernel.function, operands | {"part": part, "slope": slope}, threads)
    return np.bincount(edges.receivers, part, edges.receiving).astype(kernel.dtype), slope


def _scratch(size: int, lanes: int, dtype: type) -> np.ndarray:
    """An array of so many bytes, of numbers or of vectors."""
    count = size // np.dtype(dtype).itemsize
    return empty((max(1, count // lanes), lanes) if lanes else (max(1, count),), dtype)


def _graph(edges: SortedEdges, threads: int) -> dict[str, Any]:
    """The edges, and shares of the nodes with about equal numbers of edges, by the names of the parameters."""
    inner = np.searchsorted(edges.starts, edges.count * np.arange(1, threads) / threads)
    shares = np.concatenate([[0], np.minimum(inner, edges.receiving), [edges.receiving]]).astype(np.int64)
    ends = {"starts": edges.starts, "senders": edges.senders, "receivers": edges.receivers}
    return {"edges": edges.count, "shares": shares, "elements": edges.elements, **ends}


def _of_edges(values: EdgeValues) -> dict[str, np.ndarray]:
    names = ("harmonics", "radial", "cutoff", "intervals")
    return {name: getattr(values, name) for name in names}


def _in_shares(
    function: CompiledFunction,
    operands: dict[str, Any],
    threads: int,
    of_shares: list[dict[str, np.ndarray]] | None = None,
) -> None:
    """Run a program for all shares. Operands may be those of a share, and may be more than the program has."""

    def bound(share: int) -> CompiledFunction:
        named = operands | (of_shares[share] if of_shares else {})
        return function.bind(**{name: named[name] for name in function.signature.names if name in named})

    calls = [bound(share) for share in range(threads)]
    in_parallel(lambda i: calls[i](i, i + 1), threads, threads)
