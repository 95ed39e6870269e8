"""The vertical recurrence of one primitive quartet as a function of a program, all of it in straight-line code.

Both tiers, `straight` here and `columns.vertical`, take a class's (la, lb, lc, ld) and `add`, and return a function
with the parameters of `parameters`, so that a kernel calls either:

  PA_x, WP_x, PA_y, WP_y, PA_z, WP_z, QC_x, WQ_x, ... WQ_z, half_zeta, half_eta, half_both   f64, see `recurrence`
  boys     local f64 [la+lb+lc+ld+1]: G[0|0]^(m), all prefactors and contraction coefficients included
  h        f64 [n_e, n_f], of lanes: the targets G[e|f]^(0) are added (`add`) or stored, in the order of `components`;
           global, or as `space` says
  scratch  global f64 lanes, as much as the tier says it needs; it may hold anything before and after
"""

from __future__ import annotations

from trnqc.eri.kernels.recurrence import LEAVES, components, fewest_flops, recurrence
from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.schedule import best_of
from trnqc.gen.sequence import straight_line

# Nodes of a graph that is ordered for few live values even where nothing is asked for.
SMALL = 400


def parameters(la: int, lb: int, lc: int, ld: int, space: str = "global") -> tuple[Value | Array, ...]:
    """Of a vertical function: LEAVES, boys, h in the given space, scratch."""
    boys = Array("boys", "f64", (la + lb + lc + ld + 1,), "local")
    h = Array("h", "f64", (len(components(la, lb)), len(components(lc, ld))), space, lanes=space != "local")
    return (*LEAVES, boys, h, Array("scratch", "f64", (None,), lanes=True))


def straight(
    la: int, lb: int, lc: int, ld: int, add: bool, *,
    rule: str = "", method: str = "", draws: int = 1, space: str = "global",
) -> st.Function:  # fmt: skip
    """A vertical function without loops or scratch.

    rule: by default that of fewest flops, for CPUs. method, draws: of `best_of`; by default, and if the rule is too, a
    large graph keeps the order of its targets, in which CPUs are as fast and which takes no seconds to find.
    """
    system = recurrence(la, lb, lc, ld, rule or fewest_flops(la, lb, lc, ld))
    given = parameters(la, lb, lc, ld, space)
    boys, h = given[-3], given[-2]
    assert isinstance(boys, Array) and isinstance(h, Array)
    graph, n_f = system.graph, len(components(lc, ld))
    place = {target: h[divmod(n, n_f)] for n, target in enumerate(system.targets)}
    put = st.accumulate if add else st.store
    method = method or ("listed" if not rule and len(graph) >= SMALL else "target")
    lines, _ = straight_line(graph, best_of(graph, method, draws), finish=lambda node, held: put(place[node], held))
    reads = [st.Let(f, boys[m]) for m, f in system.boys.items()]
    done = [put(place[f], f) for f in system.boys.values() if f in place]
    name = f"vertical_{la}{lb}{lc}{ld}_{'add' if add else 'store'}"
    return st.Function(name, given, st.block(reads, done, lines), title=f"[e0|f0] of a primitive ({la}{lb}|{lc}{ld})")
