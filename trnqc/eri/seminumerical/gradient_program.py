"""The program of a class for gradients: G, and the derivatives of the exchange energy by the centres of the integrals.

pair, bounds of the block -> test -> for each vector of points: primitives -> [e| up to one power more than for K
-> sums over primitives, plain and times 2 alpha and 2 beta -> G, and forces on both shells and on the points

The sum of w sum_ab F_a F_b (ab|C) over pairs, points C and densities is minus the exchange energy. Its derivative by C
is minus the sum of those by A and B, because a translation changes nothing.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trnqc.eri.classes import CONTRACTION, ZETA, QuartetClass
from trnqc.eri.kernels.angular import Powers
from trnqc.eri.kernels.recurrence import components
from trnqc.eri.seminumerical import contraction
from trnqc.eri.seminumerical.program import (
    PAIR,
    SHELL_A,
    SHELL_B,
    of_densities,
    parameters,
    primitive,
    summed,
    where_it_matters,
)
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.jit import Recipe, Signature

WRITTEN = ("work", "g", "forces", "pull")


def name_of(cls: QuartetClass) -> str:
    """Return the name of a class's program."""
    words = [f"point_gradient_{cls.la}{cls.lb}", *["general"] * cls.general]
    return "_".join(words + [cls.operator] * (cls.operator != "coulomb"))


def gradient_program(la: int, lb: int, general: bool, operator: str) -> Recipe:
    """Return the recipe of the program of a class of pairs, whose functions are Cartesian."""
    cls = QuartetClass(la, lb, 0, 0, True, general, operator)
    signature = Signature.declared(name_of(cls), _parameters(cls), WRITTEN)
    return Recipe(name_of(cls), (signature,), partial(_functions, cls), __name__)


def _parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Return the parameters of `program.parameters`, and what follows.

    - weights [vectors], of lanes: in Bohr^3. pull [3, vectors], of lanes: the derivatives by the points are added.
    - forces [shells, 3]: the derivatives by the centres of the shells are added, summed over the points.
    """
    vectors = Array("weights", "f64", lanes=True), Array("pull", "f64", (3, Var("vectors", "i64")), lanes=True)
    return (*parameters(cls, 1), *vectors, Array("forces", "f64", (None, 3)))


def work_size(la: int, lb: int, contractions: int) -> int:
    """Return the elements of one lane of the parameter `work`: sums of all contractions, one primitive, and forces."""
    return contractions * sum(map(len, _sums(la, lb))) + len(_primitive(la, lb)) + 6


def _primitive(la: int, lb: int) -> tuple[Powers, ...]:
    """Return the e of one primitive pair: from la - 1 to la + lb + 1."""
    low = max(la - 1, 0)
    return components(low, la + lb + 1 - low)


def _sums(la: int, lb: int) -> tuple[tuple[Powers, ...], ...]:
    """Return the e of the plain sums, of those with 2 alpha and of those with 2 beta."""
    low = max(la - 1, 0)
    return components(low, la + lb - low), components(la + 1, lb), components(la, lb + 1)


def _functions(cls: QuartetClass) -> tuple[st.Function, ...]:
    return (gradient_function(cls),)


def gradient_function(cls: QuartetClass) -> st.Function:
    """Build the program of a class; its groups are the pairs."""
    own = _parameters(cls)
    args: dict[str, Any] = {st.name_of(p): p for p in own}
    vector, work, forces = Var("vector", "i64"), args["work"], args["forces"]
    totals = _behind(cls, args) + len(_primitive(cls.la, cls.lb))
    one_vector = [*_targets(cls, args, vector), *_derivatives(cls, args, vector, totals)]
    shells = (args["places"][PAIR, which] for which in (SHELL_A, SHELL_B))
    a, b = (Var(f"shell_{x}", "i64") for x in "ab")
    within = [
        *contraction.shifts(cls.lb, args["centre"], PAIR),
        *(st.store(work[totals + n], 0.0) for n in range(6)),
        st.loop(vector, args["vectors"], *one_vector),
        *(st.Let(shell, number) for shell, number in zip((a, b), shells)),
        *(st.accumulate(forces[a, n], work[totals + n]) for n in range(3)),
        *(st.accumulate(forces[b, n], work[totals + n + 3] - work[totals + n]) for n in range(3)),
    ]
    title = f"({cls.la}{cls.lb}| at points and its derivatives, {cls.operator}"
    return st.Function(name_of(cls), own, where_it_matters(args, within), group=PAIR, title=title)


def _behind(cls: QuartetClass, args: dict[str, Any]) -> Value:
    """Return where the [e| of one primitive pair stand in `work`: behind the sums of all contractions."""
    size = sum(map(len, _sums(cls.la, cls.lb)))
    return args["n_ab"] * size


def _targets(cls: QuartetClass, args: dict[str, Any], vector: Value) -> list[st.Statement]:
    """Sum [e| of a pair at one vector of points over primitives, plain and with exponents, into `work`."""
    i, c, work, records = Var("primitive", "i64"), Var("c", "i64"), args["work"], args["records"]
    behind, sums, every = _behind(cls, args), _sums(cls.la, cls.lb), _primitive(cls.la, cls.lb)
    low = max(cls.la - 1, 0)
    steps = primitive(low, cls.la + cls.lb + 1 - low, cls.operator, args, i, st.view(work[behind]), add=False)
    two_alpha, two_beta, share = Var("two_alpha"), Var("two_beta"), Var("weight")
    last = CONTRACTION + (args["n_ab"] if cls.general else 0)
    steps += [st.Let(two_alpha, records[PAIR, i, last])]
    steps += [st.Let(two_beta, records[PAIR, i, ZETA] * 2.0 - two_alpha)]
    begin: Value | int = c * sum(map(len, sums)) if cls.general else 0
    into: list[st.Statement] = [st.Let(share, records[PAIR, i, c + CONTRACTION])] if cls.general else []
    for n, (own, factor) in enumerate(zip(sums, (None, two_alpha, two_beta))):
        first, t = every.index(own[0]), Var(f"t{n}", "i64")
        value = work[behind + (t + first)]
        for f in (factor, share if cls.general else None):
            value = value if f is None else f * value
        into.append(st.loop(t, len(own), st.accumulate(work[t + begin], value)))
        begin = begin + len(own)
    steps += [st.loop(c, args["n_ab"], *into)] if cls.general else into
    return summed(args, vector, behind, i, steps)


def _derivatives(cls: QuartetClass, args: dict[str, Any], vector: Value, totals: Value) -> list[st.Statement]:
    """Contract the sums with F of every density into G, and add the derivatives of the energy."""
    la, lb, c, work = cls.la, cls.lb, Var("c", "i64"), args["work"]
    powers, sums = components(la, lb), _sums(la, lb)
    t = Array("t", "f64", (len(powers),), "local")
    t_axes = [Array(f"t_{x}", "f64", (len(components(la - 1, lb)),), "local") for x in "xyz"] if la else []
    declared = [st.DeclareArray(one) for one in (t, *t_axes)]
    cleared = [st.store(one[n], 0.0) for one in (t, *t_axes) for n in range(one.shape[0])]  # type: ignore[arg-type]
    begins: list[Value | int] = []
    begin: Value | int = c * sum(map(len, sums)) if cls.general else 0
    for own in sums:
        begins.append(begin)
        begin = begin + len(own)

    def element(array: Array) -> contraction.Element:
        return lambda n: array[n]

    def of(which: int) -> contraction.Element:
        return lambda n: work[begins[which] + n]

    plain = of(0)
    first = sums[0].index(powers[0])
    elements = [element(one) for one in t_axes]
    more = contraction.products(la, lb, element(t), elements)
    loop = of_densities(cls, args, vector, c, lambda n: plain(first + n), more)
    sums_by_power, by_a, by_both = contraction.derivatives(la, lb, element(t), elements, plain, of(1), of(2))
    weight = Var("point_weight")
    added: list[st.Statement] = [st.Let(weight, args["weights"][vector])]
    for n, x in enumerate("xyz"):
        one, both = Var(f"by_a_{x}"), Var(f"by_both_{x}")
        added += [st.Let(one, weight * by_a[n]), st.Let(both, weight * by_both[n])]
        added += [st.accumulate(work[totals + n], one), st.accumulate(work[totals + n + 3], both)]
        added.append(st.accumulate(args["pull"][n, vector], -both))
    body = [*declared, *cleared, loop, *sums_by_power, *added]
    return [st.loop(c, args["n_ab"], *body)] if cls.general else body
