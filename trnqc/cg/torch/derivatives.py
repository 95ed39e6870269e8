"""Derivatives of the operators, of every order and in both modes, composed of the operators themselves.

L(x, y, w, gz) = <gz, z(x, y, w)> is linear in each argument (in w up to a constant). ``forward`` is its gradient with
respect to gz, ``backward`` those with respect to x, y and w, and ``double_backward`` those of a directional derivative
along (ggx, ggy, ggw). Second derivatives are symmetric, so that forward mode takes the same three.
"""

# No `from __future__ import annotations`, as in operators.py.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

Tensors = Sequence[Tensor]


@dataclass(frozen=True)
class Calls:
    """The three directions with what follows their operands: edges and options.

    linear: the same for the paths with weights alone. A path without is constant in w, all others are linear in it.
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


def gradient_of_forward(calls: Calls, t: Tensors, given: Tensors) -> tuple[Tensor, ...]:
    """(gx, gy, gw) for gz given."""
    return calls.backward(*t, *given)


def gradient_of_backward(calls: Calls, t: Tensors, given: Tensors) -> tuple[Tensor, ...]:
    """Gradients with respect to (x, y, w, gz) for (ggx, ggy, ggw) given."""
    return calls.double_backward(*t, *given)


def gradient_of_double_backward(calls: Calls, t: Tensors, given: Tensors) -> tuple[Tensor, ...]:
    """Gradients of S = sum over i of x, y, w and j != i of x, y, w, gz of L with ggi at i and given hj at j."""
    xyw, gz, gg, h, hz = t[:3], t[3], t[4:], given[:3], given[3]
    # S is the derivative of <ggx, gx> + <ggy, gy> + <ggw, gw> along (hx, hy, hw, hz).
    along = calls.double_backward(*xyw, gz, *h)[:3]
    beside = calls.backward(*xyw, hz)
    # Its terms with x, y or w as they are: hz at gz, or gz as it is and h at another.
    at_hz = calls.double_backward(*xyw, hz, *gg)[:3]
    crossed = _third(calls, gg, h, gz)
    of_gg = (a + b for a, b in zip(along, beside))
    return *(a + b for a, b in zip(at_hz, crossed)), _second(calls, xyw, gg, h), *of_gg


def tangent_of_forward(calls: Calls, t: Tensors, h: Tensors) -> Tensor:
    """The derivative of z along h = (hx, hy, hw)."""
    (x, y, w), (hx, hy, hw) = t, h
    return calls.forward(hx, y, w) + calls.forward(x, hy, w) + calls.forward_linear(x, y, hw)


def tangent_of_backward(calls: Calls, t: Tensors, h: Tensors) -> tuple[Tensor, ...]:
    """The derivative of (gx, gy, gw) along h = (hx, hy, hw, hz)."""
    at_h, at_hz = calls.double_backward(*t, *h[:3])[:3], calls.backward(*t[:3], h[3])
    return tuple(a + b for a, b in zip(at_h, at_hz))


def tangent_of_double_backward(calls: Calls, t: Tensors, h: Tensors) -> tuple[Tensor, ...]:
    """The derivative of its four results along h; it is linear in gz and in (ggx, ggy, ggw)."""
    xyw, gz, gg, h_xyw, hz, hg = t[:3], t[3], t[4:], h[:3], h[3], h[4:]
    *at_hg, of_gz = calls.double_backward(*xyw, gz, *hg)
    at_hz = calls.double_backward(*xyw, hz, *gg)[:3]
    crossed = _third(calls, gg, h_xyw, gz)
    return *(a + b + c for a, b, c in zip(at_hg, at_hz, crossed)), of_gz + _second(calls, xyw, gg, h_xyw)


def _third(calls: Calls, g: Tensors, h: Tensors, gz: Tensor) -> tuple[Tensor, ...]:
    """The derivatives of (gx, gy, gw) along both g and h."""
    return calls.double_linear(*g, gz, *h)[:3]


def _second(calls: Calls, t: Tensors, g: Tensors, h: Tensors) -> Tensor:
    """The derivative of z along both g and h."""
    (x, y, w), (gx, gy, gw), (hx, hy, hw) = t, g, h
    total = calls.forward(hx, gy, w) + calls.forward(gx, hy, w)
    for pair in ((hx, y, gw), (gx, y, hw), (x, hy, gw), (x, gy, hw)):
        total = total + calls.forward_linear(*pair)
    return total


GRADIENTS: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "forward": gradient_of_forward,
    "backward": gradient_of_backward,
    "double_backward": gradient_of_double_backward,
}
TANGENTS: dict[str, Callable[..., Any]] = {
    "forward": tangent_of_forward,
    "backward": tangent_of_backward,
    "double_backward": tangent_of_double_backward,
}
