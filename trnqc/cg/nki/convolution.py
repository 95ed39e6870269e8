"""A convolution and its derivatives as launches of NKI kernels, for operands that are arrays or tensors of a device.

problem -> blocks (paths.py) -> windows of a graph (nki_kernels.cg.windows) -> launches -> z, or gx, gy and gw
"""

from __future__ import annotations

import functools
import math
import operator
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from nki_kernels.cg.blocks import SENDER_DEPTH, P, range_of
from nki_kernels.cg.windows import Sorted, choose, windows_of
from trnqc.backends.nki.device import NkiDevice
from trnqc.cg.nki.paths import PathBlock, Term, blocks_of, require_fit, to_ir_mul, to_mul_ir
from trnqc.cg.nki.rows import RowOperations
from trnqc.cg.problem.graph import EdgeGraph, Order
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import OperandError

# Elements of an array that an offset of 32 bits cannot reach.
ADDRESSES = 1 << 31
# Windows for which the coupling matrices of a block are kept on the device.
KEPT_MATRICES = 4


class NkiConvolution:
    """The directions of a convolution on one device; shared weights are repeated for every edge.

    Tables of edges are computed on the host and kept on the device for as long as their graph exists. Raises
    UnsupportedMode (only uvu is known), UnsupportedError or MemoryLimit for a problem that the kernels cannot compute.
    """

    def __init__(self, problem: TPProblem, device: NkiDevice, rows: RowOperations) -> None:
        self.problem, self.device, self.rows = problem, device, rows
        self.blocks = blocks_of(problem, device.target)
        self._tables: weakref.WeakKeyDictionary[EdgeGraph, dict[Any, Any]] = weakref.WeakKeyDictionary()
        self._matrices = functools.lru_cache(maxsize=KEPT_MATRICES * max(1, len(self.blocks)))(self._put_matrices)

    def evaluate(self, direction: str, graph: EdgeGraph, operands: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results of a direction for the float32 operands that `DIRECTIONS` lists.

        Raises OperandError for NaN, infinity, or 2^31 elements and more; MemoryLimit or UnsupportedError if gradients
        do not fit the chip.
        """
        self._check(DIRECTIONS[direction].reads, operands)
        directions: dict[str, Callable[..., tuple[Any, ...]]] = {
            "forward": self._forward,
            "backward": self._backward,
            "double_backward": self._double,
        }
        return directions[direction](graph, *operands)

    def _check(self, names: Sequence[str], operands: Sequence[Any]) -> None:
        for name, operand in zip(names, operands, strict=True):
            if math.prod(operand.shape) >= ADDRESSES:
                raise OperandError(f"{name}: expected fewer than {ADDRESSES} elements, found {list(operand.shape)}")
        # One number is read from a device, not one for each operand.
        if functools.reduce(operator.and_, (self.rows.finite(operand).all() for operand in operands)):
            return
        for name, operand in zip(names, operands, strict=True):
            finite = self.rows.to_host(self.rows.finite(operand))
            if not finite.all():
                row = int(np.flatnonzero(~finite.reshape(len(finite), -1).all(axis=1))[0])
                raise OperandError(f"{name}: expected finite numbers, found NaN or infinity in row {row}")

    def _forward(self, graph: EdgeGraph, x: Any, y: Any, w: Any) -> tuple[Any]:
        z = self.rows.zeros(x, graph.n_nodes, self.problem.dims[2])
        operands = self._operands(graph, x, y, w) if graph.n_edges and self.blocks else ()
        for n in range(len(self.blocks) if operands else 0):
            window, nodes, tables = self._windows(graph, n, backward=False)
            constants = self._constants(n, window) | {"nodes": nodes, "length": z.shape[1]}
            result = self.device.call("cg_conv", *operands, *tables, **constants)
            columns = self._columns[n][0]
            z[:, columns] = result[: graph.n_nodes, columns]
        return (self._reordered(z, self._orders[5]),)

    def _backward(self, graph: EdgeGraph, x: Any, y: Any, w: Any, gz: Any) -> tuple[Any, ...]:
        problem = self.problem
        require_fit(problem, self.blocks, self.device.target, backward=True)
        gx, gy = self.rows.zeros(x, *x.shape), self.rows.zeros(y, *y.shape)
        gw = self.rows.zeros(y, graph.n_edges, max(1, problem.weight_numel))
        operands = self._operands(graph, x, y, w) if graph.n_edges and self.blocks else ()
        gz = self._reordered(gz, self._orders[2])
        for n, block in enumerate(self.blocks if operands else ()):
            window, nodes, tables = self._windows(graph, n, backward=True)
            padded = self.rows.zeros(gz, nodes, gz.shape[1])
            padded[: len(gz)] = gz
            arguments = (*operands, self.device.put(padded), *tables)
            part = self.device.call("cg_gradients", *arguments, **self._constants(n, window))
            first, last = range_of(block.terms, 1)
            gx[:, first:last] += part[0][: len(gx)]
            _, of_y, of_w = self._columns[n]
            gy[:, of_y] += part[1][:, of_y]
            gw[:, of_w] = part[2][:, of_w]
        gw = gw[:, : problem.weight_numel]
        gx, gy = self._reordered(gx, self._orders[3]), self._reordered(gy, self._orders[4])
        return gx, gy, self.rows.total(gw) if problem.shared_weights else gw

    def _double(
        self, graph: EdgeGraph, x: Any, y: Any, w: Any, gz: Any, ggx: Any, ggy: Any, ggw: Any
    ) -> tuple[Any, ...]:
        """Compute the double backward by the gradients at (ggx, y, w), (x, ggy, w) and (x, y, ggw).

        Paths without weights have no term with ggw, as `Direction.terms` says.
        """
        at_x, at_y = self._backward(graph, ggx, y, w, gz), self._backward(graph, x, ggy, w, gz)
        ggz = self._forward(graph, ggx, y, w)[0] + self._forward(graph, x, ggy, w)[0]
        gx, gy, gw = at_y[0], at_x[1], at_x[2] + at_y[2]
        if self.problem.weight_numel:
            at_w = self._weighted._backward(graph, x, y, ggw, gz)
            gx, gy = gx + at_w[0], gy + at_w[1]
            ggz = ggz + self._weighted._forward(graph, x, y, ggw)[0]
        return gx, gy, gw, ggz

    @cached_property
    def _weighted(self) -> NkiConvolution:
        """The convolution of the paths that have weights."""
        return NkiConvolution(self.problem.weighted_part(), self.device, self.rows)

    @cached_property
    def _orders(self) -> tuple[Any, ...]:
        """The columns of x, y and z in the orders of the kernels, then the kernels' columns in the problem's orders."""
        problem, layout = self.problem, self.problem.layout
        one, two, out = problem.irreps_in1, problem.irreps_in2, problem.irreps_out
        there = [to_ir_mul(one, layout), to_mul_ir(two, layout), to_ir_mul(out, layout)]
        back = [None if order is None else np.argsort(order) for order in there]
        return tuple(None if order is None else self.rows.index(order) for order in there + back)

    @cached_property
    def _columns(self) -> list[tuple[Any, Any, Any]]:
        """The columns of z, y and w that each block writes."""
        columns = (
            (_result_columns(block), _columns_of_y(block.terms), _weight_columns(block.terms)) for block in self.blocks
        )
        return [(self.rows.index(z), self.rows.index(y), self.rows.index(w)) for z, y, w in columns]

    def _operands(self, graph: EdgeGraph, x: Any, y: Any, w: Any) -> tuple[Any, ...]:
        """Return x, y and w on the device, in the orders of the kernels and with weights for every edge."""
        x, y = self._reordered(x, self._orders[0]), self._reordered(y, self._orders[1])
        if self.problem.weight_numel == 0:
            w = self.rows.zeros(y, graph.n_edges, 1)
        elif self.problem.shared_weights:
            w = self.rows.repeated(w, graph.n_edges)
        return tuple(self.device.put(self.rows.contiguous(operand)) for operand in (x, y, w))

    def _reordered(self, rows: Any, order: Any) -> Any:
        """Return rows with their columns in another order; None stands for the order that they have."""
        return rows if order is None else self.rows.contiguous(rows[:, order])

    def _windows(self, graph: EdgeGraph, n: int, backward: bool) -> tuple[int, int, tuple[Any, ...]]:
        """Return the window of a block, the receivers of all windows, and tables and couplings on the device."""
        kept = self._tables.setdefault(graph, {})
        if (n, backward) not in kept:
            kept[n, backward] = self._put_windows(graph, self.blocks[n], backward)
        window, nodes, tables = kept[n, backward]
        return window, nodes, (*tables, self._matrices(n, window, backward))

    def _put_windows(self, graph: EdgeGraph, block: PathBlock, backward: bool) -> tuple[int, int, tuple[Any, ...]]:
        edges, cores = _edges(graph.by_receiver), self.device.cores
        window, depth = choose(edges, block.terms, block.results, backward, self.device.target)
        windows = [windows_of(edges, window, depth, cores)]
        if backward:
            windows.append(windows_of(_edges(graph.by_sender), P, SENDER_DEPTH, cores))
        tables = tuple(self.device.put(table) for one in windows for table in (one.table, one.bounds))
        return window, windows[0].nodes, tables

    def _put_matrices(self, n: int, window: int, backward: bool) -> Any:
        matrices = self.blocks[n].couplings(window)
        return self.device.put(np.ascontiguousarray(matrices.transpose(0, 2, 1)) if backward else matrices)

    def _constants(self, n: int, window: int) -> dict[str, Any]:
        return {"terms": self.blocks[n].terms, "results": self.blocks[n].results, "window": window}


def _edges(order: Order) -> Sorted:
    return Sorted(order.edges, order.starts, order.far)


def _result_columns(block: PathBlock) -> np.ndarray:
    columns = [z0 + step * np.arange(d)[:, None] + np.arange(width) for z0, step, d, width in block.results]
    return np.concatenate([part.ravel() for part in columns])


def _columns_of_y(terms: tuple[Term, ...]) -> np.ndarray:
    return np.unique([column for term in terms for column in range(term[0], term[0] + term[1])])


def _weight_columns(terms: tuple[Term, ...]) -> np.ndarray:
    columns = [term[5] + term[6] * u for term in terms if term[5] >= 0 for u in range(term[7])]
    return np.array(columns, np.int64)
