"""The kernel of contracted derivatives of (ab|P): one bra pair with one fitting shell P on each lane.

weights Gamma[a, b, P] -> weights of Cartesian functions and of the targets [e0|f] (weights.py)
for each primitive quartet:   [e|f] for la - 1 <= |e| <= la + lb + 1 -> products with the weights
for the contracted quartet:   [e0|f] for |e| <= la + lb - 1 -> (a-1 b|f), (a b-1|f) -> products with the weights

With alpha and beta the exponents of a and b, H the horizontal recurrence and x an axis,

  d(ab|f)/dA_x = 2 alpha (a+1_x b|f) - a_x (a-1_x b|f),   d(ab|f)/dB_x = 2 beta (a b+1_x|f) - b_x (a b-1_x|f),
  (a+1_x b|f) = sum_e H_ab,e [e+1_x 0|f],   (a b+1_x|f) = (a+1_x b|f) + (A-B)_x (ab|f),

so that the products with exponents need the targets of one recurrence, which are never stored for a contracted quartet.
The derivative by the centre of P follows from translational invariance.
"""

from __future__ import annotations

from collections.abc import Sequence

from trnqc.eri.classes import BOUND, CONTRACTION, ZETA
from trnqc.eri.gradient.three_centre_classes import GradientClass, WorkOffsets
from trnqc.eri.gradient.weights import cartesian_pair_weights, cartesian_weights, stored, target_weights
from trnqc.eri.kernels import boys, columns, vertical
from trnqc.eri.kernels.angular import Powers, cartesians, raised
from trnqc.eri.kernels.horizontal import horizontal
from trnqc.eri.kernels.quartet import bra_primitive, primitive_matters, primitive_quartet
from trnqc.eri.kernels.recurrence import FITTED, components
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.sequence import straight_line_code
from trnqc.gen.values import both, fma, le, lt, minimum

# Sums over the targets [e| of one bra primitive: weights of [e| times [e+1_x|, [e+1_y| and [e+1_z|, and times [e|.
RAISED, SAME = tuple(Var(f"raised_{x}") for x in "xyz"), Var("same")


def quartet_gradient(cls: GradientClass) -> st.Function:
    """Build the function of one bra pair and one vector of fitting shells; it adds to bra_sums and ket_sums."""
    return _Kernel(cls).function()


class _Kernel:
    """The statements of `quartet_gradient`.

    Its parameters are those of the program (`three_centre_program.parameters`) for one bra pair and one vector of
    fitting shells: first_a and first_b are the first functions of the pair, weight is its factor, and place holds the
    positions of the first fitting functions.
    """

    def __init__(self, cls: GradientClass) -> None:
        self.cls = cls
        names = ("n_bra", "first_a", "first_b", "n_ket", "n_ab", "n_b", "step_a", "step_b", "mirror_a", "mirror_b")
        self.i64 = {name: Var(name, "i64") for name in names}
        n_bra, n_ket, n_ab = (self.i64[name] for name in ("n_bra", "n_ket", "n_ab"))
        self.bra = Array("bra", "f64", (n_bra, cls.record_width(n_ab)))
        self.bra_centre = Array("bra_centre", "f64", (6,))
        self.ket = Array("ket", "f64", (n_ket, CONTRACTION), lanes=True)
        self.ket_centre, self.ket_bound = Array("ket_centre", "f64", (6,), lanes=True), Array("ket_bound", "f64")
        self.place, self.density = Array("place", "i64", lanes=True), Array("density", "f64")
        self.boys, self.work = boys.table_array(cls.order), Array("work", "f64", lanes=True)
        self.bra_sums = Array("bra_sums", "f64", (6,), "local", lanes=True)
        self.ket_sums = Array("ket_sums", "f64", (3,), lanes=True)
        self.weight, self.cutoff, self.omega = Var("weight"), Var("cutoff"), Var("omega")
        self.layout = WorkOffsets(cls, n_ab)
        self.shift = [self.bra_centre[3 + n] for n in range(3)]
        # The derivatives by A and B of this pair.
        self.total = {centre: [Var(f"d{centre}_{x}") for x in "xyz"] for centre in "AB"}

    def function(self) -> st.Function:
        arrays = (self.bra, self.bra_centre, self.ket, self.ket_centre, self.ket_bound, self.place, self.density)
        scalars = (*self.i64.values(), self.weight, self.cutoff, self.omega)
        last = (self.boys, self.work, self.bra_sums, self.ket_sums)
        params: tuple[Value | Array, ...] = (*scalars, *arrays, *last)
        n = Var("n", "i64")
        lower = self.i64["n_ab"] * self.layout.lower
        clear = [st.loop(n, lower, st.store(self.work[self.layout.at_lower + n], 0.0))] if self.cls.la else []
        body = st.block(
            st.block(self.read(), title="weights"),
            clear,
            [st.Declare(v, const(0.0)) for vs in self.total.values() for v in vs],
            st.block(self.primitives(), title="primitive quartets"),
            st.block(self.lowered(), title="(a-1 b| and (a b-1|"),
            [st.accumulate(self.bra_sums[n], v) for n, v in enumerate(self.total["A"] + self.total["B"])],
            [st.accumulate(self.ket_sums[n], -(a + b)) for n, (a, b) in enumerate(zip(*self.total.values()))],
        )
        return st.Function(f"quartet_{self.cls.name}", params, body)

    def read(self) -> list[st.Statement]:
        """Read the weights of all contractions, and turn them into weights of Cartesian functions and of targets."""
        na, nb, nc = self.cls.extents
        p, a, b, start, mirrored = (Var(name, "i64") for name in ("p", "a", "b", "start", "mirrored"))
        one, other = (Array(name, "f64", (nc,), "local", lanes=True) for name in ("one", "other"))
        i = self.i64
        first = i["first_a"] + p // i["n_b"] * na + a, i["first_b"] + p % i["n_b"] * nb + b
        values = [(one[n] + other[n]) * self.weight for n in range(nc)]
        functions = values if self.cls.cartesian else cartesian_weights(self.cls.lc, values)
        row = (a * nb + b) * self.layout.n_f + p * self.layout.functions
        inner = [
            st.Let(start, first[0] * i["step_a"] + first[1] * i["step_b"] + self.place[0]),
            st.Let(mirrored, first[0] * i["mirror_a"] + first[1] * i["mirror_b"] + self.place[0]),
            st.GatherRows(one, self.density, start, const(nc, "i64")),
            st.GatherRows(other, self.density, mirrored, const(nc, "i64")),
            stored(functions, [self.work[row + n] for n in range(self.layout.n_f)]),
        ]
        loops = st.loop(p, i["n_ab"], st.loop(a, na, st.loop(b, nb, inner)), self.spread(p))
        return [st.DeclareArray(one), st.DeclareArray(other), loops]

    def spread(self, p: Value) -> st.Statement:
        """For each f, turn the weights of the functions ab into weights of Cartesian functions and of targets."""
        cls, layout, f = self.cls, self.layout, Var("f", "i64")
        na, nb, _ = cls.extents
        at = p * layout.functions + f
        # Weights of Cartesian functions overwrite those of solid harmonics, which are therefore read first.
        weights = [Var(f"weight_{n}") for n in range(na * nb)]
        reads = [st.Let(w, self.work[at + n * layout.n_f]) for n, w in enumerate(weights)]
        functions = weights if cls.cartesian else cartesian_pair_weights(cls.la, cls.lb, weights)
        targets = target_weights(cls.la, cls.lb, self.shift, functions)
        to = layout.at_weights + p * layout.weights + f
        places = [self.work[to + n * layout.n_f] for n in range(len(targets))]
        values = targets
        if functions != weights:
            values = [*functions, *targets]
            places = [*(self.work[at + n * layout.n_f] for n in range(len(functions))), *places]
        return st.loop(f, layout.n_f, reads, stored(values, places))

    def primitives(self) -> list[st.Statement]:
        """Loop over the primitives of the bra pair by falling BOUND, and for each primitive over the primitives of the
        fitting shells.
        """
        i, j, n_bra = Var("i", "i64"), Var("j", "i64"), self.i64["n_bra"]
        step = st.block(self.primitive(j), self.products(), self.kept(i), st.Assign(j, j + 1))
        bra = st.block(
            bra_primitive(self.bra, self.bra_centre, i),
            self.combined(i),
            [st.Declare(t, const(0.0)) for t in (*RAISED, SAME)],
            st.Declare(j, const(0, "i64")),
            st.While(primitive_matters(j, self.i64["n_ket"], self.ket_bound, self.cutoff), step),
            self.added(i),
            st.Assign(i, i + 1),
        )
        bound = self.bra[minimum(i, n_bra - 1), BOUND] * self.ket_bound[0]
        return [st.Declare(i, const(0, "i64")), st.While(both(lt(i, n_bra), le(self.cutoff, bound)), bra)]

    def primitive(self, j: Value) -> list[st.Statement]:
        """Store the targets of one primitive quartet."""
        into, scratch = (st.view(self.work[at]) for at in (self.layout.at_targets, self.layout.at_scratch))
        record = (self.ket, self.ket_centre)
        function, shells, operator = vertical_function(self.cls), self.cls.recurrence, self.cls.operator
        return primitive_quartet(shells, operator, function, record, j, self.omega, self.boys, into, scratch)

    def added(self, i: Value) -> list[st.Statement]:
        """Add the products of one bra primitive, times its exponents, to the derivatives by A and B."""
        two_alpha = self.bra[i, self.i64["n_ab"] + CONTRACTION if self.cls.general else CONTRACTION]
        alpha, beta = Var("two_alpha"), Var("two_beta")
        lines: list[st.Statement] = [st.Let(alpha, two_alpha), st.Let(beta, 2.0 * self.bra[i, ZETA] - two_alpha)]
        for t, by_a, by_b, ab in zip(RAISED, self.total["A"], self.total["B"], self.shift):
            lines += [st.Assign(by_a, fma(alpha, t, by_a)), st.Assign(by_b, fma(beta, fma(ab, SAME, t), by_b))]
        return lines

    def combined(self, i: Value) -> list[st.Statement]:
        """Add up the weights of all contractions with the coefficients of one primitive, in a general class."""
        if not self.cls.general:
            return []
        p, n, layout = Var("p", "i64"), Var("n", "i64"), self.layout
        coefficient = self.bra[i, p + CONTRACTION]
        to, source = self.work[layout.at_primitive + n], self.work[layout.at_weights + p * layout.weights + n]
        clear = st.loop(n, layout.weights, st.store(to, 0.0))
        add = st.loop(n, layout.weights, st.accumulate(to, coefficient * source))
        return [clear, st.loop(p, self.i64["n_ab"], add)]

    def products(self) -> st.Statement:
        """Add the products of the weights of [e| with a primitive's targets [e+1_x| to RAISED, and with [e| to SAME."""
        cls, layout, f = self.cls, self.layout, Var("f", "i64")
        l, low, _, _ = cls.recurrence
        place = {e: n for n, e in enumerate(components(l, low))}
        weights = layout.at_primitive if cls.general else layout.at_weights
        lines: list[st.Statement] = []
        # Two sums of each kind, because one addition waits for the one before it.
        sums = {(t, n): Var(f"{st.name_of(t)}_{n}") for t in (*RAISED, SAME) for n in range(2)}
        for n, e in enumerate(components(cls.la, cls.lb)):
            w = Var(f"w{n}")
            lines.append(st.Let(w, self.work[weights + n * layout.n_f + f]))
            for t, target in zip((SAME, *RAISED), (e, *(raised(e, axis) for axis in range(3)))):
                value = self.work[layout.at_targets + place[target] * layout.n_f + f]
                total = sums[t, n % 2]
                lines.append(st.Assign(total, fma(w, value, total)))
        return st.block(
            [st.Declare(v, const(0.0)) for v in sums.values()],
            st.loop(f, layout.n_f, lines),
            [st.Assign(t, t + (sums[t, 0] + sums[t, 1])) for t in (*RAISED, SAME)],
        )

    def kept(self, i: Value) -> list[st.Statement]:
        """Add a primitive's lower targets to the targets of each pair of contractions."""
        if not self.cls.la:
            return []
        p, n, layout = Var("p", "i64"), Var("n", "i64"), self.layout
        source = self.work[layout.at_targets + n]
        if not self.cls.general:
            return [st.loop(n, layout.lower, st.accumulate(self.work[layout.at_lower + n], source))]
        value = self.bra[i, p + CONTRACTION] * source
        add = st.loop(n, layout.lower, st.accumulate(self.work[layout.at_lower + p * layout.lower + n], value))
        return [st.loop(p, self.i64["n_ab"], add)]

    def lowered(self) -> list[st.Statement]:
        """Subtract the products of a_x (a-1_x b| and b_x (a b-1_x| with the weights."""
        if not self.cls.la:
            return []
        p, f = Var("p", "i64"), Var("f", "i64")
        sums = self.lower_products(p, f)
        terms = dict(sums)
        lines = straight_line_code(list(terms), lambda value, held: st.Assign(terms[value], terms[value] - held))
        return [st.loop(p, self.i64["n_ab"], st.loop(f, self.layout.n_f, lines))]

    def lower_products(self, p: Value, f: Value) -> list[tuple[Value, Value]]:
        """Return the sums over ab of these products for one f, each with the derivative from which it is subtracted."""
        cls, layout = self.cls, self.layout
        la, lb = cls.la, cls.lb
        lower = {e: self.work[layout.at_lower + p * layout.lower + n * layout.n_f + f] for n, e in enumerate(cls.lower)}
        pairs = [(a, b) for a in cartesians(la) for b in cartesians(lb)]
        weight = {pair: self.work[p * layout.functions + n * layout.n_f + f] for n, pair in enumerate(pairs)}
        sums = []
        for side, (l1, l2) in enumerate(((la - 1, lb), (la, lb - 1))[: 2 if lb else 1]):
            source = [lower[e] for e in components(l1, l2)]
            integrals = horizontal(l1, l2, self.shift, source)
            of = dict(zip([(a, b) for a in cartesians(l1) for b in cartesians(l2)], integrals, strict=True))
            for axis in range(3):
                terms = [
                    (float(pair[side][axis]), weight[pair], of[_lowered(pair, side, axis)])
                    for pair in pairs
                    if pair[side][axis]
                ]
                sums.append((_sum_of_products(terms), self.total["AB"[side]][axis]))
        return sums


def _lowered(pair: tuple[Powers, Powers], side: int, axis: int) -> tuple[Powers, Powers]:
    a, b = pair
    return (raised(a, axis, -1), b) if side == 0 else (a, raised(b, axis, -1))


def _sum_of_products(terms: Sequence[tuple[float, Value, Value]]) -> Value:
    """Return the sum of factor * weight * value over the terms."""
    total: Value | None = None
    for factor, weight, value in terms:
        scaled = weight if factor == 1 else weight * factor
        total = scaled * value if total is None else fma(scaled, value, total)
    assert total is not None
    return total


def vertical_function(cls: GradientClass) -> st.Function:
    """Build the vertical recurrence of a class, which stores its targets."""
    if cls.form == "columns":
        return columns.vertical(*cls.recurrence, add=False, fitted=not cls.cartesian)
    return vertical.straight(*cls.recurrence, add=False, rule="" if cls.cartesian else FITTED)
