"""The vertical recurrence of electron repulsion integrals as a graph of values: from the Boys function to [e0|f0].

Obara and Saika, J. Chem. Phys. 84, 3963 (1986), eq. 39, raise one Cartesian power of a primitive integral [a0|c0], here
written [a|c]. With zeta and P of the bra, eta and Q of the ket, rho = zeta eta / (zeta + eta), W - P = -(rho / zeta)
(P - Q) and W - Q = (rho / eta) (P - Q):

  [a+1_i|c]^(m) = (P-A)_i [a|c]^(m) + (W-P)_i [a|c]^(m+1)
                  + a_i / (2 zeta) ([a-1_i|c]^(m) - (rho / zeta) [a-1_i|c]^(m+1))
                  + c_i / (2 (zeta + eta)) [a|c-1_i]^(m+1)

and the same for c with bra and ket exchanged. The graph is built on G^(m) = (2 rho)^m [a|c]^(m), because then no
coefficient depends on rho or on the operator. With h = 1 / (2 zeta) and k = 1 / (2 eta):

  G[a+1_i|c]^(m) = (P-A)_i G[a|c]^(m) - h (P-Q)_i G[a|c]^(m+1)
                   + a_i h (G[a-1_i|c]^(m) - h G[a-1_i|c]^(m+1)) + c_i h k G[a|c-1_i]^(m+1)
  G[a|c+1_i]^(m) = (Q-C)_i G[a|c]^(m) + k (P-Q)_i G[a|c]^(m+1)
                   + c_i k (G[a|c-1_i]^(m) - k G[a|c-1_i]^(m+1)) + a_i h k G[a-1_i|c]^(m+1)

The leaves are the coefficients in LEAVES and the Boys function values F_m = G[0|0]^(m). The targets are those of Head-
Gordon and Pople, J. Chem. Phys. 89, 5777 (1988): G[e|f]^(0) for all la <= |e| <= la + lb and lc <= |f| <= lc + ld.

A density-fitting shell of solid harmonics is a derivative of an s function with respect to its centre (Ahlrichs, Phys.
Chem. Chem. Phys. 6, 5119 (2004)). There Q = C, and the terms in c_i k only add multiples of r^2, which solid harmonics
project out. The rule FITTED leaves both out. Its Cartesian values differ from G[a|c], their solid harmonics do not:

  G[a|c+1_i] -> k (P-Q)_i G[a|c]^(m+1) + a_i h k G[a-1_i|c]^(m+1)
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.eri.kernels.angular import Powers, cartesians, raised
from trnqc.gen import Value, Var
from trnqc.gen.graph import Graph, graph_of
from trnqc.gen.values import fma

BRA, KET = 0, 1
X, Y, Z = 0, 1, 2
# A rule says which power of a and c the recurrence lowers: the first in its list that is not zero. Interleaved sides
# keep few values alive at once, which suits GPUs; exhausting one side first computes fewer values, which suits CPUs.
RULES = {
    "interleaved": ((KET, Z), (BRA, Z), (KET, Y), (BRA, Y), (KET, X), (BRA, X)),
    "mirrored": ((BRA, X), (KET, X), (BRA, Y), (KET, Y), (BRA, Z), (KET, Z)),
    "ket first": ((KET, Z), (KET, Y), (KET, X), (BRA, Z), (BRA, Y), (BRA, X)),
    "bra first": ((BRA, X), (BRA, Y), (BRA, Z), (KET, X), (KET, Y), (KET, Z)),
}
# The rule for density-fitting kets of solid harmonics; see the module's docstring.
FITTED = "fitted"
# Rules that exhaust one side first and lower the axis with the fewest terms: a sixth fewer flops at (22|22).
CHEAPEST = {"ket cheapest": KET, "bra cheapest": BRA, FITTED: KET}

# Coefficients of G^(m) and G^(m+1) by side and axis: P-A and -h (P-Q), Q-C and k (P-Q).
SHIFTS = {
    BRA: tuple((Var(f"PA_{i}"), Var(f"WP_{i}")) for i in "xyz"),
    KET: tuple((Var(f"QC_{i}"), Var(f"WQ_{i}")) for i in "xyz"),
}
# h and k.
HALVES = {BRA: Var("half_zeta"), KET: Var("half_eta")}
# h k.
HALF_BOTH = Var("half_both")
LEAVES = (*(v for side in (BRA, KET) for pair in SHIFTS[side] for v in pair), *HALVES.values(), HALF_BOTH)


def fewest_flops(la: int, lb: int, lc: int, ld: int) -> str:
    """Return the rule with the fewest flops, which exhausts the side of lower angular momentum first."""
    return "ket cheapest" if la + lb >= lc + ld else "bra cheapest"


def reduction(rule: str, powers: tuple[Powers, Powers]) -> tuple[int, int]:
    """Return the side and the axis whose power a rule of RULES or CHEAPEST lowers."""
    if rule in RULES:
        return next((side, axis) for side, axis in RULES[rule] if powers[side][axis])
    side = CHEAPEST[rule] if any(powers[CHEAPEST[rule]]) else 1 - CHEAPEST[rule]
    own, other = powers[side], powers[1 - side]
    # Terms with [a-1_i| are two products; the fitted rule has none of them.
    cost = 0 if rule == FITTED and side == KET else 2
    return side, min((n for n in (Z, Y, X) if own[n]), key=lambda n: cost * (own[n] > 1) + (other[n] > 0))


@dataclass(frozen=True)
class Recurrence:
    """The recurrence of a class: every intermediate G[a|c]^(m) by (a, c, m), the needed F_m by m, and the targets
    [e, f] in row-major order.
    """

    nodes: dict[tuple[Powers, Powers, int], Value]
    boys: dict[int, Value]
    targets: tuple[Value, ...]

    @property
    def graph(self) -> Graph:
        return graph_of(self.targets, tuple(self.nodes.values()), tuple(self.boys.values()))


def components(l: int, low: int) -> tuple[Powers, ...]:
    """Return the e of [e0| for a bra of shells l and low: all Cartesian powers of total l, ..., l + low, in order."""
    return tuple(powers for total in range(l, l + low + 1) for powers in cartesians(total))


def recurrence(la: int, lb: int, lc: int, ld: int, rule: str) -> Recurrence:
    """Build the graph of the class (la lb|lc ld) by a rule of RULES or CHEAPEST."""
    nodes: dict[tuple[Powers, Powers, int], Value] = {}

    def g(a: Powers, c: Powers, m: int) -> Value:
        if (a, c, m) not in nodes:
            nodes[a, c, m] = lowered((a, c), m) if any(a + c) else Var(f"F_{m}")
        return nodes[a, c, m]

    def lowered(powers: tuple[Powers, Powers], m: int) -> Value:
        """Express G[a|c]^(m) by lower powers; the letters are those of the equation for a, for either side."""
        side, i = reduction(rule, powers)
        c = powers[1 - side]
        a = raised(powers[side], i, -1)

        def of(a: Powers, c: Powers, m: int) -> Value:
            return g(a, c, m) if side == BRA else g(c, a, m)

        pa, wp = SHIFTS[side][i]
        h = HALVES[side]
        if rule == FITTED and side == KET:
            total = wp * of(a, c, m + 1)
        else:
            total = fma(wp, of(a, c, m + 1), pa * of(a, c, m))
            if a[i]:
                below = raised(a, i, -1)
                total = fma(_times(h, a[i]), of(below, c, m) - h * of(below, c, m + 1), total)
        if c[i]:
            total = fma(_times(HALF_BOTH, c[i]), of(a, raised(c, i, -1), m + 1), total)
        return total

    targets = tuple(g(e, f, 0) for e in components(la, lb) for f in components(lc, ld))
    orders = {m: v for (a, c, m), v in nodes.items() if not any(a + c)}
    return Recurrence(nodes, dict(sorted(orders.items())), targets)


def _times(value: Value, count: int) -> Value:
    return value if count == 1 else value * float(count)
