"""The Boys function F_m(T), the integral of t^(2m) exp(-T t^2) over 0 < t < 1, for m = 0, ..., L at once.

T is divided into intervals. For each of them a table holds a polynomial for the highest order F_L, and exp(-T) at the
middle. The lower orders follow by downward recursion, F_m = (2 T F_(m+1) + exp(-T)) / (2 m + 1), which adds positive
terms only. Beyond the table F_L takes its asymptotic form (2 L - 1)!! / (2 T)^L sqrt(pi / (4 T)), and exp(-T) = 0.
(Helgaker, Jorgensen, Olsen, Molecular Electronic-Structure Theory (2000), section 9.8.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import horner
from trnqc.gen.values import cast, fma, lt, minimum, select, sqrt
from trnqc.host.arrays import zeros

Put = Callable[[Value, Value], st.Statement]

# Intervals per unit of T; a power of two, so that their middles are exact.
DENSITY = 8
# Coefficients of the polynomial for F_L in an interval.
COEFFICIENTS = 7
# Numbers per interval: the coefficients and exp(-T), together one cache line of 64 bytes.
ROW = COEFFICIENTS + 1
# Terms of the Taylor series from which the polynomials are made; those left out are below 1e-30.
_TAYLOR = 16
# Largest relative error of the asymptotic form where it takes over.
_TAIL = 1e-15


def reference(order: int, t: np.ndarray) -> np.ndarray:
    """Compute F_m(T) in extended precision, for T up to some hundreds.

    The series F_m(T) = exp(-T) sum_i (2 T)^i (2 m - 1)!! / (2 m + 2 i + 1)!! has positive terms only.
    """
    t = np.asarray(t, np.longdouble)
    term = np.ones_like(t) / (2 * order + 1)
    total = term.copy()
    for i in range(1, 200 + 3 * math.ceil(float(t.max(initial=0)))):
        term = term * (2 * t / (2 * order + 2 * i + 1))
        total += term
    return np.exp(-t) * total


@cache
def end(order: int) -> int:
    """Return the T from which on the orders 0, ..., `order` equal their asymptotic forms to 1e-15 relative."""
    t = 16
    while _tail(order, float(t)) > _TAIL:
        t += 1
    return t


def _tail(order: int, t: float) -> float:
    """Return the relative error of the asymptotic form: Q(order + 1/2, T) of the incomplete gamma function."""
    q = math.erfc(math.sqrt(t))
    for m in range(order):
        q += math.exp((m + 0.5) * math.log(t) - t - math.lgamma(m + 1.5))
    return q


@cache
def table(order: int) -> np.ndarray:
    """Return the table [intervals, 8] from which a kernel computes F_0, ..., F_order; read-only.

    Row i serves i/8 <= T < (i+1)/8. It holds the seven coefficients of F_order as a polynomial in T - (i + 1/2)/8,
    lowest power first, then exp(-T) at the middle. The polynomials are Taylor series that are shortened in Chebyshev
    polynomials; their error is 1e-15 F_order(0).
    """
    middle = (np.arange(end(order) * DENSITY) + 0.5) / DENSITY
    derivatives = [reference(order + _TAYLOR - 1, middle)]
    for m in range(order + _TAYLOR - 2, order - 1, -1):
        derivatives.append((2 * middle * derivatives[-1] + np.exp(-middle.astype(np.longdouble))) / (2 * m + 1))
    taylor = np.stack([f * (-1) ** k / math.factorial(k) for k, f in enumerate(reversed(derivatives))])
    scale = 0.5 / DENSITY ** np.arange(_TAYLOR) / 2.0 ** (np.arange(_TAYLOR) - 1)
    rows = zeros((len(middle), ROW))
    rows[:, -1] = np.exp(-middle)
    # Shortening is linear: this matrix holds what becomes of each power of T.
    shortened = np.zeros((_TAYLOR, COEFFICIENTS))
    for row, power in zip(shortened, np.eye(_TAYLOR)):
        cut = chebyshev.cheb2poly(chebyshev.poly2cheb(power)[:COEFFICIENTS])
        row[: len(cut)] = cut
    rows[:, :COEFFICIENTS] = (taylor * scale[:, None]).T.astype(float) @ shortened / scale[:COEFFICIENTS]
    rows.flags.writeable = False
    return rows


def table_array(order: int) -> Array:
    """Declare the table as the parameter ``boys`` of a program."""
    return Array("boys", "f64", (end(order) * DENSITY, ROW))


def values(
    order: int,
    operator: str,
    factor: Value,
    total: Value,
    rho: Value,
    distance: Value,
    omega: Value,
    table: Array,
    boys: Array,
) -> list[st.Statement]:
    """Return statements that store G_m = [00|00]^(m) (2 rho)^m of a primitive quartet, m = 0, ..., order, in `boys`.

    `operator` is one of `trnqc.eri.classes.OPERATORS`, with `omega` in 1/Bohr; `factor` is the product of the two
    pairs' COEFFICIENTs; `total`, `rho` and `distance` are variables for zeta + eta, zeta eta / (zeta + eta) and |P -
    Q|^2; and `table` is the array of `table_array`.

    For 1/r, G_m = factor / sqrt(zeta + eta) (2 rho)^m F_m(rho |P - Q|^2). For erf(omega r)/r, zeta + eta + zeta eta /
    omega^2 takes the place of zeta + eta, in rho too. erfc is the difference of the two, with an error of 1e-14 times
    the value for 1/r.
    """
    statements: list[st.Statement] = []
    if operator != "erf":
        statements += _values(order, factor, total, rho, distance, table, boys, "full", st.store)
    if operator != "coulomb":
        product, wider = Var("product"), Var("wider")
        statements += [st.Let(product, rho * total), st.Let(wider, fma(product, 1.0 / (omega * omega), total))]
        factor, put = (factor, st.store) if operator == "erf" else (-factor, st.accumulate)
        statements += _values(order, factor, wider, product / wider, distance, table, boys, "long", put)
    return [st.block(statements, title=f"(2 rho)^m F_m(T), m = 0 .. {order}")]


def _values(
    order: int, factor: Value, total: Value, rho: Value, distance: Value, table: Array, boys: Array, name: str, put: Put
) -> list[st.Statement]:
    """Return statements for G_m = (distance G_(m+1) + p_m exp(-T)) / (2 m + 1), with p_m = factor (2 rho)^m.

    This form of the downward recursion needs no power of T. Beyond the table G_L = factor / sqrt(total T) sqrt(pi) / 2
    (2 L - 1)!! / distance^L, so that one square root and one division serve both cases.
    """
    statements: list[st.Statement] = []

    def let(word: str, value: Value) -> Value:
        variable = Var(f"{name}_{word}", value.dtype)
        statements.append(st.Let(variable, value))
        return variable

    two_rho, t = let("two_rho", rho + rho), let("T", rho * distance)
    # The table ends a quarter of an interval early, so that rounding cannot lead beyond its last row.
    last = end(order) - 0.25 / DENSITY
    within = let("within", minimum(t, last))
    row = let("row", cast(within * float(DENSITY), "i64"))
    step = let("step", within - (cast(row, "f64") + 0.5) * (1 / DENSITY))
    small = let("small", lt(t, last))
    held = Array(f"{name}_held", "f64", (ROW,), "local")
    statements += [st.DeclareArray(held), st.GatherRows(held, table, row * ROW, const(ROW, "i64"))]
    near = let("near", _polynomial([held[k] for k in range(COEFFICIENTS)], step))
    root = let("root", sqrt(select(small, total, total * t)))
    if order:
        apart = let("apart", select(small, 1.0, distance))
        inverse = let("inverse", 1.0 / (root * apart))
        base, closeness = let("p0", factor * (inverse * apart)), let("closeness", inverse * root)
        far = _power(closeness, order) * float(_odd_factorial(order) * 0.5 * math.sqrt(math.pi))
    else:
        base, far = let("p0", factor / root), const(0.5 * math.sqrt(math.pi))
    powers = [const(1.0)]
    for m in range(1, order + 1):
        powers.append(let(f"p{m}", powers[-1] * two_rho if m > 1 else two_rho))
    g = let(f"G{order}", select(small, near * powers[order] if order else near, far) * base)
    statements.append(put(boys[order], g))
    if order:
        decay = let("decay", select(small, held[COEFFICIENTS] * horner(_exponential(), step), 0.0) * base)
        for m in range(order - 1, -1, -1):
            share = 1 / (2 * m + 1)
            g = let(f"G{m}", fma(distance * share, g, decay * share * powers[m] if m else decay))
            statements.append(put(boys[m], g))
    return statements


def _power(x: Value, n: int) -> Value:
    if n == 1:
        return x
    half = _power(x, n // 2)
    return half * half * x if n % 2 else half * half


def _odd_factorial(m: int) -> int:
    """Return (2 m - 1)!!."""
    return math.prod(range(1, 2 * m, 2))


def _polynomial(coefficients: Sequence[Value], x: Value) -> Value:
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = fma(total, x, c)
    return total


@cache
def _exponential() -> tuple[float, ...]:
    """Return the coefficients of exp(-x) for |x| up to half an interval, with an error of 1e-16."""
    half = 0.5 / DENSITY
    scale = half ** np.arange(_TAYLOR)
    taylor = np.array([(-1) ** k / math.factorial(k) for k in range(_TAYLOR)]) * scale
    shortened = chebyshev.cheb2poly(chebyshev.poly2cheb(taylor)[:8])
    return tuple(float(c) for c in shortened / scale[: len(shortened)])
