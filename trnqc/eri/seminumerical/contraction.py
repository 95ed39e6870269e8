"""One pair of shells on one vector of points: targets [e| and values of both shells into both shells of G.

Cartesian functions of b are shifted to the centre of a: (r - B)^b = sum_k binomial(b, k) (A - B)^(b - k) (r - A)^k. So

  sum_b (ab| F_b = sum_k [a+k| F'_k   with   F'_k = sum_b binomial(b, k) (A - B)^(b - k) F_b

takes the place of the horizontal recurrence, and its transpose gives sum_a (ab| F_a. A shift costs few operations,
because it acts on the values of one shell and not on integrals of a pair.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb, prod

from trnqc.eri.kernels.angular import Powers, cartesians
from trnqc.eri.kernels.recurrence import components
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import dot

# Returns the element of F or of G that belongs to a Cartesian function of a shell.
Element = Callable[[int], Value]


def shifts(lb: int, centre: Array, pair: Value) -> list[st.Statement]:
    """Return statements that define the products of powers of A - B that `contracted` reads, for a pair."""
    axes = [Var(f"AB_{x}") for x in "xyz"]
    statements: list[st.Statement] = [st.Let(axis, centre[pair, 3 + n]) for n, axis in enumerate(axes)]
    for powers in _all(lb)[1:]:
        n = next(n for n in range(3) if powers[n])
        lower = tuple(p - (i == n) for i, p in enumerate(powers))
        statements.append(st.Let(_shift(powers), _shift(lower) * axes[n] if any(lower) else axes[n]))
    return statements


def contracted(
    la: int, lb: int, h: Callable[[int], Value], f_a: Element, f_b: Element, g_a: Element, g_b: Element
) -> list[st.Statement]:
    """Return statements that add sum_b (ab| F_b to G_a and sum_a (ab| F_a to G_b.

    h: returns the target with a number in the order of `components`. The others are elements of F and G.
    """
    a_powers, b_powers, lower = cartesians(la), cartesians(lb), _all(lb)
    place = {e: n for n, e in enumerate(components(la, lb))}
    fa, fb = ([Var(f"f_{x}{n}") for n in range(len(own))] for x, own in (("a", a_powers), ("b", b_powers)))
    reads = [st.Let(v, f_a(n)) for n, v in enumerate(fa)] + [st.Let(v, f_b(n)) for n, v in enumerate(fb)]
    shifted = {k: Var(f"f_k{n}") for n, k in enumerate(lower)}
    moved = [st.Let(v, _moved(k, b_powers, fb, lowering=True)) for k, v in shifted.items()]
    to_a = [
        st.accumulate(g_a(n), dot([(h(place[_sum(a, k)]), shifted[k]) for k in lower])) for n, a in enumerate(a_powers)
    ]
    sums = {k: Var(f"g_k{n}") for n, k in enumerate(lower)}
    by_k = [st.Let(v, dot([(h(place[_sum(a, k)]), f) for a, f in zip(a_powers, fa)])) for k, v in sums.items()]
    to_b = [st.accumulate(g_b(n), _moved(b, lower, [*sums.values()], lowering=False)) for n, b in enumerate(b_powers)]
    return [*reads, *moved, *to_a, *by_k, *to_b]


def _moved(own: Powers, others: tuple[Powers, ...], values: list[Value], lowering: bool) -> Value:
    """Return one function of a shifted shell, the sum of coefficients of (r - A)^k in (r - B)^b, times values.

    lowering: True if `own` is k and `others` are the b; False if `own` is b and `others` are the k.
    """
    terms = []
    unshifted = dict(zip(others, values, strict=True)).get(own)
    for other, value in zip(others, values):
        k, b = (own, other) if lowering else (other, own)
        difference = tuple(i - j for i, j in zip(b, k))
        if any(difference) and min(difference) >= 0:
            count, shift = prod(comb(i, j) for i, j in zip(b, k)), _shift(difference)
            terms.append((shift * float(count) if count > 1 else shift, value))
    return dot(terms, unshifted)


def _all(l: int) -> tuple[Powers, ...]:
    return tuple(powers for total in range(l + 1) for powers in cartesians(total))


def _sum(a: Powers, k: Powers) -> Powers:
    x, y, z = (i + j for i, j in zip(a, k))
    return x, y, z


def _shift(powers: tuple[int, ...]) -> Value:
    return Var("shift_" + "".join(map(str, powers)))
