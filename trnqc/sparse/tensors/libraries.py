"""Sparse results as objects of the library whose sparse arrays the operands are.

This module imports no library of its own accord: a caller who passes one of its arrays has already imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.arrays import is_pydata
from trnqc.sparse.tensors.levels import Compressed
from trnqc.sparse.tensors.storage import SparseTensor, rounded


def is_scipy(x: Any) -> bool:
    """Whether x is a sparse array or matrix of SciPy."""
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and scipy.issparse(x)


def as_operands_are(result: SparseTensor | np.ndarray, operands: Sequence[Any]) -> Any:
    """Convert a sparse result to the kind of the sparse operands, if all of them are of SciPy or all of PyData.

    Parameters
    ----------
    result : SparseTensor or array
        An array is returned as it is.
    operands : sequence
        Operands as the caller passed them. Dense arrays among them do not count.

    Returns
    -------
    sparse array of SciPy
        CSC if all are CSC, else CSR; COO unless the result has two modes. It is a matrix if all operands are matrices.
    sparse array of PyData
        GCXS if all are GCXS, else COO.
    numpy.ndarray
        Instead of these two, for a result without modes.
    SparseTensor
        The result itself for other operands.
    """
    if isinstance(result, np.ndarray):
        return result
    stored = [x for x in operands if isinstance(x, SparseTensor) or is_scipy(x) or is_pydata(x)]
    if stored and all(is_scipy(x) for x in stored):
        return _of_scipy(result, stored) if result.ndim else result.to_dense()
    if stored and all(is_pydata(x) for x in stored):
        compressed = all(hasattr(x, "indptr") for x in stored)
        return result.to_pydata("gcxs" if compressed else "coo") if result.ndim else result.to_dense()
    return result


def order_of_result(output: Sequence[str], operands: Sequence[Any]) -> tuple[str, ...] | None:
    """Return the order of levels to which `as_operands_are` converts a sparse result; None if it keeps their order."""
    stored = [x for x in operands if isinstance(x, SparseTensor) or is_scipy(x) or is_pydata(x)]
    if len(output) != 2 or not stored or not all(is_scipy(x) for x in stored):
        return None
    return tuple(reversed(output)) if all(x.format == "csc" for x in stored) else tuple(output)


def _of_scipy(result: SparseTensor, operands: Sequence[Any]) -> Any:
    if result.ndim != 2:
        return result.to_scipy()
    wanted = "csc" if all(x.format == "csc" for x in operands) else "csr"
    scipy = sys.modules["scipy.sparse"]
    kind = "matrix" if all(isinstance(x, scipy.spmatrix) for x in operands) else "array"
    if result.kinds != ("dense", "compressed") or result.values is None:
        return getattr(scipy, f"{wanted}_{kind}")(result.to_scipy())
    rows = result.levels[1]
    assert isinstance(rows, Compressed)
    values = rounded(result.values, result.dtype)
    values = values.astype(np.float32) if values.dtype == np.float16 else values
    # SciPy takes twice the memory where one of its two index arrays is int64.
    fits = len(values) <= np.iinfo(np.int32).max
    positions = rows.positions.astype(rows.coordinates.dtype, copy=False) if fits else rows.positions
    made = getattr(scipy, f"csr_{kind}" if result.order == (0, 1) else f"csc_{kind}")
    return made((values, rows.coordinates, positions), shape=result.shape).asformat(wanted)
