"""A call with checked arguments, and its result for arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc import backends
from trnqc.blas import forms, operands
from trnqc.blas.choice import Choice

FORMS: dict[str, Callable[..., Any]] = {
    "gemm": forms.gemm,
    "symm": forms.symm,
    "syrk": forms.syrk,
    "trsm": forms.trsm,
    "cholesky": forms.cholesky,
}
"""What computes each operation: form(blas, *matrices, *scaling, *flags)."""


@dataclass(frozen=True)
class Asked:
    """What the caller asked for; see `trnqc.blas.choose`."""

    backend: str
    precision: str | None
    target_error: float | None


@dataclass(frozen=True, eq=False)
class BlasCall:
    """An operation on matrices whose shapes fit.

    Attributes
    ----------
    name : str
        The operation, a key of `FORMS`.
    matrices : tuple
        The operands, arrays or tensors.
    scaling : tuple
        For products (c, alpha, beta): the matrix that is added, None if beta is 0, and the factors. Else empty.
    flags : tuple of bool
        The options of the operation, in the order of its form.
    """

    name: str
    matrices: tuple[Any, ...]
    scaling: tuple[Any, ...]
    flags: tuple[bool, ...]

    @property
    def c(self) -> Any:
        """The matrix that is added, or None."""
        return self.scaling[0] if self.scaling else None


def compute(call: BlasCall, choice: Choice) -> np.ndarray:
    """Compute a call of arrays.

    Raises
    ------
    InputError
        If elements of operands or results are not finite in the precision of the choice.
    """
    names = ("a", "b")[: len(call.matrices)]
    matrices = [operands.matrix(x, name, choice.precision) for x, name in zip(read(call), names)]
    scaling = call.scaling
    if call.c is not None:
        scaling = (operands.matrix(_read_c(call), "c", choice.precision), *scaling[1:])
    if call.name == "trsm" and not call.flags[2]:
        operands.require_diagonal(matrices[0])
    blas = backends.get(choice.backend).blas(choice.precision)
    with np.errstate(over="ignore", invalid="ignore"):
        result = FORMS[call.name](blas, *matrices, *scaling, *call.flags)
    return operands.result(result, call.name)


def read(call: BlasCall) -> tuple[Any, ...]:
    """The operands, with zeros for elements that the operation does not read, which may be anything."""
    if call.name == "symm":
        return forms.triangle(call.matrices[0], call.flags[1]), call.matrices[1]
    if call.name == "trsm":
        lower, _, unit, _ = call.flags
        return forms.read_triangle(call.matrices[0], lower, unit), call.matrices[1]
    if call.name == "cholesky":
        return (forms.triangle(call.matrices[0], call.flags[0]),)
    return call.matrices


def _read_c(call: BlasCall) -> Any:
    return forms.triangle(call.c, call.flags[1]) if call.name == "syrk" else call.c
