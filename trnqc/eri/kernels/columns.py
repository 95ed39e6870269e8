"""The vertical recurrence of one primitive quartet for large classes: loops over columns that lie in memory.

The functions of one side, of lower angular momentum, span a tree: f + 1_i hangs from f. A column holds, for one f, rows
m = 0, 1, ... of G[e|f]^(m) with all e of the other side, up to its highest. The columns are made depth first,

  e of f = 0 -> column of f + 1_i from those of f and f - 1_i -> its own branches -> the next branch of f

so that what is read was written just before, and one place for each level of the tree is enough. A column's work is
straight-line code over e, one function for each axis; the code grows with the number of e, not with that of the graph.
The recurrence is that of `recurrence.py`; f is reduced on its smallest power, where most often f - 1_i drops out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.eri.kernels.angular import Powers, cartesians, raised
from trnqc.eri.kernels.recurrence import BRA, HALF_BOTH, HALVES, KET, SHIFTS, choice, components
from trnqc.eri.kernels.straight_line import lines
from trnqc.eri.kernels.vertical import parameters
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import as_value, fma

NEAR, FAR, BOTH, HALF, SHARE = (Var(name) for name in ("near", "far", "both", "half", "share"))


@dataclass(frozen=True)
class Column:
    """f, the axis on which it is reduced, and how many times f - 1_i of the column before enters."""

    powers: Powers
    axis: int
    lower: int

    @property
    def level(self) -> int:
        return sum(self.powers)


@dataclass(frozen=True)
class Plan:
    """What is made in which order and where.

    side: the one whose functions are columns; the other's are rows. *_low, *_high: least and most of e and f wanted.
    fitted: columns by the rule FITTED, for which one order m a level is enough.
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
        """The first of the rows that is a target."""
        return _count(self.e_low)

    @property
    def lowest(self) -> int:
        """The first of the rows that any column needs: each level takes e down by one at most."""
        return _count(self.e_low - self.f_high)

    def orders(self, level: int) -> int:
        """How many m = 0, 1, ... a column of the level has; of a fitted one it is the highest alone."""
        if level == 0:
            return self.e_high + self.f_high + 1
        return 1 if self.fitted else self.f_high - level + 1

    def begin(self, level: int) -> int:
        """Where the column of a level lies."""
        return len(self.rows) * sum(map(self.orders, range(level)))

    def tree(self, f: Powers = (0, 0, 0)) -> Iterator[Column]:
        """All columns but that of f = 0, each after the one that it hangs from, depth first."""
        for axis in range(3):
            branch = raised(f, axis)
            if sum(f) < self.f_high and _axis(branch) == axis:
                yield Column(branch, axis, f[axis])
                yield from self.tree(branch)


def _axis(f: Powers) -> int:
    return choice("ket cheapest", ((0, 0, 0), f))[1]


def _count(l: int) -> int:
    """Cartesian functions below l."""
    return l * (l + 1) * (l + 2) // 6 if l > 0 else 0


def plan(la: int, lb: int, lc: int, ld: int, fitted: bool = False) -> Plan:
    """Columns of the side of lower angular momentum; of the bra if both are alike, as its targets lie side by side."""
    if fitted or la + lb > lc + ld:
        return Plan(KET, la, la + lb, lc, lc + ld, fitted)
    return Plan(BRA, lc, lc + ld, la, la + lb)


def scratch_size(la: int, lb: int, lc: int, ld: int, fitted: bool = False) -> int:
    """Elements that `vertical` wants as scratch memory."""
    made = plan(la, lb, lc, ld, fitted)
    return made.begin(max(made.f_high, 1))


def vertical(la: int, lb: int, lc: int, ld: int, add: bool, fitted: bool = False) -> st.Function:
    """A vertical function, see `trnqc.eri.kernels.vertical`, with loops over columns and rows.

    fitted: by the rule FITTED, for a density-fitting shell (lc, 0) of solid harmonics.
    """
    code = _Code(plan(la, lb, lc, ld, fitted), (la, lb, lc, ld), add)
    base = st.block(code.base(), title="f = 0")
    columns = [st.block(code.column(c), title="f = {}{}{}".format(*c.powers)) for c in code.plan.tree()]
    name = f"columns_{la}{lb}{lc}{ld}{'_fitted' * fitted}_{'add' if add else 'store'}"
    return st.Function(name, code.given, st.block(base, columns), title=f"[e0|f0] of a primitive ({la}{lb}|{lc}{ld})")


class _Code:
    """Statements of one vertical function, and the functions that it calls."""

    def __init__(self, plan: Plan, shells: tuple[int, int, int, int], add: bool) -> None:
        self.plan, self.add, self.word = plan, add, "".join(map(str, shells)) + "_fitted" * plan.fitted
        self.given = parameters(*shells)
        boys, h, scratch = self.given[-3:]
        assert isinstance(boys, Array) and isinstance(h, Array) and isinstance(scratch, Array)
        self.boys, self.scratch = boys, scratch
        wanted = components(plan.f_low, plan.f_high - plan.f_low)
        self.targets = {f: h[n, 0] if plan.side == BRA else h[0, n] for n, f in enumerate(wanted)}
        self.stride = 1 if plan.side == BRA else len(wanted)
        self.steps: dict[tuple[int, bool, bool, bool], st.Function] = {}

    def at(self, level: int, m: Value | int, e: int) -> Value:
        """G[e|f]^(m) of the column f of a level that was made last."""
        return self.scratch[m * len(self.plan.rows) + (self.plan.begin(level) + e)]

    def base(self) -> list[st.Statement]:
        """G[e|0]^(m) for all e, an order m less with each level of e, and the target f = 0."""
        m, p = Var("m", "i64"), self.plan
        least = p.f_high if p.fitted else 0
        made: list[st.Statement] = []
        made.append(st.loop(m, p.orders(0), st.store(self.at(0, m, 0), self.boys[m]), begin=least))
        for level in range(1, p.e_high + 1):
            values = [self.risen(e, m) for e in cartesians(level)]
            rise = _in_order(values, [self.at(0, m, p.place[e]) for e in cartesians(level)])
            made.append(st.loop(m, p.orders(0) - level, rise, st.Fence(), begin=least))
        if (0, 0, 0) in self.targets:
            n, to = Var("n", "i64"), self.targets[0, 0, 0]
            put = st.Accumulate if self.add else st.Store
            into = to.args[0] + n * self.stride
            made.append(st.loop(n, len(p.rows) - p.first, put(to.attr, into, self.scratch[n + p.first])))
        return made

    def risen(self, e: Powers, m: Value) -> Value:
        """G[e|0]^(m) from lower e."""
        p, side = self.plan, 1 - self.plan.side
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
        """All rows of a column; those of m = 0 apart if they are targets, which need no lower e."""
        p, level = self.plan, column.level
        last, out = level == p.f_high, column.powers in self.targets
        made = [self.call(column, 0, 1, keep=not last, hand_out=True)] if out else []
        if not last:
            made.append(self.call(column, int(out), p.orders(level) - int(out), keep=True, hand_out=False))
        return made

    def call(self, column: Column, m: int, count: int, *, keep: bool, hand_out: bool) -> st.Statement:
        p, level = self.plan, column.level
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
        step = column.axis, lower, keep, hand_out
        if step not in self.steps:
            self.steps[step] = self.step(*step)
        return st.Call(self.steps[step], tuple(arguments))

    def step(self, axis: int, lower: bool, keep: bool, hand_out: bool) -> st.Function:
        """Rows of a column: kept for its branches, or one row that is handed out as a target, or both."""
        p, width = self.plan, len(self.plan.rows)
        x, y, own, h = (Array(name, "f64", (None,), lanes=True) for name in ("x", "y", "own", "h"))
        count, m = Var("count", "i64"), Var("m", "i64")
        row: Value | int = 0 if hand_out else m * width
        begin = p.first if hand_out else p.lowest
        times = {k: Var(f"both_{k}") for k in range(1, p.e_high + 1)}
        values = []
        for n, e in enumerate(p.rows[begin:], begin):
            # A fitted column's one row stands for the order m + 1 of those before.
            after = row if p.fitted else row + width
            total = FAR * x[after + n] if p.fitted else fma(FAR, x[after + n], NEAR * x[row + n])
            if e[axis]:
                total = fma(times[e[axis]], x[after + p.place[raised(e, axis, -1)]], total)
            if lower:
                total = fma(SHARE, y[row + n] - HALF * y[after + n], total)
            values.append(total)
        kept = [own[row + n] for n in range(begin, width)] if keep else []
        out = [h[n * self.stride] for n in range(width - begin)] if hand_out else []
        made = _in_order(values, kept, out, self.add)
        params: list[Value | Array] = [NEAR, FAR, BOTH, x]
        params += [HALF, SHARE, y] if lower else []
        params += [own] if keep else []
        kind = "_lower" * lower + "_keep" * keep + ("_add" if self.add else "_store") * hand_out
        # The fence keeps compilers from carrying rows over to the next pass, in more registers than there are.
        again = made if hand_out else st.loop(m, count, made, st.Fence())
        body = st.block([st.Let(v, BOTH * float(k)) for k, v in times.items()], again)
        return st.Function(f"column_{self.word}_{'xyz'[axis]}{kind}", (*params, h if hand_out else count), body)


def _in_order(
    values: list[Value], kept: list[Value], handed_out: Sequence[Value] = (), add: bool = False
) -> list[st.Statement]:
    """The values in their order, each stored at its place and put where it is handed out."""
    put = st.accumulate if add else st.store
    at = {v: n for n, v in enumerate(values)}

    def finish(value: Value, held: Value) -> list[st.Statement]:
        n = at[value]
        return [*([st.store(kept[n], held)] if kept else []), *([put(handed_out[n], held)] if handed_out else [])]

    return lines(values, finish)
