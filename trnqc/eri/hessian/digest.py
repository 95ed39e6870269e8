"""The digestion of integrals (i'v|cd), where i' is a function of the derivative basis, into matrices of one atom.

bra pair (i', v), vector of ket pairs -> bound -> kernel's block of integrals -> sums of J and K

The derivative by atom A needs the sums over the functions i' of A alone. All bra pairs of a call therefore belong to
one atom, and what they contribute goes to matrices of this atom. Three passes differ in their pairs and sums:

  fock   (i'v|cd), c and d functions of the molecule: derivatives of the Fock matrix at a constant density
           j_atom[x, cd] = sum W_x[i'v] (i'v|cd),   k_atom[x, v, d] = sum_i'c P_x[i'c] (i'v|cd), and alike for c
  bra    (i'v|cd), v a function of the derivative basis: second derivatives with both on one side
           j_pair[i'v] = sum_cd (i'v|cd) D[cd],     k_atom as above
  cross  (i'v|cd), c (or d) a function of the derivative basis: second derivatives with one on each side
           j_atom,   k_atom[x, v, c] = sum_i'd P_x[i'd] (i'v|cd),   k_pair[i'c] = sum_vd D[vd] (i'v|cd)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.gradient.digest import BRA
from trnqc.eri.kernels.quartet import parts, quartet_function
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, either, fma, le, lt, maximum
from trnqc.jit import Recipe, Signature

PAIR, ROW, SET = Var("pair", "i64"), Var("row", "i64"), Var("set", "i64")
_SCALARS = ("bra_rows", "rows", "ket_rows", "n_ab", "n_cd", "n_d", "sets", "n_mixed", "n_ao", "n_v", "n_column")
_FLAGS = ("with_j", "with_k")
WRITTEN = ("work", "out", "j_pair", "j_atom", "k_pair", "k_atom")


@dataclass(frozen=True)
class Pass:
    """A kind of pass: which sums it makes.

    Parameters
    ----------
    name
        The name.
    columns
        The ket functions, of "cd", that are the columns of `k_atom`.
    j_pair, j_atom, k_pair
        Whether these sums are made.
    """

    name: str
    columns: str
    j_pair: bool = False
    j_atom: bool = False
    k_pair: bool = False


FOCK = Pass("fock", "cd", j_atom=True)
ONE_SIDE = Pass("bra", "cd", j_pair=True)
# The function of the derivative basis is c, or d in a class of pairs that are swapped.
CROSS = Pass("cross", "c", j_atom=True, k_pair=True)
CROSS_SWAPPED = Pass("cross_swapped", "d", j_atom=True, k_pair=True)


def parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Return the parameters of a digestion, in order.

    `sets` is the number of densities of K, `rows` that of vectors of ket pairs, K that of primitive pairs, `n_mixed`
    the functions of the derivative basis, `n_ao` those of the molecule, `n_v` those of the basis of v, and `n_column`
    the columns of `k_atom`.

    - bra_count [pairs], bra [pairs, K, W], bra_centre [pairs, 6], bra_bound [pairs]: the bra pairs, see `ShellPairs`.
    - ao_i, ao_v, shell_i, shell_v, bra_atom, first_row [pairs]: the first functions of i' and v, their shells, the atom
      of i', and the first vector of kets that the pair meets.
    - ket_count [rows], ket [rows, K, W], ket_centre [rows, 6], ket_bound [rows, K + 1], row_bound, row_atom [rows]: the
      ket pairs, see `PackedPairs`. Vectors whose row_atom is the pair's bra_atom are left out.
    - ao_c, ao_d, share [rows], of lanes: the first functions of c and d; the factor of the pair, 0 where a lane only
      fills up the vector.
    - bra_size [pairs], ket_size [rows]: their product bounds the densities that the quartets meet in J; near_i, near_v
      [shells, rows] by the shells of i' and v in k_atom, and far_i, far_v in k_pair.
    - weight [pairs, 3, n_ab, ab]: W_x of the bra pair; folded [rows, n_cd, cd], of lanes: share (D_cd + D_dc).
    - exchange [sets, 3, n_mixed, n_ao]: P_x; density [sets, n_ao, n_ao]: D.
    - screen: quartets whose bounds times the largest of these densities are smaller are left out.
    - cutoff, omega, boys, work, out: the kernel's.
    - j_pair [pairs, n_ab, ab] and j_atom [rows, 3, n_cd, cd], of lanes; k_pair [sets, n_mixed, n_mixed] and k_atom
      [sets, 3, n_v, n_column]: the sums, to which the digestion adds.
    """
    i64 = {name: Var(name, "i64") for name in (*_SCALARS, *_FLAGS, *BRA)}
    wide = CONTRACTION + (i64["n_ab"] if cls.general else 0), CONTRACTION + (i64["n_cd"] if cls.general else 0)
    a, b, c, d = cls.extents
    n_ab, n_cd, n_mixed, n_ao = (i64[name] for name in ("n_ab", "n_cd", "n_mixed", "n_ao"))
    near = (None, i64["rows"])
    arrays: tuple[Value | Array, ...] = (
        Array("bra_count", "i64"),
        Array("bra", "f64", (None, i64["bra_rows"], wide[0])),
        Array("bra_centre", "f64", (None, 6)),
        Array("bra_bound", "f64"),
        *(Array(name, "i64") for name in ("ao_i", "ao_v", "shell_i", "shell_v", "bra_atom", "first_row")),
        Array("ket_count", "i64"),
        Array("ket", "f64", (None, i64["ket_rows"], wide[1]), lanes=True),
        Array("ket_centre", "f64", (None, 6), lanes=True),
        Array("ket_bound", "f64", (None, i64["ket_rows"] + 1)),
        Array("row_bound", "f64"),
        Array("row_atom", "i64"),
        Array("ao_c", "i64", lanes=True),
        Array("ao_d", "i64", lanes=True),
        Array("share", "f64", lanes=True),
        Array("bra_size", "f64"),
        Array("ket_size", "f64"),
        *(Array(name, "f64", near) for name in ("near_i", "near_v", "far_i", "far_v")),
        Array("weight", "f64", (None, 3, n_ab, a * b)),
        Array("folded", "f64", (None, n_cd, c * d), lanes=True),
        Array("exchange", "f64", (None, 3, n_mixed, n_ao)),
        Array("density", "f64", (None, n_ao, n_ao)),
        Var("screen"),
        Var("cutoff"),
        Var("omega"),
        Array("boys", "f64"),
        Array("work", "f64", lanes=True),
        Array("out", "f64", (None, n_cd, a * b, c * d), lanes=True),
        Array("j_pair", "f64", (None, n_ab, a * b), lanes=True),
        Array("j_atom", "f64", (None, 3, n_cd, c * d), lanes=True),
        Array("k_pair", "f64", (None, n_mixed, n_mixed)),
        Array("k_atom", "f64", (None, 3, i64["n_v"], i64["n_column"])),
    )
    return (*i64.values(), *arrays)


def program(kind: Pass, cls: QuartetClass) -> Recipe:
    """Return the recipe of the digestion of a class in a kind of pass."""
    name = f"hessian_{kind.name}_{cls.name}"
    signature = Signature.declared(name, parameters(cls), WRITTEN)
    return Recipe(name, (signature,), partial(_functions, kind, cls, name), __name__, parts=parts(cls))


def _functions(kind: Pass, cls: QuartetClass, name: str) -> tuple[st.Function, ...]:
    return (digest_function(kind, cls, name),)


def digest_function(kind: Pass, cls: QuartetClass, name: str) -> st.Function:
    """Build the digestion of a class around its kernel; its groups are the bra pairs."""
    args: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    call = st.call(
        quartet_function(cls),
        n_bra=args["bra_count"][PAIR],
        bra=st.view(args["bra"][PAIR, 0, 0]),
        bra_centre=st.view(args["bra_centre"][PAIR, 0]),
        n_ket=args["ket_count"][ROW],
        ket=st.view(args["ket"][ROW, 0, 0]),
        ket_centre=st.view(args["ket_centre"][ROW, 0]),
        ket_bound=st.view(args["ket_bound"][ROW, 0]),
        **{name: args[name] for name in ("n_ab", "n_cd", "cutoff", "omega", "boys", "work", "out")},
    )
    largest = Var("largest")
    with_j, with_k = (lt(0, args[name]) for name in _FLAGS)
    sums = [
        st.If(
            with_j,
            st.block(_add_j_pair(cls, args) if kind.j_pair else [], _add_j_atom(cls, args) if kind.j_atom else []),
        ),
        st.If(with_k, st.block(st.loop(SET, args["sets"], _Exchange(kind, cls, args).added()))),
    ]
    one, other = args["bra_atom"][PAIR], args["row_atom"][ROW]
    row = st.block(
        st.Declare(largest, const(0.0)),
        st.If(with_j, st.block(st.Assign(largest, args["bra_size"][PAIR] * args["ket_size"][ROW]))),
        st.If(with_k, st.block(st.Assign(largest, maximum(largest, _reach(kind, args))))),
        st.If(
            both(
                either(lt(one, other), lt(other, one)),
                le(args["screen"], args["bra_bound"][PAIR] * args["row_bound"][ROW] * largest),
            ),
            st.block(call, sums),
        ),
    )
    body = st.block(st.loop(ROW, args["rows"], row, begin=args["first_row"][PAIR]))
    title = f"sums of the pass {kind.name} over ({cls.digits[:2]}|{cls.digits[2:]})"
    return st.Function(name, parameters(cls), body, group=PAIR, title=title)


def _reach(kind: Pass, args: dict[str, Any]) -> Value:
    """Return a bound of the densities that a quartet meets in K."""
    i, v = args["shell_i"][PAIR], args["shell_v"][PAIR]
    near = args["near_i"][i, ROW] * args["near_v"][v, ROW]
    return maximum(near, args["far_i"][i, ROW] * args["far_v"][v, ROW]) if kind.k_pair else near


def _add_j_pair(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    p, q, ab, cd, total = Var("p", "i64"), Var("q", "i64"), Var("ab", "i64"), Var("cd", "i64"), Var("total")
    a, b, c, d = cls.extents
    term = fma(args["out"][p, q, ab, cd], args["folded"][ROW, q, cd], total)
    inner = st.loop(q, args["n_cd"], st.loop(cd, c * d, st.Assign(total, term)))
    one = [st.Declare(total, args["j_pair"][PAIR, p, ab]), inner, st.store(args["j_pair"][PAIR, p, ab], total)]
    return st.loop(p, args["n_ab"], st.loop(ab, a * b, one))


def _add_j_atom(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    """Add the products of the bra's weights for x, y and z to the sums of each ket: straight-line code over d."""
    p, q, ab, n = (Var(name, "i64") for name in ("p", "q", "ab", "n"))
    a, b, c, d = cls.extents
    weights = [Var(f"weight_{x}") for x in range(3)]
    totals = {(x, m): Var(f"total_{x}_{m}") for x in range(3) for m in range(d)}
    places = {(x, m): args["j_atom"][ROW, x, q, n * d + m] for x, m in totals}
    lines: list[st.Statement] = [st.Let(w, args["weight"][PAIR, x, p, ab]) for x, w in enumerate(weights)]
    for m in range(d):
        value = Var(f"value_{m}")
        lines.append(st.Let(value, args["out"][p, q, ab, n * d + m]))
        lines += [st.Assign(totals[x, m], fma(value, w, totals[x, m])) for x, w in enumerate(weights)]
    body = [
        [st.Declare(total, places[key]) for key, total in totals.items()],
        st.loop(p, args["n_ab"], st.loop(ab, a * b, lines)),
        [st.store(places[key], total) for key, total in totals.items()],
    ]
    return st.loop(q, args["n_cd"], st.loop(n, c, body))


class _Exchange:
    """The sums of K over one vector of quartets, for one pair of ket contractions and one contraction of i' at a time.

    For each v, sums over all i' are kept in variables or local memory, and are then added to the rows of the matrices.
    """

    def __init__(self, kind: Pass, cls: QuartetClass, args: dict[str, Any]) -> None:
        self.kind, self.args, self.size = kind, args, dict(zip("cd", cls.extents[2:]))
        self.i, self.v, self.ci, self.cv, self.q, self.n = (Var(n, "i64") for n in ("i", "v", "ci", "cv", "q", "n"))
        self.first = {side: Var(f"first_{side}", "i64") for side in "cd"}
        self.start = Var("start", "i64")
        local: dict[str, Any] = {"space": "local", "lanes": True}
        high = max(cls.extents[:2])
        # The ket functions over which k_atom sums: the others than its columns.
        self.inner = [other for other in "cd" if "dc"["cd".index(other)] in kind.columns]
        self.rows = {s: Array(f"row_{s}", "f64", (size,), **local) for s, size in self.size.items()}
        self.near = {s: Array(f"near_{s}", "f64", (3, high, self.size[s]), **local) for s in self.inner}
        self.own = Array("own", "f64", (3, self.size["c"]), **local)
        self.totals = [[Var(f"total_{x}_{m}") for m in range(self.size["d"])] for x in range(3)]
        column = kind.columns
        self.paired = Array("paired", "f64", (high, self.size[column]), **local) if kind.k_pair else None

    def added(self) -> st.Statement:
        """Add one vector of quartets to the matrices of one density."""
        args = self.args
        local = [*self.rows.values(), *self.near.values(), self.own, *([self.paired] if self.paired else [])]
        firsts = [
            st.Let(self.first["c"], args["ao_c"][ROW] + self.q // args["n_d"] * self.size["c"]),
            st.Let(self.first["d"], args["ao_d"][ROW] + self.q % args["n_d"] * self.size["d"]),
        ]
        vs = st.loop(self.cv, args["contractions_j"], st.loop(self.v, args["n_j"], self._one_v()))
        contraction = st.block(self._gathered(), vs, self._pairs_scattered())
        return st.block(
            [st.DeclareArray(array) for array in local],
            st.loop(self.q, args["n_cd"], firsts, st.loop(self.ci, args["contractions_i"], contraction)),
        )

    def _row_i(self) -> Value:
        return self.args["ao_i"][PAIR] + self.ci * self.args["n_i"] + self.i

    def _row_v(self) -> Value:
        return self.args["ao_v"][PAIR] + self.cv * self.args["n_j"] + self.v

    def _gathered(self) -> list[st.Statement]:
        """Read the rows P_x[i'], and clear the sums of k_pair."""
        args, n = self.args, self.n
        lines: list[Any] = []
        for x in range(3):
            lines.append(
                st.Let(Var(f"start_{x}", "i64"), ((SET * 3 + x) * args["n_mixed"] + self._row_i()) * args["n_ao"])
            )
            for s in self.inner:
                begin = Var(f"start_{x}", "i64") + self.first[s]
                lines.append(st.GatherRows(self.rows[s], args["exchange"], begin, const(self.size[s], "i64")))
                lines.append(st.loop(n, self.size[s], st.store(self.near[s][x, self.i, n], self.rows[s][n])))
        if self.paired:
            lines.append(st.loop(n, self.size[self.kind.columns], st.store(self.paired[self.i, n], 0.0)))
        return [st.loop(self.i, args["n_i"], lines)]

    def _one_v(self) -> list[Any]:
        args, n, to_c, to_d = self.args, self.n, "c" in self.kind.columns, "d" in self.kind.columns
        opening: list[Any] = []
        if self.paired:
            other = self.inner[0]
            begin = (SET * args["n_ao"] + self._row_v()) * args["n_ao"] + self.first[other]
            opening.append(st.GatherRows(self.rows[other], args["density"], begin, const(self.size[other], "i64")))
        if to_c:
            opening += [st.loop(n, self.size["c"], [st.store(self.own[x, n], 0.0) for x in range(3)])]
        if to_d:
            opening += [st.Declare(total, const(0.0)) for axis in self.totals for total in axis]
        return [
            opening,
            st.loop(self.i, args["n_i"], self._products()),
            [st.Let(Var("row_v", "i64"), self._row_v())],
            [self._scattered(x) for x in range(3)],
        ]

    def _products(self) -> st.Statement:
        """Digest one i' and v: a loop over c with straight-line code over d."""
        kind, args, i, n = self.kind, self.args, self.i, self.n
        to_c, to_d, d = "c" in kind.columns, "d" in kind.columns, self.size["d"]
        p = self.ci * args["stride_i"] + self.cv * args["stride_j"]
        ab = i * args["step_i"] + self.v * args["step_j"]
        values, own, by_c = [Var(f"value_{m}") for m in range(d)], [Var(f"own_{x}") for x in range(3)], {}
        lines: list[st.Statement] = [st.Let(v, args["out"][p, self.q, ab, n * d + m]) for m, v in enumerate(values)]
        for x in range(3):
            if to_d:
                by_c[x] = Var(f"near_{x}")
                lines.append(st.Let(by_c[x], self.near["c"][x, i, n]))
            if to_c:
                lines.append(st.Declare(own[x], self.own[x, n]))
        for m, value in enumerate(values):
            for x in range(3):
                if to_d:
                    lines.append(st.Assign(self.totals[x][m], fma(value, by_c[x], self.totals[x][m])))
                if to_c:
                    lines.append(st.Assign(own[x], fma(value, self.near["d"][x, i, m], own[x])))
        if to_c:
            lines += [st.store(self.own[x, n], own[x]) for x in range(3)]
        if self.paired:
            lines += self._paired_products(values)
        return st.loop(n, self.size["c"], lines)

    def _paired_products(self, values: list[Value]) -> list[st.Statement]:
        """Add (i'v|cd) D[vd] to the sum of i' and c, or (i'v|cd) D[vc] to that of i' and d."""
        assert self.paired is not None
        i, n = self.i, self.n
        if self.kind.columns == "c":
            total = Var("paired_sum")
            lines: list[st.Statement] = [st.Declare(total, self.paired[i, n])]
            lines += [st.Assign(total, fma(value, self.rows["d"][m], total)) for m, value in enumerate(values)]
            return [*lines, st.store(self.paired[i, n], total)]
        factor = Var("factor")
        terms = [st.store(self.paired[i, m], fma(v, factor, self.paired[i, m])) for m, v in enumerate(values)]
        return [st.Let(factor, self.rows["c"][n]), *terms]

    def _scattered(self, x: int) -> list[Any]:
        """Add the sums of one v to its rows of k_atom, times the share of each lane."""
        args, n, share = self.args, self.n, self.args["share"][ROW]
        begin = Var(f"place_{x}", "i64")
        lines: list[Any] = [st.Let(begin, ((SET * 3 + x) * args["n_v"] + Var("row_v", "i64")) * args["n_column"])]
        for side in self.kind.columns:
            row, count = self.rows[side], const(self.size[side], "i64")
            if side == "c":
                lines.append(st.loop(n, self.size["c"], st.store(row[n], self.own[x, n] * share)))
            else:
                lines += [st.store(row[m], total * share) for m, total in enumerate(self.totals[x])]
            lines.append(st.ScatterRows(args["k_atom"], row, begin + self.first[side], count))
        return lines

    def _pairs_scattered(self) -> list[Any]:
        if not self.paired:
            return []
        args, n, side = self.args, self.n, self.kind.columns
        row, place = self.rows[side], Var("place", "i64")
        lines = [
            st.Let(place, (SET * args["n_mixed"] + self._row_i()) * args["n_mixed"] + self.first[side]),
            st.loop(n, self.size[side], st.store(row[n], self.paired[self.i, n] * args["share"][ROW])),
            st.ScatterRows(args["k_pair"], row, place, const(self.size[side], "i64")),
        ]
        return [st.loop(self.i, args["n_i"], lines)]
