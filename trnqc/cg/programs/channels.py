"""Pairs of channels: t = A x and its derivatives, with lanes over the channels of x.

A[i, k] = pw sum_j C[i, j, k] y[j] is formed from numbers that are the same on every lane. The functions are those of a
triple of degrees; what else a path has are their arguments. x and its gradient are [block of channels, component] of
vectors, t and its gradient [channel of y, component, block].
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs.uvu import vectors
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const, fma

Degrees = tuple[int, int, int]
Pairs = dict[tuple[int, int], Value]

# Channels of y; blocks of channels of x; vectors from a channel of y to the next in t; elements from a channel of
# y to the next in y, and from a component to the next.
SIZES = tuple(Var(name, "i64") for name in ("mul2", "blocks", "channel", "apart", "step"))
B, V = Var("b", "i64"), Var("v", "i64")


@cache
def coupling(degrees: Degrees, dtype: str, adds: bool) -> st.Function:
    """t[v, k] = sum_i A[i, k] x[i], or += it."""
    mul2, blocks, channel, apart, step = SIZES
    pw, y, x, t = Var("pw", dtype), Array("y", dtype), vectors("x", 1, dtype), vectors("t", 1, dtype)
    a, formed = _couplings(degrees, pw, y, V * apart, step)
    xs, body = _held("x", {i for i, _ in a}, x, B * (2 * degrees[0] + 1), 1)
    for k in range(2 * degrees[2] + 1):
        to = t[V * channel + blocks * k + B]
        terms = [(a[i, q], xs[i]) for i, q in a if q == k]
        body.append(st.store(to, _dot(terms, to if adds else None)))
    loops = st.loop(V, mul2, formed, st.loop(B, blocks, body))
    return st.Function(f"couple{'_more' * adds}_{_word(degrees)}", (pw, *SIZES, y, x, t), st.block(loops))


@cache
def uncoupling(degrees: Degrees, dtype: str) -> st.Function:
    """gx[i] += sum_k A[i, k] gt[v, k], and gy[v, j] += pw sum_ik C[i, j, k] x[i] gt[v, k], to be summed over lanes."""
    mul2, blocks, channel, apart, step = SIZES
    pw, y = Var("pw", dtype), Array("y", dtype)
    x, gt, gx, gy = (vectors(name, 1, dtype) for name in ("x", "gt", "gx", "gy"))
    a, formed = _couplings(degrees, pw, y, V * apart, step)
    d1 = 2 * degrees[0] + 1
    xs, read_x = _held("x", {i for i, _ in a}, x, B * d1, 1)
    ts, read_t = _held("t", {k for _, k in a}, gt, V * channel + B, blocks)
    body = [*read_x, *read_t]
    for i in xs:
        to = gx[B * d1 + i]
        body.append(st.store(to, _dot([(a[p, k], ts[k]) for p, k in a if p == i], to)))
    products = {(i, k): Var(f"p{i}_{k}", dtype) for i, k in a}
    body += [st.Let(products[i, k], xs[i] * ts[k]) for i, k in a]
    sums = {j: Var(f"gy{j}", dtype) for j in range(2 * degrees[1] + 1)}
    for j in sums:
        terms = [(const(c, dtype), products[i, k]) for i, q, k, c in sparse(*degrees) if q == j]
        body.append(st.Assign(sums[j], _dot(terms, sums[j])))
    opened = [st.Declare(value, const(0.0, dtype)) for value in sums.values()]
    closed = [st.accumulate(gy[V * apart + step * j], pw * sums[j]) for j in sums]
    loops = st.loop(V, mul2, formed, opened, st.loop(B, blocks, body), closed)
    return st.Function(f"uncouple_{_word(degrees)}", (pw, *SIZES, y, x, gt, gx, gy), st.block(loops))


def _couplings(degrees: Degrees, pw: Value, y: Array, at: Value, step: Value) -> tuple[Pairs, list[st.Statement]]:
    """The variables A[i, k] that do not vanish, and what forms them from the channel of y at a place."""
    read: dict[int, Value] = {}
    terms: dict[tuple[int, int], list[tuple[Value, Value]]] = {}
    for i, j, k, c in sparse(*degrees):
        read[j] = Var(f"y{j}", y.dtype)
        terms.setdefault((i, k), []).append((const(c, y.dtype), read[j]))
    a: Pairs = {(i, k): Var(f"a{i}_{k}", y.dtype) for i, k in terms}
    made: list[st.Statement] = [st.Let(read[j], pw * y[at + step * j]) for j in sorted(read)]
    return a, made + [st.Let(a[pair], _dot(terms[pair])) for pair in terms]


def _held(
    name: str, which: set[int], array: Array, at: Value, step: Value | int
) -> tuple[dict[int, Value], list[st.Statement]]:
    """Components of a vector of channels as variables."""
    held = {k: Var(f"{name}{k}", array.dtype) for k in sorted(which)}
    return held, [st.Let(variable, array[at + step * k]) for k, variable in held.items()]


def _dot(terms: Sequence[tuple[Value, Value]], begin: Value | None = None) -> Value:
    """The sum of the products, after what it begins with."""
    total = begin
    for a, b in terms:
        total = a * b if total is None else fma(a, b, total)
    if total is None:
        raise ValueError("a sum of nothing has no type")
    return total


def _word(degrees: Degrees) -> str:
    return "_".join(map(str, degrees))
