"""The program of the nonlocal correlation VV10: sums over all pairs of grid points.

For a point r and the points r' with density rho' and weight w' let, with R = |r - r'|,

    g = omega_0(r) R^2 + kappa(r)        g' = omega_0(r') R^2 + kappa(r')        t = w' rho' / (g g' (g + g'))

The sums are F = sum t, U = sum t (1/g + 1/(g + g')) and W = sum t R^2 (1/g + 1/(g + g')). The names are those of
O. Vydrov and T. Van Voorhis, J. Chem. Phys. 133, 244103 (2010). Lanes are points r. Points r' are taken in tiles that
stay in the cache, and several of them share one division, which takes as long as most of the other operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder, dot
from trnqc.gen.statements import Function
from trnqc.gen.values import fma, minimum
from trnqc.jit import Recipe, Signature

# Points r' that share one division.
TOGETHER = 2
# Points r' of a tile, whose numbers take 24 kB. A multiple of TOGETHER.
TILE = 512
# The numbers of a point r': its coordinates, omega_0, kappa, and the density times the weight.
NUMBERS = 6

_FIRST, _LAST, _VECTORS, _POINTS = (Var(name, "i64") for name in ("first", "last", "vectors", "points"))
_OUTER, _SUMS = (Array(name, "f64", (None, _VECTORS), lanes=True) for name in ("outer", "sums"))
_INNER = Array("inner", "f64", (None, NUMBERS))
_PARAMETERS = (_FIRST, _LAST, _VECTORS, _POINTS, _OUTER, _INNER, _SUMS)


def recipe() -> Recipe:
    """Return the program `vv10`, which computes the vectors of points from `first` to `last`, without the latter.

    Its parameters are these two, the numbers of vectors and of points r', outer [5, points r] with coordinates,
    omega_0 and kappa, inner [points r', 6] with these and w' rho', and the result sums [3, points r] with F, U and W,
    which starts as zeros. The number of points r' is a multiple of TOGETHER. Lengths are in Bohr.
    """
    signature = Signature.declared("vv10", _PARAMETERS, ("sums",), group=False)
    return Recipe("vv10", (signature,), partial(_functions), __name__)


def _functions() -> tuple[Function, ...]:
    b = Builder()
    with b.loop("tile", _POINTS, const(0, "i64"), TILE) as tile:
        end = b.let("end", minimum(tile + TILE, _POINTS))
        with b.loop("v", _LAST, _FIRST) as v:
            point = [b.let("r", _OUTER[n, v]) for n in range(5)]
            sums = [b.declare(name, _SUMS[n, v]) for n, name in enumerate("FUW")]
            with b.loop("j", end, tile, TOGETHER) as j:
                _add_pairs(b, point, [j + n for n in range(TOGETHER)], sums)
            for n, total in enumerate(sums):
                b.store(_SUMS[n, v], total)
    return (b.function("vv10", _PARAMETERS, title="sums over pairs of points for VV10"),)


def _add_pairs(b: Builder, point: Sequence[Value], others: Sequence[Value], sums: Sequence[Value]) -> None:
    """Add the terms of several points r'."""
    squares, factors, products = [], [], []
    for j in others:
        x, y, z = (b.let("d", point[n] - _INNER[j, n]) for n in range(3))
        square = b.let("R2", dot([(x, x), (y, y), (z, z)]))
        g, other = (b.let("g", fma(square, omega, kappa)) for omega, kappa in (point[3:], (_INNER[j, 3], _INNER[j, 4])))
        both = b.let("g_sum", g + other)
        squares.append(square)
        factors.append((g, other, both))
        products.append(b.let("ggg", g * other * both))
    for j, square, (g, other, both), inverse in zip(others, squares, factors, _inverses(b, products)):
        t = b.let("t", inverse * _INNER[j, 5])
        u = b.let("u", t * (inverse * other * (g + both)))
        for total, term in zip(sums, (sums[0] + t, sums[1] + u, fma(u, square, sums[2]))):
            b.assign(total, term)


def _inverses(b: Builder, values: Sequence[Value]) -> list[Value]:
    """Return the reciprocals of values by one division."""
    before = list(accumulate(values, lambda x, y: b.let("product", x * y)))
    rest = b.let("inverse", 1.0 / before[-1])
    inverses = []
    for n in range(len(values) - 1, 0, -1):
        inverses.append(b.let("inverse", rest * before[n - 1]))
        rest = b.let("inverse", rest * values[n])
    return [rest, *reversed(inverses)]
