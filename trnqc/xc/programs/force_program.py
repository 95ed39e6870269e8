"""The compiled sums over the points of a block for forces of the exchange-correlation energy.

With the atomic orbitals phi of a block, their derivatives phi_x and phi_xj, products X = D phi and X_j = D phi_j with
the density matrix, the weighted derivatives w of the energy density with respect to rho, its gradient and tau, and
Z = D (w_0 phi + sum_j w_j phi_j), the program sums for every function

    t_x = sum_g phi_x Z + sum_j phi_xj (w_j X + w_4 X_j / 2)

over the points g. LDA has only the first term, and the last one is that of meta-GGA.
"""

from __future__ import annotations

from functools import partial

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.gen.values import fma
from trnqc.jit import Recipe, Signature

# The components of X that each kind of functional needs.
PRODUCTS = {"LDA": 1, "GGA": 1, "MGGA": 4}
# Second derivatives in PySCF's order xx, xy, xz, yy, yz, zz: the component of a pair of axes.
SECOND = ((4, 5, 6), (5, 7, 8), (6, 8, 9))

_SIZE, _VECTORS, _ROW = (Var(name, "i64") for name in ("functions", "vectors", "row"))
_AO, _X = (Array(name, "f64", (None, _SIZE, _VECTORS), lanes=True) for name in ("ao", "x"))
_W, _Z = (Array(name, "f64", (None, _VECTORS), lanes=True) for name in ("w", "z"))
_FORCE = Array("force", "f64", (None, 3))
_PARAMETERS = (_SIZE, _VECTORS, _AO, _X, _W, _Z, _FORCE)


def force(kind: str) -> Recipe:
    """Return the program of a kind of functional, a key of PRODUCTS; its groups are the functions.

    Its parameters are the numbers of functions and of vectors of points, and arrays ao [4 or 10, functions, points],
    x [1 or 4, functions, points], w [1, 4 or 5, points], z [functions, points] and force [functions, 3], the result.
    """
    name = f"force_{kind.lower()}"
    return Recipe(name, (Signature.declared(name, _PARAMETERS, ("force",)),), partial(_functions, kind), __name__)


def _functions(kind: str) -> tuple[Function, ...]:
    b = Builder()
    totals = [b.declare(f"t{axis}", const(0.0)) for axis in "xyz"]
    with b.loop("v", _VECTORS) as v:
        z = b.let("z", _Z[_ROW, v])
        factors = [] if kind == "LDA" else [b.let("y", _factor(kind, j, v)) for j in range(3)]
        for axis, total in enumerate(totals):
            b.assign(total, fma(_AO[1 + axis, _ROW, v], z, total))
            for j, factor in enumerate(factors):
                b.assign(total, fma(_AO[SECOND[axis][j], _ROW, v], factor, total))
    for axis, total in enumerate(totals):
        b.store(_FORCE[_ROW, axis], const(0.0))
        b.accumulate(_FORCE[_ROW, axis], total)
    title = f"forces on the functions of a block, {kind}"
    return (b.function(f"force_{kind.lower()}", _PARAMETERS, group=_ROW, title=title),)


def _factor(kind: str, j: int, v: Value) -> Value:
    """The factor w_j X + w_4 X_j / 2 of a second derivative."""
    factor = _W[1 + j, v] * _X[0, _ROW, v]
    return factor if kind == "GGA" else fma(_W[4, v] * 0.5, _X[1 + j, _ROW, v], factor)
