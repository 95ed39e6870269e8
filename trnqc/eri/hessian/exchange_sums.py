"""The sums of K in a digestion for Hessians: integrals (i'v|cd) times densities, added to the matrices of one atom."""

from __future__ import annotations

from typing import Any

from trnqc.eri.classes import QuartetClass
from trnqc.eri.hessian.passes import HessianPass
from trnqc.eri.kernels.rows import PAIR, ROW
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import fma

# The density of a sum.
SET = Var("set", "i64")


class ExchangeSums:
    """The sums of K over one vector of quartets, for one pair of ket contractions and one contraction of i' at a time.

    For each v, sums over all i' are kept in variables or local memory, and are then added to the rows of the matrices.
    """

    def __init__(self, kind: HessianPass, cls: QuartetClass, args: dict[str, Any]) -> None:
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
        """Add (i'v|cd) D[vd] to the sum of i' and c, or (i'v|cd) D[vc] to the sum of i' and d."""
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
