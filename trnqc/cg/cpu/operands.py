"""Checks of the arrays that an engine reads and writes."""

from __future__ import annotations

import numpy as np

from trnqc.cg.problem.graph import Graph
from trnqc.errors import OperandError


def check_operand(
    name: str, a: np.ndarray, shape: tuple[int, ...], dtype: str, graph: Graph | None, written: bool = False
) -> None:
    """Check that an array can be passed to a compiled function.

    Parameters
    ----------
    name : str
        Name of the operand, for the error message.
    a : numpy.ndarray
    shape : tuple of int
        Shape that the array must have.
    dtype : {"float32", "float64"}
        Type that the array must have.
    graph : Graph or None
        The graph on which the shape depends, for the error message.
    written : bool, optional
        Whether the array must be writable.

    Raises
    ------
    OperandError
        For another shape or dtype, or an array that is not C-contiguous and aligned, or not writable.
    """
    flags = a.flags
    if a.shape != shape or a.dtype != dtype or not flags.c_contiguous or not flags.aligned:
        raise OperandError(
            f"{name}: expected {dtype}{list(shape)}, C-contiguous{f', for {graph}' if graph else ''}; "
            f"found {a.dtype}{list(a.shape)}"
            f"{'' if flags.c_contiguous else ' with strides ' + str(a.strides)}"
        )
    if written and not flags.writeable:
        raise OperandError(f"{name}: expected an array to write to; found a read-only one")
