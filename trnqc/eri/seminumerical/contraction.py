"""One pair of shells on one vector of points: targets [e| and values of both shells into both shells of G.

Cartesian functions of b are shifted to the centre of a: (r - B)^b = sum_k binomial(b, k) (A - B)^(b - k) (r - A)^k. So

  sum_b (ab| F_b = sum_k [a+k| F'_k   with   F'_k = sum_b binomial(b, k) (A - B)^(b - k) F_b

takes the place of the horizontal recurrence, and its transpose gives sum_a (ab| F_a. A shift costs few operations,
because it acts on the values of one shell and not on integrals of a pair.

The derivatives of sum_ab F_a F_b (ab| by A and by B take the products of the polynomials p = sum_a F_a (r - A)^a and
q = sum_k F'_k (r - A)^k. With t = p q and t^x = q dp/dx, and with exponents alpha and beta of the two shells:

  d/dA_x = sum_e t_e 2 alpha [e+1_x| - sum_e t^x_e [e|
  d/dA_x + d/dB_x = sum_e t_e (2 (alpha + beta) [e+1_x| + (A - B)_x 2 beta [e| - e_x [e-1_x|)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import product as iterate
from math import comb, prod
from operator import add

from trnqc.eri.kernels.angular import Powers, cartesians, raised
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
    place = _places(components(la, lb))
    fa, fb, shifted = _values_of_a(la), [Var(f"f_b{n}") for n in range(len(b_powers))], _shifted(lb)
    reads = [st.Let(v, f_a(n)) for n, v in enumerate(fa)] + [st.Let(v, f_b(n)) for n, v in enumerate(fb)]
    moved = [st.Let(v, _moved(k, b_powers, fb, lowering=True)) for k, v in shifted.items()]
    to_a = [
        st.accumulate(g_a(n), dot([(h(place[_sum(a, k)]), shifted[k]) for k in lower])) for n, a in enumerate(a_powers)
    ]
    sums = {k: Var(f"g_k{n}") for n, k in enumerate(lower)}
    by_k = [st.Let(v, dot([(h(place[_sum(a, k)]), f) for a, f in zip(a_powers, fa)])) for k, v in sums.items()]
    to_b = [st.accumulate(g_b(n), _moved(b, lower, [*sums.values()], lowering=False)) for n, b in enumerate(b_powers)]
    return [*reads, *moved, *to_a, *by_k, *to_b]


def products(la: int, lb: int, t: Element, t_axes: Sequence[Element]) -> list[st.Statement]:
    """Return statements that add the t_e and t^x_e of a density to elements of arrays; see the module's docstring.

    They read variables of `contracted`, and follow it. `t` is in the order of `components(la, lb)`, and `t_axes` are
    in that of `components(la - 1, lb)`.
    """
    a_values, b_values = dict(zip(cartesians(la), _values_of_a(la))), _shifted(lb)
    statements = _product(components(la, lb), a_values, b_values, t)
    for axis, element in enumerate(t_axes if la else ()):
        lowered = {
            raised(a, axis, -1): f * float(a[axis]) if a[axis] > 1 else f for a, f in a_values.items() if a[axis]
        }
        variables: dict[Powers, Value] = {a: Var(f"f_{'xyz'[axis]}{n}") for n, a in enumerate(lowered)}
        statements += [st.Let(variables[a], f) for a, f in lowered.items()]
        statements += _product(components(la - 1, lb), variables, b_values, element)
    return statements


def _product(
    powers: tuple[Powers, ...], p: dict[Powers, Value], q: dict[Powers, Value], element: Element
) -> list[st.Statement]:
    """Add the coefficients of the product of two polynomials to elements."""
    terms: dict[Powers, list[tuple[Value, Value]]] = {e: [] for e in powers}
    for (a, one), (k, two) in iterate(p.items(), q.items()):
        terms[_sum(a, k)].append((one, two))
    return [st.accumulate(element(n), dot(terms[e])) for n, e in enumerate(powers) if terms[e]]


def derivatives(
    la: int, lb: int, t: Element, t_axes: Sequence[Element], plain: Element, alpha: Element, beta: Element
) -> tuple[list[st.Statement], list[Value], list[Value]]:
    """Return statements, and the derivatives by A and the sums of those by A and by B for x, y and z, as values.

    plain, alpha, beta: return [e|, and [e| times 2 alpha or 2 beta summed over primitive pairs, by the number of e in
    `components(max(la - 1, 0), ...)`, `components(la + 1, lb)` and `components(la, lb + 1)`.
    """
    powers, low = components(la, lb), max(la - 1, 0)
    at, at_alpha = _places(components(low, la + lb - low)), _places(components(la + 1, lb))
    at_beta = _places(components(la, lb + 1))
    apart: list[tuple[Powers, Value, Value]] = [(e, t(n), beta(at_beta[e])) for n, e in enumerate(powers)]
    statements, moved = _by_power("moved", apart)
    by_a, by_both = [], []
    for axis, x in enumerate("xyz"):
        up = [raised(e, axis) for e in powers]
        own = [(e, t(n), alpha(at_alpha[up[n]])) for n, e in enumerate(powers)]
        both = [(e, t(n), alpha(at_alpha[up[n]]) + beta(at_beta[up[n]])) for n, e in enumerate(powers)]
        below = [(e, t(n) * -float(e[axis]), plain(at[raised(e, axis, -1)])) for n, e in enumerate(powers) if e[axis]]
        lets, total = _by_power(f"both_{x}", both + below)
        statements += lets
        by_both.append(total + Var(f"AB_{x}") * moved)
        lets, total = _by_power(f"own_{x}", own)
        statements += lets
        if la:
            lowered = [(e, t_axes[axis](n), plain(at[e])) for n, e in enumerate(components(la - 1, lb))]
            lets, less = _by_power(f"lowered_{x}", lowered)
            statements += lets
            total = total - less
        by_a.append(total)
    return statements, by_a, by_both


def _by_power(name: str, terms: list[tuple[Powers, Value, Value]]) -> tuple[list[st.Statement], Value]:
    """Return a sum of products, and statements that define its parts with e of one total power.

    Sums of hundreds of terms in one expression are too deep for the passes over programs.
    """
    groups: dict[int, list[tuple[Value, Value]]] = {}
    for e, one, two in terms:
        groups.setdefault(sum(e), []).append((one, two))
    parts = {total: Var(f"{name}_{total}") for total in groups}
    return [st.Let(parts[total], dot(group)) for total, group in groups.items()], reduce(add, parts.values())


def _places(powers: tuple[Powers, ...]) -> dict[Powers, int]:
    return {e: n for n, e in enumerate(powers)}


def _values_of_a(la: int) -> list[Value]:
    """Return the variables that hold F_a."""
    return [Var(f"f_a{n}") for n in range(len(cartesians(la)))]


def _shifted(lb: int) -> dict[Powers, Value]:
    """Return the variables that hold F'_k."""
    return {k: Var(f"f_k{n}") for n, k in enumerate(_all(lb))}


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
