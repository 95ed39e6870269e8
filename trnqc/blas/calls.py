"""A call with checked arguments, and its way to a backend: for arrays directly, for tensors through an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc import backends
from trnqc.arrays import is_tensor
from trnqc.blas import forms, operands
from trnqc.blas.choice import Choice, choose

FORMS: dict[str, Callable[..., Any]] = {"gemm": forms.gemm, "symm": forms.symm, "syrk": forms.syrk}
"""What computes each operation: form(blas, *matrices, c, alpha, beta, *flags)."""


@dataclass(frozen=True)
class Asked:
    """What the caller asked for; see `trnqc.blas.choose`."""

    backend: str
    precision: str | None
    target_error: float | None


@dataclass(frozen=True, eq=False)
class Call:
    """An operation on matrices whose shapes fit.

    Attributes
    ----------
    name : str
        The operation, a key of `FORMS`.
    matrices : tuple
        The operands, arrays or tensors.
    c : array or tensor, optional
        The matrix that is added; None if `beta` is 0.
    alpha, beta : float
        Factors of the product and of c.
    flags : tuple of bool
        The options of the operation, in the order of its form.
    """

    name: str
    matrices: tuple[Any, ...]
    c: Any
    alpha: float
    beta: float
    flags: tuple[bool, ...]


def run(call: Call, asked: Asked) -> Any:
    """Compute a call on the backend that was asked for."""
    if any(is_tensor(x) for x in (*call.matrices, call.c)):
        from trnqc.blas import tensors

        return tensors.run(call, asked)
    return compute(call, choose(asked.backend, asked.precision, asked.target_error))


def compute(call: Call, choice: Choice) -> np.ndarray:
    """Compute a call of arrays.

    Raises
    ------
    InputError
        If elements of operands or results are not finite in the precision of the choice.
    """
    names = ("a", "b")[: len(call.matrices)]
    matrices = [operands.matrix(x, name, choice.precision) for x, name in zip(read(call), names)]
    c = None if call.c is None else operands.matrix(_read_c(call), "c", choice.precision)
    blas = backends.get(choice.backend).blas(choice.precision)
    with np.errstate(over="ignore", invalid="ignore"):
        result = FORMS[call.name](blas, *matrices, c, call.alpha, call.beta, *call.flags)
    return operands.result(result, call.name)


def read(call: Call) -> tuple[Any, ...]:
    """The operands, with zeros for elements that the operation does not read, which may be anything."""
    if call.name != "symm":
        return call.matrices
    a, b = call.matrices
    return forms.triangle(a, call.flags[1]), b


def _read_c(call: Call) -> Any:
    return forms.triangle(call.c, call.flags[1]) if call.name == "syrk" else call.c
