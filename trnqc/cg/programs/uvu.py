"""One channel of a uvu path with one channel of y: z_k += w sum_i A[i, k] x_i and its derivatives.

With A formed from y, B from ggy, and the components of one channel,

    forward     z_k += w sum_i A_ik x_i
    backward    s_i = sum_k A_ik gz_k:  gx_i += w s_i,  gw = sum_i x_i s_i,  G_ik = w x_i gz_k
    double      p_i = w ggx_i + ggw x_i,  t_i = sum_k B_ik gz_k:
                ggz_k += sum_i A_ik p_i + B_ik w x_i,  gx_i += w t_i + ggw s_i,
                gw = sum_i ggx_i s_i + x_i t_i,  G_ik = p_i gz_k

and gy_j = pw sum_ik C_ijk G_ik, with G summed over channels. Both orders follow from the terms of the direction. A
target supplies the values of a channel, each of which may be a vector with one element for each of several channels.
It adds the results to those of other channels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from trnqc.cg.programs.coupling import Components, CouplingMatrix, sum_of_products
from trnqc.cg.programs.directions import Direction, DirectionTerm
from trnqc.gen import Value
from trnqc.gen.build import Builder
from trnqc.gen.values import fma

# Function that adds a term to a sum, which is None before the first term.
Update = Callable[[Value | None], Value]
# Function that applies an update to one component of a result.
Add = Callable[[int, Update], None]


@dataclass(frozen=True)
class Slopes:
    """The contributions of a channel to gw (pairs whose products are summed) and to gy: G[i, k] = left[i] right[k]."""

    w: list[tuple[Value, Value]]
    left: Components
    right: Components


@dataclass(frozen=True)
class UvuChannel:
    """One channel of a path in a direction.

    Parameters
    ----------
    b : Builder
    direction : Direction
    a : mapping of str to CouplingMatrix
        Couplings of y and ggy.
    x : mapping of str to {int: Value}
        Components of x and ggx. `inputs` also accepts a part of the components.
    weights : mapping of str to Value
        w and ggw; empty for a path without weights.
    dim : int
        Number of components of z.
    gz : Components, optional
        Components of gz, for `inputs`.
    """

    b: Builder
    direction: Direction
    a: Mapping[str, CouplingMatrix]
    x: Mapping[str, Mapping[int, Value]]
    weights: Mapping[str, Value]
    dim: int
    gz: Components = ()
    _weighted: dict[str, dict[int, Value]] = field(default_factory=dict)

    @property
    def _terms(self) -> tuple[DirectionTerm, ...]:
        return self.direction.terms(bool(self.weights))

    def outputs(self, add: Add) -> None:
        """Add the contribution of the channel to every component of z or ggz.

        For z, the weight multiplies x, the couplings or the result, whichever has the fewest elements.
        """
        w, x, a = self.weights.get("w"), self.x["x"], self.a["y"]
        if not self.direction.double and w is not None and a.distinct < min(len(x), self.dim):
            parts = [(a.scaled(self.b, w), x)]
        elif not self.direction.double and w is not None and len(x) > self.dim:
            for k in range(self.dim):
                add(k, partial(_sum, [(w, a.product(x, k))]))
            return
        else:
            parts = [(a, self.weighted_x(y)) for y, a in self.a.items()]
        for k in range(self.dim):
            add(k, partial(sum_of_products, parts, k))

    def inputs(self, add: Add) -> Slopes:
        """Add the contribution to gx, for the components that x has, and return the contributions to gw and gy."""
        weights, x, terms = self.weights, self.x, self._terms
        needed = {t.at[1] for t in terms} | {y for _, y in terms[0].products if weights}
        a = {y: a for y, a in self.a.items() if y in needed}
        s = {y: {i: self.b.let("s", a[y].transposed(self.gz, i)) for i in x["x"]} for y in a}
        for i in x["x"]:
            add(i, partial(_sum, [(weights.get(t.w), s[t.at[1]][i]) for t in reversed(terms)]))
        slopes = [(x[name][i], s[y][i]) for name, y in terms[0].products for i in x["x"]] if weights else []
        if not self.direction.double and weights and len(x["x"]) > self.dim:
            return Slopes(slopes, x["x"], [self.b.let("h", weights["w"] * gz) for gz in self.gz])
        return Slopes(slopes, self.weighted_x("y"), self.gz)

    def weighted_x(self, y: str) -> dict[int, Value]:
        """Return the factor that an operand of y is coupled with: w x, or w ggx + ggw x in second order."""
        if y not in self._weighted:
            terms = [(t.w, x) for t in reversed(self._terms) for x, other in t.products if other == y]
            parts = [(self.weights.get(w), self.x[x]) for w, x in terms]
            self._weighted[y] = {i: self.b.let("wx", _sum([(w, x[i]) for w, x in parts])) for i in self.x["x"]}
        return self._weighted[y]


def _sum(parts: list[tuple[Value | None, Value]], start: Value | None = None) -> Value:
    """Return start + sum of w v, where a weight of None is 1."""
    total = start
    for w, v in parts:
        if total is None:
            total = v if w is None else w * v
        else:
            total = total + v if w is None else fma(w, v, total)
    assert total is not None
    return total
