"""Real spherical harmonics of unit vectors in e3nn's component normalisation, and their derivatives.

The polynomial S_l(u), homogeneous of degree l and equal to Y_l on the unit sphere, follows from S_(l-1) by coupling:

    S_lk(u) = c_l sum_ij C_ijk S_(l-1)i(u) u_j        dS_lk/du_j = l c_l sum_i C_ijk S_(l-1)i(u)

with the coefficients C of degrees l - 1, 1 and l. Each component of the gradient of a harmonic polynomial of degree l
is one of degree l - 1, so it is the same coupling; its constant follows from Euler's theorem on homogeneous functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt

import numpy as np

from trnqc.cg.problem.coefficients import clebsch_gordan, sparse
from trnqc.gen import Value, const
from trnqc.gen.build import Builder, dot


@cache
def _constant(l: int) -> float:
    """c_l, so that the sum of Y_lk^2 over k is 2 l + 1, and Y_l0 is positive on the axis of e3nn's harmonics, y."""
    axis = np.array([0.0, 1.0, 0.0])
    previous = np.zeros(2 * l - 1)
    previous[l - 1] = sqrt(2 * l - 1)
    coupled = np.einsum("ijk,i,j->k", clebsch_gordan(l - 1, 1, l), previous, axis)
    return float(sqrt(2 * l + 1) / coupled[l])


def harmonics(b: Builder, u: Sequence[Value], degree: int) -> list[list[Value]]:
    """Return Y_lk of a unit vector (x, y, z) for all l up to `degree`, as float64 values by l and k = -l .. l."""
    by_degree: list[list[Value]] = [[const(1.0)]]
    for l in range(1, degree + 1):
        sums: list[list[tuple[Value, Value]]] = [[] for _ in range(2 * l + 1)]
        for i, j, k, c in sparse(l - 1, 1, l):
            sums[k].append((const(c * _constant(l)) * by_degree[l - 1][i], u[j]))
        by_degree.append([b.let(f"y{l}", dot(terms)) for terms in sums])
    return by_degree


def gradient(by_degree: Sequence[Sequence[Value]], g: Sequence[Sequence[Value]]) -> list[Value]:
    """Return sum_lk g_lk dS_lk/du_j for j = x, y, z, with the harmonics of `harmonics` and factors g of the same form.

    The result contains a component along u. The gradient on the sphere is the part that is perpendicular to u.
    """
    terms: list[list[tuple[Value, Value]]] = [[], [], []]
    for l in range(1, len(by_degree)):
        for i, j, k, c in sparse(l - 1, 1, l):
            terms[j].append((const(c * l * _constant(l)) * by_degree[l - 1][i], g[l][k]))
    return [dot(products, dtype="f64") for products in terms]
