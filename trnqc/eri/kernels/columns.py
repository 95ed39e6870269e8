"""The vertical recurrence of one primitive quartet for large classes, as loops over columns that are kept in memory.

The Cartesian functions f of the side of lower angular momentum span a tree: f + 1_i is a branch of f. The column of f
holds rows m = 0, 1, ..., each with G[e|f]^(m) for all e of the other side up to its highest. Columns are computed depth
first,

  e of f = 0 -> column of f + 1_i, from those of f and f - 1_i -> the branches of f + 1_i -> the next branch of f

so that a column reads what was just written, and one column for each level of the tree is kept. The work of a column is
straight-line code over e, one function for each axis: the code grows with the number of e, and not with the size of the
graph. The equations are those of recurrence.py. f is lowered in its smallest power, where f - 1_i is most often zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.eri.kernels.angular import Powers, cartesians, raised
from trnqc.eri.kernels.recurrence import BRA, HALF_BOTH, HALVES, KET, SHIFTS, components, reduction
from trnqc.eri.kernels.vertical import parameters
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.sequence import straight_line_code
from trnqc.gen.values import as_value, fma

# Coefficients of a column's function: those of G^(m) and G^(m+1) in SHIFTS, h k, h, and h times f_i.
NEAR, FAR, BOTH, HALF, SHARE = (Var(name) for name in ("near", "far", "both", "half", "share"))


@dataclass(frozen=True)
class Column:
    """The column of f: its powers, the axis in which f is lowered, and the power of the preceding column in this
    axis.
    """

    powers: Powers
    axis: int
    lower: int

    @property
    def level(self) -> int:
        return sum(self.powers)


@dataclass(frozen=True)
class ColumnLayout:
    """The columns of a class: their order, and where each is kept.

    The functions f of `side` are columns; the functions e of the other side are the elements of rows. The lowest and
    highest angular momenta are those of the targets. `fitted` states that columns follow the rule FITTED, which needs a
    single order m at each level.
    """

    side: int
    e_low: int
    e_high: int
    f_low: int
    f_high: int
    fitted: bool = False

    @cached_property
    def rows(self) -> tuple[Powers, ...]:
        return components(0, self.e_high)

    @cached_property
    def place(self) -> dict[Powers, int]:
        return {e: n for n, e in enumerate(self.rows)}

    @property
    def first(self) -> int:
        """Number of the first e that is a target."""
        return _count(self.e_low)

    @property
    def lowest(self) -> int:
        """Number of the first e that any column needs: each level lowers e by one at most."""
        return _count(self.e_low - self.f_high)

    def orders(self, level: int) -> int:
        """Return how many orders m = 0, 1, ... a column of the level has; a fitted column has the highest alone."""
        if level == 0:
            return self.e_high + self.f_high + 1
        return 1 if self.fitted else self.f_high - level + 1

    def begin(self, level: int) -> int:
        """Return where the column of a level begins in the scratch memory."""
        return len(self.rows) * sum(map(self.orders, range(level)))

    def tree(self, f: Powers = (0, 0, 0)) -> Iterator[Column]:
        """Yield all columns except f = 0, depth first."""
        for axis in range(3):
            branch = raised(f, axis)
            if sum(f) < self.f_high and _axis(branch) == axis:
                yield Column(branch, axis, f[axis])
                yield from self.tree(branch)


def _axis(f: Powers) -> int:
    return reduction("ket cheapest", ((0, 0, 0), f))[1]


def _count(l: int) -> int:
    """Return the number of Cartesian functions of all angular momenta below l."""
    return l * (l + 1) * (l + 2) // 6 if l > 0 else 0


def column_layout(la: int, lb: int, lc: int, ld: int, fitted: bool = False) -> ColumnLayout:
    """Choose the side of lower angular momentum for columns.

    If both sides are alike it is the bra, because then the targets of a column are contiguous.
    """
    if fitted or la + lb > lc + ld:
        return ColumnLayout(KET, la, la + lb, lc, lc + ld, fitted)
    return ColumnLayout(BRA, lc, lc + ld, la, la + lb)


def scratch_size(la: int, lb: int, lc: int, ld: int, fitted: bool = False) -> int:
    """Return the elements of scratch memory that `vertical` needs."""
    layout = column_layout(la, lb, lc, ld, fitted)
    return layout.begin(max(layout.f_high, 1))


def vertical(la: int, lb: int, lc: int, ld: int, add: bool, fitted: bool = False) -> st.Function:
    """Build the vertical recurrence of a class with loops over columns and their rows.

    The parameters of the function are those of `trnqc.eri.kernels.vertical.parameters`. add: whether targets are added
    or stored. fitted: use the rule FITTED, for a density-fitting shell (lc, 0) of solid harmonics.
    """
    code = _ColumnCode(column_layout(la, lb, lc, ld, fitted), (la, lb, lc, ld), add)
    base = st.block(code.base(), title="f = 0")
    columns = [st.block(code.column(c), title="f = {}{}{}".format(*c.powers)) for c in code.layout.tree()]
    name = f"columns_{la}{lb}{lc}{ld}{'_fitted' * fitted}_{'add' if add else 'store'}"
    return st.Function(
        name, code.parameters, st.block(base, columns), title=f"[e0|f0] of a primitive ({la}{lb}|{lc}{ld})"
    )


class _ColumnCode:
    """The statements of one vertical recurrence function, and the functions of columns that it calls."""

    def __init__(self, layout: ColumnLayout, shells: tuple[int, int, int, int], add: bool) -> None:
        self.layout, self.add, self.word = layout, add, "".join(map(str, shells)) + "_fitted" * layout.fitted
        self.parameters = parameters(*shells)
        boys, h, scratch = self.parameters[-3:]
        assert isinstance(boys, Array) and isinstance(h, Array) and isinstance(scratch, Array)
        self.boys, self.scratch = boys, scratch
        targets = components(layout.f_low, layout.f_high - layout.f_low)
        self.targets = {f: h[n, 0] if layout.side == BRA else h[0, n] for n, f in enumerate(targets)}
        self.stride = 1 if layout.side == BRA else len(targets)
        self.functions: dict[tuple[int, bool, bool, bool], st.Function] = {}

    def at(self, level: int, m: Value | int, e: int) -> Value:
        """Return G[e|f]^(m) of the column that is kept for a level."""
        return self.scratch[m * len(self.layout.rows) + (self.layout.begin(level) + e)]

    def base(self) -> list[st.Statement]:
        """Return statements for G[e|0]^(m) of all e, with one order m less at each level of e, and the target f = 0."""
        m, p = Var("m", "i64"), self.layout
        least = p.f_high if p.fitted else 0
        statements: list[st.Statement] = [
            st.loop(m, p.orders(0), st.store(self.at(0, m, 0), self.boys[m]), begin=least)
        ]
        for level in range(1, p.e_high + 1):
            values = [self.of_no_f(e, m) for e in cartesians(level)]
            rise = _in_order(values, [self.at(0, m, p.place[e]) for e in cartesians(level)])
            statements.append(st.loop(m, p.orders(0) - level, rise, st.Fence(), begin=least))
        if (0, 0, 0) in self.targets:
            n, to = Var("n", "i64"), self.targets[0, 0, 0]
            put = st.Accumulate if self.add else st.Store
            into = to.args[0] + n * self.stride
            statements.append(st.loop(n, len(p.rows) - p.first, put(to.attr, into, self.scratch[n + p.first])))
        return statements

    def of_no_f(self, e: Powers, m: Value) -> Value:
        """Return G[e|0]^(m) from lower e."""
        p, side = self.layout, 1 - self.layout.side
        axis = _axis(e)
        near, far = SHIFTS[side][axis]
        low = raised(e, axis, -1)
        total = fma(far, self.at(0, m + 1, p.place[low]), near * self.at(0, m, p.place[low]))
        if low[axis]:
            n = p.place[raised(low, axis, -1)]
            inner = self.at(0, m, n) - HALVES[side] * self.at(0, m + 1, n)
            total = fma(HALVES[side] * float(low[axis]), inner, total)
        return total

    def column(self, column: Column) -> list[st.Statement]:
        """Return calls that compute all rows of a column.

        The row m = 0 of a target has a call of its own, because it needs no e below the targets.
        """
        p, level = self.layout, column.level
        last, target = level == p.f_high, column.powers in self.targets
        calls = [self.call(column, 0, 1, keep=not last, hand_out=True)] if target else []
        if not last:
            calls.append(self.call(column, int(target), p.orders(level) - int(target), keep=True, hand_out=False))
        return calls

    def call(self, column: Column, m: int, count: int, *, keep: bool, hand_out: bool) -> st.Statement:
        """Return a call for the rows m, ..., m + count - 1 of a column."""
        p, level = self.layout, column.level
        lower = column.lower > 0 and not p.fitted
        near, far = SHIFTS[p.side][column.axis]
        before = p.f_high if p.fitted and level == 1 else m
        arguments: list[Value | st.View] = [near, far, HALF_BOTH, st.view(self.at(level - 1, before, 0))]
        if lower:
            half = HALVES[p.side]
            arguments += [half, half * float(column.lower), st.view(self.at(level - 2, m, 0))]
        if keep:
            arguments.append(st.view(self.at(level, m, 0)))
        arguments.append(st.view(self.targets[column.powers]) if hand_out else as_value(count, "i64"))
        kind = column.axis, lower, keep, hand_out
        if kind not in self.functions:
            self.functions[kind] = self.function(*kind)
        return st.Call(self.functions[kind], tuple(arguments))

    def function(self, axis: int, lower: bool, keep: bool, hand_out: bool) -> st.Function:
        """Build the function for the rows of a column that are kept for its branches, for the rows of a target column,
        or for both.
        """
        p, width = self.layout, len(self.layout.rows)
        x, y, own, h = (Array(name, "f64", (None,), lanes=True) for name in ("x", "y", "own", "h"))
        count, m = Var("count", "i64"), Var("m", "i64")
        row: Value | int = 0 if hand_out else m * width
        begin = p.first if hand_out else p.lowest
        times = {k: Var(f"both_{k}") for k in range(1, p.e_high + 1)}
        values = []
        for n, e in enumerate(p.rows[begin:], begin):
            # The single row of a fitted column is the order m + 1 that the next level needs.
            after = row if p.fitted else row + width
            total = FAR * x[after + n] if p.fitted else fma(FAR, x[after + n], NEAR * x[row + n])
            if e[axis]:
                total = fma(times[e[axis]], x[after + p.place[raised(e, axis, -1)]], total)
            if lower:
                total = fma(SHARE, y[row + n] - HALF * y[after + n], total)
            values.append(total)
        kept = [own[row + n] for n in range(begin, width)] if keep else []
        out = [h[n * self.stride] for n in range(width - begin)] if hand_out else []
        row_code = _in_order(values, kept, out, self.add)
        params: list[Value | Array] = [NEAR, FAR, BOTH, x]
        params += [HALF, SHARE, y] if lower else []
        params += [own] if keep else []
        kind = "_lower" * lower + "_keep" * keep + ("_add" if self.add else "_store") * hand_out
        # Without the fence compilers carry rows over to the next pass, in more registers than there are.
        rows = row_code if hand_out else st.loop(m, count, row_code, st.Fence())
        body = st.block([st.Let(v, BOTH * float(k)) for k, v in times.items()], rows)
        return st.Function(f"column_{self.word}_{'xyz'[axis]}{kind}", (*params, h if hand_out else count), body)


def _in_order(
    values: list[Value], kept: list[Value], handed_out: Sequence[Value] = (), add: bool = False
) -> list[st.Statement]:
    """Return code for the values in this order; each is stored in `kept`, and added to or stored in `handed_out`."""
    put = st.accumulate if add else st.store
    at = {v: n for n, v in enumerate(values)}

    def finish(value: Value, held: Value) -> list[st.Statement]:
        n = at[value]
        return [*([st.store(kept[n], held)] if kept else []), *([put(handed_out[n], held)] if handed_out else [])]

    return straight_line_code(values, finish)
