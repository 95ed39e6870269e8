"""Reverse-mode and forward-mode derivatives of the operators, of every order, composed of the operators themselves.

The function L(x, y, w, gz) = <gz, z(x, y, w)> is linear in x, y and gz, and linear in w up to a constant. The three
operators are derivatives of L:

- ``forward`` is the gradient of L with respect to gz, which is z.
- ``backward`` returns (gx, gy, gw), the gradients of L with respect to x, y and w.
- ``double_backward`` returns the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz.

Second derivatives are symmetric, so forward mode needs no further operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

# An array of any library.
Tensor = Any
Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class ProductCalls:
    """Calls of the three operators with fixed edges and options.

    `linear` are those of the problem without the paths that have no weights: those paths are constant in w; all others
    are linear in w.
    """

    apply: Callable[..., Any]
    rest: tuple[Any, ...]
    linear: tuple[Any, ...]

    def forward(self, *operands: Tensor) -> Tensor:
        return self.apply("forward", *operands, *self.rest)

    def forward_linear(self, *operands: Tensor) -> Tensor:
        return self.apply("forward", *operands, *self.linear)

    def backward(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return self.apply("backward", *operands, *self.rest)

    def double_backward(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return self.apply("double_backward", *operands, *self.rest)

    def double_linear(self, *operands: Tensor) -> tuple[Tensor, ...]:
        return self.apply("double_backward", *operands, *self.linear)


def gradient_of_forward(calls: ProductCalls, t: Tensors, gz: Tensors) -> tuple[Tensor, ...]:
    """Return (gx, gy, gw), the gradients of <gz, z> at t = (x, y, w)."""
    return calls.backward(*t, *gz)


def gradient_of_backward(calls: ProductCalls, t: Tensors, gg: Tensors) -> tuple[Tensor, ...]:
    """Return the gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to t = (x, y, w, gz)."""
    return calls.double_backward(*t, *gg)


def gradient_of_double_backward(calls: ProductCalls, t: Tensors, directions: Tensors) -> tuple[Tensor, ...]:
    """Return the gradients with respect to t = (x, y, w, gz, ggx, ggy, ggw).

    They are those of the scalar S, a sum over i in (x, y, w) and over j != i in (x, y, w, gz). Its terms are L with
    gg_i in place of operand i and h_j in place of operand j, where (hx, hy, hw, hz) are the `directions`.
    """
    xyw, gz, gg, h, hz = t[:3], t[3], t[4:], directions[:3], directions[3]
    # S is the derivative of <ggx, gx> + <ggy, gy> + <ggw, gw> along (hx, hy, hw, hz).
    along = calls.double_backward(*xyw, gz, *h)[:3]
    beside = calls.backward(*xyw, hz)
    # The gradients with respect to x, y and w have two parts: terms with hz in place of gz, and terms with gz itself.
    at_hz = calls.double_backward(*xyw, hz, *gg)[:3]
    crossed = _third(calls, gg, h, gz)
    of_gg = (a + b for a, b in zip(along, beside))
    return *(a + b for a, b in zip(at_hz, crossed)), _second(calls, xyw, gg, h), *of_gg


def tangent_of_forward(calls: ProductCalls, t: Tensors, h: Tensors) -> Tensor:
    """The derivative of z along h = (hx, hy, hw)."""
    (x, y, w), (hx, hy, hw) = t, h
    return calls.forward(hx, y, w) + calls.forward(x, hy, w) + calls.forward_linear(x, y, hw)


def tangent_of_backward(calls: ProductCalls, t: Tensors, h: Tensors) -> tuple[Tensor, ...]:
    """The derivative of (gx, gy, gw) along h = (hx, hy, hw, hz)."""
    at_h, at_hz = calls.double_backward(*t, *h[:3])[:3], calls.backward(*t[:3], h[3])
    return tuple(a + b for a, b in zip(at_h, at_hz))


def tangent_of_double_backward(calls: ProductCalls, t: Tensors, h: Tensors) -> tuple[Tensor, ...]:
    """The derivative of the four results along h; the operator is linear in gz and in (ggx, ggy, ggw)."""
    xyw, gz, gg, h_xyw, hz, hg = t[:3], t[3], t[4:], h[:3], h[3], h[4:]
    *at_hg, of_gz = calls.double_backward(*xyw, gz, *hg)
    at_hz = calls.double_backward(*xyw, hz, *gg)[:3]
    crossed = _third(calls, gg, h_xyw, gz)
    return *(a + b + c for a, b, c in zip(at_hg, at_hz, crossed)), of_gz + _second(calls, xyw, gg, h_xyw)


def _third(calls: ProductCalls, g: Tensors, h: Tensors, gz: Tensor) -> tuple[Tensor, ...]:
    """The derivatives of (gx, gy, gw) along both g and h."""
    return calls.double_linear(*g, gz, *h)[:3]


def _second(calls: ProductCalls, t: Tensors, g: Tensors, h: Tensors) -> Tensor:
    """The derivative of z along both g and h."""
    (x, y, w), (gx, gy, gw), (hx, hy, hw) = t, g, h
    total = calls.forward(hx, gy, w) + calls.forward(gx, hy, w)
    for pair in ((hx, y, gw), (gx, y, hw), (x, hy, gw), (x, gy, hw)):
        total = total + calls.forward_linear(*pair)
    return total


# Reverse-mode derivatives, by the operator that is differentiated.
GRADIENTS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "forward": gradient_of_forward,
    "backward": gradient_of_backward,
    "double_backward": gradient_of_double_backward,
}
# Forward-mode derivatives, by the operator that is differentiated.
TANGENTS: dict[str, Callable[..., Any]] = {
    "forward": tangent_of_forward,
    "backward": tangent_of_backward,
    "double_backward": tangent_of_double_backward,
}
