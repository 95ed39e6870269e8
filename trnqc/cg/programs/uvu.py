"""One channel of a uvu path with one channel of y: z_k += w sum_i A[i, k] x_i and its derivatives.

With A formed from y, B from ggy and the components of the channel at hand,

    forward     z_k += w sum_i A_ik x_i
    backward    s_i = sum_k A_ik gz_k:  gx_i += w s_i,  gw = sum_i x_i s_i,  G_ik = w x_i gz_k
    double      p_i = w ggx_i + ggw x_i,  t_i = sum_k B_ik gz_k:
                ggz_k += sum_i A_ik p_i + B_ik w x_i,  gx_i += w t_i + ggw s_i,
                gw = sum_i ggx_i s_i + x_i t_i,  G_ik = p_i gz_k

and gy_j = pw sum_ik C_ijk G_ik, with G summed over channels. Both orders follow from the terms of the direction. A
target supplies the values of a channel, which may be a vector of channels, and adds up what is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from trnqc.cg.programs.coupling import Components, Coupling, sum_of_products
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Value
from trnqc.gen.build import Builder
from trnqc.gen.values import fma

# Given the sum so far, or None for none, the sum with one more part.
Update = Callable[[Value | None], Value]
Weighted = list[tuple[Value | None, Value]]


@dataclass(frozen=True)
class Channel:
    """The values of one channel: components of x and ggx, weights w and ggw (none for a path without), and gz."""

    x: Mapping[str, Components]
    weights: Mapping[str, Value]
    gz: Components = ()


@dataclass(frozen=True)
class Slopes:
    """gw as a sum of products, and the factors of G[i, k] = left[i] right[k]."""

    w: list[tuple[Value, Value]]
    left: Components
    right: Components


def outputs(
    b: Builder, direction: Direction, a: Mapping[str, Coupling], channel: Channel, dims: tuple[int, int],
    add: Callable[[int, Update], None],
) -> None:  # fmt: skip
    """Add the channel's part to every component of z or ggz.

    In first order the weight goes to x, to the coupling or to the result, whichever takes the fewest multiplications.
    """
    d1, d3 = dims
    w = channel.weights.get("w")
    if not direction.double and w is not None:
        x, only = channel.x["x"], a["y"]
        if only.distinct < min(d1, d3):
            a, channel = {"y": only.scaled(b, w)}, Channel(channel.x, {})
        elif d1 > d3:
            for k in range(d3):
                add(k, partial(_sum, [(w, only.product(x, k))]))
            return
    values = _weighted_x(b, direction, channel, range(d1))
    for k in range(d3):
        add(k, partial(sum_of_products, [(a[y], x) for y, x in values.items()], k))


def inputs(
    b: Builder, direction: Direction, a: Mapping[str, Coupling], channel: Channel, dims: tuple[int, int],
    add: Callable[[int, Update], None], of: tuple[int, ...] | None = None,
) -> Slopes:  # fmt: skip
    """Add the channel's part to the components `of` of gx, all by default; what gw and gy get is returned."""
    d1, d3 = dims
    of = tuple(range(d1)) if of is None else of
    weights, terms = channel.weights, direction.terms(bool(channel.weights))
    needed = {t.at[1] for t in terms} | {y for _, y in terms[0].products if weights}
    s = {y: {i: b.let("s", a[y].transposed(channel.gz, i)) for i in of} for y in a if y in needed}
    for i in of:
        add(i, partial(_sum, [(weights.get(t.w), s[t.at[1]][i]) for t in terms]))
    slopes = [(channel.x[x][i], s[y][i]) for i in of for x, y in terms[0].products] if weights else []
    if not direction.double and weights and len(of) > d3:
        return Slopes(slopes, channel.x["x"], [b.let("h", weights["w"] * gz) for gz in channel.gz])
    return Slopes(slopes, _weighted_x(b, direction, channel, of)["y"], channel.gz)


def _weighted_x(b: Builder, direction: Direction, channel: Channel, of: Iterable[int]) -> dict[str, dict[int, Value]]:
    """For y, and ggy in second order, the sum of weighted x's that is coupled with it."""
    pairs: dict[str, list[tuple[Value | None, Components]]] = {}
    for term in reversed(direction.terms(bool(channel.weights))):
        for x, y in term.products:
            pairs.setdefault(y, []).append((channel.weights.get(term.w), channel.x[x]))
    return {y: {i: b.let("wx", _sum([(w, x[i]) for w, x in parts])) for i in of} for y, parts in pairs.items()}


def _sum(parts: Weighted, start: Value | None = None) -> Value:
    """start + sum of w v; a weight that is None is 1."""
    total = start
    for w, v in parts:
        if total is None:
            total = v if w is None else w * v
        else:
            total = total + v if w is None else fma(w, v, total)
    assert total is not None
    return total
