"""Operands of an engine: what each array is to be, and where gradients of weights that edges share are added up.

The last letter of a name says which of x, y, z and w an array is shaped as.
"""

from __future__ import annotations

import numpy as np

from trnqc.cg.problem.graph import Graph
from trnqc.cg.problem.problem import TPProblem
from trnqc.errors import OperandError


def shape_of(name: str, problem: TPProblem, rows: int) -> tuple[int, ...]:
    """The shape of an operand with that many rows; shared weights are one."""
    length = problem.row_length(name)
    return (length,) if name[-1] == "w" and problem.shared_weights else (rows, length)


def checked(
    name: str, a: np.ndarray, problem: TPProblem, rows: int, dtype: str, written: bool, graph: Graph | None = None
) -> None:
    """Raise OperandError unless `a` has its shape and dtype and is C-contiguous, and writable if it is written."""
    shape = shape_of(name, problem, rows)
    flags = a.flags
    if a.shape != shape or a.dtype != dtype or not flags.c_contiguous or not flags.aligned:
        raise OperandError(
            f"{name}: expected {dtype}{list(shape)}, C-contiguous{f', for {graph}' if graph else ''}; "
            f"found {a.dtype}{list(a.shape)}"
            f"{'' if flags.c_contiguous else ' with strides ' + str(a.strides)}"
        )
    if written and not flags.writeable:
        raise OperandError(f"{name}: expected an array to write to; found a read-only one")


def shares_of(gw: np.ndarray, problem: TPProblem, count: int) -> np.ndarray:
    """What kernels write as gradient of the weights: gw itself, or `count` rows whose sum is that of shared weights."""
    return np.zeros((count, *gw.shape), gw.dtype) if problem.shared_weights else gw


def summed(shares: np.ndarray, gw: np.ndarray) -> np.ndarray:
    """gw, once the shares of `shares_of` are written."""
    if shares is not gw:
        np.sum(shares, axis=0, out=gw)
    return gw
