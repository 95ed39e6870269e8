"""Contractions of arrays with the work planned, on the library of the arrays or on one of our backends."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from trnqc import backends, contraction
from trnqc.backends.base import check_precision
from trnqc.errors import InputError


def einsum(
    subscripts: Any,
    *operands: Any,
    backend: str | None = None,
    precision: str = "fp64",
    memory_limit: int | None = None,
    check_finite: bool = True,
) -> Any:
    """NumPy's einsum with the work planned: einsum("acik,befl,dfjk,cdel->abij", A, B, C, D).

    operands: arrays of one library (NumPy, PyTorch). backend: None multiplies matrices with that library; a name (cpu,
    simulator, neuron) takes NumPy arrays and multiplies them there in `precision` (trnqc.types.PRECISIONS).
    memory_limit: bytes for temporaries. check_finite: refuse operands with nan or inf. The result may be a view with
    transposed axes. Raises ExpressionError (subscripts, extents), InputError (operands), MemoryLimit,
    BackendUnavailable, UnsupportedPrecision.
    """
    gemm = None
    if backend is not None:
        machine = backends.get(backend)
        check_precision(machine, precision)
        arrays = operands if isinstance(subscripts, str) else (subscripts, *operands)[::2]
        if foreign := [x for x in arrays if not isinstance(x, np.ndarray | list | tuple | int | float)]:
            raise InputError(f"backend {backend!r} takes NumPy arrays; found {type(foreign[0]).__name__}")
        gemm = partial(machine.batched_contraction, precision=precision)
    return contraction.einsum(subscripts, *operands, memory_limit=memory_limit, gemm=gemm, check_finite=check_finite)


einsum_plan = contraction.einsum_plan
