"""The interface of the engines, which evaluate a tensor product and its derivatives on arrays of one machine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.problem import TPProblem
from trnqc.errors import OperandError


class Engine(ABC):
    """The directions of a tensor product and of its convolution over a graph.

    Operands are arrays of the engine's dtype. With B rows in a batch, V nodes and E edges in a graph, and dimensions
    (d1, d2, d3) and nw weights of the problem, their shapes are

    ================  ==========  ===============================================
    operand           batch       convolution
    ================  ==========  ===============================================
    x, gx, ggx        [B, d1]     [V, d1]
    y, gy, ggy        [B, d2]     [E, d2], in the order of the graph's edges
    w, gw, ggw        [B, nw]     [E, nw], in the order of the graph's edges
    z, gz, ggz        [B, d3]     [V, d3]
    ================  ==========  ===============================================

    and those of shared weights are [nw]. All methods raise OperandError for other shapes or dtypes. The option `out` is
    an array for z or, for several results, a sequence of arrays. Results are stored in them and returned; by default
    they are new arrays. The other options of convolutions are those of the engine.
    """

    problem: TPProblem

    @abstractmethod
    def _evaluate(
        self, name: str, operands: Sequence[Any], graph: EdgeGraph | None = None, out: Any = None
    ) -> tuple[Any, ...]:
        """Return the results of a direction, in a convolution if there is a graph."""

    def forward(self, x: Any, y: Any, w: Any, out: Any = None) -> Any:
        """Return z."""
        return self._evaluate("forward", (x, y, w), out=None if out is None else (out,))[0]

    def backward(self, x: Any, y: Any, w: Any, gz: Any, out: Any = None) -> tuple[Any, ...]:
        """Return (gx, gy, gw), the gradients of <gz, z> with respect to x, y and w."""
        return self._evaluate("backward", (x, y, w, gz), out=out)

    def double_backward(
        self, x: Any, y: Any, w: Any, gz: Any, ggx: Any, ggy: Any, ggw: Any, out: Any = None
    ) -> tuple[Any, ...]:
        """Return the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz."""
        return self._evaluate("double_backward", (x, y, w, gz, ggx, ggy, ggw), out=out)

    def conv_forward(self, x: Any, y: Any, w: Any, graph: EdgeGraph, *, out: Any = None, **options: Any) -> Any:
        """Return z, the products of x at the senders with y, summed at the receivers."""
        return self._evaluate("forward", (x, y, w), graph, None if out is None else (out,), **options)[0]

    def conv_backward(self, x: Any, y: Any, w: Any, gz: Any, graph: EdgeGraph, **options: Any) -> tuple[Any, ...]:
        """Return (gx, gy, gw) of a convolution, as `backward` does."""
        return self._evaluate("backward", (x, y, w, gz), graph, **options)

    def conv_double_backward(
        self, x: Any, y: Any, w: Any, gz: Any, ggx: Any, ggy: Any, ggw: Any, graph: EdgeGraph, **options: Any
    ) -> tuple[Any, ...]:
        """Return (gx, gy, gw, ggz) of a convolution, as `double_backward` does."""
        return self._evaluate("double_backward", (x, y, w, gz, ggx, ggy, ggw), graph, **options)

    def _rows(self, operands: Sequence[Any], graph: Any) -> dict[str, int]:
        """Return the number of rows of the operands of each kind."""
        nodes, edges = (len(operands[0]),) * 2 if graph is None else (graph.n_nodes, graph.n_edges)
        return {"x": nodes, "y": edges, "w": edges, "z": nodes}


def check_operand(
    name: str, a: np.ndarray, shape: tuple[int, ...], dtype: str, graph: EdgeGraph | None, written: bool = False
) -> None:
    """Raise OperandError unless an array has this shape and dtype, is C-contiguous and, if it is written, writable.

    The graph is named in the message, because shapes depend on it.
    """
    flags = a.flags
    if a.shape != shape or a.dtype != dtype or not flags.c_contiguous or not flags.aligned:
        raise OperandError(
            f"{name}: expected {dtype}{list(shape)}, C-contiguous{f', for {graph}' if graph else ''}; found "
            f"{a.dtype}{list(a.shape)}{'' if flags.c_contiguous else ' with strides ' + str(a.strides)}"
        )
    if written and not flags.writeable:
        raise OperandError(f"{name}: expected an array to write to; found a read-only one")
