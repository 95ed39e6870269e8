"""Convolutions of mode uvu by NKI kernels, on Trainium or on its simulator.

problem -> blocks (paths.py) -> windows of a graph (nki_kernels.cg.windows) -> launches -> z, or gx, gy and gw
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nki_kernels.cg.blocks import SENDER_DEPTH, P, range_of
from nki_kernels.cg.conv import cg_conv, reference_cg_conv
from nki_kernels.cg.gradients import cg_gradients, reference_cg_gradients
from nki_kernels.cg.windows import Sorted, choose, windows_of
from nki_kernels.descriptors.descriptor import KernelFunction
from trnqc.backends import devices
from trnqc.cg.engine import Engine
from trnqc.cg.nki.paths import Block, Term, blocks_of, require_fit, to_ir_mul, to_mul_ir
from trnqc.cg.problem.graph import Graph, Order
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import InputError, OperandError, UnsupportedError, UnsupportedPrecision

# Backends that run NKI kernels.
BACKENDS = ("simulator", "neuron")
# Elements of an array that an offset of 32 bits cannot reach.
ADDRESSES = 1 << 31

CONV = KernelFunction("cg_conv", cg_conv, reference_cg_conv)
GRADIENTS = KernelFunction("cg_gradients", cg_gradients, reference_cg_gradients)


class NkiEngine(Engine):
    """An engine for NumPy arrays in float32, whose convolutions run as NKI kernels.

    Parameters
    ----------
    problem : TPProblem
        All paths must have the mode uvu. Shared weights are repeated for every edge.
    backend : {"simulator", "neuron"}

    Raises
    ------
    InputError
        For another backend.
    UnsupportedMode, UnsupportedError, MemoryLimit
        For a problem that the kernels cannot compute. The gradients take more memory than the convolution, so that they
        alone can raise MemoryLimit.
    UnsupportedPrecision
        For a problem of another dtype than float32.
    BackendUnavailable
        If there is no device.

    Notes
    -----
    The kernels multiply features of all edges of a tile by zero where these belong to other receivers. Operands that
    are NaN or infinite would therefore spread, and are refused with OperandError.
    """

    def __init__(self, problem: TPProblem, backend: str = "simulator") -> None:
        if backend not in BACKENDS:
            raise InputError(f"backend: expected one of {', '.join(BACKENDS)}; found {backend!r}")
        if problem.dtype not in (None, "float32"):
            raise UnsupportedPrecision(f"NKI kernels compute in float32; found a problem of dtype {problem.dtype}")
        self.problem = problem
        self.device = devices(backend)[0]
        self.blocks = blocks_of(problem, self.device.target)

    def _evaluate(
        self, name: str, operands: Sequence[Any], graph: Graph | None = None, out: Any = None
    ) -> tuple[Any, ...]:
        if graph is None:
            raise UnsupportedError("NKI kernels compute convolutions over a graph; found a batch of products")
        self._check(name, operands, graph)
        directions: dict[str, Callable[..., tuple[np.ndarray, ...]]] = {
            "forward": self._forward,
            "backward": self._backward,
            "double_backward": self._double,
        }
        results = directions[name](graph, *operands)
        if out is None:
            return results
        for place, result in zip(out, results, strict=True):
            place[...] = result
        return tuple(out)

    def _check(self, direction: str, operands: Sequence[Any], graph: Graph) -> None:
        rows = {"x": graph.n_nodes, "y": graph.n_edges, "w": graph.n_edges, "z": graph.n_nodes}
        for name, operand in zip(DIRECTIONS[direction].reads, operands, strict=True):
            shape = self.problem.shape_of(name, rows[name[-1]])
            if not isinstance(operand, np.ndarray) or operand.dtype != np.float32:
                kind = operand.dtype if isinstance(operand, np.ndarray) else type(operand).__name__
                raise OperandError(f"{name}: expected a float32 array, which NKI kernels compute with, found {kind}")
            if operand.shape != shape:
                raise OperandError(f"{name}: expected shape {list(shape)}, found {list(operand.shape)}")
            if operand.size >= ADDRESSES:
                raise OperandError(f"{name}: expected fewer than {ADDRESSES} elements, found {list(shape)}")
            if not np.isfinite(operand).all():
                row = int(np.flatnonzero(~np.isfinite(operand).reshape(len(operand), -1).all(axis=1))[0])
                raise OperandError(f"{name}: expected finite numbers, found NaN or infinity in row {row}")

    def _forward(self, graph: Graph, x: Any, y: Any, w: Any) -> tuple[np.ndarray]:
        z = np.zeros((graph.n_nodes, self.problem.dims[2]), np.float32)
        operands = self._operands(graph, x, y, w) if graph.n_edges and self.blocks else ()
        for block in self.blocks if operands else ():
            windows, tables = self._windows(graph, block, backward=False)
            constants = _constants(block, windows.window) | {"nodes": windows.nodes, "length": z.shape[1]}
            matrices = self.device.put(block.couplings(windows.window))
            result = self.device.call(CONV, *operands, *tables, matrices, **constants)
            columns = _result_columns(block)
            z[:, columns] = result[: graph.n_nodes, columns]
        return (_reordered(z, to_ir_mul(self.problem.irreps_out, self.problem.layout), back=True),)

    def _backward(self, graph: Graph, x: Any, y: Any, w: Any, gz: Any) -> tuple[np.ndarray, ...]:
        problem, weights = self.problem, max(1, self.problem.weight_numel)
        require_fit(problem, self.blocks, self.device.target, backward=True)
        gx, gy = np.zeros_like(x), np.zeros_like(y)
        gw = np.zeros((graph.n_edges, weights), np.float32)
        operands = self._operands(graph, x, y, w) if graph.n_edges and self.blocks else ()
        gz = _reordered(gz, to_ir_mul(problem.irreps_out, problem.layout))
        for block in self.blocks if operands else ():
            windows, tables = self._windows(graph, block, backward=True)
            padded = np.zeros((windows.nodes, gz.shape[1]), np.float32)
            padded[: len(gz)] = gz
            senders = windows_of(_edges(graph.by_sender), P, SENDER_DEPTH, self.device.cores)
            matrices = np.ascontiguousarray(block.couplings(windows.window).transpose(0, 2, 1))
            put = self.device.put
            rows = put(padded), *tables, put(senders.table), put(senders.bounds), put(matrices)
            part = self.device.call(GRADIENTS, *operands, *rows, **_constants(block, windows.window))
            first, last = range_of(block.terms, 1)
            gx[:, first:last] += part[0][: len(gx)]
            columns = sorted({c for term in block.terms for c in range(term[0], term[0] + term[1])})
            gy[:, columns] += part[1][:, columns]
            columns = _weight_columns(block.terms)
            gw[:, columns] = part[2][:, columns]
        gw = gw[:, : problem.weight_numel]
        return (
            _reordered(gx, to_ir_mul(problem.irreps_in1, problem.layout), back=True),
            _reordered(gy, to_mul_ir(problem.irreps_in2, problem.layout), back=True),
            gw.sum(axis=0, dtype=np.float64).astype(np.float32) if problem.shared_weights else gw,
        )

    def _double(
        self, graph: Graph, x: Any, y: Any, w: Any, gz: Any, ggx: Any, ggy: Any, ggw: Any
    ) -> tuple[np.ndarray, ...]:
        """Compute the double backward by the gradients at (ggx, y, w), (x, ggy, w) and (x, y, ggw).

        Paths without weights have no term with ggw, as `Direction.terms` says.
        """
        at_x, at_y = self._backward(graph, ggx, y, w, gz), self._backward(graph, x, ggy, w, gz)
        outputs = [self._forward(graph, ggx, y, w)[0], self._forward(graph, x, ggy, w)[0]]
        gx, gy, gw = at_y[0], at_x[1], at_x[2] + at_y[2]
        if self.problem.weight_numel:
            weighted = self._weighted()
            at_w = weighted._backward(graph, x, y, ggw, gz)
            gx, gy = gx + at_w[0], gy + at_w[1]
            outputs.append(weighted._forward(graph, x, y, ggw)[0])
        return gx, gy, gw, np.sum(outputs, axis=0)

    def _weighted(self) -> NkiEngine:
        """Return the engine of the paths that have weights."""
        engine = object.__new__(NkiEngine)
        engine.problem, engine.device = self.problem.weighted_part(), self.device
        engine.blocks = blocks_of(engine.problem, engine.device.target)
        return engine

    def _operands(self, graph: Graph, x: Any, y: Any, w: Any) -> tuple[Any, ...]:
        """Return x, y and w on the device, in the orders of the kernels and with weights for every edge."""
        problem = self.problem
        x = _reordered(x, to_ir_mul(problem.irreps_in1, problem.layout))
        y = _reordered(y, to_mul_ir(problem.irreps_in2, problem.layout))
        if problem.weight_numel == 0:
            w = np.zeros((graph.n_edges, 1), np.float32)
        elif problem.shared_weights:
            w = np.broadcast_to(w, (graph.n_edges, len(w)))
        return tuple(self.device.put(np.ascontiguousarray(operand)) for operand in (x, y, w))

    def _windows(self, graph: Graph, block: Block, backward: bool) -> tuple[Any, tuple[Any, Any]]:
        edges, target = _edges(graph.by_receiver), self.device.target
        window, depth = choose(edges, block.terms, block.results, backward, target)
        windows = windows_of(edges, window, depth, self.device.cores)
        return windows, (self.device.put(windows.table), self.device.put(windows.bounds))


def _edges(order: Order) -> Sorted:
    return Sorted(order.edges, order.starts, order.far)


def _constants(block: Block, window: int) -> dict[str, Any]:
    return {"terms": block.terms, "results": block.results, "window": window}


def _result_columns(block: Block) -> np.ndarray:
    columns = [z0 + step * np.arange(d)[:, None] + np.arange(width) for z0, step, d, width in block.results]
    return np.concatenate([part.ravel() for part in columns])


def _weight_columns(terms: tuple[Term, ...]) -> list[int]:
    return [term[5] + term[6] * u for term in terms if term[5] >= 0 for u in range(term[7])]


def _reordered(rows: np.ndarray, order: np.ndarray | None, back: bool = False) -> np.ndarray:
    """Return rows with their columns in another order, or, if `back`, in the order before that."""
    if order is None:
        return rows
    if not back:
        return rows[:, order]
    result = np.empty_like(rows)
    result[:, order] = rows
    return result
