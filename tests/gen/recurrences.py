"""The vertical recurrence of electron repulsion integrals as graphs of values, built here alone to try the core on.

[a0|c0]^(m) is reduced on one axis of the bra or of the ket:
  [a+1_i|c]^m = PA_i [a|c]^m + WP_i [a|c]^(m+1) + a_i/(2 zeta) ([a-1_i|c]^m - rho/zeta [a-1_i|c]^(m+1))
                + c_i/(2(zeta+eta)) [a|c-1_i]^(m+1)
and the ket likewise with QC, WQ, eta. [00|00]^(m), the Boys values, are given. Targets: every [e0|f0]^(0) with
la <= |e| <= la+lb and lc <= |f| <= lc+ld.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.graph import Graph, graph_of
from trnqc.gen.sequence import straight_line
from trnqc.gen.values import fma

Powers = tuple[int, int, int]
BRA, KET = 0, 1
X, Y, Z = 0, 1, 2
# Which axis is reduced, in order of preference: sides and axes interleaved, or one side exhausted first.
RULES = {
    "interleaved": ((KET, Z), (BRA, Z), (KET, Y), (BRA, Y), (KET, X), (BRA, X)),
    "mirrored": ((BRA, X), (KET, X), (BRA, Y), (KET, Y), (BRA, Z), (KET, Z)),
    "ket first": ((KET, Z), (KET, Y), (KET, X), (BRA, Z), (BRA, Y), (BRA, X)),
    "bra first": ((BRA, X), (BRA, Y), (BRA, Z), (KET, X), (KET, Y), (KET, Z)),
}


def cartesians(l: int) -> list[Powers]:
    return [(x, y, l - x - y) for x in range(l, -1, -1) for y in range(l - x, -1, -1)]


def lowered(powers: Powers, axis: int) -> Powers:
    return tuple(p - (n == axis) for n, p in enumerate(powers))  # type: ignore[return-value]


@dataclass(frozen=True)
class Vertical:
    """nodes[(a, c, m)]: the value of an intermediate; boys: the given ones; targets in order of (e, f)."""

    nodes: dict[tuple[Powers, Powers, int], Value]
    boys: tuple[Value, ...]
    targets: tuple[Value, ...]

    @property
    def graph(self) -> Graph:
        return graph_of(self.targets, tuple(self.nodes.values()), self.boys)


def vertical(la: int, lb: int, lc: int, ld: int, rule: str) -> Vertical:
    nodes: dict[tuple[Powers, Powers, int], Value] = {}
    shift = {(BRA, n): (Var(f"PA_{i}"), Var(f"WP_{i}")) for n, i in enumerate("xyz")}
    shift |= {(KET, n): (Var(f"QC_{i}"), Var(f"WQ_{i}")) for n, i in enumerate("xyz")}
    own = {BRA: (Var("half_zeta"), Var("rho_zeta")), KET: (Var("half_eta"), Var("rho_eta"))}
    across = Var("half_sum")

    def node(a: Powers, c: Powers, m: int) -> Value:
        if (a, c, m) not in nodes:
            nodes[a, c, m] = Var(f"F_{m}") if not any(a + c) else reduced((a, c), m)
        return nodes[a, c, m]

    def reduced(powers: tuple[Powers, Powers], m: int) -> Value:
        side, axis = next((s, n) for s, n in RULES[rule] if powers[s][n])
        low = lowered(powers[side], axis)

        def at(mine: Powers, other: Powers, order: int) -> Value:
            return node(mine, other, order) if side == BRA else node(other, mine, order)

        other = powers[1 - side]
        near, far = shift[side, axis]
        total = near * at(low, other, m) + far * at(low, other, m + 1)
        if low[axis]:
            half, ratio = own[side]
            lower = lowered(low, axis)
            inner = at(lower, other, m) - ratio * at(lower, other, m + 1)
            total = fma(half * float(low[axis]), inner, total)
        if other[axis]:
            total = fma(across * float(other[axis]), at(low, lowered(other, axis), m + 1), total)
        return total

    targets = tuple(
        node(a, c, 0)
        for e in range(la, la + lb + 1)
        for f in range(lc, lc + ld + 1)
        for a in cartesians(e)
        for c in cartesians(f)
    )
    return Vertical(nodes, tuple(v for (a, c, _), v in nodes.items() if not any(a + c)), targets)


def kernel(system: Vertical, order: tuple[int, ...]) -> st.Function:
    """One contracted quartet a lane: a loop over K primitive ones adds the targets to h in memory.

    A primitive's coefficients are read in alphabetical order of their names, its Boys values by their order m.
    """
    graph = system.graph
    group, k, primitives = Var("group", "i64"), Var("k", "i64"), Var("K", "i64")
    leaves = sorted({p.attr for p in _variables(system)} - {b.attr for b in system.boys})
    given = Array("p", "f64", (None, primitives, len(leaves)), lanes=True)
    boys = Array("F", "f64", (None, primitives, len(system.boys)), lanes=True)
    h = Array("h", "f64", (None, len(system.targets)), lanes=True)
    place = {t: n for n, t in enumerate(system.targets)}
    reads = [st.Let(Var(name), given[group, k, n]) for n, name in enumerate(leaves)]
    reads += [st.Let(b, boys[group, k, int(b.attr[2:])]) for b in system.boys]
    lines, _ = straight_line(graph, order, finish=lambda node, variable: st.accumulate(h[group, place[node]], variable))
    done = [st.accumulate(h[group, place[b]], b) for b in system.boys if b in place]
    one = st.block(st.block(reads, title="coefficients and Boys values"), done, st.block(lines, title="recurrence"))
    return st.Function("vertical", (primitives, given, boys, h), st.block(st.loop(k, primitives, one)), group=group)


def _variables(system: Vertical) -> list[Value]:
    from trnqc.gen.values import walk

    return [v for v in walk(system.targets) if v.op == "var"]
