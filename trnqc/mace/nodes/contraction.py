"""Coefficients of the polynomials of a product block, from its coupling tensors and weights."""

from __future__ import annotations

import numpy as np

from trnqc.cg.problem.contraction import ContractionProblem, contraction_problem
from trnqc.errors import UnsupportedError
from trnqc.mace.model import Coupling, ProductBlock

# Coupling coefficients below this, relative to the largest of their tensor, are rounding errors of their computation.
ROUNDING = 1e-6


def problem_of(product: ProductBlock) -> ContractionProblem:
    """The symmetric contraction of a product block."""
    return contraction_problem(product.irreps_in, product.irreps_out, [len(part) for part in product.couplings])


def coefficients(name: str, product: ProductBlock) -> np.ndarray:
    """Return the coefficients of the terms of the contraction, float64 [elements, terms, channels].

    Raises UnsupportedError if the coupling tensors have a term that the symmetry of the irreps forbids.
    """
    problem = problem_of(product)
    elements, _, channels = product.couplings[0][0].weights.shape
    result = np.zeros((elements, len(problem.terms), channels))
    first = 0
    for part, slot in zip(product.couplings, product.irreps_out):
        for coupling in part:
            _add(name, problem, coupling, first, result)
        first += slot.ir.dim
    return result


def _add(name: str, problem: ContractionProblem, coupling: Coupling, first: int, result: np.ndarray) -> None:
    """Add the coefficients of one order, for components from `first` on; equal monomials are added up."""
    u = coupling.u
    places = np.argwhere(np.abs(u).max(axis=-1) > ROUNDING * np.abs(u).max(initial=0.0))
    monomials: dict[tuple[int, tuple[int, ...]], np.ndarray] = {}
    for place in places:
        component, *indices = map(int, place)
        key = first + component, tuple(sorted(indices))
        monomials[key] = monomials.get(key, 0.0) + u[tuple(place)]
    largest = np.abs(u).max(initial=0.0)
    used = {key: row for key, row in monomials.items() if np.abs(row).max() > ROUNDING * largest}
    if forbidden := [key for key in used if key not in problem.terms]:
        raise UnsupportedError(
            f"{name}: expected couplings of {problem}, found one of component {forbidden[0][0]} with the monomial "
            f"{forbidden[0][1]}"
        )
    if used:
        numbers = [problem.terms[key] for key in used]
        result[:, numbers] += np.einsum("tk,ekc->etc", np.array(list(used.values())), coupling.weights)
