"""The program of a class: pairs of shells in the field of the points of a block, contracted with F at once.

pair, bounds of the block -> test -> for each vector of points: primitives -> Boys values -> [e| (the vertical
recurrence of `trnqc.eri.kernels`) -> contracted with F into G (contraction.py)

The integral of a primitive pair with a point charge at C is (ab|C) = integral of a(r) b(r) / |r - C|. It obeys the
recurrence of the class (a b|0 0) for a ket of infinite exponent at C (Obara and Saika, J. Chem. Phys. 84, 3963 (1986),
eq. A19), so that rho = zeta, and [0|^(m) = 2 pi / zeta K_ab F_m(zeta |P - C|^2).

Where all points of a block are so far from a pair that the Boys function has its asymptotic form, G_m = (2 zeta)^m
[0|^(m) needs no table: with d = |P - C|^2, G_0 = pi^(3/2) K_ab / zeta^(3/2) / sqrt(d), and G_m = G_(m-1) (2 m - 1) / d.
"""

from __future__ import annotations

from functools import partial
from math import pi, sqrt
from typing import Any

from trnqc.eri.classes import COEFFICIENT, CONTRACTION, ZETA, P, QuartetClass
from trnqc.eri.kernels import boys, vertical
from trnqc.eri.kernels.angular import ncart
from trnqc.eri.kernels.recurrence import BRA, HALVES, SHIFTS, components
from trnqc.eri.seminumerical import contraction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen import values as v
from trnqc.jit import Recipe, Signature

PAIR = Var("pair", "i64")
# The column of a record that holds the largest potential of a primitive pair, in place of trnqc.eri.classes.BOUND.
PEAK = 5
# The columns of `extents`: a sphere around all P of a pair, its largest potential, and its largest charge.
CENTRE, RADIUS, POTENTIAL, CHARGE, EXTENTS = 0, 3, 4, 5, 6
# The columns of `places`: primitive pairs, first Cartesian functions of a and b, numbers of the shells a and b.
COUNT, FIRST_A, FIRST_B, SHELL_A, SHELL_B, PLACES = 0, 1, 2, 3, 4, 5
# The columns of `block`: a sphere around its points, and the norm of the largest orbital on them.
BLOCK_RADIUS, BLOCK_NORM, BLOCK = 3, 4, 5
# Primitive pairs whose contribution is bounded by this share of what is neglected for a whole pair are left out.
PRIMITIVE = 1e-2
_SCALARS = ("rows", "vectors", "densities", "functions", "n_ab", "n_b")
_REALS = ("energy", "potential", "omega")
WRITTEN = ("work", "g")


def name_of(cls: QuartetClass) -> str:
    """Return the name of a class's program."""
    words = [f"point_exchange_{cls.la}{cls.lb}", *["general"] * cls.general]
    return "_".join(words + [cls.operator] * (cls.operator != "coulomb"))


def seminumerical_program(la: int, lb: int, general: bool, operator: str) -> Recipe:
    """Return the recipe of the program of a class of pairs.

    The functions are Cartesian, because spherical ones are transformed outside, once for all pairs.
    """
    cls = QuartetClass(la, lb, 0, 0, True, general, operator)
    signature = Signature.declared(name_of(cls), parameters(cls), WRITTEN)
    return Recipe(name_of(cls), (signature,), partial(_functions, cls), __name__)


def parameters(cls: QuartetClass, derivative: int = 0) -> tuple[Value | Array, ...]:
    """Return the parameters of a program, in order. derivative: 1 for the program of gradients, gradient_program.py.

    - rows: primitive pairs of a record; vectors: vectors of points; densities; functions: Cartesian functions of the
      molecule; n_ab, n_b: pairs of contractions, and contractions of b.
    - energy, potential: 1 over the contributions to the exchange energy and to K that are neglected for a pair and a
      block; omega, boys: as for a quartet kernel.
    - records [pairs, rows, W], centre [pairs, 6], extents [pairs, EXTENTS], places [pairs, PLACES]: the pairs, see
      `trnqc.eri.seminumerical.pairs`. Those for gradients have a last column, twice the exponent of a.
    - block [BLOCK]: see above; norms [shells]: the largest norm of F on the block over the functions of a shell.
    - points [3, vectors], of lanes: in Bohr. f, g [densities, functions, vectors], of lanes: F is read, G is added to.
    - work, of lanes: memory of `work_size` elements.
    """
    scalars = {name: Var(name, "i64") for name in _SCALARS}
    width = (scalars["n_ab"] if cls.general else 0) + (CONTRACTION + derivative)
    return (
        *scalars.values(),
        *(Var(name) for name in _REALS),
        boys.table_array(cls.order + derivative),
        Array("records", "f64", (None, scalars["rows"], width)),
        Array("centre", "f64", (None, 6)),
        Array("extents", "f64", (None, EXTENTS)),
        Array("places", "i64", (None, PLACES)),
        Array("block", "f64"),
        Array("norms", "f64"),
        Array("points", "f64", (3, scalars["vectors"]), lanes=True),
        Array("f", "f64", lanes=True),
        Array("g", "f64", lanes=True),
        Array("work", "f64", lanes=True),
    )


def work_size(la: int, lb: int, contractions: int) -> int:
    """Return the elements of one lane of the parameter `work`: targets of all contractions and of one primitive."""
    return (contractions + 1) * len(components(la, lb))


def _functions(cls: QuartetClass) -> tuple[st.Function, ...]:
    return (exchange_function(cls),)


def exchange_function(cls: QuartetClass) -> st.Function:
    """Build the program of a class; its groups are the pairs."""
    own = parameters(cls)
    args: dict[str, Any] = {st.name_of(p): p for p in own}
    vector = Var("vector", "i64")
    one_vector = [*_targets(cls, args, vector), *_into_g(cls, args, vector)]
    within = [*contraction.shifts(cls.lb, args["centre"], PAIR), st.loop(vector, args["vectors"], *one_vector)]
    body = where_it_matters(args, within)
    return st.Function(name_of(cls), own, body, group=PAIR, title=f"({cls.la}{cls.lb}| at points, {cls.operator}")


def where_it_matters(args: dict[str, Any], within: list[st.Statement]) -> st.Block:
    """Return statements that define `gap`, the least distance of the pair from the block, a bound of its potential, and
    `share`, and run others if the pair matters.

    share is 1 over the potential below which the pair may be neglected.
    """
    extents, block, places, norms = (args[name] for name in ("extents", "block", "places", "norms"))
    apart = [Var(f"apart_{x}") for x in "xyz"]
    distance, gap, fa, fb = (Var(name) for name in ("centres", "gap", "norm_a", "norm_b"))
    square = v.fma(apart[0], apart[0], v.fma(apart[1], apart[1], apart[2] * apart[2]))
    peak, charge = extents[PAIR, POTENTIAL], extents[PAIR, CHARGE]
    energy = fa * fb * args["energy"]
    potential = v.maximum(fa, fb) * block[BLOCK_NORM] * args["potential"]
    return st.block(
        [st.Let(x, extents[PAIR, CENTRE + n] - block[n]) for n, x in enumerate(apart)],
        st.Let(distance, v.sqrt(square)),
        st.Let(gap, v.maximum(distance - extents[PAIR, RADIUS] - block[BLOCK_RADIUS], 0.0)),
        st.Let(Var("bound"), v.select(v.lt(charge, peak * gap), charge / v.maximum(gap, 1e-3), peak)),
        st.Let(fa, norms[places[PAIR, SHELL_A]]),
        st.Let(fb, norms[places[PAIR, SHELL_B]]),
        st.Let(Var("share"), v.maximum(energy, potential)),
        st.If(v.le(const(1.0), Var("share") * Var("bound")), st.block(within)),
        title="whether the pair matters",
    )


def _targets(cls: QuartetClass, args: dict[str, Any], vector: Value) -> list[st.Statement]:
    """Compute [e| of a pair at one vector of points, for every pair of contractions, into `work`."""
    i, size, work = Var("primitive", "i64"), len(components(cls.la, cls.lb)), args["work"]
    # In a general class, [e| of a primitive pair is stored behind the targets of all pairs of contractions.
    count = args["n_ab"] * size if cls.general else size
    into = st.view(work[args["n_ab"] * size if cls.general else 0])
    steps = primitive(cls.la, cls.lb, cls.operator, args, i, into, add=not cls.general)
    return summed(args, vector, count, i, steps + (_distributed(args, i, size) if cls.general else []))


def summed(
    args: dict[str, Any], vector: Value, count: Value | int, i: Value, steps: list[st.Statement]
) -> list[st.Statement]:
    """Return statements that clear `count` elements of `work` and run steps for each primitive pair i that matters."""
    n = Var("n", "i64")
    matters = v.le(const(PRIMITIVE), Var("share") * args["records"][PAIR, i, PEAK])
    points = [st.Let(Var(f"C{x}"), args["points"][k, vector]) for k, x in enumerate("xyz")]
    clear = st.loop(n, count, st.store(args["work"][n], 0.0))
    loop = st.loop(i, args["places"][PAIR, COUNT], st.If(matters, st.block(steps)))
    return [*points, clear, loop]


def primitive(
    la: int, lb: int, operator: str, args: dict[str, Any], i: Value, into: st.View, *, add: bool
) -> list[st.Statement]:
    """Add or store [e| of one primitive pair, for all e of `components(la, lb)`."""
    records, centre = args["records"], args["centre"]
    zeta, factor, half = Var("zeta"), Var("coefficient"), HALVES[BRA]
    pc = [Var(f"PC_{x}") for x in "xyz"]
    statements: list[st.Statement] = [st.Let(zeta, records[PAIR, i, ZETA]), st.Let(half, 0.5 / zeta)]
    for n, x in enumerate("xyz"):
        position = Var(f"P{x}")
        statements += [st.Let(position, records[PAIR, i, P + n]), st.Let(pc[n], position - Var(f"C{x}"))]
        statements.append(st.Let(SHIFTS[BRA][n][0], position - centre[PAIR, n]))
        statements.append(st.Let(SHIFTS[BRA][n][1], -(half * pc[n])))
    distance = Var("distance")
    square = v.fma(pc[0], pc[0], v.fma(pc[1], pc[1], pc[2] * pc[2]))
    statements += [st.Let(distance, square), st.Let(factor, records[PAIR, i, COEFFICIENT])]
    values = Array("values", "f64", (la + lb + 1,), "local")
    leaves = vertical.parameters(la, lb, 0, 0)[:-3]
    known = set(SHIFTS[BRA][0] + SHIFTS[BRA][1] + SHIFTS[BRA][2]) | {half}
    function = vertical.straight(la, lb, 0, 0, add=add, rule="bra cheapest")
    call = st.Call(
        function, (*(x if x in known else const(0.0) for x in leaves), values, into, st.view(args["work"][0]))
    )
    return [*statements, st.DeclareArray(values), *_boys(la + lb, operator, args, distance, values), call]


def _boys(order: int, operator: str, args: dict[str, Any], distance: Value, values: Array) -> list[st.Statement]:
    """Store G_m of a primitive pair, by the asymptotic form where the whole block is far away."""
    zeta, factor, gap, omega = Var("zeta"), Var("coefficient"), Var("gap"), args["omega"]
    one = const(1.0)
    near = boys.values(order, operator, factor, one, zeta, distance, omega, args["boys"], values)
    rho = zeta if operator == "coulomb" else zeta / v.fma(zeta, 1.0 / (omega * omega), one)
    if operator == "erfc":  # erf(omega r)/r equals 1/r there.
        far: list[st.Statement] = [st.store(values[m], 0.0) for m in range(order + 1)]
    else:
        root = Var("root")
        far = [st.Let(root, v.sqrt(distance)), st.Let(Var("inverse"), 1.0 / (root * distance))]
        far.append(st.Let(Var("closeness"), Var("inverse") * root))
        last: Value = factor * (sqrt(pi) / 2) / v.sqrt(zeta) * (Var("inverse") * distance)
        for m in range(order + 1):
            last = last if m == 0 else Var(f"G{m - 1}") * (Var("closeness") * float(2 * m - 1))
            far += [st.Let(Var(f"G{m}"), last), st.store(values[m], Var(f"G{m}"))]
    beyond = v.le(const(float(boys.end(order))), rho * gap * gap)
    return [st.If(beyond, st.block(far), st.block(near))]


def _distributed(args: dict[str, Any], i: Value, size: int) -> list[st.Statement]:
    """Add the targets of a primitive pair, times its coefficients, to the targets of all pairs of contractions."""
    c, t, share, work = Var("c", "i64"), Var("t", "i64"), Var("weight"), args["work"]
    behind = args["n_ab"] * size
    add = st.loop(t, size, st.accumulate(work[c * size + t], share * work[behind + t]))
    return [st.loop(c, args["n_ab"], st.Let(share, args["records"][PAIR, i, c + CONTRACTION]), add)]


def _into_g(cls: QuartetClass, args: dict[str, Any], vector: Value) -> list[st.Statement]:
    """Contract the targets with F of every density into G."""
    c = Var("c", "i64")
    begin = c * len(components(cls.la, cls.lb)) if cls.general else 0
    loop = of_densities(cls, args, vector, c, lambda n: args["work"][begin + n], [])
    return [st.loop(c, args["n_ab"], loop)] if cls.general else [loop]


def of_densities(
    cls: QuartetClass,
    args: dict[str, Any],
    vector: Value,
    c: Value,
    target: contraction.Element,
    more: list[st.Statement],
) -> st.Statement:
    """Return the loop over densities that contracts the targets of a pair of contractions c into G.

    `more` follows for each density; it may read the variables of `contraction.contracted`.
    """
    s, places, vectors = Var("s", "i64"), args["places"], args["vectors"]
    first = {"a": places[PAIR, FIRST_A], "b": places[PAIR, FIRST_B]}
    if cls.general:
        first["a"] = first["a"] + c // args["n_b"] * ncart(cls.la)
        first["b"] = first["b"] + c % args["n_b"] * ncart(cls.lb)
    at = {x: Var(f"at_{x}", "i64") for x in "ab"}
    lets = [st.Let(at[x], (s * args["functions"] + first[x]) * vectors + vector) for x in "ab"]

    def element(array: Array, x: str) -> contraction.Element:
        return lambda n: array[at[x] + vectors * n]

    f, g = args["f"], args["g"]
    body = contraction.contracted(
        *(cls.la, cls.lb, target),
        *(element(f, "a"), element(f, "b"), element(g, "a"), element(g, "b")),
    )
    return st.loop(s, args["densities"], *lets, *body, *more)
