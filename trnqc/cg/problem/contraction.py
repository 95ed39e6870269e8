"""Definition of a symmetric contraction: its irreps, the largest degree of its polynomials, and its weights.

    B[c, M] = sum_n sum_k W[n, k, c] sum_{i1..in} U_n[M, i1..in, k] x[c, i1] ... x[c, in]

For a set of weights this is one polynomial for every channel and every component M,

    B[c, M] = sum_t C[t, c] m_t(x[c]),    C[t, c] = sum_k S[t, k] W[k, c],

over the terms t, each of which is a component M and a monomial m_t. C does not depend on x.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from trnqc.cg.problem.irreps import Irrep, Irreps
from trnqc.cg.problem.polynomials import HornerNode, Monomial, coupled, horner, monomials
from trnqc.errors import InputError, IrrepsError, OperandError

# Coefficients of a coupling tensor in single precision that are smaller than this, relative to the largest, are zeros
# with rounding errors.
NOISE = 1e-5


@dataclass(frozen=True)
class DegreeWeights:
    """The weights of one degree of one output slot: `count` weights of a channel, from number `start` on."""

    output: int
    degree: int
    start: int
    count: int


@dataclass(frozen=True)
class ContractionProblem:
    """A symmetric contraction of x in `irreps_in` to `irreps_out`.

    `correlation` has the largest degree for each slot of the results. Raises IrrepsError unless all slots have the same
    number of channels, InputError unless each degree is at least 1.
    """

    irreps_in: Irreps
    irreps_out: Irreps
    correlation: tuple[int, ...]

    def __post_init__(self) -> None:
        channels = {slot.mul for slot in (*self.irreps_in, *self.irreps_out)}
        if len(channels) != 1 or not len(self.irreps_in) or not len(self.irreps_out):
            raise IrrepsError(
                "a symmetric contraction needs slots of equal multiplicities; found "
                f"{self.irreps_in or 'nothing'} to {self.irreps_out or 'nothing'}"
            )
        if len(self.correlation) != len(self.irreps_out) or min(self.correlation) < 1:
            raise InputError(
                f"correlation: expected an integer of at least 1 for each of the {len(self.irreps_out)} slots of the "
                f"results, found {self.correlation}"
            )

    @property
    def channels(self) -> int:
        """The number of channels of every slot."""
        return self.irreps_in[0].mul

    @cached_property
    def dims(self) -> tuple[int, int]:
        """The numbers of components of a channel of x and of a channel of the results."""
        return sum(slot.ir.dim for slot in self.irreps_in), sum(slot.ir.dim for slot in self.irreps_out)

    @cached_property
    def weights(self) -> tuple[DegreeWeights, ...]:
        """The weights of a channel by output and degree. Like in MACE, there is at least one for every degree."""
        weights, start = [], 0
        for output, correlation in enumerate(self.correlation):
            for degree in range(1, correlation + 1):
                count = max(1, len(self._coupled(output, degree)))
                weights.append(DegreeWeights(output, degree, start, count))
                start += count
        return tuple(weights)

    @property
    def weight_numel(self) -> int:
        """The number of weights of a channel."""
        return self.weights[-1].start + self.weights[-1].count

    @cached_property
    def components(self) -> tuple[HornerNode, ...]:
        """The polynomial of every component of the results in Horner's form."""
        dim, nodes = self.dims[0], []
        for output, slot in enumerate(self.irreps_out):
            degrees = range(1, self.correlation[output] + 1)
            largest = [np.abs(self._coupled(output, n)).max(axis=0, initial=0) for n in degrees]
            for component in range(slot.ir.dim):
                terms = [
                    m for n, u in zip(degrees, largest) for m, size in zip(monomials(dim, n), u[component]) if size
                ]
                nodes.append(horner(terms))
        return tuple(nodes)

    @cached_property
    def terms(self) -> Mapping[tuple[int, Monomial], int]:
        """The number of each term (component of the results, monomial), in the order in which kernels use them."""
        pairs = ((component, m) for component, node in enumerate(self.components) for m in node.monomials())
        return {term: number for number, term in enumerate(pairs)}

    @cached_property
    def folding(self) -> np.ndarray:
        """S[t, k], float64 [terms, weights]: the coefficients are C = S W."""
        matrix = np.zeros((len(self.terms), self.weight_numel))
        starts = np.cumsum([0, *(slot.ir.dim for slot in self.irreps_out)])
        for weights in self.weights:
            paths = self._coupled(weights.output, weights.degree)
            own = slice(weights.start, weights.start + len(paths))
            for component, m, rows in _rows(paths, self.dims[0], weights.degree):
                matrix[self.terms[int(starts[weights.output]) + component, m], own] = rows
        matrix.flags.writeable = False
        return matrix

    def _coupled(self, output: int, degree: int) -> np.ndarray:
        irreps: tuple[Irrep, ...] = tuple(slot.ir for slot in self.irreps_in)
        return coupled(irreps, self.irreps_out[output].ir, degree)

    def __str__(self) -> str:
        return contraction_text(self)


def _rows(paths: np.ndarray, dim: int, degree: int) -> Any:
    """Yield (component, monomial, coefficients [paths]) of the monomials that some path contains."""
    names = monomials(dim, degree)
    for component, number in np.argwhere(paths.any(axis=0)):
        yield int(component), names[number], paths[:, component, number]


def contraction_problem(irreps_in: Any, irreps_out: Any, correlation: Any) -> ContractionProblem:
    """Return the problem of irreps as text or objects of e3nn, with one correlation for all outputs or one for each."""
    ins, outs = Irreps.of(irreps_in), Irreps.of(irreps_out)
    degrees = (correlation,) * len(outs) if isinstance(correlation, int) else tuple(map(int, correlation))
    return ContractionProblem(ins, outs, degrees)


def contraction_text(problem: ContractionProblem) -> str:
    """Return a problem as text, from which `problem_of_text` restores it."""
    return f"{problem.irreps_in} -> {problem.irreps_out}, {','.join(map(str, problem.correlation))}"


@lru_cache(maxsize=256)
def problem_of_text(text: str) -> ContractionProblem:
    """Return the problem of a text by `contraction_text`, which is kept for later calls."""
    ins, _, rest = text.partition(" -> ")
    outs, _, degrees = rest.partition(", ")
    return ContractionProblem(Irreps.of(ins), Irreps.of(outs), tuple(map(int, degrees.split(","))))


def folding_of(problem: ContractionProblem, couplings: Sequence[np.ndarray]) -> np.ndarray:
    """Return S[t, k], as `ContractionProblem.folding`, of other coupling tensors, such as those of a MACE model.

    The couplings are U[M, i1, ..., in, k] for each output and each degree from 1 on, with any number of paths; an M of
    extent 1 may be left out. Raises OperandError for other shapes, or couplings that no equivariant polynomial has.
    """
    dim, columns = problem.dims[0], []
    starts = np.cumsum([0, *(slot.ir.dim for slot in problem.irreps_out)])
    if len(couplings) != len(problem.weights):
        raise OperandError(f"expected {len(problem.weights)} coupling tensors, found {len(couplings)}")
    for weights, u in zip(problem.weights, couplings):
        size, n = problem.irreps_out[weights.output].ir.dim, weights.degree
        if u.shape[:-1] not in ((size, *[dim] * n), (dim,) * n if size == 1 else None):
            raise OperandError(f"expected a coupling tensor [{size}, {f'{dim}, ' * n}paths], found {list(u.shape)}")
        paths = _symmetrised(u.reshape(size, dim**n, u.shape[-1]).astype(np.float64), dim, n)
        column = np.zeros((len(problem.terms), u.shape[-1]))
        largest = np.abs(paths).max(initial=0)
        for component, m, rows in _rows(paths, dim, n):
            term = problem.terms.get((int(starts[weights.output]) + component, m))
            if term is not None:
                column[term] = rows
            elif np.abs(rows).max() > NOISE * largest:
                raise OperandError(f"the coupling tensor to {problem.irreps_out[weights.output]} is not equivariant")
        columns.append(column)
    return np.concatenate(columns, axis=1)


def _symmetrised(u: np.ndarray, dim: int, degree: int) -> np.ndarray:
    """Return the sums over the orders of the components, [paths, M, monomials], of U [M, dim^degree, paths]."""
    indices = np.sort(np.stack(np.unravel_index(np.arange(dim**degree), (dim,) * degree)), axis=0)
    names = np.ravel_multi_index(tuple(np.array(monomials(dim, degree)).T), (dim,) * degree)
    numbers = np.searchsorted(names, np.ravel_multi_index(tuple(indices), (dim,) * degree))
    sums = [[np.bincount(numbers, row, len(names)) for row in rows.T] for rows in u]
    return np.array(sums).reshape(len(u), u.shape[2], len(names)).transpose(1, 0, 2)
