"""Compiled sums over the functions and the points of a block for forces of the exchange-correlation energy.

With the atomic orbitals phi of a block, their derivatives phi_x and phi_xj, the products X = D phi and X_j = D phi_j
with the density matrix, and the weighted derivatives w of the energy density with respect to rho, its gradient and tau:

    density      rho = sum_mu phi X,   rho_j = 2 sum_mu phi_j X,   tau = sum_mu sum_j phi_j X_j / 2
    weighted     W = w_0 phi + sum_j w_j phi_j
    force        t_x = sum_g phi_x Z + sum_j phi_xj (w_j X + w_4 X_j / 2),   Z = D W

for every point, every function and point, and every function. LDA has neither derivatives of the density nor phi_xj,
and only meta-GGA has tau.
"""

from __future__ import annotations

from functools import partial

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.gen.values import fma
from trnqc.jit import Recipe, Signature

# The components of the density of each kind of functional, and those of X.
DENSITY = {"LDA": 1, "GGA": 4, "MGGA": 5}
PRODUCTS = {"LDA": 1, "GGA": 1, "MGGA": 4}
# Second derivatives in PySCF's order xx, xy, xz, yy, yz, zz: the component of a pair of axes.
SECOND = ((4, 5, 6), (5, 7, 8), (6, 8, 9))

_SIZE, _VECTORS, _ROW, _AT = (Var(name, "i64") for name in ("functions", "vectors", "row", "vector"))
_COUNTS = (_SIZE, _VECTORS)
_AO, _X = (Array(name, "f64", (None, _SIZE, _VECTORS), lanes=True) for name in ("ao", "x"))
_RHO, _W = (Array(name, "f64", (None, _VECTORS), lanes=True) for name in ("rho", "w"))
_ROWS, _FORCE = Array("rows", "f64", (None, _VECTORS), lanes=True), Array("force", "f64", (None, 3))
_PARAMETERS = {
    "density": (*_COUNTS, _AO, _X, _RHO),
    "weighted": (*_COUNTS, _AO, _W, _ROWS),
    "force": (*_COUNTS, _AO, _X, _W, _ROWS, _FORCE),
}
_WRITTEN = {"density": "rho", "weighted": "rows", "force": "force"}


def recipe(kind: str) -> Recipe:
    """Return the programs `density`, `weighted` and `force` of a kind of functional, a key of DENSITY.

    Their parameters are the numbers of functions and of vectors of points, and arrays ao [4 or 10, functions, points],
    x [1 or 4, functions, points], rho and w [1, 4 or 5, points], rows [functions, points], which holds W or Z, and
    force [functions, 3]. The groups of `density` are the vectors of points, those of the other programs the functions.
    """
    signatures = tuple(
        Signature.declared(name, parameters, (_WRITTEN[name],)) for name, parameters in _PARAMETERS.items()
    )
    return Recipe(f"xc_forces_{kind.lower()}", signatures, partial(_functions, kind), __name__)


def _functions(kind: str) -> tuple[Function, ...]:
    return tuple(write(kind) for write in (_density, _weighted, _force))


def _density(kind: str) -> Function:
    b = Builder()
    sums = [b.declare(f"rho{c}", const(0.0)) for c in range(DENSITY[kind])]
    with b.loop("mu", _SIZE) as mu:
        x = b.let("x", _X[0, mu, _AT])
        for c, total in enumerate(sums[:4]):
            b.assign(total, fma(_AO[c, mu, _AT], x, total))
        for j in range(3) if kind == "MGGA" else ():
            b.assign(sums[4], fma(_AO[1 + j, mu, _AT], _X[1 + j, mu, _AT], sums[4]))
    for c, total in enumerate(sums):
        b.store(_RHO[c, _AT], total * (1.0, 2.0, 2.0, 2.0, 0.5)[c])
    return b.function("density", _PARAMETERS["density"], group=_AT, title=f"density of a block, {kind}")


def _weighted(kind: str) -> Function:
    b = Builder()
    with b.loop("v", _VECTORS) as v:
        total = _AO[0, _ROW, v] * _W[0, v]
        for c in range(1, min(DENSITY[kind], 4)):
            total = fma(_AO[c, _ROW, v], _W[c, v], total)
        b.store(_ROWS[_ROW, v], total)
    return b.function("weighted", _PARAMETERS["weighted"], group=_ROW, title=f"weighted functions of a block, {kind}")


def _force(kind: str) -> Function:
    b = Builder()
    totals = [b.declare(f"t{axis}", const(0.0)) for axis in "xyz"]
    with b.loop("v", _VECTORS) as v:
        z = b.let("z", _ROWS[_ROW, v])
        factors = [] if kind == "LDA" else [b.let("y", _factor(kind, j, v)) for j in range(3)]
        for axis, total in enumerate(totals):
            b.assign(total, fma(_AO[1 + axis, _ROW, v], z, total))
            for j, factor in enumerate(factors):
                b.assign(total, fma(_AO[SECOND[axis][j], _ROW, v], factor, total))
    for axis, total in enumerate(totals):
        b.store(_FORCE[_ROW, axis], const(0.0))
        b.accumulate(_FORCE[_ROW, axis], total)
    return b.function("force", _PARAMETERS["force"], group=_ROW, title=f"forces on the functions of a block, {kind}")


def _factor(kind: str, j: int, v: Value) -> Value:
    """The factor w_j X + w_4 X_j / 2 of a second derivative."""
    factor = _W[1 + j, v] * _X[0, _ROW, v]
    return factor if kind == "GGA" else fma(_W[4, v] * 0.5, _X[1 + j, _ROW, v], factor)
