"""The vertical recurrence of electron repulsion integrals as a graph of values: from the Boys function to [e0|f0].

Obara, Saika, J. Chem. Phys. 84, 3963 (1986), eq. 39, for classes [e0|f0] as in Head-Gordon, Pople, J. Chem. Phys. 89,
5777 (1988), on auxiliary integrals scaled as G^(m) = (2 rho)^m [..]^(m), rho = zeta eta / (zeta + eta). With
h = 1/(2 zeta) and k = 1/(2 eta) no coefficient then depends on rho, nor on the operator:

  G[a+1_i|c]^m = (P-A)_i G[a|c]^m - h (P-Q)_i G[a|c]^(m+1) + a_i h (G[a-1_i|c]^m - h G[a-1_i|c]^(m+1))
                 + c_i h k G[a|c-1_i]^(m+1)
  G[a|c+1_i]^m = (Q-C)_i G[a|c]^m + k (P-Q)_i G[a|c]^(m+1) + c_i k (G[a|c-1_i]^m - k G[a|c-1_i]^(m+1))
                 + a_i h k G[a-1_i|c]^(m+1)

Leaves are the variables of LEAVES and F_0 .. F_L, the given G[0|0]^(m). Targets: every G[e|f]^(0) with
la <= |e| <= la+lb and lc <= |f| <= lc+ld.

A density-fitting shell of solid harmonics needs less. It is a derivative of an s function by its centre, of which the
terms in c_i k give multiples of r^2, which harmonics do not have, and Q = C (Ahlrichs, Phys. Chem. Chem. Phys. 6, 5119
(2004)): only k (P-Q)_i G[a|c]^(m+1) + a_i h k G[a-1_i|c]^(m+1) is left. The rule FITTED computes these in place of
G[a|c]; what the harmonics are made from them is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.eri.kernels.angular import Powers, cartesians, raised
from trnqc.gen import Value, Var
from trnqc.gen.graph import Graph, graph_of
from trnqc.gen.values import fma

BRA, KET = 0, 1
X, Y, Z = 0, 1, 2
# Which axis is reduced, in order of preference. Sides and axes interleaved: few values live; one side exhausted first:
# fewer values computed.
RULES = {
    "interleaved": ((KET, Z), (BRA, Z), (KET, Y), (BRA, Y), (KET, X), (BRA, X)),
    "mirrored": ((BRA, X), (KET, X), (BRA, Y), (KET, Y), (BRA, Z), (KET, Z)),
    "ket first": ((KET, Z), (KET, Y), (KET, X), (BRA, Z), (BRA, Y), (BRA, X)),
    "bra first": ((BRA, X), (BRA, Y), (BRA, Z), (KET, X), (KET, Y), (KET, Z)),
}
# One side exhausted first, and of its axes the one that leaves the fewest terms: a sixth fewer flops at (22|22).
FITTED = "fitted"
CHEAPEST = {"ket cheapest": KET, "bra cheapest": BRA, FITTED: KET}

# P-A and -h (P-Q); Q-C and k (P-Q); h, k and h k.
SHIFTS = {
    BRA: tuple((Var(f"PA_{i}"), Var(f"WP_{i}")) for i in "xyz"),
    KET: tuple((Var(f"QC_{i}"), Var(f"WQ_{i}")) for i in "xyz"),
}
HALVES = {BRA: Var("half_zeta"), KET: Var("half_eta")}
HALF_BOTH = Var("half_both")
LEAVES = (*(v for side in (BRA, KET) for pair in SHIFTS[side] for v in pair), *HALVES.values(), HALF_BOTH)


def fewest_flops(la: int, lb: int, lc: int, ld: int) -> str:
    """The rule that exhausts the side of lower angular momentum first."""
    return "ket cheapest" if la + lb >= lc + ld else "bra cheapest"


def choice(rule: str, powers: tuple[Powers, Powers]) -> tuple[int, int]:
    """Side and axis on which a rule of RULES or CHEAPEST reduces."""
    if rule in RULES:
        return next((side, axis) for side, axis in RULES[rule] if powers[side][axis])
    side = CHEAPEST[rule] if any(powers[CHEAPEST[rule]]) else 1 - CHEAPEST[rule]
    mine, other = powers[side], powers[1 - side]
    own = 0 if rule == FITTED and side == KET else 2
    return side, min((n for n in (Z, Y, X) if mine[n]), key=lambda n: own * (mine[n] > 1) + (other[n] > 0))


@dataclass(frozen=True)
class Recurrence:
    """nodes[(a, c, m)]: the value of an intermediate; boys: those needed of F_0, F_1, ..., by order; targets [e, f] in
    row-major order.
    """

    nodes: dict[tuple[Powers, Powers, int], Value]
    boys: dict[int, Value]
    targets: tuple[Value, ...]

    @property
    def graph(self) -> Graph:
        return graph_of(self.targets, tuple(self.nodes.values()), tuple(self.boys.values()))


def components(l: int, low: int) -> tuple[Powers, ...]:
    """Cartesian powers of the side (l low| of a class, all of l .. l + low in order: the e of [e0|."""
    return tuple(powers for total in range(l, l + low + 1) for powers in cartesians(total))


def recurrence(la: int, lb: int, lc: int, ld: int, rule: str) -> Recurrence:
    """The graph of a class under a rule of RULES or CHEAPEST."""
    nodes: dict[tuple[Powers, Powers, int], Value] = {}

    def node(a: Powers, c: Powers, m: int) -> Value:
        if (a, c, m) not in nodes:
            nodes[a, c, m] = reduced((a, c), m) if any(a + c) else Var(f"F_{m}")
        return nodes[a, c, m]

    def reduced(powers: tuple[Powers, Powers], m: int) -> Value:
        side, axis = choice(rule, powers)
        other = powers[1 - side]
        low = raised(powers[side], axis, -1)

        def at(mine: Powers, other: Powers, order: int) -> Value:
            return node(mine, other, order) if side == BRA else node(other, mine, order)

        near, far = SHIFTS[side][axis]
        fitted = rule == FITTED and side == KET
        if fitted:
            total = far * at(low, other, m + 1)
        else:
            total = fma(far, at(low, other, m + 1), near * at(low, other, m))
        if low[axis] and not fitted:
            half, lower = HALVES[side], raised(low, axis, -1)
            inner = at(lower, other, m) - half * at(lower, other, m + 1)
            total = fma(_times(half, low[axis]), inner, total)
        if other[axis]:
            total = fma(_times(HALF_BOTH, other[axis]), at(low, raised(other, axis, -1), m + 1), total)
        return total

    targets = tuple(node(a, c, 0) for a in components(la, lb) for c in components(lc, ld))
    orders = {m: v for (a, c, m), v in nodes.items() if not any(a + c)}
    return Recurrence(nodes, dict(sorted(orders.items())), targets)


def _times(value: Value, count: int) -> Value:
    return value if count == 1 else value * float(count)
