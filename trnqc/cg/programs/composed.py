"""Paths of all modes but uvu, z += M(w, P(x, y)): the steps of a direction in terms of the linear maps P and M.

    t = P(x, y)      product of channels, coupled by C          gx, gy += P'(x, y; h)    its gradients
    z += M(w, t)     channels weighed, mixed or added up        h, gw = M'(w, t; gz)     its gradients

In uvw and u<vw M mixes the pairs of channels by weights, z[w] = sum_r W[r, w] t[r]; in uuu, uvuv and uvu<v each pair
has a channel of its own, z[r] = w[r] t[r]; in uuw without weights all pairs are added up.
"""

from __future__ import annotations

from typing import Protocol

from trnqc.cg.programs.directions import Direction


class Composed(Protocol):
    """What a target writes for a path: operands are told by name; t and h are the path's own."""

    @property
    def weighted(self) -> bool:
        """Whether the path has weights."""

    def product(self, pairs: tuple[tuple[str, str], ...]) -> None:
        """t = the sum of P(x, y) over pairs of operands."""

    def combine(self, w: str) -> None:
        """z += M(w, t)."""

    def combine_gradients(self, w: str, slopes: bool) -> None:
        """h = the gradient of t; with `slopes` also gw, which needs t."""

    def product_gradients(self, x: str, y: str) -> None:
        """gx += and gy += those of <h, P(x, y)>."""


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
