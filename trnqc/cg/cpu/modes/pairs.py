"""Products of all pairs of channels, t[v] = P(x, y[v]), and their gradients; the lanes of a vector are channels of x.

The functions depend on the degrees only; the sizes of a path are arguments. x and its gradient are [block of channels,
component] of vectors, t and its gradient h are [channel of y, component, block] of vectors.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from trnqc.cg.cpu.vectors import vectors
from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.programs.coupling import CouplingMatrix, Degrees, contracted, coupled
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

# MUL2: channels of y. BLOCKS: blocks of channels of x. CHANNEL: vectors from a channel of y to the next in t.
# APART, STEP: elements from a channel, and from a component, of y to the next in y.
SIZES = MUL2, BLOCKS, CHANNEL, APART, STEP = tuple(
    Var(name, "i64") for name in ("mul2", "blocks", "channel", "apart", "step")
)


@cache
def product(degrees: Degrees, dtype: str, adds: bool) -> st.Function:
    """Return the function for t[v, k] = sum_i A[i, k] x[i], which is added to t if `adds`."""
    b, pw, y, x, t = Builder(), Var("pw", dtype), Array("y", dtype), vectors("x", 1, dtype), vectors("t", 1, dtype)
    with b.loop("v", MUL2) as v:
        a = _coupling(b, degrees, pw, y, v)
        with b.loop("b", BLOCKS) as block:
            xs = _components(b, x, {i for i, _ in a.elements}, block * (2 * degrees[0] + 1), 1)
            for k in range(2 * degrees[2] + 1):
                to = t[v * CHANNEL + BLOCKS * k + block]
                b.store(to, a.product(xs, k, to if adds else None))
    return b.function(f"product{'_add' * adds}_{'_'.join(map(str, degrees))}", (pw, *SIZES, y, x, t))


@cache
def gradients(degrees: Degrees, dtype: str) -> st.Function:
    """Return the function for the gradients of <h, t>.

    It adds sum_k A[i, k] h[v, k] to gx[i], and pw sum_ik C[i, j, k] x[i] h[v, k] to gy[v, j], which holds one sum for
    each lane.
    """
    b, pw, y = Builder(), Var("pw", dtype), Array("y", dtype)
    x, h, gx, gy = (vectors(name, 1, dtype) for name in ("x", "h", "gx", "gy"))
    d1, d2 = 2 * degrees[0] + 1, 2 * degrees[1] + 1
    with b.loop("v", MUL2) as v:
        a = _coupling(b, degrees, pw, y, v)
        sums = {j: b.declare(f"gy{j}", const(0.0, dtype)) for j in range(d2)}
        with b.loop("b", BLOCKS) as block:
            xs = _components(b, x, {i for i, _ in a.elements}, block * d1, 1)
            hs = _components(b, h, {k for _, k in a.elements}, v * CHANNEL + block, BLOCKS)
            for i in xs:
                b.store(gx[block * d1 + i], a.transposed(hs, i, gx[block * d1 + i]))
            grams = {(i, k): b.let("g", xs[i] * hs[k]) for i, k in a.elements}
            for j, total in contracted(sparse(*degrees), grams, sums).items():
                b.assign(sums[j], total)
        for j, total in sums.items():
            b.accumulate(gy[v * APART + STEP * j], pw * total)
    return b.function(f"product_gradients_{'_'.join(map(str, degrees))}", (pw, *SIZES, y, x, h, gx, gy))


def _coupling(b: Builder, degrees: Degrees, pw: Value, y: Array, v: Value) -> CouplingMatrix:
    """Form A from channel v of y as variables."""
    ys = {j: b.let("y", pw * y[v * APART + STEP * j]) for j in range(2 * degrees[1] + 1)}
    return CouplingMatrix({ik: (b.let("a", value), 1) for ik, value in coupled(degrees, ys).items()}, y.dtype)


def _components(b: Builder, array: Array, numbers: Iterable[int], place: Value, step: Value | int) -> dict[int, Value]:
    """Load components of a vector of channels into variables."""
    return {k: b.let(array.name, array[place + step * k]) for k in sorted(numbers)}
