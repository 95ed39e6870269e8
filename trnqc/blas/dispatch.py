"""The way of a call to a backend: for arrays directly, for tensors through an operator of PyTorch."""

from __future__ import annotations

from typing import Any

from trnqc.arrays import is_tensor
from trnqc.blas.calls import Asked, BlasCall, compute
from trnqc.blas.choice import choose


def run(call: BlasCall, asked: Asked) -> Any:
    """Compute a call on the backend that was asked for."""
    if any(is_tensor(x) for x in (*call.matrices, call.c)):
        from trnqc.blas import tensors

        return tensors.run(call, asked)
    return compute(call, choose(asked.backend, asked.precision, asked.target_error))
