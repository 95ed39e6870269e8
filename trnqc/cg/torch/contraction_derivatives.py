"""Reverse-mode and forward-mode derivatives of symmetric contractions, composed of the operators themselves.

V(c, x, h1..hn) is the derivative of B along n directions of x, and G(c, x, h1..hn, gb) = (gx, gc) are the gradients of
<gb, V>. B is linear in c. With cotangents u of gx and v of gc,

    dV:  gx and gc of G,    gh_i = gx of G without h_i
    dG:  <u, gx> = <gb, V along u as well>,    <v, gc> = <gb, V(v, x, h1..hn)>.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class ContractionCalls:
    """Calls of both operators for the same nodes; `of_c` says whether gradients of the coefficients are needed."""

    apply: Callable[..., Any]
    elements: Tensor
    problem: str
    of_c: bool

    def value(self, c: Tensor, x: Tensor, along: Tensor) -> Tensor:
        return self.apply("value", c, x, along, self.elements, self.problem)

    def gradient(self, c: Tensor, x: Tensor, along: Tensor, gb: Tensor, of_c: bool = False) -> tuple[Tensor, Tensor]:
        return self.apply("gradient", c, x, along, gb, self.elements, self.problem, of_c)

    def of_directions(self, c: Tensor, x: Tensor, along: Tensor, gb: Tensor, *more: Tensor) -> Tensor:
        """Return the gradients with respect to each direction; `more` are directions that are constant."""
        fixed = [m[None] for m in more]
        rest = [torch.cat([along[:i], along[i + 1 :], *fixed]) for i in range(along.shape[0])]
        return torch.stack([self.gradient(c, x, r, gb)[0] for r in rest]) if rest else torch.zeros_like(along)

    def gradient_of_value(self, c: Tensor, x: Tensor, along: Tensor, gb: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of <gb, V> with respect to c, x and the directions."""
        gx, gc = self.gradient(c, x, along, gb, self.of_c)
        return gc if self.of_c else None, gx, self.of_directions(c, x, along, gb)

    def gradient_of_gradient(
        self, c: Tensor, x: Tensor, along: Tensor, gb: Tensor, u: Tensor | None, v: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """Return the gradients of <u, gx> + <v, gc> with respect to c, x, the directions and gb."""
        of_c: Tensor | None = None
        rest: list[tuple[Tensor, Tensor, Tensor]] = []
        if u is not None:
            further = torch.cat([along, u[None]])
            gx, gc = self.gradient(c, x, further, gb, self.of_c)
            of_c = gc if self.of_c else None
            rest.append((gx, self.of_directions(c, x, along, gb, u), self.value(c, x, further)))
        if v is not None:
            of_x = self.gradient(v, x, along, gb)[0]
            rest.append((of_x, self.of_directions(v, x, along, gb), self.value(v, x, along)))
        if not rest:
            return (None,) * 4
        return of_c, *(sum(terms[1:], terms[0]) for terms in zip(*rest))

    def tangent_of_value(self, c: Tensor, x: Tensor, along: Tensor, dc: Tensor, dx: Tensor, dalong: Tensor) -> Tensor:
        """Return the derivative of V along (dc, dx, dalong)."""
        total = self.value(c, x, torch.cat([along, dx[None]])) + self.value(dc, x, along)
        return sum((self.value(c, x, changed) for changed in _changed(along, dalong)), total)

    def tangent_of_gradient(
        self,
        c: Tensor,
        x: Tensor,
        along: Tensor,
        gb: Tensor,
        dc: Tensor,
        dx: Tensor,
        dalong: Tensor,
        dgb: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Return the derivatives of gx and gc along (dc, dx, dalong, dgb)."""
        parts = [self.gradient(c, x, torch.cat([along, dx[None]]), gb, True), self.gradient(c, x, along, dgb, True)]
        parts += [self.gradient(c, x, changed, gb, True) for changed in _changed(along, dalong)]
        gx, gc = (sum(terms[1:], terms[0]) for terms in zip(*parts))
        return gx + self.gradient(dc, x, along, gb)[0], gc


def _changed(along: Tensor, dalong: Tensor) -> list[Tensor]:
    """Return, for each direction, all directions with this one replaced by its tangent."""
    return [torch.cat([along[:i], dalong[i : i + 1], along[i + 1 :]]) for i in range(along.shape[0])]
