"""Products of a channel of x with a channel of y, for modes where each pair of channels occurs once.

    t_k = pw sum_ij C_ijk x_i y_j        (modes uuu, uuw, uvu<v, u<vw)
    gx_i = sum_j q_ij y_j        gy_j = sum_i q_ij x_i        q_ij = pw sum_k C_ijk h_k

The functions return lists of products, which a target adds to the previous values.
"""

from __future__ import annotations

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs.coupling import Components, Degrees
from trnqc.gen import Value, const
from trnqc.gen.build import Builder, dot

# For each component the factors of the products to be added.
Sums = dict[int, list[tuple[Value, Value]]]


def product(b: Builder, degrees: Degrees, pw: Value, x: Components, y: Components) -> Sums:
    """Return the products whose sum is t_k, for every k."""
    terms = sparse(*degrees)
    pairs = {(i, j): b.let("p", pw * x[i] * y[j]) for i, j in dict.fromkeys((i, j) for i, j, _, _ in terms)}
    sums: Sums = {k: [] for k in range(2 * degrees[2] + 1)}
    for i, j, k, c in terms:
        sums[k].append((const(c, pw.dtype), pairs[i, j]))
    return sums


def gradients(
    b: Builder, degrees: Degrees, pw: Value, x: Components, y: Components, h: Components
) -> tuple[Sums, Sums]:
    """Return the products whose sums are gx_i, and the products whose sums are gy_j."""
    scaled: dict[int, Value] = {}
    pairs: dict[tuple[int, int], list[tuple[Value, Value]]] = {}
    for i, j, k, c in sparse(*degrees):
        if k not in scaled:
            scaled[k] = b.let("h", pw * h[k])
        pairs.setdefault((i, j), []).append((const(c, pw.dtype), scaled[k]))
    of_x: Sums = {}
    of_y: Sums = {}
    for (i, j), terms in pairs.items():
        q = b.let("q", dot(terms))
        of_x.setdefault(i, []).append((q, y[j]))
        of_y.setdefault(j, []).append((q, x[i]))
    return of_x, of_y
