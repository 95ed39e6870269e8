"""Equivariant polynomials of features: products of a channel with itself, coupled to an irrep.

A path of degree n couples n copies of x one after the other, ((x ⊗ x) ⊗ x) ⊗ ..., through irreps in between. Its
result is a homogeneous polynomial of the components of x. Only the coefficients of its monomials are kept, because
x[i] x[j] and x[j] x[i] are equal. Paths are those of MACE's ``U_matrix_real``, in the same order and normalisation
(Batatia, Kovács, Simm, Ortner and Csányi 2022, arXiv:2206.07697, eq. 10 and 11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from math import sqrt

import numpy as np

from trnqc.cg.problem.coefficients import clebsch_gordan
from trnqc.cg.problem.irreps import Irrep, products

# Components of x in ascending order: (0, 0, 3) is x[0]² x[3].
Monomial = tuple[int, ...]
# Coefficients that are smaller than this, relative to the largest one, are zeros with rounding errors.
ROUNDING = 1e-12
# From this degree on, MACE couples only through irreps of natural parity, (-1)^l.
NATURAL_FROM = 4


@lru_cache(maxsize=64)
def monomials(dim: int, degree: int) -> tuple[Monomial, ...]:
    """Return all monomials of a degree in `dim` components, in lexicographic order."""
    return tuple(combinations_with_replacement(range(dim), degree))


@lru_cache(maxsize=256)
def coupled(irreps: tuple[Irrep, ...], out: Irrep, degree: int) -> np.ndarray:
    """Return the polynomials of all paths from x to `out`, read-only float64 [paths, components, `monomials`]."""
    dim = sum(ir.dim for ir in irreps)
    paths = [p for ir, p in _paths(irreps, degree, degree >= NATURAL_FROM, out) if ir == out]
    result = np.array(paths).reshape(len(paths), out.dim, len(monomials(dim, degree)))
    result[np.abs(result) < ROUNDING * np.abs(result).max(initial=0)] = 0
    result.flags.writeable = False
    return result


@lru_cache(maxsize=64)
def _paths(
    irreps: tuple[Irrep, ...], degree: int, natural: bool, out: Irrep | None = None
) -> tuple[tuple[Irrep, np.ndarray], ...]:
    """Return (irrep, polynomials [components, monomials]) of all paths, or only of paths to `out`."""
    dim = sum(ir.dim for ir in irreps)
    if degree == 1:
        rows = np.split(np.eye(dim), np.cumsum([ir.dim for ir in irreps])[:-1])
        return tuple(zip(irreps, rows))
    places = _multiplied(dim, degree - 1)
    paths = []
    for left, polynomials in _paths(irreps, degree - 1, natural):
        start = 0
        for right in irreps:
            for ir in products(left, right):
                if out in (None, ir) and (not natural or ir.p == (-1) ** ir.l):
                    c = sqrt(ir.dim) * clebsch_gordan(ir.l, left.l, right.l)
                    result = np.zeros((ir.dim, len(monomials(dim, degree))))
                    for b in range(right.dim):
                        result[:, places[start + b]] += c[:, :, b] @ polynomials
                    paths.append((ir, result))
            start += right.dim
    return tuple(sorted(paths, key=lambda path: path[0]))


def _multiplied(dim: int, degree: int) -> np.ndarray:
    """Return the number of the monomial x[i] m for every component i and monomial m, int64 [dim, monomials]."""
    numbers = {m: n for n, m in enumerate(monomials(dim, degree + 1))}
    return np.array([[numbers[tuple(sorted((*m, i)))] for m in monomials(dim, degree)] for i in range(dim)])


@dataclass(frozen=True)
class HornerNode:
    """A polynomial in Horner's form, c + sum of x[i] times another node over the children (i, node).

    All i differ; `monomial` is the one whose coefficient in the whole polynomial is c, or None if c is zero.
    """

    monomial: Monomial | None
    children: tuple[tuple[int, HornerNode], ...] = ()

    @property
    def degree(self) -> int:
        """The degree of the node as a polynomial of its own."""
        return max((1 + node.degree for _, node in self.children), default=0)

    def monomials(self) -> Iterator[Monomial]:
        """Yield the monomials in the order in which the coefficients are used."""
        if self.monomial is not None:
            yield self.monomial
        for _, node in self.children:
            yield from node.monomials()


def horner(terms: Iterable[Monomial]) -> HornerNode:
    """Return a polynomial with these monomials in Horner's form.

    At every node, the component that occurs in most of the remaining monomials is factored out first (Ceberio and
    Kreinovich 2004). This needs about one multiplication for each monomial.
    """
    return _factored([(m, m) for m in terms])


def _factored(terms: list[tuple[Monomial, Monomial]]) -> HornerNode:
    """Return the node of terms, each of which is (the monomial as a factor of the node, the whole monomial)."""
    whole = next((m for rest, m in terms if not rest), None)
    rest = [term for term in terms if term[0]]
    children = []
    while rest:
        counts = Counter(i for m, _ in rest for i in set(m))
        most = max(sorted(counts), key=counts.__getitem__)
        divided = [(_without(m, most), name) for m, name in rest if most in m]
        rest = [term for term in rest if most not in term[0]]
        children.append((most, _factored(divided)))
    return HornerNode(whole, tuple(children))


def _without(m: Monomial, i: int) -> Monomial:
    """Divide a monomial by x[i]."""
    at = m.index(i)
    return m[:at] + m[at + 1 :]
