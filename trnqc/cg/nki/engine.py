"""Convolutions of mode uvu by NKI kernels, on Trainium or on its simulator, for arrays of NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.backends import devices
from trnqc.backends.nki.accuracy import require_accuracy
from trnqc.cg.engine import Engine
from trnqc.cg.nki.convolution import NkiConvolution
from trnqc.cg.nki.rows import ArrayRows
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import InputError, OperandError, UnsupportedError, UnsupportedPrecision

# Backends that run NKI kernels.
BACKENDS = ("simulator", "neuron")


class NkiEngine(Engine):
    """An engine for NumPy arrays in float32, whose convolutions run as NKI kernels on the "simulator" or "neuron".

    Raises as `NkiConvolution` does, and InputError for another backend, UnsupportedPrecision for another dtype,
    BackendUnavailable without a device. The gradients take more memory than the convolution, so that they alone can
    raise MemoryLimit. The kernels multiply features of all edges of a tile by zero where the features belong to other
    receivers. NaN and infinity would therefore spread, and are refused with OperandError.
    """

    def __init__(self, problem: TPProblem, backend: str = "simulator") -> None:
        if backend not in BACKENDS:
            raise InputError(f"backend: expected one of {', '.join(BACKENDS)}; found {backend!r}")
        if problem.dtype not in (None, "float32"):
            raise UnsupportedPrecision(f"NKI kernels compute in float32; found a problem of dtype {problem.dtype}")
        self.problem = problem
        self.convolution = NkiConvolution(problem, devices(backend)[0], ArrayRows())

    def _evaluate(
        self, name: str, operands: Sequence[Any], graph: EdgeGraph | None = None, out: Any = None
    ) -> tuple[Any, ...]:
        if graph is None:
            raise UnsupportedError("NKI kernels compute convolutions over a graph; found a batch of products")
        self._check(name, operands, graph)
        require_accuracy(self.convolution.device, "fp32")
        results = self.convolution.evaluate(name, graph, operands)
        if out is None:
            return results
        for place, result in zip(out, results, strict=True):
            place[...] = result
        return tuple(out)

    def _check(self, direction: str, operands: Sequence[Any], graph: EdgeGraph) -> None:
        rows = {"x": graph.n_nodes, "y": graph.n_edges, "w": graph.n_edges, "z": graph.n_nodes}
        for name, operand in zip(DIRECTIONS[direction].reads, operands, strict=True):
            shape = self.problem.shape_of(name, rows[name[-1]])
            if not isinstance(operand, np.ndarray) or operand.dtype != np.float32:
                kind = operand.dtype if isinstance(operand, np.ndarray) else type(operand).__name__
                raise OperandError(f"{name}: expected a float32 array, which NKI kernels compute with, found {kind}")
            if operand.shape != shape:
                raise OperandError(f"{name}: expected shape {list(shape)}, found {list(operand.shape)}")
