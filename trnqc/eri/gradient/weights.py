"""Weights of the recurrences' targets in a sum of integrals: the transposes of solid harmonics and of the horizontal
recurrence.

sum_ab Gamma[a, b] (ab| = sum_e w[e] [e0|, with weights w that depend on Gamma and A - B alone. So a contracted gradient
needs the targets [e0|, and no integrals.
"""

from __future__ import annotations

from collections.abc import Sequence

from trnqc.eri.kernels.angular import Powers, cartesians, ncart, raised, spherical
from trnqc.eri.kernels.recurrence import components
from trnqc.gen import Value, const
from trnqc.gen import statements as st
from trnqc.gen.graph import FREE
from trnqc.gen.sequence import straight_line_code
from trnqc.gen.values import fma


def cartesian_weights(l: int, values: Sequence[Value]) -> list[Value]:
    """Turn weights of the solid harmonics m of a shell into weights of its Cartesian functions."""
    if l < 2:
        return list(values)
    return [weighted_sum([(float(c), values[m]) for m, c in enumerate(row) if c]) for row in spherical(l)]


def cartesian_pair_weights(la: int, lb: int, values: Sequence[Value]) -> list[Value]:
    """Turn weights [2 la + 1, 2 lb + 1] of solid harmonics into weights of Cartesian functions, in row-major order."""
    nb = 2 * lb + 1
    half = [cartesian_weights(lb, values[m * nb : (m + 1) * nb]) for m in range(2 * la + 1)]
    columns = [cartesian_weights(la, column) for column in zip(*half)]
    return [columns[b][a] for a in range(ncart(la)) for b in range(ncart(lb))]


def target_weights(la: int, lb: int, shift: Sequence[Value], weights: Sequence[Value]) -> list[Value]:
    """Return the weights of the targets [e0|, for e in `components(la, lb)`, in a sum of integrals (ab|.

    `shift` is A - B, and `weights` are those of the Cartesian (ab| in row-major order. This is the transpose of the
    horizontal recurrence (a b+1_i| = (a+1_i b| + (A-B)_i (a b|, Head-Gordon and Pople, J. Chem. Phys. 89, 5777 (1988),
    eq. 18.
    """
    pairs = ((a, b) for a in cartesians(la) for b in cartesians(lb))
    of: dict[tuple[Powers, Powers], Value] = dict(zip(pairs, weights, strict=True))

    def add(pair: tuple[Powers, Powers], value: Value, factor: Value | None = None) -> None:
        known = of.get(pair)
        product = value if factor is None else value * factor
        if known is None:
            of[pair] = product
        else:
            of[pair] = known + value if factor is None else fma(value, factor, known)

    for total in range(lb, 0, -1):
        for a, b in [pair for pair in of if sum(pair[1]) == total]:
            # The axis is that of `horizontal`, but any axis gives the same sum.
            axis = max(n for n in range(3) if b[n])
            low = raised(b, axis, -1)
            value = of.pop((a, b))
            add((raised(a, axis), low), value)
            add((a, low), value, shift[axis])
    return [of[e, (0, 0, 0)] for e in components(la, lb)]


def weighted_sum(terms: Sequence[tuple[float, Value]]) -> Value:
    """Return the sum of values times constants."""
    (factor, value), *rest = terms
    total = value if factor == 1 else value * factor
    for factor, value in rest:
        total = total + value if factor == 1 else fma(const(factor), value, total)
    return total


def stored(values: list[Value], elements: list[Value]) -> list[st.Statement]:
    """Return code that computes the values and stores each in its element."""
    todo: dict[Value, list[Value]] = {}
    for value, element in zip(values, elements, strict=True):
        if value is not element:
            todo.setdefault(value, []).append(element)
    ready = [value for value in todo if value.op in FREE]
    computed = [value for value in todo if value.op not in FREE]
    copies = [st.store(element, value) for value in ready for element in todo[value]]

    def finish(value: Value, held: Value) -> list[st.Statement]:
        return [st.store(element, held) for element in todo[value]]

    return [*copies, *(straight_line_code(computed, finish) if computed else [])]
