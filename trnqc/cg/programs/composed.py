"""Paths z = M(w, P(x, y)) of all modes except uvu: the steps of a direction in terms of the linear maps P and M.

    t = P(x, y)      products of channels, coupled by C          gx, gy += P'(x, y; h)    gradients of <h, t>
    z += M(w, t)     products weighted, mixed or added up        h, gw = M'(w, t; gz)     gradients of <gz, z>

For uvw and u<vw, M mixes the pairs of channels by weights, z[w] = sum_r W[r, w] t[r]. For uuu, uvuv and uvu<v, each
pair has a channel of its own, z[r] = w[r] t[r]. For uuw without weights, all pairs are added up.
"""

from __future__ import annotations

from typing import Protocol

from trnqc.cg.programs.directions import Direction


class Composed(Protocol):
    """The steps that a target writes for a path. Operands are passed by name; t and h belong to the path."""

    @property
    def weighted(self) -> bool:
        """Whether the path has weights."""

    def product(self, operands: tuple[tuple[str, str], ...]) -> None:
        """Write t = sum of P(x, y) over pairs of operands."""

    def combine(self, w: str) -> None:
        """Write z += M(w, t)."""

    def combine_gradients(self, w: str, slopes: bool) -> None:
        """Write the gradient h of t and, if `slopes`, the gradient gw of the weights, which depends on t."""

    def product_gradients(self, x: str, y: str) -> None:
        """Add the gradients of <h, P(x, y)> to gx and gy."""


def write(path: Composed, direction: Direction) -> None:
    """Write the terms of a direction one after another."""
    for n, term in enumerate(direction.terms(path.weighted)):
        slopes = direction.gradients and path.weighted and n == 0
        if direction.output or slopes:
            path.product(term.products)
        if direction.output:
            path.combine(term.w)
        if direction.gradients:
            path.combine_gradients(term.w, slopes)
            path.product_gradients(*term.at)
