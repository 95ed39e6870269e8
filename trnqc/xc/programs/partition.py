"""Weights of atoms in the partition of space by Becke, for vectors of points, as a compiled program.

The weight of atom a at a point is P_a / sum_i P_i with P_i = prod_{j != i} s(nu_ij), where
nu_ij = mu_ij + a_ij (1 - mu_ij^2) and mu_ij = (r_i - r_j) / R_ij is the elliptical coordinate of the point
(A. D. Becke, J. Chem. Phys. 88, 2547 (1988)). The switching function s falls from 1 at nu = -1 to 0 at nu = 1. It is
Becke's polynomial, iterated three times, or that of R. E. Stratmann, G. E. Scuseria and M. J. Frisch, Chem. Phys. Lett.
257, 213 (1996).

A product ends as soon as it is negligible for all points of a vector. The factors of the nearest atoms come first, so
that most products end after a few factors.
"""

from __future__ import annotations

from functools import partial

from trnqc.gen import Array, Value, Var, const, values
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.jit import Recipe, Signature

SCHEMES = ("becke", "stratmann")
# Products below this are neglected beside their sum. The largest of n products is at least about 2^(1 - m) if m atoms
# are equally near, so that the error is beyond 16 digits for up to 30 of them.
NEGLIGIBLE = 1e-25
# Factors between two tests whether a product is negligible.
STEP = 4
# Half of the width of the switching function of Stratmann et al., equation 14.
WIDTH = 0.64

_ATOMS, _G = Var("atoms", "i64"), Var("block", "i64")
_ARRAYS = {
    array.name: array
    for array in (
        Array("points", "f64", (None, 3), lanes=True),
        Array("owner", "i64"),
        Array("order", "i64", (None, _ATOMS)),
        Array("centre", "f64", (None, 3)),
        Array("inverse", "f64", (None, _ATOMS)),
        Array("shift", "f64", (None, _ATOMS)),
        Array("distance", "f64", lanes=True),
        Array("largest", "f64"),
        Array("weight", "f64", lanes=True),
    )
}


def recipe(scheme: str) -> Recipe:
    """The program `partition_becke` or `partition_stratmann`.

    Its groups are the vectors of points. Parameters: the number of atoms; points [vectors, 3, lanes]; owner [vectors],
    the atom whose weight is wanted; order [atoms, atoms], for each owner all atoms but itself by their distance from
    it, and a last element that is not read; centre [atoms, 3]; inverse [atoms, atoms], 1 / R_ij; shift [atoms, atoms],
    a_ij; scratch memory distance [atoms, lanes] and largest [1]; and the result weight [vectors, lanes]. All lengths
    are in Bohr.
    """
    name = f"partition_{scheme}"
    signature = Signature.declared(name, (_ATOMS, *_ARRAYS.values()), ("distance", "largest", "weight"))
    return Recipe(name, (signature,), partial(_functions, scheme), __name__)


def _functions(scheme: str) -> tuple[Function, ...]:
    a, b = _ARRAYS, Builder()
    owner = b.let("owner", a["owner"][_G])
    _distances(b)
    own = b.declare("own", const(1.0))
    _multiply(b, scheme, own, owner, owner)
    b.store(a["weight"][_G], own)
    with b.when(values.lt(const(NEGLIGIBLE), a["largest"][0])):
        total = b.declare("total", own)
        with b.loop("n", _ATOMS - 1) as n:
            atom = b.let("atom", a["order"][owner, n])
            # The owner is the nearest atom of most points, but is not in its own list.
            product = b.declare("product", _switch(b, scheme, atom, owner))
            _multiply(b, scheme, product, atom, owner)
            b.assign(total, total + product)
        b.store(a["weight"][_G], own / total)
    title = f"weights of atoms by the scheme of {scheme.capitalize()}"
    return (b.function(f"partition_{scheme}", (_ATOMS, *a.values()), group=_G, title=title),)


def _distances(b: Builder) -> None:
    """Store the distances of the points from all atoms."""
    a = _ARRAYS
    r = [b.let(f"r{x}", a["points"][_G, x]) for x in range(3)]
    with b.loop("i", _ATOMS) as i:
        d = [b.let("d", r[x] - a["centre"][i, x]) for x in range(3)]
        b.store(a["distance"][i], values.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]))


def _multiply(b: Builder, scheme: str, product: Value, atom: Value, owner: Value) -> None:
    """Multiply a product by s(nu_ij) of all atoms j in the owner's list other than `atom`, while it matters.

    Afterwards, `largest` is a bound of the product on all lanes.
    """
    a = _ARRAYS
    begin = b.declare("begin", const(0, "i64"))
    b.store(a["largest"][0], const(1.0))
    going = values.both(values.lt(begin, _ATOMS - 1), values.lt(const(NEGLIGIBLE), a["largest"][0]))
    with b.loop_while(going):
        end = b.let("end", values.minimum(begin + STEP, _ATOMS - 1))
        with b.loop("m", end, begin) as m:
            j = b.let("j", a["order"][owner, m])
            with b.when(values.invert(values.eq(j, atom))):
                b.assign(product, product * _switch(b, scheme, atom, j))
        # The sum over the lanes bounds the largest of them.
        b.store(a["largest"][0], const(0.0))
        b.accumulate(a["largest"][0], product)
        b.assign(begin, end)


def _switch(b: Builder, scheme: str, i: Value, j: Value) -> Value:
    """The switching function s(nu_ij) at the points."""
    a = _ARRAYS
    mu = b.let("mu", (a["distance"][i] - a["distance"][j]) * a["inverse"][i, j])
    nu = b.let("nu", values.fma(a["shift"][i, j], 1.0 - mu * mu, mu))
    if scheme == "becke":
        for _ in range(3):
            nu = b.let("f", (3.0 - nu * nu) * nu * 0.5)
        return b.let("s", 0.5 - 0.5 * nu)
    x = b.let("x", values.minimum(values.maximum(nu * (1 / WIDTH), const(-1.0)), const(1.0)))
    x2 = b.let("x2", x * x)
    g = x * (35.0 + x2 * (-35.0 + x2 * (21.0 - 5.0 * x2))) * (1 / 16)
    return b.let("s", 0.5 - 0.5 * g)
