"""The Boys function F_m(T) = integral of t^2m exp(-T t^2) over 0 < t < 1, for m = 0 .. L at once.

One row of a table for each interval of T holds a polynomial for the highest order, F_L, and e^-T at the interval's
middle; the lower orders follow downwards, F_m = (2 T F_(m+1) + e^-T) / (2 m + 1), where nothing cancels. Beyond the
table F_L = (2 L - 1)!! / (2 T)^L sqrt(pi / (4 T)) to the last bit but few, and e^-T = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.simplify import horner
from trnqc.gen.values import cast, fma, lt, minimum, select, sqrt

Put = Callable[[Value, Value], st.Statement]

# Intervals to a unit of T, a power of two so that the middles are exact; coefficients of F_L. A row with e^-T is one
# cache line of 64 bytes.
DENSITY, COEFFICIENTS = 8, 7
ROW = COEFFICIENTS + 1
_TAYLOR = 16


def reference(order: int, t: np.ndarray) -> np.ndarray:
    """F_m(T) = e^-T sum_i (2 T)^i (2 m - 1)!! / (2 m + 2 i + 1)!!, all terms positive, for T up to some hundreds."""
    t = np.asarray(t, np.longdouble)
    term = np.ones_like(t) / (2 * order + 1)
    total = term.copy()
    for i in range(1, 200 + 3 * math.ceil(float(t.max(initial=0)))):
        term = term * (2 * t / (2 * order + 2 * i + 1))
        total += term
    return np.exp(-t) * total


@cache
def end(order: int) -> int:
    """The T from which on F_order and all below it are their asymptotic forms to 1e-15 relative."""
    t = 16
    while _tail(order, float(t)) > 1e-15:
        t += 1
    return t


def _tail(order: int, t: float) -> float:
    """Q(order + 1/2, T) of the incomplete gamma function: what the asymptotic form is too large by, relatively."""
    q = math.erfc(math.sqrt(t))
    for m in range(order):
        q += math.exp((m + 0.5) * math.log(t) - t - math.lgamma(m + 1.5))
    return q


@cache
def table(order: int) -> np.ndarray:
    """The table for m = 0 .. order, f64 [rows, 8], read-only.

    Row i is for i/8 <= T < (i+1)/8: seven coefficients of F_order in T - (i + 1/2)/8, lowest first, and e^-T in the
    middle. The polynomials are Taylor's, cut short in Chebyshev polynomials: to 1e-15 of F_order(0).
    """
    middle = (np.arange(end(order) * DENSITY) + 0.5) / DENSITY
    derivatives = [reference(order + _TAYLOR - 1, middle)]
    for m in range(order + _TAYLOR - 2, order - 1, -1):
        derivatives.append((2 * middle * derivatives[-1] + np.exp(-middle.astype(np.longdouble))) / (2 * m + 1))
    taylor = np.stack([f * (-1) ** k / math.factorial(k) for k, f in enumerate(reversed(derivatives))])
    scale = 0.5 / DENSITY ** np.arange(_TAYLOR) / 2.0 ** (np.arange(_TAYLOR) - 1)
    rows = _in_lines(len(middle), ROW)
    rows[:, -1] = np.exp(-middle)
    # Cutting short is linear: what it makes of every power.
    short = np.zeros((_TAYLOR, COEFFICIENTS))
    for row, power in zip(short, np.eye(_TAYLOR)):
        cut = chebyshev.cheb2poly(chebyshev.poly2cheb(power)[:COEFFICIENTS])
        row[: len(cut)] = cut
    rows[:, :COEFFICIENTS] = (taylor * scale[:, None]).T.astype(float) @ short / scale[:COEFFICIENTS]
    rows.flags.writeable = False
    return rows


def _in_lines(rows: int, columns: int) -> np.ndarray:
    """An array that begins with a cache line."""
    room = np.empty(rows * columns + 8)
    begin = -(room.ctypes.data // 8) % 8
    return room[begin : begin + rows * columns].reshape(rows, columns)


def table_array(order: int) -> Array:
    """The table as a parameter ``boys``."""
    return Array("boys", "f64", (end(order) * DENSITY, ROW))


def values(
    order: int, operator: str, factor: Value, total: Value, rho: Value, distance: Value, omega: Value, table: Array,
    boys: Array,
) -> list[st.Statement]:  # fmt: skip
    """Statements that store G_m, m = 0 .. order, into `boys`.

    With total = zeta + eta, rho = zeta eta / total and distance = |P-Q|^2, all variables, coulomb has
    G_m = factor / sqrt(total) (2 rho)^m F_m(rho distance). erf(omega r)/r has total + zeta eta / omega^2 in place of
    total, in rho too; erfc is the difference, whose error is 1e-14 of the coulomb value.
    """
    made: list[st.Statement] = []
    if operator != "erf":
        made += _values(order, factor, total, rho, distance, table, boys, "full", st.store)
    if operator != "coulomb":
        product, wider = Var("product"), Var("wider")
        made += [st.Let(product, rho * total), st.Let(wider, fma(product, 1.0 / (omega * omega), total))]
        factor, put = (factor, st.store) if operator == "erf" else (-factor, st.accumulate)
        made += _values(order, factor, wider, product / wider, distance, table, boys, "long", put)
    return [st.block(made, title=f"(2 rho)^m F_m(T), m = 0 .. {order}")]


def _values(
    order: int, factor: Value, total: Value, rho: Value, distance: Value, table: Array, boys: Array, name: str, put: Put
) -> list[st.Statement]:
    """G_m = (distance G_(m+1) + factor (2 rho)^m e^-T) / (2 m + 1) downwards; this form needs no power of T.

    Beyond the table G_L = factor / sqrt(total T) sqrt(pi) / 2 (2 L - 1)!! / distance^L, so that one root and one
    division serve either case.
    """
    made: list[st.Statement] = []

    def let(word: str, value: Value) -> Value:
        variable = Var(f"{name}_{word}", value.dtype)
        made.append(st.Let(variable, value))
        return variable

    two_rho, t = let("two_rho", rho + rho), let("T", rho * distance)
    # A quarter of an interval early, so that the last row is not left by rounding.
    last = end(order) - 0.25 / DENSITY
    within = let("within", minimum(t, last))
    row = let("row", cast(within * float(DENSITY), "i64"))
    step = let("step", within - (cast(row, "f64") + 0.5) * (1 / DENSITY))
    small = let("small", lt(t, last))
    held = Array(f"{name}_held", "f64", (ROW,), "local")
    made += [st.DeclareArray(held), st.GatherRows(held, table, row * ROW, const(ROW, "i64"))]
    near = let("near", _polynomial([held[k] for k in range(COEFFICIENTS)], step))
    root = let("root", sqrt(select(small, total, total * t)))
    if order:
        apart = let("apart", select(small, 1.0, distance))
        inverse = let("inverse", 1.0 / (root * apart))
        base, closeness = let("p0", factor * (inverse * apart)), let("closeness", inverse * root)
        far = _power(closeness, order) * float(_odd(order) * 0.5 * math.sqrt(math.pi))
    else:
        base, far = let("p0", factor / root), const(0.5 * math.sqrt(math.pi))
    powers = [const(1.0)]
    for m in range(1, order + 1):
        powers.append(let(f"p{m}", powers[-1] * two_rho if m > 1 else two_rho))
    g = let(f"G{order}", select(small, near * powers[order] if order else near, far) * base)
    made.append(put(boys[order], g))
    if order:
        decay = let("decay", select(small, held[COEFFICIENTS] * horner(_exponential(), step), 0.0) * base)
        for m in range(order - 1, -1, -1):
            share = 1 / (2 * m + 1)
            g = let(f"G{m}", fma(distance * share, g, decay * share * powers[m] if m else decay))
            made.append(put(boys[m], g))
    return made


def _power(x: Value, n: int) -> Value:
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def _odd(m: int) -> int:
    """(2 m - 1)!!"""
    return math.prod(range(1, 2 * m, 2))


def _polynomial(coefficients: Sequence[Value], x: Value) -> Value:
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


@cache
def _exponential() -> tuple[float, ...]:
    """exp(-x) for |x| within half an interval, to 1e-16."""
    half = 0.5 / DENSITY
    scale = half ** np.arange(_TAYLOR)
    taylor = np.array([(-1) ** k / math.factorial(k) for k in range(_TAYLOR)]) * scale
    short = chebyshev.cheb2poly(chebyshev.poly2cheb(taylor)[:8])
    return tuple(float(c) for c in short / scale[: len(short)])
